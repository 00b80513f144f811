"""``executableName``: split as Java splits it, and whether it starts Python or the Spark child.

Source: execve(2) for first lines; ``python --help`` for options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.config.findings import Problem, Severity
from kcl_mld.config.overrides import first_variable, how_to_expand

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The console script.
SPARK_PROGRAM = "kcl-mld-spark"
#: As the daemon's own.
_FILE_OPTIONS = ("-p", "--properties", "--properties-file")
#: Variables that may differ between two children of a worker: a template has none of them.
SHARD_VARIABLES = (
    "KCL_SHARD_ID",
    "KCL_LEASE_KEY",
    "KCL_STREAM_NAME",
    "KCL_STREAM_IDENTIFIER",
    "KCL_STREAM_ARN",
    "KCL_MLD_CHILD",
    "KCL_MLD_CHILDREN",
)
_PYTHON = re.compile(r"python[0-9.]*")
#: Options without a value that the template may have, too. ``-i`` and ``-x`` are about the script.
_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+")
_WITH_VALUE = re.compile(r"-[WX]")
_ISOLATION = re.compile(r"-[bBdiOPqsSuvx]*[EI]")
_SPLIT_ONLY = "the text is split on spaces only, no shell reads it"
#: What a shell would act on, as a word or at the beginning of one.
_SHELL_WORD = re.compile(r"(?:&&|\|\|?|;|&|\d?>>?|\d?>&\d|<)\Z|(?:\$[({A-Za-z_]|`|~/)")


def split_command(text: str) -> tuple[str, ...]:
    """Program and arguments; empty for a blank text. Java splits at runs of U+0020 only."""
    return tuple(re.split(" +", text.rstrip(" "))) if text.strip(" ") else ()


def command_problems(text: str) -> tuple[Problem, ...]:
    """Arguments that the author probably did not intend, without examining this machine."""
    argv = split_command(text)
    if not argv or not argv[0]:
        return (
            Problem(
                Severity.ERROR,
                "names no program: no child could be started",
                "name the program first",
            ),
        )
    problems = []
    if "'" in text or '"' in text:
        problems.append(
            _warning(
                "quotes are passed to the program as they are: the text is split on spaces only",
                "use a script for arguments with spaces",
            )
        )
    if any(char in text for char in "\t\r\n\f\v\xa0"):
        problems.append(
            _warning(
                "contains a blank that is no space and becomes a part of a word",
                "put plain spaces between the words, and none at the end",
            )
        )
    shell = next((word for word in argv[1:] if _SHELL_WORD.match(word)), None)
    variable = first_variable(text)
    advice = (
        "use a script" if variable is None else f"use a script, or {how_to_expand(variable[1])}"
    )
    if shell is not None:
        problem_text = f"{shell!r} is passed to the program as it is: {_SPLIT_ONLY}"
        problems.append(_warning(problem_text, advice))
    elif variable is not None:
        problem_text = f"{variable[0]} is passed to the program as it is: {_SPLIT_ONLY}"
        problems.append(Problem(Severity.INFO, problem_text, advice))
    return tuple(problems)


def _warning(text: str, suggestion: str) -> Problem:
    return Problem(Severity.WARNING, text, suggestion)


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """``interpreter [options] script [arguments]``.

    Attributes:
        interpreter: looked for in PATH if it has no slash.
        name: of the process in ``/proc``; None = that of the interpreter.
    """

    interpreter: str
    options: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    name: str | None = None


def python_command(
    argv: Sequence[str], path: str, head: bytes, variables: Mapping[str, str]
) -> PythonCommand | str:
    """The parts of a command line, or why it can have no template.

    Args:
        argv: program and arguments, not empty.
        head: the first bytes of the program.
    """
    shard = [variables[name] for name in SHARD_VARIABLES[:2] if variables.get(name)]
    if any(value in word for value in shard for word in argv):
        return "its arguments name the shard"
    if spark_command(argv) is not None:
        return "the children of kcl-mld-spark are small already"
    found = _python_words(argv, path, head)
    return f"{argv[0]} is no Python script" if found is None else _parsed(*found)


def _python_words(
    argv: Sequence[str], path: str, head: bytes
) -> tuple[Sequence[str], str | None] | None:
    """The command line from Python on, and the name of the process; None if it starts no Python."""
    if _is_python(argv[0]):
        return argv, None
    line = head.partition(b"\n")[0].decode("utf-8", "replace")
    interpreter, _, rest = line.removeprefix("#!").strip().partition(" ")
    words, name = [interpreter, *filter(None, [rest.strip()])], PurePosixPath(path).name
    if PurePosixPath(interpreter).name == "env":
        # It starts Python once more, which takes the name of the script away.
        words = rest.removeprefix("-S").split() if rest.startswith("-S") else [rest.strip()]
        name = ""
    if not line.startswith("#!") or not words or not _is_python(words[0]):
        return None
    return [*words, path, *argv[1:]], name or None


def _is_python(word: str) -> bool:
    return _PYTHON.fullmatch(PurePosixPath(word).name) is not None


def _parsed(words: Sequence[str], name: str | None) -> PythonCommand | str:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        option = words[at]
        if not _FLAGS.fullmatch(option) and not _WITH_VALUE.match(option):
            return f"{words[0]} {option} starts no script, or not as usual"
        at += 2 if len(option) == 2 and _WITH_VALUE.match(option) else 1
    if at >= len(words):
        return f"{words[0]} is given no script"
    return PythonCommand(words[0], tuple(words[1:at]), words[at], tuple(words[at + 1 :]), name=name)


class PythonStart(NamedTuple):
    """How a command line starts Python, whatever it runs there.

    Attributes:
        interpreter: looked for in PATH if it has no slash.
        options: before the script, ``-m``, ``-c`` or another one that is not usual.
        script: None where Python is given a module or a text.
        isolation: the option by which Python ignores ``PYTHONPATH``; None if there is none.
    """

    interpreter: str
    options: tuple[str, ...]
    script: str | None
    isolation: str | None


def python_start(argv: Sequence[str], path: str, head: bytes) -> PythonStart | None:
    """How Python is started, or None if it is another program. Arguments: :func:`python_command`."""
    found = _python_words(argv, path, head)
    if found is None:
        return None
    interpreter, *words = found[0]
    at = 0
    while at < len(words) and (_FLAGS.fullmatch(words[at]) or _WITH_VALUE.match(words[at])):
        at += 2 if len(words[at]) == 2 and _WITH_VALUE.match(words[at]) else 1
    rest = words[at : at + 1]
    script = next((word for word in rest if not word.startswith("-")), None)
    options = tuple(words[:at])
    isolation = next((word for word in (*options, *rest) if _ISOLATION.match(word)), None)
    return PythonStart(interpreter, options, script, isolation)


class SparkCommand(NamedTuple):
    """A command line that starts the PySpark processor.

    Attributes:
        variables: what ``env`` adds to its environment.
        has_file: ``--properties``, or another name of it, is there.
        properties: the file behind it; None if none is named.
        app: the program of the user; None if none is named.
    """

    program: str
    variables: Mapping[str, str]
    has_file: bool
    properties: str | None
    app: str | None


def spark_command(argv: Sequence[str]) -> SparkCommand | None:
    """The PySpark command of a command line; None if it starts another program.

    Args:
        argv: program and arguments; ``env NAME=value`` may stand before.
    """
    words = list(argv)
    variables: dict[str, str] = {}
    if words and PurePosixPath(words[0]).name == "env":
        given = list(takewhile(lambda word: "=" in word, words[1:]))
        words = words[1 + len(given) :]
        variables = dict(word.split("=", 1) for word in given)
    if not words or PurePosixPath(words[0]).name != SPARK_PROGRAM:
        return None
    program, *rest = words
    has_file = bool(rest) and rest[0] in _FILE_OPTIONS
    file = rest[1] if has_file and len(rest) > 1 else None
    apps = rest[2:] if has_file else rest
    return SparkCommand(program, variables, has_file, file, apps[0] if apps else None)
