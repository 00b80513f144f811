"""The daemon's own command line: Java's forms and ours, checked before anything is read.

Java takes a token that it doesn't know for a file name, ``--help`` and ``-p=x`` among them; here
those are what they look like, and an unknown option is an error.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.overrides import OVERRIDE_OPTIONS, takes_overrides
from kcl_mld.cli.run_options import LEVELS, RunOptions
from kcl_mld.kernel.model.masking import brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.ops.rules.java_command import JavaLaunch

#: Names of the option for the properties file; Java's daemon knows the first and the third.
_FILE_OPTIONS = ("-p", "--properties", "--properties-file")
#: Stands for ``--http`` where a command line has none, as in an image.
HTTP_VARIABLE = "KCL_MLD_HTTP"
#: The package whose name others use, too.


class RepeatedOptionError(click.UsageError):
    """An option that may be given once is repeated; reported without usage, as in Java."""


class RunCommand(click.Command):
    """Expands ``@FILE`` before options are parsed, like the Java daemon."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Replace every ``@FILE`` by the lines of the file, then parse."""
        return super().parse_args(
            ctx, args if ctx.resilient_parsing else expand_argument_files(args)
        )


def expand_argument_files(args: list[str]) -> list[str]:
    """Each ``@FILE`` becomes the lines of FILE, one argument a line; blank and ``#`` lines don't.

    Raises:
        click.UsageError: a file cannot be read.
    """
    expanded: list[str] = []
    for arg in args:
        if not arg.startswith("@"):
            expanded.append(arg)
            continue
        try:
            text = Path(arg[1:]).read_text("utf-8-sig")
            if "\0" in text:
                raise click.UsageError(
                    f"The file {arg[1:]} contains the character NUL, which no argument may have"
                )
        except OSError as error:
            why = f"{error.strerror}; {arg} stands for the arguments in that file"
            raise click.UsageError(f"Could not read file {arg[1:]}: {why}") from None
        except UnicodeDecodeError as error:
            raise click.UsageError(f"Could not read file {arg[1:]}: no UTF-8: {error}") from None
        expanded += [
            line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")
        ]
    return expanded


