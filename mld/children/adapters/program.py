"""Whether the program of ``executableName`` can be started here; no program is started.

Checks for common mistakes only: the file is missing or not executable, its first line names a
missing interpreter, or it is the daemon itself. Java finds them only with its first lease.

Source: execve(2), execvp(3); ProcessBuilder of the JDK, which runs a file without ``#!`` by
``/bin/sh``.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.config.child_command import (
    SPARK_PROGRAM,
    PythonStart,
    python_start,
    spark_command,
)
from kcl_mld.config.config import Kclpy
from kcl_mld.config.findings import Problem, Severity
from kcl_mld.kernel.adapters.system import system_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: Bytes of a script that the kernel reads. Source: BINPRM_BUF_SIZE of Linux.
_HEAD_BYTES = 256
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
#: Options after which the next argument is still the script.
_HARMLESS = re.compile(r"-[uOBEIsPqv]+")
_SPARK_USAGE = f"write executableName = {SPARK_PROGRAM} [--properties FILE] app.py"
_CORRECT = "correct the name, or put the file there"
_DAEMON = "kcl-mld"
#: Text at the start of a console script that is the daemon itself.
_DAEMON_MARK = b"kcl_mld.cli"


@dataclass(frozen=True, slots=True)
class StartPlace:
    """Where a child will be started.

    Attributes:
        environ: environment; only PATH matters.
    """

    environ: Mapping[str, str]
    folder: Path

    def candidates(self, name: str) -> list[Path]:
        """The files that a name may refer to, in search order."""
        if "/" in name:
            return [self.folder / name]
        # An empty part of PATH is the working directory.
        return [self.folder / part / name for part in os.get_exec_path(self.environ)]

    def find(self, name: str) -> Path | None:
        """The file that is started for a name, or None."""
        return next((path for path in self.candidates(name) if _may(path, os.X_OK)), None)


def examine_child(
    argv: Sequence[str], around: StartPlace, kclpy: Kclpy = Kclpy.AUTO
) -> tuple[Problem, ...]:
    """Problems with the command line of a child.

    Args:
        argv: program and arguments, not empty.
        kclpy: with BUNDLED, Python must not ignore ``PYTHONPATH``.
    """
    words = _after_env([*map(system_text, argv)])
    if _is_daemon(words, around):
        text = f"{words[0]} is the daemon itself, not a child program"
        return (_error(text, f"did you mean {SPARK_PROGRAM}?"),)
    problems = examine(argv, around)
    if kclpy is Kclpy.BUNDLED and not any(one.severity is Severity.ERROR for one in problems):
        problems += tuple(_isolation_problems(argv, around))
    return problems


def _isolation_problems(argv: Sequence[str], around: StartPlace) -> Iterator[Problem]:
    found = python_start_of([*map(system_text, argv)], around)
    if found is not None and (option := found[1].isolation) is not None:
        text = f"{found[1].interpreter} {option} ignores PYTHONPATH, by which kclpy = bundled works"
        yield _error(text, f"leave {option} out, or write kclpy = auto")


def python_start_of(
    argv: Sequence[str], around: StartPlace
) -> tuple[Sequence[str], PythonStart] | None:
    """How a command line starts Python, without the ``env`` prefix; None if it does not.

    Args:
        argv: program and arguments, not empty.
    """
    words = _after_env(argv)
    path = around.find(words[0]) if words else None
    if path is None:
        return None
    head = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    start = python_start(words, str(path), head)
    return None if start is None else (argv[: len(argv) - len(words)], start)


def examine(argv: Sequence[str], around: StartPlace) -> tuple[Problem, ...]:
    """Problems with the command line of any program, the daemon included.

    The arguments are those of :func:`examine_child`.
    """
    argv = [*map(system_text, argv)]
    found = around.find(argv[0])
    if found is None:
        return (_not_startable(argv[0], around),)
    return tuple([*_head_problems(found, argv[0], around)] or _script_problems(argv, around))


def _may(path: Path, access: int) -> bool:
    return os.path.isfile(path) and os.access(path, access)


def _not_startable(name: str, around: StartPlace) -> Problem:
    for path in around.candidates(name):
        if os.path.isdir(path):
            return _error(f"{name} is a directory", "name the program in it")
        if os.path.exists(path):
            by_python = f", or write executableName = python3 {name}"
            more = by_python if name.endswith(".py") else ""
            return _error(f"{name} is not executable", f"run chmod +x {path}{more}")
    if "/" in name:
        return _error(f"{name} does not exist{_where(name, around)}", _CORRECT)
    return _error(f"{name} is not found in PATH", _here(name, around))


def _where(name: str, around: StartPlace) -> str:
    if name.startswith("/"):
        return ""
    return f" (relative to the working directory {around.folder})"


def _here(name: str, around: StartPlace) -> str:
    path, dotted = around.folder / name, f"./{name}"
    if _may(path, os.X_OK):
        return f"{dotted} is here: write executableName = {dotted}"
    if _may(path, os.F_OK):
        by_python = f"write executableName = python3 {name}, or " if name.endswith(".py") else ""
        return f"{dotted} is here: {by_python}chmod +x it and write executableName = {dotted}"
    return _CORRECT


def _head_problems(path: Path, name: str, around: StartPlace) -> Iterator[Problem]:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:  # a program may be executable and unreadable
        return
    if not head.startswith(b"#!"):
        if b"\0" not in head:
            yield Problem(
                Severity.WARNING,
                f"{name} has no #! line: /bin/sh runs it, as in Java",
                "begin it with #!/usr/bin/env python3, or the like",
            )
        return
    line = head[2:].partition(b"\n")[0].decode("utf-8", "replace")
    interpreter, _, argument = line.strip(" \t").replace("\t", " ").partition(" ")
    by_env = interpreter.endswith("/env")
    if by_env and argument.startswith("-"):  # env splits its options by its own rules
        return
    if line.endswith("\r"):
        yield _error(
            f"the first line of {name} ends with CR LF, so that no {interpreter.strip()} is found",
            f"give the file Unix line ends: sed -i 's/\\r$//' {path}",
        )
    elif not _may(around.folder / interpreter, os.X_OK):
        yield _error(
            f"the interpreter of {name} does not exist or is not executable: {interpreter}",
            "#!/usr/bin/env python3, or the like",
        )
    elif by_env and around.find(wanted := argument.strip(" ")) is None:
        yield _error(
            f"{name} needs {wanted}, which is not found in PATH",
            f"install {wanted}, or correct the name",
        )


def _after_env(argv: Sequence[str]) -> Sequence[str]:
    """The command line without ``env`` and its assignments."""
    if Path(argv[0]).name != "env":
        return argv
    return list(dropwhile(lambda word: "=" in word, argv[1:]))


def _script_problems(argv: Sequence[str], around: StartPlace) -> Iterator[Problem]:
    """Problems with the script that a command passes to Python, or with a Spark app."""
    words = _after_env(argv)
    if (command := spark_command(argv)) is not None:
        if command.has_file and command.properties is None:
            yield _error("--properties names no file", _SPARK_USAGE)
        elif command.app is None:
            yield _error(f"{SPARK_PROGRAM} is given no app", _SPARK_USAGE)
        else:
            yield from _unreadable("the properties file", command.properties, around)
            yield from _unreadable("the app", command.app, around)
    elif words and _PYTHON.fullmatch(Path(words[0]).name):
        script = next((word for word in words[1:] if not _HARMLESS.fullmatch(word)), "")
        if script.endswith(".py") and not os.path.exists(around.folder / script):
            text = f"{script}, which {words[0]} is to run, does not exist{_where(script, around)}"
            yield _error(text, _CORRECT)


def _unreadable(what: str, name: str | None, around: StartPlace) -> Iterator[Problem]:
    if name is not None and not _may(around.folder / name, os.R_OK):
        is_folder = os.path.isdir(around.folder / name)
        why = "is a directory" if is_folder else "is not there or can't be read"
        advice = "name a file in it" if is_folder else _CORRECT
        yield _error(f"{what} {name} {why}{_where(name, around)}", advice)


def _is_daemon(words: Sequence[str], around: StartPlace) -> bool:
    """True for our own command, by its name and its text: other programs may have the same name."""
    if not words or Path(words[0]).name != _DAEMON or (path := around.find(words[0])) is None:
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        return _DAEMON_MARK in file.read(4 * _HEAD_BYTES)
    return False


def _error(text: str, suggestion: str = "") -> Problem:
    return Problem(Severity.ERROR, text, suggestion)
