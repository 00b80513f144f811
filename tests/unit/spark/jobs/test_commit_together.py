"""One commit for all batches of a job whose function is called for each shard: who stands, who is
lost, who is written again.
"""

import threading

import pytest

from mld.spark.errors import BatchFailed, Fenced, SinkRefused
from mld.spark.ports import CommitOutcome
from tests.unit.spark.jobs.test_engine import always, batch, hold_runner, one_runner, outcome
from tests.unit.spark.shard_kit import WAIT_S, MemorySink


class Together(MemorySink):
    """Commits all or nothing; loses the shards in ``moved``."""

    commits_together = True

    def __init__(self, *, stages_ahead=False):
        super().__init__(stages_ahead=stages_ahead)
        self.moved = set()
        self.commits = []
        self.errors = []
        self.before_commit = lambda: None

    def commit_all(self, staged, batches):
        self.before_commit()
        assert list(staged) == list(batches)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        names = [each.shard.shard_id for each in batches]
        self.commits.append(names)
        if self.moved & set(names):
            return {
                each.shard: CommitOutcome.LOST
                if each.shard.shard_id in self.moved
                else CommitOutcome.AGAIN
                for each in batches
            }
        for each in batches:
            self.commit(staged, each)
        return {each.shard: CommitOutcome.STANDS for each in batches}


def by_shard(bench, **more):
    return one_runner(bench, batch__scope="shard", **more)


def submit(b, *names, fence=always):
    busy = hold_runner(b)
    futures = [b.engine.submit(batch(name), fence) for name in names]
    b.sink.gate.set()
    assert outcome(busy) is None
    return futures


def test_a_job_of_many_shards_is_one_commit(bench):
    b = by_shard(bench, sink=Together())
    assert [outcome(each) for each in submit(b, "a", "b", "c")] == [None] * 3
    assert b.sink.commits == [["busy"], ["a", "b", "c"]]
    assert all(b.sink.discarded.acquire(timeout=WAIT_S) for _ in range(2))


def test_a_shard_that_another_writer_moved_is_lost_and_the_rest_is_written_again(bench):
    b = by_shard(bench, sink=Together())
    b.sink.moved = {"b"}
    a, lost, c = submit(b, "a", "b", "c")
    assert isinstance(outcome(lost), Fenced)
    assert outcome(a) is outcome(c) is None
    assert b.sink.jobs == [["busy"], ["a", "b", "c"], ["a", "c"]]
    assert b.sink.commits == [["busy"], ["a", "b", "c"], ["a", "c"]]


def test_files_that_hold_rows_of_a_lost_lease_are_not_committed(bench):
    """Lost after the write: nothing is committed, and the others are written again."""
    b = by_shard(bench, sink=Together())
    busy = hold_runner(b)
    fine = b.engine.submit(batch("fine"), always)
    late = b.engine.submit(batch("late"), lambda: not any("late" in job for job in b.sink.jobs))
    b.sink.gate.set()
    assert outcome(busy) is outcome(fine) is None
    assert "the shard is lost" in str(outcome(late))
    assert b.sink.jobs == [["busy"], ["fine", "late"], ["fine"]]
    assert b.sink.commits == [["busy"], ["fine"]]


def test_a_commit_that_fails_is_written_again_as_a_whole(bench):
    b = by_shard(bench, sink=Together())
    b.sink.errors = [None, OSError("x")]
    assert [outcome(each) for each in submit(b, "a", "b")] == [None, None]
    assert b.sink.jobs == [["busy"], ["a", "b"], ["a", "b"]]


def test_a_commit_that_fails_again_and_again_is_given_up(bench):
    b = by_shard(bench, sink=Together(), retry__attempts="3")
    b.sink.errors = [None, *(OSError("away") for _ in range(3))]
    for each in submit(b, "a", "b"):
        assert "gave up after 3 attempts" in str(outcome(each))


def test_a_table_that_may_not_be_written_ends_every_shard_at_once(bench):
    b = by_shard(bench, sink=Together())
    b.sink.errors = [None, SinkRefused("a CHECK constraint")]
    for each in submit(b, "a", "b"):
        assert isinstance(outcome(each), SinkRefused)
    assert b.sink.jobs == [["busy"], ["a", "b"]]


def test_a_commit_that_hangs_ends_its_shards_and_is_left_alone(bench):
    b = by_shard(bench, sink=Together(), batch__timeout="1s")
    go_on = threading.Event()
    busy = hold_runner(b)
    first = b.engine.submit(batch("a"), always)
    b.sink.before_commit = lambda: go_on.wait(WAIT_S) if len(b.sink.commits) == 1 else None
    b.sink.gate.set()
    assert outcome(busy) is None
    failure = outcome(first)
    assert isinstance(failure, BatchFailed)
    assert "did not end within" in str(failure)
    go_on.set()


@pytest.mark.parametrize("stages_ahead", [True, False])
def test_the_batches_of_a_shard_are_committed_in_their_order(bench, stages_ahead):
    b = bench(sink=Together(stages_ahead=stages_ahead), batch__scope="shard")
    marks = dict.fromkeys("abcd")
    futures = []
    for sequence in (1, 2, 3):
        for name in marks:
            one = batch(name, sequence, marks[name])
            marks[name] = one.to
            futures.append(b.engine.submit(one, always))
    assert [outcome(each) for each in futures] == [None] * 12
    for name in marks:
        assert [row[1] for row in b.sink.rows if row[0] == name] == [1, 2, 3]
