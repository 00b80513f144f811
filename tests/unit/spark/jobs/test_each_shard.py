"""The function for each shard by itself, one write and one commit for all of them."""

from mld.spark.errors import BatchFailed
from mld.spark.model import Position
from mld.spark.pipeline import Pipeline, SparkRecordProcessor
from tests.unit.spark.jobs.test_cut_together import await_checkpoint, begin
from tests.unit.spark.jobs.test_engine import outcome
from tests.unit.spark.jobs.test_host_run import hand_in
from tests.unit.spark.shard_kit import EveryShard, Frame, MemorySink, record


def each(bench, function=lambda df, ctx: df, **properties):
    return bench(function, MemorySink(), batch__scope="shard", **properties)


def test_the_function_is_called_for_each_shard_with_its_rows_and_one_commit_is_for_all(bench):
    seen = {}

    def process(df, ctx):
        seen[ctx.shard_id] = (sorted(df.rows), ctx)
        return Frame([(ctx.shard_id, len(df.rows), 0)])

    b = each(bench, process, batch__maxRecords="2")
    one, two = begin(b, "a", "b")
    two.daemon.deliver(record(5))
    one.daemon.deliver(record(1), record(2))
    await_checkpoint(one, Position(2))
    await_checkpoint(two, Position(5))
    assert seen["a"][0] == [("a", 1, 0), ("a", 2, 0)]
    assert seen["b"][0] == [("b", 5, 0)]
    ctx = seen["b"][1]
    assert (ctx.stream_name, ctx.shard_id, ctx.after, ctx.to) == ("stream", "b", None, Position(5))
    assert (ctx.batch_id, ctx.count, len(ctx.shards)) == ("stream.b@start", 1, 1)
    (frame,) = b.sink.frames
    assert sorted(frame.rows) == [("a", 2, 0), ("b", 1, 0)]
    assert b.sink.commits == [["a", "b"]]
    assert one.end() is two.end() is None


def test_a_function_that_fails_for_one_shard_names_it_and_commits_nothing(bench):
    b = each(bench, lambda df, ctx: 1 / 0 if ctx.shard_id == "b" else df)
    errors = [outcome(future) for future in hand_in(b, "a", "b")]
    assert all("the function failed on batch stream.b@start" in str(error) for error in errors)
    assert b.sink.commits == [["busy"]]


def test_a_shard_that_is_lost_between_two_calls_ends_the_calls(bench):
    gone, called = set(), []

    def process(df, ctx):
        called.append(ctx.shard_id)
        if ctx.shard_id == "a":
            gone.add("a")
        return df

    b = each(bench, process)
    one, two = hand_in(b, "a", "b", fences=[("a", lambda: "a" not in gone)])
    assert "the shard is lost" in str(outcome(one))
    assert outcome(two) is None
    assert called == ["busy", "a", "b"]
    assert b.sink.commits == [["busy"], ["b"]]


def test_a_processor_of_its_own_is_asked_for_each_shard_whatever_the_scope(bench):
    class Counting(SparkRecordProcessor):
        def __init__(self):
            self.calls = 0

        def process(self, df, ctx):
            self.calls += 1
            return Frame([(ctx.shard_id, self.calls, 0)])

    made = EveryShard(Counting)
    b = bench(
        sink=MemorySink(),
        pipeline=Pipeline(Counting, _open=made),
        batch__scope="shard",
    )
    assert [outcome(future) for future in hand_in(b, "a", "b")] == [None, None]
    assert sorted(b.sink.frames[-1].rows) == [("a", 1, 0), ("b", 1, 0)]


def test_a_function_that_returns_nothing_for_all_shards_is_refused_by_name(bench):
    b = each(bench, lambda df, ctx: None)
    error = outcome(hand_in_one(b))
    assert isinstance(error, BatchFailed)
    assert "the function's answer for batch stream.a@start" in str(error)


def hand_in_one(b):
    from tests.unit.spark.jobs.test_engine import always, batch  # noqa: PLC0415

    return b.engine.submit(batch("a"), always)
