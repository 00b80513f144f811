"""Whose time is up: functions, writes and commits, each of its own batch, and what goes on after."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from kcl_mld.spark import calls
from kcl_mld.spark.calls import GivenUp, Overdue, call_within, raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.jobs import committing
from kcl_mld.spark.jobs.submitted_batch import SubmittedBatch
from kcl_mld.spark.model import ShardKey
from tests.unit.spark.jobs.test_engine import always, batch, outcome
from tests.unit.spark.shard_kit import WAIT_S, Bench, HandClock, MemorySink, settings


@pytest.fixture
def bench(monkeypatch):
    """Benches with a batch time-out of one second and a short grace."""
    made = []

    def quick(seconds, work, *, grace_s=0.02, **more):
        return call_within(seconds, work, grace_s=grace_s, **more)

    for module in (calls, committing):
        monkeypatch.setattr(module, "call_within", quick)

    def make(*args, **properties):
        properties = {"batch__timeout": "1s", **properties}
        made.append(Bench(*args, **properties))
        return made[-1]

    yield make
    for each in made:
        if isinstance(each.sink, MemorySink):
            each.sink.gate.set()
        each.engine.close()


class HangingSink(MemorySink):
    """A commit with one shard hangs until it is let go."""

    def __init__(self, shard_id="stuck"):
        super().__init__()
        self.shard_id = shard_id
        self.free = threading.Event()
        self.removed = threading.Semaphore(0)
        self.of_removed = []

    def commit_all(self, staged, batches):
        if self.shard_id in {each.shard.shard_id for each in batches} and not self.free.is_set():
            self.free.wait(WAIT_S)
            raise_if_abandoned()
        return super().commit_all(staged, batches)

    def discard(self, staged):
        self.of_removed.extend(each.shard.shard_id for each in staged)
        self.removed.release()


class CancelledSink(HangingSink):
    def cancel(self, batches):
        assert [each.shard.shard_id for each in batches] == [self.shard_id]
        self.free.set()


def together(b, *shards):
    """Batches of some shards in one job."""
    b.sink.gate.clear()
    first = b.engine.submit(batch("busy"), always)
    assert b.sink.writing.wait(WAIT_S)
    futures = [b.engine.submit(batch(shard), always) for shard in shards]
    b.sink.gate.set()
    assert outcome(first) is None
    return futures


def test_what_is_staged_is_left_alone_as_long_as_a_commit_goes_on(bench):
    b = bench(sink=HangingSink())
    assert isinstance(outcome(b.engine.submit(batch("stuck"), always)), BatchFailed)
    assert outcome(b.engine.submit(batch("next"), always)) is None
    assert b.sink.removed.acquire(timeout=WAIT_S)
    assert b.sink.of_removed == ["next"]
    b.sink.free.set()
    assert b.sink.removed.acquire(timeout=WAIT_S)
    assert b.sink.of_removed == ["next", "stuck"]


def test_a_commit_that_was_given_up_does_not_take_its_next_step(bench):
    b = bench(sink=HangingSink())
    assert isinstance(outcome(b.engine.submit(batch("stuck"), always)), BatchFailed)
    b.sink.free.set()
    assert b.sink.removed.acquire(timeout=WAIT_S)
    assert b.sink.committed == []
    assert b.sink.jobs == [["stuck"]]


def test_a_commit_that_ends_by_being_interrupted_is_what_it_came_to(bench):
    class Late(CancelledSink):
        def commit_all(self, staged, batches):
            assert self.free.wait(WAIT_S)
            return MemorySink.commit_all(self, staged, batches)

    b = bench(sink=Late())
    assert outcome(b.engine.submit(batch("stuck"), always)) is None
    b = bench(sink=CancelledSink())
    assert "the commit did not end" in str(outcome(b.engine.submit(batch("stuck"), always)))
    assert b.sink.removed.acquire(timeout=WAIT_S)


def test_a_sink_that_cancels_nothing_is_not_asked_to(bench):
    b = bench(sink=HangingSink(), batch__timeout="600s")
    lost = set()
    future = b.engine.submit(batch("stuck"), lambda: "stuck" not in lost)
    lost.add("stuck")
    b.engine.abandon(ShardKey("app", "stream", "stuck"))
    b.sink.free.set()
    assert isinstance(outcome(future), BatchFailed)
    assert b.sink.committed == []


def test_a_shard_that_is_lost_right_before_its_commit_is_not_committed():
    sink = MemorySink()
    committer = committing.JobCommitter(sink, settings(), HandClock(), "job")
    with pytest.raises(GivenUp):
        committer.commit_all([], [SubmittedBatch(batch("a"), lambda: False, Future(), 0.0)], 60.0)
    assert sink.committed == []


@pytest.mark.parametrize(("left_s", "given_s"), [(60.0, 60.0), (3.0, 10.0), (-5.0, 10.0)])
def test_a_commit_gets_what_is_left_of_its_time_and_ten_seconds_at_least(
    monkeypatch, left_s, given_s
):
    given = []
    monkeypatch.setattr(committing, "call_within", lambda seconds, *_, **__: given.append(seconds))
    clock = HandClock()
    committer = committing.JobCommitter(MemorySink(), settings(), clock, "job")
    one = SubmittedBatch(batch("a"), always, Future(), 0.0)
    committer.commit_all([], [one], clock.now + left_s)
    assert given == [given_s]


def test_a_server_that_gives_no_session_is_told_and_the_runner_goes_on(bench, monkeypatch):
    """It accepts connections and says nothing, as one does whose memory is full."""
    monkeypatch.setattr(calls, "SESSION_S", 0.02)
    answers = threading.Event()
    b = bench(retry__attempts="2")
    get = b.sessions.get
    b.sessions.get = lambda: answers.wait(WAIT_S) and get()
    error = outcome(b.engine.submit(batch("a"), always))
    assert "gave up, all tries have failed: the Spark server gives no session" in str(error)
    answers.set()
    monkeypatch.setattr(calls, "SESSION_S", WAIT_S)
    assert outcome(b.engine.submit(batch("b"), always)) is None


def test_a_lost_session_that_cannot_be_given_up_holds_up_nobody(bench, monkeypatch):
    monkeypatch.setattr(calls, "SESSION_S", 0.2)
    answers = threading.Event()
    b = bench()
    b.sessions.renew = lambda lost: answers.wait(WAIT_S)
    b.sink.write_errors = [RuntimeError("Channel closed")]
    assert outcome(b.engine.submit(batch("a"), always)) is None
    assert not answers.is_set()
    answers.set()


def test_leftovers_whose_removal_hangs_hold_up_nobody(bench, monkeypatch):
    monkeypatch.setattr(committing, "DISCARD_S", 0.01)
    b = bench()
    hanging = threading.Event()
    b.sink.discard = lambda staged: hanging.wait(WAIT_S)
    assert outcome(b.engine.submit(batch("a"), always)) is None
    assert outcome(b.engine.submit(batch("b"), always)) is None
    hanging.set()


#: Rows for a merge that is not run.
FRAME = SimpleNamespace(drop=lambda _: SimpleNamespace(columns=["k"]))


def test_a_write_that_gives_itself_up_for_nobody_is_not_repeated_for_ever(bench):
    class Odd(MemorySink):
        def write(self, frame, batches):
            super().write(frame, batches)
            raise GivenUp("odd")

    b = bench(sink=Odd(), retry__attempts="2")
    assert "gave up, all tries have failed: " in str(outcome(b.engine.submit(batch("a"), always)))
    assert b.sink.jobs == [["a"], ["a"]]


def test_outside_of_a_call_everything_is_wanted():
    raise_if_abandoned()


def test_a_call_is_interrupted_twice_and_its_late_result_is_handed_over():
    free, results, interrupts = threading.Event(), [], []
    taken = threading.Event()

    def late(result):
        results.append(result)
        taken.set()

    def work():
        free.wait(WAIT_S)
        with pytest.raises(GivenUp):
            raise_if_abandoned()
        return 7

    with pytest.raises(Overdue) as caught:
        call_within(
            0, work, name="w", interrupt=lambda: interrupts.append(1), grace_s=0.01, late=late
        )
    assert not caught.value.has_succeeded
    free.set()
    assert taken.wait(WAIT_S)
    assert results == [7]
    assert interrupts == [1, 1]


def test_a_late_error_is_handed_to_nobody():
    def work():
        raise KeyError

    free = threading.Event()

    def hang():
        free.wait(WAIT_S)
        work()

    with pytest.raises(Overdue) as caught:
        call_within(0, hang, name="w", interrupt=free.set, late=pytest.fail)
    assert not caught.value.has_succeeded
    assert isinstance(caught.value.call.exception(), KeyError)
