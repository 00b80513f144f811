"""``kcl-mld-spark [--properties FILE] app.py [args]``, as ``executableName`` starts it. Pure."""

from __future__ import annotations

from itertools import takewhile
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The console script.
SPARK_PROGRAM = "kcl-mld-spark"
#: As the daemon's own.
_FILE_OPTIONS = ("-p", "--properties", "--properties-file")


class SparkCommand(NamedTuple):
    """What such a command line says.

    Attributes:
        program: as it is started.
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
    """What a command line says; None if it starts another program.

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
