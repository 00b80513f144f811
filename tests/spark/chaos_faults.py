"""Faults inside of commits: some take a while, some raise although they stand, some only raise.

Imported by the program of the chaos runs, in the host that makes the commits; it stands between the
product and the libraries (delta-rs, psycopg), and what it does is written down for the judge.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

#: Where events are written down; without it nothing is done.
EVENTS = "CHAOS_EVENTS"
_SLOW, _SLOWEST_S = 0.4, 0.6
_LOST, _REFUSED = 0.08, 0.05
_FORKS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "subprocess.Popen"})
_draw = random.Random(os.getpid())
_installed: list[str] = []


class AnswerLost(OSError):
    """Raised in place of an answer; says nothing about what was done."""


def note(what: str) -> None:
    """Write an event down, with the process and the machine's monotonic clock."""
    line = f"{what} {os.getpid()} {time.monotonic():.3f}\n"
    descriptor = os.open(os.environ[EVENTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _note_forks(event: str, arguments: tuple[object, ...]) -> None:
    """A fork of a process that has used delta-rs may hang."""
    if event in _FORKS and "deltalake" in sys.modules:
        note("fork")


def with_faults(commit, error=AnswerLost):
    """A commit around which things go wrong.

    Args:
        commit: of a library.
        error: raised in place of an answer.
    """

    def attempt(*args, **more):
        note("begin")
        try:
            slow = _draw.random() < _SLOW
            fate = _draw.random()
            if slow:
                time.sleep(_draw.uniform(0, _SLOWEST_S))
            if fate < _REFUSED:
                note("refused")
                raise error("the chaos run: not even tried")
            answer = commit(*args, **more)
            if slow:
                time.sleep(_draw.uniform(0, _SLOWEST_S))
            if fate > 1 - _LOST:
                note("lost")
                raise error("the chaos run: it stands")
            return answer
        finally:
            note("end")

    return attempt


def install(sink: str) -> None:
    """Stand between a sink and its library.

    Args:
        sink: delta, outputs, merge, iceberg, glue, jdbc or foreach; the last one's function does it by
            itself.
    """
    if EVENTS not in os.environ or _installed:
        return
    _installed.append(sink)  # a program may be executed twice
    sys.addaudithook(_note_forks)
    if sink == "jdbc":
        import psycopg  # noqa: PLC0415

        psycopg.Connection.commit = with_faults(psycopg.Connection.commit, psycopg.OperationalError)
    elif sink in ("iceberg", "glue"):
        from pyiceberg.catalog.glue import GlueCatalog  # noqa: PLC0415
        from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415

        def error(text):
            """Half of the answers that get lost come as a refusal: a transport has asked twice."""
            return _draw.choice((AnswerLost, CommitFailedException))(text)

        for each in (SqlCatalog, GlueCatalog):
            each.commit_table = with_faults(each.commit_table, error)
    elif sink != "foreach":
        from deltalake import DeltaTable  # noqa: PLC0415
        from deltalake.table import TableMerger  # noqa: PLC0415

        from kcl_mld.spark.table.s3_store import Bucket  # noqa: PLC0415

        Bucket.create = with_faults(Bucket.create)  # appends in S3 are no commits of delta-rs
        DeltaTable.create_write_transaction = with_faults(DeltaTable.create_write_transaction)
        TableMerger.execute = with_faults(TableMerger.execute)


def events(path: Path) -> list[tuple[str, int, float]]:
    """What was written down: event, process, when."""
    if not path.exists():
        return []
    words = (line.split() for line in path.read_text().splitlines())
    return [(what, int(pid), float(when)) for what, pid, when in words]


class Commits:
    """When commits went on, for a judge; of a process that was killed in one, until then."""

    def __init__(self, found: list[tuple[str, int, float]]) -> None:
        self.spans: list[tuple[float, float]] = []
        self.open: dict[int, list[float]] = {}
        for what, pid, when in found:
            if what == "begin":
                self.open.setdefault(pid, []).append(when)
            elif what == "end":
                self.spans.append((self.open[pid].pop(), when))

    def go_on(self, living: set[int]) -> bool:
        """True if one of the processes is in a commit."""
        return any(self.open.get(pid) for pid in living)

    def at(self, when: float) -> bool:
        """True if a commit went on at that moment; one that never ended counts for two seconds."""
        ended = any(begin <= when <= end for begin, end in self.spans)
        return ended or any(
            begin <= when <= begin + 2 for each in self.open.values() for begin in each
        )
