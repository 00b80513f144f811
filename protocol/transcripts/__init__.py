"""Conversations between the Java MultiLangDaemon (KCL 3.5.1) and children written with kclpy 3.2.0.

One file per child process, recorded by a tee between the two: ``SCENARIO-WORKER-N.txt``, N counting
the children of that worker. A line is ``<seconds since the child's start> <direction> <raw line>``.
Lines are raw bytes: split them at LF only.

:data:`ADDITIONS` is the one conversation that Java had no part in: kcl-mld and a child written with
``kcl_mld_protocol.child``, which ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from importlib.resources import files

#: Recorded with kcl-mld; not among :func:`names`, whose lines are all Java's.
ADDITIONS = "mld-additions"
#: The event that the daemon closed the child's stdin.
INPUT_ENDS = b"stdin EOF from daemon"


class Direction(Enum):
    """The second column of a transcript."""

    TO_CHILD = ">>"
    FROM_CHILD = "<<"
    CHILD_STDERR = "E<"
    EVENT = "!!"


@dataclass(frozen=True, slots=True)
class TranscriptLine:
    """One recorded line.

    Attributes:
        at_s: seconds since the child was started.
        line: the bytes without the line end.
    """

    at_s: float
    direction: Direction
    line: bytes


def names() -> tuple[str, ...]:
    """The names of all transcripts of the Java daemon, sorted."""
    entries = (entry.name for entry in files(__name__).iterdir())
    found = {name.removesuffix(".txt") for name in entries if name.endswith(".txt")}
    return tuple(sorted(found - {ADDITIONS}))


def load(name: str) -> tuple[TranscriptLine, ...]:
    """All lines of one transcript, in the order of recording.

    Args:
        name: one of :func:`names`, or :data:`ADDITIONS`.

    Raises:
        FileNotFoundError: there is no such transcript.
    """
    return parse(files(__name__).joinpath(f"{name}.txt").read_bytes())


def parse(content: bytes) -> tuple[TranscriptLine, ...]:
    """All lines of a transcript.

    Raises:
        ValueError: a line has not the form ``<seconds> <direction> <raw line>``.
    """
    return tuple(map(_parse, content.removesuffix(b"\n").split(b"\n")))


def _parse(raw: bytes) -> TranscriptLine:
    at_s, direction, line = raw.split(b" ", 2)
    return TranscriptLine(float(at_s), Direction(direction.decode()), line)
