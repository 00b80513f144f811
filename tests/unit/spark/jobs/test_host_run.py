"""The function once for all shards, one write, one commit: real engine and threads, a sink in memory."""

import threading

import pytest
from pyspark.errors import PySparkException

from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed, Fenced, RecordRefused, SparkUnreachable
from kcl_mld.spark.jobs import committing
from kcl_mld.spark.model import Position, ShardKey
from tests.unit.spark.jobs.test_cut_together import await_checkpoint, begin
from tests.unit.spark.jobs.test_engine import always, batch, outcome
from tests.unit.spark.shard_kit import WAIT_S, Frame, MemorySink, record


class Away(PySparkException):
    """What Spark says of an executor that is gone."""


def hand_in(b, *names, fences=()):
    """Batches of several shards for one job: they are handed in while the runner is busy."""
    b.sink.gate.clear()
    busy = b.engine.submit(batch("busy"), always)
    assert b.sink.writing.wait(WAIT_S)
    chosen = dict(fences)
    futures = [b.engine.submit(batch(name), chosen.get(name, always)) for name in names]
    b.sink.gate.set()
    assert outcome(busy) is None
    return futures


def once(bench, function=lambda df, ctx: df, **properties):
    return bench(function, MemorySink(), **properties)


def test_the_function_is_called_once_for_all_shards_and_one_commit_is_for_all(bench):
    seen = []

    def process(df, ctx):
        seen.append((sorted(df.rows), ctx))
        return df

    b = once(bench, process, batch__maxRecords="2")
    one, two = begin(b, "a", "b")
    two.daemon.deliver(record(5))
    one.daemon.deliver(record(1), record(2))
    await_checkpoint(one, Position(2))
    await_checkpoint(two, Position(5))
    ((rows, ctx),) = seen
    assert rows == [("a", 1, 0), ("a", 2, 0), ("b", 5, 0)]
    assert b.sink.commits == [["a", "b"]]
    assert (ctx.stream_name, ctx.shard_id, ctx.after, ctx.to) == ("stream", None, None, None)
    assert (ctx.count, ctx.millis_behind_latest, ctx.is_replay) == (3, 7, False)
    found = {each.shard_id: (each.after, each.to, each.count) for each in ctx.shards}
    assert found == {"a": (None, Position(2), 2), "b": (None, Position(5), 1)}
    assert one.end() is two.end() is None


def test_the_context_of_one_shard_names_it_as_ever(bench):
    seen = []
    b = once(bench, lambda df, ctx: seen.append(ctx) or df)
    b.sink.marks["a"] = Position(2)
    assert outcome(b.engine.submit(batch("a", 3, Position(2)), always)) is None
    (ctx,) = seen
    assert (ctx.shard_id, ctx.after, ctx.to) == ("a", Position(2), Position(3))
    assert ctx.batch_id == "stream.a@2.0"


def test_a_batch_is_called_the_same_at_every_try_of_the_same_shards(bench):
    names = []
    b = once(bench, lambda df, ctx: names.append(ctx.batch_id) or df)
    b.sink.write_errors = [None, OSError("a disk that comes back")]
    futures = hand_in(b, "a", "b")
    assert [outcome(each) for each in futures] == [None, None]
    assert len(names) == 3
    assert names[1] == names[2]
    assert names[1].startswith("app@")


def test_a_failure_that_may_pass_is_repeated_within_one_budget(bench):
    b = once(bench, retry__attempts="3")
    b.sink.write_errors = [None, OSError("one"), SparkUnreachable("two"), OSError("three")]
    futures = hand_in(b, "a", "b", "c")
    errors = [outcome(each) for each in futures]
    assert all("gave up, all tries have failed: three" in str(error) for error in errors)
    assert b.sink.jobs[1:] == [["a", "b", "c"]] * 3  # nothing is narrowed down
    assert b.sink.commits == [["busy"]]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018"),
        RuntimeError("[USER_RAISED_EXCEPTION] no such flight SQLSTATE: P0001"),
        RuntimeError('Traceback (most recent call last):\n  File "app.py", line 3, in f\nKeyError'),
    ],
)
def test_what_would_fail_again_is_not_repeated(bench, error):
    b = once(bench)
    b.sink.write_errors = [None, error]
    futures = hand_in(b, "a", "b")
    assert all("would fail again" in str(outcome(each)) for each in futures)
    assert len(b.sink.jobs) == 2


def test_a_record_that_cannot_be_decoded_is_named(bench):
    b = once(bench)
    b.sink.write_errors = [RuntimeError("kcl-mld: bad record <b at 7.0> SQLSTATE: P0001")]
    error = outcome(b.engine.submit(batch("b"), always))
    assert isinstance(error, RecordRefused)
    assert "the record of b at 7.0 cannot be decoded" in str(error)


