"""A job writes while the one before it commits: the order of a shard's commits stays what it was."""

import threading

import pytest

from mld.spark.calls import GivenUp, call_within
from mld.spark.errors import BatchFailed, Fenced
from mld.spark.jobs import committing, job_run
from mld.spark.jobs.engine import Engine
from mld.spark.model import Position, Row, ShardBatch, ShardKey
from tests.unit.spark.shard_kit import WAIT_S, Bench, HandClock, MemorySink


def batch(shard, number):
    key = ShardKey("app", "stream", shard)
    after = Position(number - 1) if number > 1 else None
    to = Position(number)
    return ShardBatch(key, after, to, (Row(to, "key", b"x", None),))


def always():
    return True


class SlowCommits(MemorySink):
    """Commits of one shard wait for a gate; counts writes that go on at the same time."""

    def __init__(self, slow="a", **more):
        super().__init__(**more)
        self.slow = slow
        self.open = threading.Event()
        self.committing = threading.Event()
        self.written = threading.Semaphore(0)
        self.at_once = self.most_at_once = 0

    def write(self, frame, batches):
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return super().write(frame, batches)
        finally:
            self.at_once -= 1
            self.written.release()

    def commit(self, staged, batch):
        if batch.shard.shard_id == self.slow:
            self.committing.set()
            assert self.open.wait(WAIT_S)
        super().commit(staged, batch)

    def wait_for_writes(self, count):
        for _ in range(count):
            assert self.written.acquire(timeout=WAIT_S)


@pytest.fixture
def bench():
    made = []

    def make(sink, **properties):
        properties.setdefault("batch__maxInFlight", "1")
        made.append(Bench(sink=sink, **properties))
        return made[-1]

    yield make
    for each in made:
        each.sink.open.set()
        each.engine.close()


def submit(b, *batches, fence=always):
    return [b.engine.submit(each, fence) for each in batches]


def begin_commit(b):
    """A first batch of the slow shard in its commit."""
    futures = submit(b, batch("a", 1))
    assert b.sink.committing.wait(WAIT_S)
    b.sink.wait_for_writes(1)
    return futures[0]


def hold_write(b, *batches):
    """Batches whose job writes until the sink's gate is opened."""
    b.sink.gate.clear()
    b.sink.writing.clear()
    futures = submit(b, *batches)
    assert b.sink.writing.wait(WAIT_S)
    return futures


def outcomes(futures):
    return [each.exception(WAIT_S) for each in futures]


def test_the_next_batch_is_written_during_a_commit_and_committed_after_it(bench):
    b = bench(SlowCommits())
    first = begin_commit(b)
    (second,) = submit(b, batch("a", 2))
    b.sink.wait_for_writes(1)
    assert not first.done()
    assert not second.done()
    assert b.sink.committed == []
    b.sink.open.set()
    assert outcomes([first, second]) == [None, None]
    assert [each.to.sequence for each in b.sink.committed] == [1, 2]


def test_a_batch_behind_one_that_failed_is_never_committed(bench):
    sink = SlowCommits()
    b = bench(sink)
    first = begin_commit(b)
    (second,) = submit(b, batch("a", 2))
    sink.wait_for_writes(1)
    sink.commit_errors = [Fenced("another writer was there")]
    sink.open.set()
    assert isinstance(first.exception(WAIT_S), Fenced)
    assert "the batch before it failed" in str(second.exception(WAIT_S))
    assert sink.committed == []


def test_a_batch_is_not_held_up_by_the_company_that_waits(bench):
    b = bench(SlowCommits())
    first = begin_commit(b)
    # Both are in one job, and the first of them has to wait for the commit before it.
    (held,) = hold_write(b, batch("c", 1))
    second, other = submit(b, batch("a", 2), batch("b", 1))
    b.sink.gate.set()
    assert outcomes([held, other]) == [None, None]
    assert not second.done()
    b.sink.open.set()
    assert outcomes([first, second]) == [None, None]
    assert b.sink.jobs[-1] == ["a", "b"]


