"""Many shards through few jobs: who runs with whom, who is blamed, who is tried again."""

import logging
import threading
import weakref

import pandas as pd
import pyarrow as pa
import pytest

from kcl_mld.spark.calls import Overdue, call_within
from kcl_mld.spark.errors import (
    BatchFailed,
    SparkUnreachable,
)
from kcl_mld.spark.jobs import engine as engine_module
from kcl_mld.spark.jobs.submitted_batch import Progress
from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from tests.unit.spark.shard_kit import WAIT_S, Frame, HandClock, MemorySink


def batch(shard="a", sequence=1, after=None, size=1, stream="stream"):
    key = ShardKey("app", stream, shard)
    to = Position(sequence)
    return ShardBatch(key, after, to, (Row(to, "key", b"x" * size, None),))


def always():
    return True


def hold_runner(b, shard="busy"):
    """Keep the only runner busy until the gate is opened; the future of what it does."""
    b.sink.gate.clear()
    future = b.engine.submit(batch(shard), always)
    assert b.sink.writing.wait(WAIT_S)
    return future


def outcome(future):
    return future.exception(WAIT_S)


def one_runner(bench, *args, **properties):
    return bench(*args, **properties)


def test_batches_of_several_shards_run_in_one_job(bench):
    b = one_runner(bench)
    held = hold_runner(b)
    futures = [b.engine.submit(batch(shard), always) for shard in "abc"]
    b.sink.gate.set()
    assert [outcome(each) for each in [held, *futures]] == [None] * 4
    assert b.sink.jobs == [["busy"], ["a", "b", "c"]]
    assert all(b.sink.discarded.acquire(timeout=WAIT_S) for _ in range(2))


def test_no_job_holds_two_batches_of_one_shard_and_their_order_is_kept(bench):
    """Invariant 20."""
    b = one_runner(bench)
    hold_runner(b)
    first = b.engine.submit(batch("a", 1), always)
    second = b.engine.submit(batch("a", 2, Position(1)), always)
    other = b.engine.submit(batch("b"), always)
    b.sink.gate.set()
    assert [outcome(each) for each in (first, second, other)] == [None] * 3
    assert b.sink.jobs == [["busy"], ["a", "b"], ["a"]]
    assert [row for row in b.sink.rows if row[0] == "a"] == [("a", 1, 0), ("a", 2, 0)]


def test_the_same_shard_id_of_two_streams_is_two_shards(bench):
    b = one_runner(bench)
    hold_runner(b)
    one = b.engine.submit(batch("a", stream="s1"), always)
    two = b.engine.submit(batch("a", stream="s2"), always)
    b.sink.gate.set()
    assert outcome(one) is outcome(two) is None
    assert b.sink.jobs == [["busy"], ["a", "a"]]


