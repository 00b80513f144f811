"""Any history of cuts, crashes, lost answers and zombies leaves each row in the table once.

Two workers have shards in common: each cuts micro-batches of some shards behind the marks that it
sees, and leases move between any two steps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings, strategies as st

from kcl_mld.spark.ports import CommitOutcome
from tests.unit.spark.batches import batch, shard
from tests.unit.spark.sqlite_kit import Frame, query, sink_of

SHARDS = 3
#: What happens to a micro-batch: it goes well; the process dies before the commit; it dies after
#: the commit and before the checkpoints; the commit's answer is lost, and the rows are written
#: again; old owners commit what they had staged.
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["well", "dies staged", "dies committed", "lost answer", "zombie"]),
        st.dictionaries(st.integers(0, SHARDS - 1), st.integers(1, 9), min_size=1),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=40, deadline=None)
@given(_STEPS)
def test_each_row_is_there_once_up_to_its_mark(steps):
    with tempfile.TemporaryDirectory() as directory:
        _play(Path(directory, "db"), steps)


def _play(path, steps) -> None:
    sink, old = _started(path), []
    for what, counts in steps:
        batches = [_next(sink, number, count) for number, count in counts.items()]
        staged = sink.write(Frame(*batches), batches)
        old.append((sink, staged, batches))
        if what == "dies staged":
            sink = _started(path)
            continue
        if what == "zombie":
            for who, what_it_staged, its in old[:-1]:
                who.commit_all(what_it_staged, its)
        outcomes = sink.commit_all(staged, batches)
        if what == "lost answer":
            again = sink.write(Frame(*batches), batches)
            outcomes = sink.commit_all(again, batches)
        found = set(outcomes.values())
        assert found == {CommitOutcome.STANDS} or CommitOutcome.STANDS not in found
        if what == "dies committed":
            sink = _started(path)
    for number in range(SHARDS):
        end = sink.mark(shard(number))
        found = query(f"SELECT n FROM rows WHERE shard = '{number}' ORDER BY n")
        assert [n for (n,) in found] == list(range(1, (end.sequence if end else 0) + 1))
    for who, _, _ in [*old, (sink, None, None)]:
        who.close()


def _next(sink, number, count):
    mark = sink.mark(shard(number))
    begin = mark.sequence if mark else None
    return batch(shard(number), begin, (begin or 0) + count)


def _started(path):
    fresh = sink_of(path)
    fresh.prepare(None)
    return fresh