def test_a_record_that_cannot_be_decoded_is_named_if_the_function_itself_meets_it(bench):
    def counts(df, ctx):
        raise Away("kcl-mld: bad record <b at 7.0> SQLSTATE: P0001")

    error = outcome(once(bench, counts).engine.submit(batch("b"), always))
    assert isinstance(error, RecordRefused)
    assert "the record of b at 7.0 cannot be decoded" in str(error)


def test_a_function_that_raises_fails_the_batch_at_once(bench):
    calls = []

    def process(df, ctx):
        calls.append(ctx.count)
        return df if len(calls) == 1 else 1 / 0

    b = once(bench, process)
    errors = [outcome(each) for each in hand_in(b, "a", "b")]
    assert all("the function failed on batch app@" in str(error) for error in errors)
    assert "2 records of 2 shards" in str(errors[0])
    assert calls == [1, 2]


def test_a_job_of_the_functions_own_that_lost_an_executor_is_repeated(bench):
    calls = []

    def process(df, ctx):
        calls.append(ctx.count)
        if len(calls) == 1:
            raise Away("an executor is gone")
        return df

    b = once(bench, process)
    assert outcome(b.engine.submit(batch("a"), always)) is None
    assert calls == [1, 1]


def test_an_answer_that_is_no_frame_is_refused(bench):
    b = once(bench, lambda df, ctx: "rows")
    assert "return a DataFrame" in str(outcome(b.engine.submit(batch("a"), always)))


def test_a_shard_that_is_lost_during_the_write_ends_the_job_and_the_others_are_written_again(bench):
    b = once(bench, batch__maxRecords="2")
    lost, due = begin(b, "a", "b")
    lost.daemon.deliver(record(1))
    b.sink.gate.clear()
    due.daemon.deliver(record(1), record(2))
    assert b.sink.writing.wait(WAIT_S)
    lost.daemon.lease_lost()
    assert len(b.sessions.interrupted) == 1  # what is written can't be committed any more
    b.sink.gate.set()
    await_checkpoint(due, Position(2))
    assert b.sink.jobs == [["b", "a"], ["b"]]
    assert b.sink.commits == [["b"]]
    assert {name for name, *_ in b.sink.frames[-1].rows} == {"b"}
    assert lost.end() is due.end() is None


def test_no_job_begins_with_rows_of_a_shard_that_was_lost_while_the_function_ran(bench):
    gone = set()

    def process(df, ctx):
        if ctx.count == 2:
            gone.add("a")
        return df

    b = once(bench, process)
    one, two = hand_in(b, "a", "b", fences={"a": lambda: "a" not in gone}.items())
    assert "the shard is lost" in str(outcome(one))
    assert outcome(two) is None
    assert b.sink.jobs[1:] == [["b"]]


def test_a_shard_that_is_lost_right_before_the_commit_keeps_all_from_being_committed(bench):
    gone = set()
    b = once(bench)
    write = b.sink.write

    def write_and_lose(frame, batches):
        staged = write(frame, batches)
        gone.update({"a"} if len(batches) == 2 else ())
        return staged

    b.sink.write = write_and_lose
    one, two = hand_in(b, "a", "b", fences={"a": lambda: "a" not in gone}.items())
    assert "the shard is lost" in str(outcome(one))
    assert outcome(two) is None
    assert b.sink.commits == [["busy"], ["b"]]
    assert all(b.sink.discarded.acquire(timeout=WAIT_S) for _ in range(3))


def test_a_shard_whose_mark_another_writer_has_moved_is_fenced_and_the_others_are_written_again(
    bench,
):
    b = once(bench)
    b.sink.marks["a"] = Position(9)
    one, two = hand_in(b, "a", "b")
    assert isinstance(outcome(one), Fenced)
    assert outcome(two) is None
    assert b.sink.jobs[1:] == [["a", "b"], ["b"]]


def test_a_commit_that_raised_is_written_again_within_the_budget(bench):
    b = once(bench)
    b.sink.commit_errors = [None, ValueError("no answer")]
    futures = hand_in(b, "a", "b")
    assert [outcome(each) for each in futures] == [None, None]
    assert b.sink.jobs[1:] == [["a", "b"]] * 2


def test_a_commit_that_stood_although_it_raised_fences_the_next_try(bench):
    b = once(bench)
    commit_all = b.sink.commit_all

    def commit_and_raise(staged, batches):
        commit_all(staged, batches)
        b.sink.commit_all = commit_all
        raise OSError("no answer")

    b.sink.commit_all = commit_and_raise
    assert isinstance(outcome(b.engine.submit(batch("a"), always)), Fenced)
    assert b.sink.commits == [["a"]]
    assert b.sink.rows == [("a", 1, 0)]


