"""Whether the program of ``executableName`` can be started here, and if not, what was meant.

Looks where the launcher of children looks: a name with a slash is a path from the working
directory, any other is found by PATH only, and the kernel reads the first line of a script. No
program is started. What surely fails is an error; Java would notice it with its first lease.

Source: execve(2), execvp(3); ProcessBuilder of the JDK, which runs a file without ``#!`` by
``/bin/sh``; env(1) of the GNU coreutils.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING

from mld.adapters.system_text import system_text
from mld.model.findings import Problem, Severity
from mld.model.spark.command import SPARK_PROGRAM, spark_command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mld.model.spark.command import SparkCommand

#: As much of a script as the kernel looks at. Source: BINPRM_BUF_SIZE of Linux.
_HEAD_BYTES = 256
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*|node|nodejs|ruby|perl|sh|bash|dash|dotnet")
_SHELL = re.compile(r"(ba|da)?sh")
_NODE = re.compile(r"node|nodejs")
#: What it adds to the name of a script that is not there.
_NODE_ENDINGS = (".js", ".json", ".node")
_SCRIPT = re.compile(r".*(/.*|\.(py|js|mjs|cjs|rb|pl|sh|dll))")
_SPARK_USAGE = f"write executableName = {SPARK_PROGRAM} [--properties FILE] app.py"
_DAEMON = "kcl-mld"
#: In the head of a console script that is the daemon itself.
_DAEMON_MARK = b"mld.cli"
_NO_CHILD = "is the daemon itself, not a child program"
#: Options of interpreters after which the next argument is still the script.
_HARMLESS = re.compile(r"-[uOBEIsPqv]+")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a child will be started.

    Attributes:
        environ: environment; only PATH and HOME matter.
        folder: working directory.
        beside: folder of the properties file, for a hint.
    """

    environ: Mapping[str, str]
    folder: Path
    beside: Path | None = None

    def candidates(self, name: str) -> list[Path]:
        """The files that a name may mean, in the order in which they are tried."""
        if "/" in name:
            return [self.folder / name]
        # An empty part of PATH is the working directory.
        return [self.folder / part / name for part in os.get_exec_path(self.environ)]

    def find(self, name: str) -> Path | None:
        """The file that is started for a name, or None."""
        return next((path for path in self.candidates(name) if _is_startable(path)), None)


def examine_child(argv: Sequence[str], around: Surroundings) -> tuple[Problem, ...]:
    """What is wrong with the command line of a child.

    Args:
        argv: program and arguments, not empty.
        around: where it would be started.
    """
    words = _after_env([*map(system_text, argv)])
    if _is_daemon(words, around):
        return (_error(f"{words[0]} {_NO_CHILD}", f"did you mean {SPARK_PROGRAM}?"),)
    return examine(argv, around)


def examine(argv: Sequence[str], around: Surroundings) -> tuple[Problem, ...]:
    """What is wrong with the command line of any program, a daemon as well.

    The arguments are those of :func:`examine_child`.
    """
    argv = [*map(system_text, argv)]
    found = around.find(argv[0])
    if found is None:
        return (_not_startable(argv, around),)
    problems = [*_head_problems(found, argv[0], around)]
    if not problems and Path(argv[0]).name == "env":
        problems += _env_problems(_after_env(argv), argv[0], around)
    return tuple(problems or _script_problems(argv, around))


def _is_startable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except (OSError, ValueError):  # ValueError: a NUL byte
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _is_file(path: Path) -> bool:
    return _exists(path) and path.is_file()


def _is_directory(path: Path) -> bool:
    return _exists(path) and path.is_dir()


# --- not found ------------------------------------------------------------------------------------


def _not_startable(argv: Sequence[str], around: Surroundings) -> Problem:
    name = argv[0]
    there = next((path for path in around.candidates(name) if _exists(path)), None)
    if there is not None:
        return _not_executable(name, there)
    if "/" in name:
        what = f"{name} does not exist"
        if not name.startswith("/"):
            what += f" (relative to the working directory {around.folder})"
    else:
        what = f"{name} is not found in PATH"
    return _error(what, _what_was_meant(argv, around))


