"""The command line ``kcl-mld``: the first token decides, a command's name is the command.

Anything else is for the daemon, as with Java's MultiLangDaemon: ``kcl-mld app.properties`` and
``kcl-mld --properties app.properties`` run it. A file called ``validate`` is ``./validate``.
Modules are imported when their command runs, so that the daemon starts fast.
"""

# ruff: noqa: E402 - the first thing is what Ctrl-C does

from __future__ import annotations

import signal
import threading

# While modules load, Ctrl-C ends the process as it ends a program in C, without a traceback of what
# was being imported. A parent's SIG_IGN stays, and so does what another program has set.
_is_ours = (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler
    and threading.current_thread() is threading.main_thread()
)
if _is_ours:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import atexit
import contextlib
import faulthandler
import importlib
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from kcl_mld import __version__
from kcl_mld.cli.arguments import CUTOFF
from kcl_mld.cli.options import RepeatedOptionError, run_command
from kcl_mld.config.findings import nearest
from kcl_mld.errors import Denied, MldError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from click.shell_completion import CompletionItem

    from kcl_mld.ops.rules.java_command import JavaLaunch

USAGE_EXIT = 2
#: Of a command whose output could not be written.
_UNWRITTEN_EXIT = 1
#: Exit code of a command whose reader has gone, as in ``| head -1``; that of programs in C.
_UNREAD_EXIT = 128 + signal.SIGPIPE
#: Command -> (module with a click command of that name, one line of help).
COMMANDS = {
    "run": ("kcl_mld.cli.options", "run the daemon; the default"),
    "validate": ("kcl_mld.cli.validate", "check a properties file and show effective values"),
    "properties": ("kcl_mld.cli.validate", "list every property, its default and its effect"),
    "print-command": (
        "kcl_mld.cli.print_command",
        "print the daemon's command line, like kclpy's launcher",
    ),
    "explain": ("kcl_mld.cli.explain", "say what each shard does and what is wrong"),
    "wait": ("kcl_mld.cli.explain", "wait until a fleet owns or has read all shards"),
    "console": ("kcl_mld.cli.console", "serve a page that shows a fleet"),
    "probe": ("kcl_mld.cli.probe", "ask a running worker whether it lives or is ready"),
    "doctor": ("kcl_mld.cli.doctor", "check credentials, stream, table and limits before a start"),
    "iam": ("kcl_mld.cli.iam", "print the IAM policy that an application needs"),
    "acceptance": ("kcl_mld.cli.acceptance", "prove on your AWS account that workers work there"),
    "leases": ("kcl_mld.cli.leases", "show, watch or change the leases of a fleet"),
    "workers": ("kcl_mld.cli.workers", "show the workers of a fleet"),
    "consumers": ("kcl_mld.cli.consumers", "show or remove consumers for enhanced fan-out"),
    "records": ("kcl_mld.cli.records", "show the next records of a shard"),
    "dead-letters": ("kcl_mld.cli.dead_letters", "show dead letters, and replay them"),
    "local": ("kcl_mld.cli.local", "run against an embedded AWS"),
    "simulate": ("kcl_mld.cli.simulate", "plan a fleet: balance, moves, failover, cost"),
    "conform": ("kcl_mld.cli.conform", "test an implementation of the multilang protocol"),
    "replay": ("kcl_mld.cli.replay", "play a recorded conversation to a child"),
}
_PROGRAM = "kcl-mld"
#: The form of a command's name, which properties files seldom have.
_WORD = re.compile(r"[A-Za-z][A-Za-z_-]*")
_GROUP_OPTIONS = {"--help", "-h", "--version"}
#: They are sent on purpose, to have an effect; SIGCHLD is the kernel's.
_RECEIVED = {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGCHLD}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the command that the arguments mean before them."""
        if not ctx.resilient_parsing:
            args = _with_command(args)
        elif args and args[0] not in COMMANDS:  # a shell completes what follows
            args = ["run", *args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; one whose output is not read any more ends in silence.

        click would end it with 1, as if it had failed.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Keep the interpreter from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _UNREAD_EXIT

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the first word, which may also be a file or an option of the daemon."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            with run_command.make_context("run", [], parent=ctx, resilient_parsing=True) as run:
                found = click.Command.shell_complete(self, ctx, incomplete)
                return found + run_command.shell_complete(run, incomplete)
        commands = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [CompletionItem(incomplete, type="file"), *commands]

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        """The command, or None when there is none of that name."""
        if name == "run":
            return run_command
        if name not in COMMANDS:
            return None
        module_name = COMMANDS[name][0]
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] == "kcl_mld":
                why = f"{name} is not part of this version"
            else:
                extra = "console" if name == "console" else "local"
                why = f"{name} needs the package {error.name}: pip install 'kcl-mld[{extra}]'"
            raise click.UsageError(why) from None
        command = getattr(module, name.replace("-", "_"))
        assert isinstance(command, click.Command), f"{module_name} exposes a click command"
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Help without importing every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=_PROGRAM)
def cli() -> None:
    """The MultiLangDaemon of the Kinesis Client Library, without a JVM.

    Without a command the daemon runs: kcl-mld --properties FILE. See kcl-mld run --help.
    """


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point of ``kcl-mld``; ends the process with the code of ``kcl_mld.errors`` or of a command.

    Args:
        argv: arguments without the program's name; None = those of the process.
    """
    run_program(lambda: dispatch(sys.argv[1:] if argv is None else list(argv)))