def test_a_commit_that_hangs_ends_its_shards_and_is_left_alone(bench):
    b = once(bench, batch__timeout="1s")
    go_on = threading.Event()
    b.sink.commit_all = lambda staged, batches: go_on.wait(WAIT_S) and {}
    error = outcome(b.engine.submit(batch("a"), always))
    assert isinstance(error, BatchFailed)
    assert "the commit did not end within" in str(error)
    assert not b.sink.discarded.acquire(blocking=False)  # it may still publish what was staged
    go_on.set()
    assert b.sink.discarded.acquire(timeout=WAIT_S)


class Locked(MemorySink):
    """Its first commit of several shards waits in a database until it is cancelled, twice."""

    def __init__(self):
        super().__init__()
        self.waits, self.cancelled, self.free = threading.Event(), [], threading.Event()

    def commit_all(self, staged, batches):
        if len(batches) > 1 and not self.free.is_set():
            self.waits.set()
            assert self.free.wait(WAIT_S)
            raise_if_abandoned()
        return super().commit_all(staged, batches)

    def cancel(self, batches):
        self.cancelled.append(sorted(each.shard.shard_id for each in batches))
        if len(self.cancelled) == 2:
            self.free.set()


def test_a_commit_whose_time_is_up_is_cancelled_and_not_repeated(bench):
    b = bench(sink=Locked(), batch__timeout="1s")
    errors = [outcome(each) for each in hand_in(b, "a", "b")]
    assert all("the commit did not end within 1 s" in str(error) for error in errors)
    assert b.sink.cancelled == [["a", "b"]] * 2
    assert b.sink.commits == [["busy"]]


def test_a_commit_with_a_shard_that_is_lost_is_cancelled_and_the_others_are_written_again(
    bench, monkeypatch
):
    monkeypatch.setattr(committing, "_CANCEL_AGAIN_S", 0.01)
    b = bench(sink=Locked(), batch__timeout="600s")
    lost = set()
    one, two = hand_in(b, "a", "b", fences=[("a", lambda: "a" not in lost)])
    assert b.sink.waits.wait(WAIT_S)
    b.engine.abandon(ShardKey("app", "stream", "a"))
    assert b.sink.cancelled == []  # not lost yet
    lost.add("a")
    b.engine.abandon(ShardKey("app", "stream", "a"))
    assert "the shard is lost" in str(outcome(one))
    assert outcome(two) is None
    # Until it ends: twice, and once more on a machine that lets it wait.
    assert b.sink.cancelled[:2] == [["a", "b"]] * 2
    assert all(one == ["a", "b"] for one in b.sink.cancelled)
    assert b.sink.commits == [["busy"], ["b"]]


def test_a_commit_that_is_refused_without_a_loser_counts_as_a_try(bench):
    from kcl_mld.spark.ports import CommitOutcome  # noqa: PLC0415

    b = once(bench, retry__attempts="2")
    b.sink.commit_all = lambda staged, batches: dict.fromkeys(
        [each.shard for each in batches], CommitOutcome.AGAIN
    )
    assert "gave up" in str(outcome(b.engine.submit(batch("a"), always)))
    assert len(b.sink.jobs) == 2


def test_a_write_that_takes_too_long_fails_the_batch(bench):
    b = once(bench, batch__timeout="1s")
    b.sink.gate.clear()
    b.sessions.interrupt = lambda tag: b.sink.gate.set()
    error = outcome(b.engine.submit(batch("a"), always))
    assert "was not written within spark.batch.timeout" in str(error)
    assert isinstance(error, BatchFailed)


def test_a_lost_session_is_renewed(bench):
    b = once(bench)
    b.sink.write_errors = [RuntimeError("[INVALID_HANDLE.SESSION_CLOSED] gone")]
    assert outcome(b.engine.submit(batch("a"), always)) is None
    assert b.sessions.renewed == 1


def test_a_process_that_ends_fails_what_is_tried_again(bench):
    b = once(bench)
    b.sink.gate.clear()
    future = b.engine.submit(batch("a"), always)
    assert b.sink.writing.wait(WAIT_S)
    b.engine.close()
    b.sink.write_errors = [OSError("interrupted")]
    b.sink.gate.set()
    assert "this process is ending" in str(outcome(future))


def test_one_batch_is_written_at_a_time_so_names_in_the_session_are_the_functions_own(bench):
    running, most = [], []

    def process(df, ctx):
        running.append(ctx.batch_id)
        most.append(len(running))
        threading.Event().wait(0.01)
        raise_if_abandoned()
        running.remove(ctx.batch_id)
        return Frame(df.rows)

    b = bench(process, MemorySink())
    futures = [
        b.engine.submit(batch(name, n, Position(n - 1) if n > 1 else None), always)
        for n in (1, 2)
        for name in "ab"
    ]
    assert [outcome(each) for each in futures] == [None] * 4
    assert max(most) == 1
