"""Whether a command line starts a Python script, so that a template can be made of it.

Source: execve(2) for first lines; ``python --help`` for options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from mld.model.spark.command import spark_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Variables that may differ between two children of a worker: a template has none of them.
SHARD_VARIABLES = (
    "KCL_SHARD_ID",
    "KCL_LEASE_KEY",
    "KCL_STREAM_NAME",
    "KCL_STREAM_IDENTIFIER",
    "KCL_STREAM_ARN",
)
_PYTHON = re.compile(r"python[0-9.]*")
#: Options without a value that the template may have, too. ``-i`` and ``-x`` are about the script.
_FLAGS = re.compile(r"-[bBdEIOPqsSuv]+")
_WITH_VALUE = re.compile(r"-[WX]")


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
        path: where the program was found.
        head: the first bytes of the program.
        variables: what its child is told of its shard.
    """
    shard = [variables[name] for name in SHARD_VARIABLES[:2] if variables.get(name)]
    if any(value in word for value in shard for word in argv):
        return "its arguments name the shard"
    if spark_command(argv) is not None:
        return "the children of kcl-mld-spark are small already"
    if _is_python(argv[0]):
        return _parsed(argv, None)
    line = head.partition(b"\n")[0].decode("utf-8", "replace")
    interpreter, _, rest = line.removeprefix("#!").strip().partition(" ")
    words, name = [interpreter, *filter(None, [rest.strip()])], PurePosixPath(path).name
    if PurePosixPath(interpreter).name == "env":
        # It starts Python once more, which takes the name of the script away.
        words = rest.removeprefix("-S").split() if rest.startswith("-S") else [rest.strip()]
        name = ""
    if not line.startswith("#!") or not words or not _is_python(words[0]):
        return f"{argv[0]} is no Python script"
    return _parsed([*words, path, *argv[1:]], name or None)


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
