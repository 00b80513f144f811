"""Any history of cuts, crashes, lost answers and zombies leaves each row in the table once."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from mld.spark.errors import Fenced
from mld.spark.sinks.dbapi import DatabaseUnavailable
from tests.unit.spark import sqlite_kit
from tests.unit.spark.batches import batch, shard
from tests.unit.spark.sqlite_kit import Frame, query, sink_of

#: What happens to a batch: it goes well; the process dies before the commit; it dies after the
#: commit and before the checkpoint; the commit's answer is lost and the commit is repeated; an old
#: owner commits what it had staged.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["well", "dies staged", "dies committed", "lost answer", "zombie"]),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(_STEPS)
def test_each_row_is_there_once_up_to_the_mark(steps):
    with tempfile.TemporaryDirectory() as directory:
        _play(Path(directory, "db"), steps)


def _play(path, steps) -> None:
    sink, old = sink_of(path), []
    sink.prepare(sqlite_kit.spark())
    for what, count in steps:
        mark = sink.mark(shard())
        begin = mark.sequence if mark else None
        one = batch(shard(), begin, (begin or 0) + count)
        staged = sink.write(Frame(one), [one])
        old.append((sink, staged, one))
        if what == "dies staged":
            sink = _restarted(path, sink)
            continue
        if what == "zombie":
            _commit_late(old)
        _commit(sink, staged, one)
        if what == "lost answer":
            again = sink.write(Frame(one), [one])
            _commit(sink, again, one)
        if what == "dies committed":
            sink = _restarted(path, sink)
    end = sink.mark(shard())
    sink.close()
    found = [n for (n,) in query("SELECT n FROM rows ORDER BY n")]
    assert found == list(range(1, (end.sequence if end else 0) + 1))


def _restarted(path, sink):
    sink.close()
    fresh = sink_of(path)
    fresh.prepare(sqlite_kit.spark())
    return fresh


def _commit(sink, staged, one) -> None:
    try:
        sink.commit(staged, one)
    except Fenced:
        return


def _commit_late(old) -> None:
    """Every owner before tries once more what it had staged."""
    for sink, staged, one in old[:-1]:
        try:
            _commit(sink, staged, one)
        except DatabaseUnavailable:
            continue
        finally:
            sink.close()