def _not_executable(name: str, path: Path) -> Problem:
    if path.is_dir():
        return _error(f"{name} is a directory", "name the program in it")
    return _error(f"{name} is not executable", f"run chmod +x {path}{_or_by_python(name)}")


def _or_by_python(name: str) -> str:
    return f", or write executableName = python3 {name}" if name.endswith(".py") else ""


def _what_was_meant(argv: Sequence[str], around: Surroundings) -> str:
    name = argv[0]
    if name.startswith("~"):
        return f"~ is not expanded: write {os.path.expanduser(name)}"
    if "$" in name:
        return "variables are not expanded: write the path"
    if "/" not in name and (around.folder / name).is_file():
        return _here(name, around.folder / name)
    for end in range(2, len(argv) + 1):
        with_blanks = " ".join(argv[:end])
        if _exists(around.folder / with_blanks):
            return f"{with_blanks!r} exists, but the text is split on spaces: use a link without"
    if around.beside is not None and _is_file(around.beside / name):
        beside = (around.beside / name).resolve()
        return f"write {beside}, which is beside the properties file"
    close = _similar(name, around)
    return f"did you mean {close}?" if close else "correct the name, or put the file there"


def _here(name: str, path: Path) -> str:
    dotted = f"./{name}"
    if os.access(path, os.X_OK):
        return f"{dotted} is here: write executableName = {dotted}"
    by_python = f"write executableName = python3 {name}, or " if name.endswith(".py") else ""
    return f"{dotted} is here: {by_python}chmod +x it and write executableName = {dotted}"


def _similar(name: str, around: Surroundings) -> str | None:
    if "/" in name:
        folders = {(around.folder / name).parent: name[: name.rindex("/") + 1]}
    else:
        folders = {around.folder / part: "" for part in os.get_exec_path(around.environ)}
        folders[around.folder] = "./"
    known: dict[str, str] = {}
    for folder, prefix in folders.items():
        for entry in _entries(folder):
            if f"{prefix}{entry}" != name:  # a link that leads nowhere is listed, too
                known.setdefault(entry, prefix)
    close = difflib.get_close_matches(Path(name).name, known, n=1, cutoff=0.8)
    return f"{known[close[0]]}{close[0]}" if close else None


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (OSError, ValueError):
        return []


# --- the first line -------------------------------------------------------------------------------


def _head_problems(path: Path, name: str, around: Surroundings) -> Iterator[Problem]:
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:  # a program may be executable and unreadable
        return
    line = head.partition(b"\n")[0]
    if not head:
        yield _error(f"{name} is empty")
    elif head.startswith(b"\xef\xbb\xbf#!"):
        yield _error(f"{name} begins with a byte-order mark, so that its #! line is not seen")
    elif not head.startswith(b"#!"):
        if not _is_binary(head):
            yield Problem(
                Severity.WARNING,
                f"{name} has no #! line: /bin/sh runs it, as in Java",
                "begin it with #!/usr/bin/env python3, or the like",
            )
    else:
        yield from _shebang_problems(line.decode("utf-8", "replace"), name, path, around)


def _is_binary(head: bytes) -> bool:
    return b"\0" in head


def _shebang_problems(line: str, name: str, path: Path, around: Surroundings) -> Iterator[Problem]:
    interpreter, _, rest = line[2:].strip(" \t").replace("\t", " ").partition(" ")
    argument = rest.strip(" ")
    is_env = interpreter.endswith("/env")
    splits = is_env and re.match(r"-S|--split-string", argument)
    if line.endswith("\r") and not splits:
        yield _error(
            f"the first line of {name} ends with CR LF, so that no {interpreter.strip()} is found",
            f"give the file Unix line ends: sed -i 's/\\r$//' {path}",
        )
    elif not interpreter.strip():
        yield _error(f"the #! line of {name} names no interpreter", "#!/usr/bin/env python3")
    elif not _is_startable(around.folder / interpreter):
        yield _error(
            f"the interpreter of {name} does not exist or is not executable: {interpreter}",
            "#!/usr/bin/env python3, or the like",
        )
    elif splits:
        words = argument.removeprefix("-S").removeprefix("--split-string").lstrip("=").split()
        yield from _env_problems(_after_env(["env", *words]), name, around)
    elif is_env:
        # The kernel hands over the rest of the line as one argument.
        if " " in argument and not argument.startswith("-"):
            yield _error(
                f"the #! line of {name} asks env for a program {argument!r}",
                f"write {interpreter} -S {argument}",
            )
        else:
            yield from _env_problems([argument], name, around)