def parse_address(
    _ctx: click.Context, _param: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """``HOST:PORT`` or ``[IPv6]:PORT`` as a pair.

    Raises:
        click.BadParameter: another form, or no port 0..65535.
    """
    if not text:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    is_bracketed = host.startswith("[") and host.endswith("]")
    valid_port = port.isascii() and port.isdigit() and len(port) <= 5
    valid_port = valid_port and int(port) <= 65535
    if not colon or not bare or not valid_port or (":" in host and not is_bracketed):
        raise click.BadParameter(f"{brief(text)!r} is not HOST:PORT, such as 127.0.0.1:8080")
    return bare, int(port)


def choose_properties_file(
    options: tuple[str, ...], positional: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The file to use and the warnings, with the Java daemon's messages.

    Args:
        options: values of ``-p`` and its other names.
        positional: everything that is no option.

    Raises:
        click.UsageError: none, an empty one, or too many.
    """
    if len(options) > 1:
        raise RepeatedOptionError("Can only specify option -p once.")
    if len(positional) > 1:
        listed = ", ".join(positional)
        raise click.UsageError(
            f"Expected a single argument, but found multiple arguments.  Arguments: {listed}",
        )
    # The Java daemon reads -p=x as a file name; nobody means that.
    chosen = options[0].removeprefix("=") if options else "".join(positional)
    if not chosen:
        raise click.UsageError("Properties file missing, please provide a properties file")
    if options and positional:
        return chosen, ("Overriding the properties file with the --properties-file option",)
    return chosen, ()


def on_class_path(name: str, class_path: Iterable[str]) -> str:
    """The path of a file that Java looks for in the folders of its class path first.

    Jars are not looked into. As in Java an absolute path is in no folder, and one with ``..`` is in
    those alone that it does not leave.

    Returns:
        The name itself where no folder has it.
    """
    if not Path(name).is_absolute():
        for folder in class_path:
            path = Path(folder or ".", name)
            if path.is_file() and (
                ".." not in name or path.resolve().is_relative_to(Path(folder or ".").resolve())
            ):
                return str(path)
    return name


def takes_properties_file(
    *more: str, metavar: str = "[FILE]", is_required: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the parameter ``file``: the properties file, plain or behind ``-p``.

    Args:
        more: further names of the option.
        metavar: of the arguments that are no options, for the usage.
        is_required: False = the parameter may be None.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("files", nargs=-1, metavar=metavar, type=click.Path())
        @click.option(
            *_FILE_OPTIONS,
            *more,
            "properties",
            multiple=True,
            metavar="FILE",
            type=click.Path(),
            help="Properties file; overrides a plain FILE.",
        )
        @takes_overrides
        @functools.wraps(command)
        def with_file(
            *args: Any, files: tuple[str, ...], properties: tuple[str, ...], **options: Any
        ) -> Any:
            file = None
            if files or properties or is_required:
                file, warnings = choose_properties_file(properties, files)
                for warning in warnings:
                    click.echo(warning, err=True)
            return command(*args, file=file, **options)

        return with_file

    return decorate


def takes_file_and_names(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the parameters ``file``, plain or behind ``-p``, and ``names``, all other words.

    Args:
        what: the names are, for the usage.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @click.argument("words", nargs=-1, metavar=f"[FILE] {what}", type=click.Path())
        @click.option(
            *_FILE_OPTIONS,
            "properties",
            multiple=True,
            metavar="FILE",
            type=click.Path(),
            help=f"Properties file; every other word is one {what.strip('[].').lower()} then.",
        )
        @takes_overrides
        @functools.wraps(command)
        def with_names(
            *args: Any, words: tuple[str, ...], properties: tuple[str, ...], **options: Any
        ) -> Any:
            plain, names = ((), words) if properties else (words[:1], words[1:])
            file, _warnings = choose_properties_file(properties, plain)
            return command(*args, file=file, names=names, **options)

        return with_names

    return decorate


def takes_execute(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--execute``, without which it only plans."""
    text = "Do it; without it the command only says what it would."
    return click.option("--execute", is_flag=True, help=text)(command)


def _run(
    properties: tuple[str, ...],
    files: tuple[str, ...],
    log_configuration: str | None,
    log_level: str | None,
    log_format: str | None,
    http: tuple[str, int] | None,
    shown_as: str | None,
) -> int:
    file, warnings = choose_properties_file(properties, files)
    launch: JavaLaunch | None = click.get_current_context().obj
    replaces_1x = None
    if launch is not None:
        file = on_class_path(file, launch.class_path)
        warnings += launch.notes
        replaces_1x = launch.main_class if launch.is_1x else None
    options = RunOptions(
        properties_file=file,
        log_configuration=(log_configuration or "").removeprefix("=") or None,
        log_level=log_level,
        log_format=log_format,
        http=http,
        shown_as=shown_as,
        warnings=warnings,
        replaces_1x=replaces_1x,
    )
    from kcl_mld.cli.run import run

    return run(options)


run_command = RunCommand(
    "run",
    callback=_run,
    short_help="run the daemon",
    help="Run the daemon until it is stopped or a child fails.",
    epilog="@FILE is replaced by the lines of FILE, one argument per line.",
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            [*_FILE_OPTIONS, "properties"],
            multiple=True,
            metavar="FILE",
            type=click.Path(),
            help="Properties file; overrides a plain FILE.",
        ),
        *(click.Option([name], **attributes) for name, attributes in OVERRIDE_OPTIONS.items()),
        click.Option(
            ["-l", "--log-configuration"],
            metavar="FILE",
            type=click.Path(),
            help="logback XML, for its levels, or JSON for Python's dictConfig.",
        ),
        click.Option(["--log-level"], type=click.Choice(LEVELS, case_sensitive=False)),
        click.Option(
            ["--log-format"],
            type=click.Choice(("text", "json"), case_sensitive=False),
            help="Default: text on a terminal, JSON elsewhere.",
        ),
        click.Option(
            ["--http"],
            metavar="HOST:PORT",
            envvar=HTTP_VARIABLE,
            callback=parse_address,
            help=f"Serve /livez, /readyz, /leases and /metrics at this address. Also: {HTTP_VARIABLE}.",
        ),
        click.Option(["--shown-as"], metavar="FILE", hidden=True),
        click.Argument(["files"], nargs=-1, metavar="[FILE]", type=click.Path()),
    ],
)