def test_a_job_is_bounded_by_its_payload(bench, monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_JOB_BYTES", 100)
    b = one_runner(bench)
    hold_runner(b)
    futures = [b.engine.submit(batch(shard, size=60), always) for shard in "abc"]
    b.sink.gate.set()
    assert [outcome(each) for each in futures] == [None] * 3
    assert b.sink.jobs == [["busy"], ["a"], ["b"], ["c"]]


def test_no_function_is_called_for_a_shard_that_was_lost_while_its_job_waited(bench):
    """For foreach the function itself is the write, and a turn may be minutes away."""
    called, lost = [], []

    def process(df, ctx):
        called.append(ctx.shard_id)
        return df

    b = one_runner(bench, process)
    get = b.sessions.get
    b.sessions.get = lambda: lost.append("slow") or get()
    slow = b.engine.submit(batch("slow"), lambda: "slow" not in lost)
    assert "the shard is lost" in str(outcome(slow))
    assert outcome(b.engine.submit(batch("fine"), always)) is None
    assert called == ["fine"]
    assert b.sink.jobs == [["fine"]]


def test_a_failed_commit_is_repeated_with_its_write(bench):
    b = bench()
    b.sink.commit_errors = [OSError("the database restarts")]
    assert outcome(b.engine.submit(batch(), always)) is None
    assert b.sink.jobs == [["a"], ["a"]]


def test_attempts_are_bounded(bench):
    b = bench(retry__attempts="3")
    b.sink.write_errors = [OSError(f"fault {n}") for n in range(9)]
    error = outcome(b.engine.submit(batch(), always))
    assert "gave up, all tries have failed: fault 2" in str(error)
    assert len(b.sink.jobs) == 3


def test_a_server_that_is_away_is_asked_again_and_then_given_up(bench):
    b = bench(retry__attempts="2")

    def refuse():
        raise SparkUnreachable("nobody answers")

    b.sessions.get = refuse
    assert "gave up, all tries have failed: nobody answers" in str(
        outcome(b.engine.submit(batch(), always))
    )


def test_a_failure_the_sink_is_sure_of_is_not_repeated(bench):
    b = bench()
    b.sink.write_errors = [BatchFailed("the disk is full")]
    assert "the disk is full" in str(outcome(b.engine.submit(batch(), always)))
    assert len(b.sink.jobs) == 1


def foreign(module, name):
    """A value of a class of that name, defined in that module."""
    return type(name, (), {"__module__": module})()


@pytest.mark.parametrize(
    ("answer", "sink", "text"),
    [
        (None, "jdbc", "is None; return a DataFrame for spark.sink=jdbc"),
        ([1, 2], "jdbc", "is of type list; return a DataFrame of Spark"),
        (
            pd.DataFrame({"a": [1]}),
            "delta",
            "is a DataFrame of pandas; return one of Spark: ctx.spark.createDataFrame(answer)",
        ),
        (
            pa.table({"a": [1]}),
            "jdbc",
            "is a Table of pyarrow; return a DataFrame of Spark: ctx.spark.createDataFrame(answer)",
        ),
        (
            foreign("pyspark.pandas.frame", "DataFrame"),
            "jdbc",
            "is a DataFrame of pandas on Spark; return one of Spark: answer.to_spark()",
        ),
        (
            foreign("polars.dataframe.frame", "DataFrame"),
            "jdbc",
            (
                "is a DataFrame of polars; return one of Spark: "
                "ctx.spark.createDataFrame(answer.to_arrow())"
            ),
        ),
        (Frame([]), "foreach", "is a DataFrame, which spark.sink=foreach writes nowhere"),
    ],
)
def test_an_answer_that_the_sink_cannot_use_is_refused(bench, answer, sink, text):
    b = bench(lambda df, ctx: answer, MemorySink(), name=sink)
    assert text in str(outcome(b.engine.submit(batch(), always)))


def test_a_function_that_wrote_itself_gives_the_sink_no_frame(bench):
    b = bench(lambda df, ctx: None, MemorySink(), name="foreach")
    assert outcome(b.engine.submit(batch(), always)) is None


def test_abandoned_batches_are_forgotten_and_others_stay(bench):
    b = one_runner(bench)
    hold_runner(b)
    gone, kept = (b.engine.submit(batch(shard), always) for shard in "ab")
    b.engine.abandon(gone_shard := ShardKey("app", "stream", "a"))
    assert "given up before it was written" in str(outcome(gone))
    b.engine.abandon(gone_shard)
    b.sink.gate.set()
    assert outcome(kept) is None
    assert b.sessions.interrupted == []


def test_a_hold_that_is_abandoned_late_leaves_the_next_hold_of_the_shard_alone(bench):
    b = one_runner(bench)
    hold_runner(b)
    old, new = object(), object()
    gone = b.engine.submit(batch("a"), always, old)
    kept = b.engine.submit(batch("a", 2), always, new)
    b.engine.abandon(ShardKey("app", "stream", "a"), old)
    b.engine.abandon(ShardKey("app", "stream", "a"), old)
    assert "given up before it was written" in str(outcome(gone))
    b.sink.gate.set()
    assert outcome(kept) is None


def test_a_job_of_the_next_hold_is_not_interrupted_by_the_one_before(bench):
    b = one_runner(bench)
    b.sink.gate.clear()
    running = b.engine.submit(batch("a"), always, object())
    assert b.sink.writing.wait(WAIT_S)
    b.engine.abandon(ShardKey("app", "stream", "a"), object())
    assert b.sessions.interrupted == []
    b.sink.gate.set()
    assert outcome(running) is None


def test_a_closed_engine_answers_everybody(bench):
    b = one_runner(bench)
    running = hold_runner(b)
    queued = b.engine.submit(batch("a"), always)
    b.engine.close()
    assert "ending" in str(outcome(queued))
    assert "ending" in str(outcome(b.engine.submit(batch("b"), always)))
    assert len(b.sessions.interrupted) == 1
    b.sink.gate.set()
    assert outcome(running) is None


def test_a_function_that_exits_fails_its_shard_and_the_runner_lives_on(bench):
    def process(df, ctx):
        if ctx.shard_id == "bad":
            raise SystemExit(3)
        return df

    b = one_runner(bench, process)
    assert "SystemExit: 3" in str(outcome(b.engine.submit(batch("bad"), always)))
    assert outcome(b.engine.submit(batch("good"), always)) is None


def test_a_runner_outlives_a_fault_of_ours(bench):
    b = one_runner(bench)

    def fence():
        raise MemoryError("none left")

    assert "none left" in str(outcome(b.engine.submit(batch("bad"), fence)))
    assert outcome(b.engine.submit(batch("good"), always)) is None


def test_a_runner_that_waits_keeps_no_batch_of_its_last_job(bench):
    """A job holds up to 64 MiB of records, and there are four runners."""
    b = bench()
    freed = threading.Event()

    def fence():
        return True

    weakref.finalize(fence, freed.set)
    future = b.engine.submit(batch(), fence)
    del fence
    assert outcome(future) is None
    assert freed.wait(WAIT_S)


def test_a_batch_whose_shard_is_lost_during_a_failure_is_not_tried_again(bench):
    b = bench()
    answers = iter([True, True, True, False])
    b.sink.write_errors = [OSError("interrupted")]
    assert "the shard is lost" in str(outcome(b.engine.submit(batch(), lambda: next(answers))))
    assert len(b.sink.jobs) == 1


def test_leftovers_that_cannot_be_removed_harm_nobody(bench):
    b = bench()

    def refuse(staged):
        raise OSError("busy")

    b.sink.discard = refuse
    assert outcome(b.engine.submit(batch(), always)) is None


def test_progress_is_one_line_for_the_first_job_then_one_every_ten_seconds(caplog):
    caplog.set_level(logging.INFO, "mld.spark")
    clock = HandClock()
    counted = {"requests to S3": 7, "commits of others that came first": 0}
    progress = Progress(clock, lambda: counted)
    mine = threading.get_ident()  # engines of other tests may still be ending

    def lines():
        return [each.getMessage() for each in caplog.records if each.thread == mine]

    clock.now = 2.0
    progress.committed(batch("a"), 1.0)
    progress.job_ended()
    (first,) = lines()
    assert first.startswith("1 batches of 1 shards in 1 jobs, 1 records, 0 records/s")
    clock.now = 9.0
    progress.committed(batch("a"), 1.0)
    progress.job_ended()
    assert lines() == [first]
    clock.now = 22.0
    counted["requests to S3"] = 17
    counted["commits of others that came first"] = 2
    progress.committed(batch("b"), 3.0)
    progress.spent(6.0, 0.5)
    progress.job_ended()
    assert lines()[1:] == [
        (
            "2 batches of 2 shards in 2 jobs, 2 records, 0 records/s, commit p50 2.00 s, "
            "6.0 of 20.0 s in Spark, 0.5 s in commits, 10 requests to S3, "
            "2 commits of others that came first"
        )
    ]
    clock.now = 40.0
    progress.job_ended()
    assert len(lines()) == 2


def test_a_call_within_its_time_gives_its_result_or_its_error():
    assert call_within(WAIT_S, lambda: 7, name="seven") == 7
    with pytest.raises(KeyError):
        call_within(WAIT_S, lambda: {}["x"], name="missing")


def test_a_late_call_is_interrupted_and_reported():
    ended = threading.Event()
    with pytest.raises(Overdue, match="slow did not end within 0 s"):
        call_within(0, lambda: ended.wait(WAIT_S), name="slow", interrupt=ended.set)
    with pytest.raises(Overdue):
        call_within(0, lambda: threading.Event().wait(0.05), name="slow")