def test_a_commit_that_is_repeated_with_its_write_comes_first_all_the_same(bench):
    sink = SlowCommits()
    b = bench(sink)
    first = begin_commit(b)
    (second,) = submit(b, batch("a", 2))
    sink.wait_for_writes(1)
    sink.commit_errors = [OSError("interrupted")]
    sink.open.set()
    assert outcomes([first, second]) == [None, None]
    assert [each.to.sequence for each in sink.committed] == [1, 2]
    assert sink.jobs == [["a"], ["a"], ["a"]]


@pytest.mark.parametrize(
    ("sink", "properties"),
    [
        (SlowCommits(stages_ahead=False), {}),
        (SlowCommits(), {"batch__stageAhead": "false"}),
    ],
    ids=["a sink whose write shows", "switched off"],
)
def test_without_it_a_write_waits_for_the_commit_before_it(bench, sink, properties):
    b = bench(sink, **properties)
    first = begin_commit(b)
    (second,) = submit(b, batch("a", 2))
    assert not sink.written.acquire(timeout=0.05)
    sink.open.set()
    assert outcomes([first, second]) == [None, None]


def test_no_more_jobs_write_at_a_time_than_may_be_in_flight(bench):
    b = bench(SlowCommits())
    begin_commit(b)
    futures = hold_write(b, batch("b", 1))
    b.sink.writing.clear()
    futures += submit(b, batch("c", 1), batch("d", 1))
    assert not b.sink.writing.wait(0.05)
    b.sink.gate.set()
    assert outcomes(futures) == [None] * 3
    assert b.sink.most_at_once == 1


def test_what_waits_for_a_commit_is_answered_when_the_shard_is_lost(bench):
    b = bench(SlowCommits())
    held = []
    (first,) = submit(b, batch("a", 1), fence=lambda: not held)
    assert b.sink.committing.wait(WAIT_S)
    (second,) = submit(b, batch("a", 2), fence=lambda: not held)
    b.sink.wait_for_writes(2)
    held.append("lost")
    b.sink.open.set()
    assert first.exception(WAIT_S) is None
    assert isinstance(second.exception(WAIT_S), BatchFailed)
    assert [each.to.sequence for each in b.sink.committed] == [1]


def test_a_new_hold_is_not_judged_by_a_batch_of_the_hold_before(bench):
    b = bench(SlowCommits(slow="none"))
    b.sink.commit_errors = [Fenced("another writer was there")]
    assert isinstance(submit(b, batch("a", 1))[0].exception(WAIT_S), Fenced)
    assert outcomes(submit(b, batch("a", 1))) == [None]


def test_a_new_hold_that_meets_a_commit_of_the_old_one_waits_for_it_and_writes_the_same_again(
    bench,
):
    """A session waits only so long for a commit that hangs before it lets its shard go."""
    b = bench(SlowCommits(), batch__maxInFlight="2")
    held = []
    old = submit(b, batch("a", 1), batch("a", 2), fence=lambda: not held)
    b.sink.wait_for_writes(2)
    held.append("lost")
    (new,) = submit(b, batch("a", 1))
    b.sink.wait_for_writes(1)
    assert not new.done()
    b.sink.commit_errors = [GivenUp("the shard is lost")]
    b.sink.open.set()
    assert all(isinstance(each, BatchFailed) for each in outcomes(old))
    assert new.exception(WAIT_S) is None
    assert [each.to.sequence for each in b.sink.committed] == [1]


def test_what_waits_for_a_commit_keeps_its_time(bench, monkeypatch):
    given = []
    is_waiting = threading.Event()
    clock = HandClock()
    wait = job_run.wait

    def waiting(*args, **more):
        is_waiting.set()
        return wait(*args, **more)

    def noted(seconds, work, **more):
        if more["name"].endswith("-commit"):
            given.append(seconds)
        return call_within(seconds, work, **more)

    monkeypatch.setattr(job_run, "wait", waiting)
    monkeypatch.setattr(committing, "call_within", noted)
    b = bench(SlowCommits())
    b.engine = Engine(
        b.sessions, b.sink, b.pipeline, b.config, planner=b.planner, clock=clock, pause_s=0.001
    )
    first = begin_commit(b)
    (second,) = submit(b, batch("a", 2))
    assert is_waiting.wait(WAIT_S)
    clock.now += b.config.batch_timeout_s - 1
    b.sink.open.set()
    assert outcomes([first, second]) == [None, None]
    assert given == [b.config.batch_timeout_s] * 2