def _after_env(argv: Sequence[str]) -> Sequence[str]:
    """The command line without ``env`` and its assignments."""
    if Path(argv[0]).name != "env":
        return argv
    return list(dropwhile(lambda word: "=" in word, argv[1:]))


def _env_problems(words: Sequence[str], name: str, around: Surroundings) -> Iterator[Problem]:
    wanted = words[0] if words else ""
    if not wanted or wanted.startswith("-") or around.find(wanted) is not None:
        return
    close = _similar(wanted, around)
    advice = f"did you mean {close}?" if close else f"install {wanted}, or correct the name"
    yield _error(f"{name} needs {wanted}, which is not found in PATH", advice)


# --- a script given to an interpreter -------------------------------------------------------------


def _script_problems(argv: Sequence[str], around: Surroundings) -> Iterator[Problem]:
    words = list(_after_env(argv))
    if (command := spark_command(argv)) is not None:
        yield from _spark_problems(command, around)
        return
    if not words or not _INTERPRETER.fullmatch(Path(words[0]).name):
        return
    script = next((word for word in words[1:] if not _HARMLESS.fullmatch(word)), "")
    if script.startswith("-") or not _SCRIPT.fullmatch(script):
        return
    places = [around.folder / script]
    if _SHELL.fullmatch(Path(words[0]).name):  # a shell looks for a script in PATH, too
        places += around.candidates(script)
    if _NODE.fullmatch(Path(words[0]).name):
        places += [around.folder / f"{script}{ending}" for ending in _NODE_ENDINGS]
    if any(map(_exists, places)):
        return
    why = f"{script}, which {words[0]} is to run, does not exist"
    if not script.startswith("/"):
        why += f" (relative to the working directory {around.folder})"
    yield _error(why, _what_was_meant([script if "/" in script else f"./{script}"], around))


def _is_daemon(words: Sequence[str], around: Surroundings) -> bool:
    """True for our own command, by its name and its text: others may have that name, too."""
    if not words or Path(words[0]).name != _DAEMON or (path := around.find(words[0])) is None:
        return False
    with contextlib.suppress(OSError), path.open("rb") as file:
        return _DAEMON_MARK in file.read(4 * _HEAD_BYTES)
    return False


def _spark_problems(command: SparkCommand, around: Surroundings) -> Iterator[Problem]:
    """Each shard's child would tell it by itself."""
    if command.has_file and command.properties is None:
        yield _error("--properties names no file", _SPARK_USAGE)
        return
    if command.app is None:
        yield _error(f"{SPARK_PROGRAM} is given no app", _SPARK_USAGE)
        return
    for what, name in (("the properties file", command.properties), ("the app", command.app)):
        if name is None or _is_readable(around.folder / name):
            continue
        where = (
            "" if name.startswith("/") else f" (relative to the working directory {around.folder})"
        )
        if _is_directory(around.folder / name):
            yield _error(f"{what} {name} is a directory{where}", "name a file in it")
            continue
        why = f"{what} {name} is not there or can't be read{where}"
        yield _error(why, _what_was_meant([name if "/" in name else f"./{name}"], around))


def _is_readable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.R_OK)
    except (OSError, ValueError):
        return False


def _error(text: str, suggestion: str = "") -> Problem:
    return Problem(Severity.ERROR, text, suggestion)
