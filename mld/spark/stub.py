"""The process that the daemon starts for a shard: hands its pipes to the Spark host and waits.

``kcl-mld-spark [--properties FILE] app.py [args…]``. It never reads a byte of the
protocol, and writes keep-alives only, until the host is there: the host serves descriptors 0 and 1 itself, and each end sees the other's death by the
socket between them. Its exit code and its last line are what the host said last.

Standard library only: one of these lives per shard.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from kcl_mld.spark import host_socket, stub_wait
from kcl_mld.spark.keep_alive import TIMEOUT_KEY, interval_s
from kcl_mld.spark.stub_wait import BROKEN, end

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

USAGE = "usage: kcl-mld-spark [--properties FILE] app.py [args…]"
#: The options for the file, which are those of ``kcl-mld``.
FILE_OPTIONS = ("-p", "--properties", "--properties-file")
#: The other lines of the help: what is no child.
MORE = "       kcl-mld-spark history | optimize | vacuum | new-epoch [--help] TABLE\n"
MORE += "       kcl-mld-spark warm [--properties FILE]"
#: Makes the file of Spark's classes.
WARM = "warm"
#: Words that look after a table; an app of that name is called ``./history``.
UPKEEP = ("history", "optimize", "vacuum", "new-epoch")
#: Our module that serves the shards; tests put theirs in its place.
HOST_MODULE = "kcl_mld.spark.host"
#: What the environments of one worker's children differ in.
OWN_FACTS = ("KCL_SHARD_ID", "KCL_STREAM_NAME")
#: As in ``kcl_mld.spark.errors``: an error of usage.
_WRONG = 2


def main(argv: Sequence[str] | None = None, *, host_module: str = HOST_MODULE) -> NoReturn:
    """Run the stub; ends the process.

    Args:
        argv: arguments; None = those of the process.
        host_module: what to start if there is no host.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback for Ctrl-C
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in (["--help"], ["-h"]):
        sys.stderr.write(f"{USAGE}\n{MORE}\n")
        sys.exit(0)
    if arguments[:1] and arguments[0] in UPKEEP:
        sys.exit(_look_after(arguments))
    if arguments[:1] == [WARM]:
        from kcl_mld.spark.server import warm  # noqa: PLC0415 - not for a child

        sys.exit(warm.main(arguments))
    try:
        os.getcwd()
    except OSError:  # neither Java nor a relative path would work
        end(_WRONG, "the working directory is gone: start the daemon again where there is one")
    properties, app, args = _parse(arguments)
    how = host_command(host_module, properties, app, args)
    hand_over(how, [properties or "", app, *args])


def _look_after(arguments: Sequence[str]) -> int:
    """Run a command that is no child; its exit code."""
    from kcl_mld.spark.errors import MissingPart  # noqa: PLC0415 - not for a child
    from kcl_mld.spark.table.upkeep_options import parse  # noqa: PLC0415

    parse(arguments)  # its help needs nothing else
    try:
        from kcl_mld.spark.table import upkeep  # noqa: PLC0415 - it needs deltalake
    except MissingPart as error:
        why = str(error)
    except ModuleNotFoundError as error:  # pyarrow, of the same extra
        why = f"{error.name} is missing: pip install 'kcl-mld[spark]'"
    else:
        return upkeep.main(arguments)
    sys.stderr.write(f"kcl-mld-spark {arguments[0]}: {why}\n")
    return MissingPart.exit_code


def hand_over(host: Sequence[str], words: Sequence[str]) -> NoReturn:
    """Hand descriptors 0, 1 and 2 to the host and wait for its exit notice.

    Args:
        words: tell this worker's hosts apart: file, app, arguments.
    """
    try:
        connection = connect(host, words)
    except OSError as error:
        end(BROKEN, f"the Spark host can't be reached: {error}")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)  # the host reads; we send keep-alives until it has answered
    connection.set_inheritable(True)
    numbers = [str(connection.fileno()), f"{keep_alive_s(os.environ, words[0] or None):g}"]
    waiting = [sys.executable, "-I", "-S", stub_wait.__file__, *numbers]
    os.execv(sys.executable, [*waiting, "kcl_mld.spark.stub", *words[1:]])  # noqa: S606


def connect(command: Sequence[str], words: Sequence[str]) -> socket.socket:
    """Find or start the worker's host and say hello.

    Args:
        words: tell this worker's hosts apart.

    Raises:
        OSError: the host can't be started or reached.
    """
    own = {name: os.environ[name] for name in OWN_FACTS if name in os.environ}
    hello = {"pid": os.getpid(), "environ": own}
    place = host_socket.place_of(os.environ, os.getppid(), [sys.executable, *words])
    line = json.dumps(hello).encode() + b"\n"
    return host_socket.attach(place, command, line, (0, 1, 2))


def host_command(module: str, properties: str | None, app: str, args: Sequence[str]) -> list[str]:
    """How a host is started."""
    options = ["--properties", properties] if properties else []
    return [*_python(module), *options, app, *args]


def command(app: str, args: Sequence[str]) -> list[str]:
    """How an app's own process becomes its stub."""
    return [*_python("kcl_mld.spark.stub"), app, *args]


def keep_alive_s(environ: Mapping[str, str], properties: str | None) -> float:
    """How often a keep-alive is due, in s; the host reads it properly."""
    return interval_s(environ, _written(properties, TIMEOUT_KEY))


def _written(properties: str | None, key: str) -> str | None:
    """The last value of a key in a file; no escapes, no continued lines."""
    found = None
    if properties is not None:
        with open(properties, encoding="iso-8859-1") as file:
            for line in map(str.strip, file):
                if line.startswith(key):
                    found = line[len(key) :].lstrip(" \t=:")
    return found


def _parse(arguments: list[str]) -> tuple[str | None, str, list[str]]:
    properties = None
    if arguments and arguments[0] in FILE_OPTIONS:
        if len(arguments) < 2:
            end(_WRONG, USAGE)
        properties = os.path.abspath(arguments[1])
        if not os.access(properties, os.R_OK):
            end(_WRONG, f"the properties file {properties} can't be read")
        del arguments[:2]
    if not arguments or arguments[0].startswith("-"):
        end(_WRONG, USAGE)
    app = os.path.abspath(arguments[0])
    if not (os.path.isfile(app) and os.access(app, os.R_OK)):
        end(_WRONG, f"the app {app} is not there or can't be read")
    return properties, app, arguments[1:]


def _python(module: str) -> list[str]:
    """A Python that runs a module; the working directory must not hide a package."""
    return [sys.executable, "-P", "-m", module]


if __name__ == "__main__":
    main()