def run_program(program: Callable[[], int]) -> NoReturn:
    """Prepare the process for a program, run it, and end with the exit code that it returns."""
    open_standard_streams()
    if not faulthandler.is_enabled():
        with contextlib.suppress(AttributeError, OSError, ValueError, RuntimeError):
            faulthandler.enable()  # a crash in native code shows where each thread was
    end_process(program())


def dispatch(args: list[str], launch: JavaLaunch | None = None) -> int:
    """Run one command line and return its exit code.

    Args:
        launch: the command line of ``java`` that ``args`` were behind.
    """
    receive_signals()
    try:
        result = cli.main(args, prog_name=_PROGRAM, standalone_mode=False, obj=launch)
    except click.UsageError as error:
        return _fail_usage(error, args)
    except click.Abort:
        return 130
    except MldError as error:
        # Help on usage would not help here.
        click.echo(str(error), err=True)
        if isinstance(error, Denied):
            click.echo(_WHEN_DENIED, err=True)
        return error.exit_code
    except OSError as error:
        # Commands turn the errors that they expect of files and sockets into their own.
        return _fail_os(error)
    return result if isinstance(result, int) else 0


def _with_command(args: list[str]) -> list[str]:
    """The arguments with the command that they mean first.

    Raises:
        click.UsageError: the first word is no file, and resembles a command.
    """
    word = args[0] if args else ""
    if word in COMMANDS or word in _GROUP_OPTIONS:
        return args
    close = nearest(word.replace("_", "-"), COMMANDS, CUTOFF) if _WORD.fullmatch(word) else None
    if close is not None and not os.path.lexists(word):
        raise click.UsageError(
            f"{word!r} is neither a command nor a file. Did you mean kcl-mld {close}?"
        )
    return ["run", *args]


def open_standard_streams() -> None:
    """Put the null device where the starter left stdin, stdout or stderr closed.

    Else the next file or socket that is opened would get the number of stdout or stderr.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            assert opened == number, "the lower ones are open"
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def receive_signals() -> None:
    """Undo what the starter may have done to signals, here and for the programs started from here.

    A blocked SIGTERM would never stop anything. While SIGCHLD is ignored, the kernel throws the
    exit statuses of children away, and every failure looks like a success.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _RECEIVED)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _fail_os(error: OSError) -> int:
    """A disk is full, a file cannot be written: one line instead of a traceback."""
    with contextlib.suppress(OSError):
        subject = f"{error.filename}: " if error.filename else ""
        click.echo(f"kcl-mld: {subject}{error.strerror or error}", err=True)
    # Text that is still buffered for stdout would fail again when the interpreter ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 1


_WHEN_DENIED = (
    "kcl-mld doctor FILE says whose credentials these are; kcl-mld iam FILE --role viewer, or "
    "--role operator, prints what to allow"
)
#: The message of the second is a whole help text, with the usage; click has it since 8.2.
_WITHOUT_USAGE = (
    RepeatedOptionError,
    getattr(click.exceptions, "NoArgsIsHelpError", RepeatedOptionError),
)


def _fail_usage(error: click.UsageError, args: list[str]) -> int:
    """Report in the Java daemon's words, as other programs may search for them."""
    message, path = error.format_message(), None
    if isinstance(error, click.BadOptionUsage) and "requires an argument" in message:
        message = f"Expected a value after parameter {error.option_name}"
        path = _path_of(args)  # click's parser does not report this
    elif error.ctx is not None and not isinstance(error, _WITHOUT_USAGE):
        click.echo(error.ctx.get_usage())
    click.echo(message, err=True)
    if path is None:
        path = [_PROGRAM] if error.ctx is None else error.ctx.command_path.split()
    if not args or args[0] not in COMMANDS:
        path = [_PROGRAM]  # no command was typed: the help of all names them
    click.echo(f"For more information, run: {' '.join(path)} --help", err=True)
    return USAGE_EXIT


def _path_of(args: list[str]) -> list[str]:
    """The commands at the beginning of a command line, all of which are loaded."""
    path: list[str] = [_PROGRAM]
    command: click.Command = cli
    for word in args:
        if not isinstance(command, click.Group):
            break
        below = command.get_command(click.Context(command), word)
        if below is None:
            break
        path.append(word)
        command = below
    return path


if _is_ours:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def end_process(code: int) -> NoReturn:
    """End now, without waiting for daemon threads and their resources.

    Calls that hang are left to themselves, so at the end there are threads in the middle of TLS, a
    checksum or an answer. The usual way out takes the interpreter apart under them, then the C
    library runs the end of OpenSSL while they use it. That may crash, and a supervisor would read
    139 in place of the exit code.

    As at the usual end, threads that are no daemon threads end first, and what is registered with
    ``atexit`` is run, e.g. what closes log handlers. Neither has a public name: in an interpreter
    that lacks one, log handlers are closed and nothing else is.

    Args:
        code: exit code; 0 becomes 1 if standard output takes no more, 141 if nobody reads it.
    """
    try:
        getattr(threading, "_shutdown", _nothing)()
        getattr(atexit, "_run_exitfuncs", logging.shutdown)()  # it prints errors itself
        os._exit(_flushed(code))
    finally:  # e.g. an interrupt by a signal
        os._exit(code)


def _nothing() -> None:
    """Where there is no way to wait for threads."""


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone, and misses nothing
        code = code or _UNREAD_EXIT
    except (OSError, ValueError) as error:
        code = code or _UNWRITTEN_EXIT
        with contextlib.suppress(OSError, ValueError):
            print(f"kcl-mld: standard output: {error}", file=sys.stderr)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    return code
