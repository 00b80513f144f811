"""What an app registered, and the processors of its shards."""

import pytest

from mld.spark.errors import SparkConfigError
from mld.spark.model import BatchContext, Position, ShardKey
from mld.spark.pipeline import Pipeline, SparkRecordProcessor
from protocol.child import (
    Checkpointer,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownRequestedInput,
)

SHARD = ShardKey("app", "stream", "shardId-000000000000")
CHECKPOINTER = Checkpointer(None)
INPUTS = {
    "initialize": InitializeInput("shardId-000000000000", "TRIM_HORIZON", 0),
    "process_records": ProcessRecordsInput((), None, CHECKPOINTER),
    "lease_lost": LeaseLostInput(),
    "shard_ended": ShardEndedInput(CHECKPOINTER),
    "shutdown_requested": ShutdownRequestedInput(CHECKPOINTER),
}


class Feed:
    """Notes what reaches it."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda given: self.calls.append((name, given))


def context(stream="stream", shard="shardId-000000000000"):
    return BatchContext(None, "app", stream, shard, "id", None, None, Position(1), 1, False, None)


def test_every_shard_has_a_processor_of_its_own():
    class Counting(SparkRecordProcessor):
        count = 0

        def process(self, df, ctx):
            self.count += 1
            return self.count

    found = Pipeline(Counting)
    other = ShardKey("app", "other stream", SHARD.shard_id)
    first, second = found.open(SHARD, Feed()), found.open(other, Feed())
    assert [found.process(None, context()) for _ in range(2)] == [1, 2]
    assert found.process(None, context("other stream")) == 1
    assert (first.count, second.count) == (2, 1)
    found.close(SHARD)
    found.close(SHARD)
    with pytest.raises(KeyError):
        found.process(None, context())


def test_a_factory_that_makes_something_else_is_refused():
    with pytest.raises(SparkConfigError, match="made a dict"):
        Pipeline(dict).open(SHARD, Feed())


@pytest.mark.parametrize("name", INPUTS)
def test_a_processor_that_overrides_nothing_feeds_the_records_on(name):
    feed = Feed()
    processor = Pipeline(SparkRecordProcessor).open(SHARD, feed)
    getattr(processor, name)(INPUTS[name])
    assert feed.calls == [(name, INPUTS[name])]


@pytest.mark.parametrize("name", INPUTS)
def test_a_processor_may_hook_a_message_and_call_super(name):
    seen = []

    def hook(self, given):
        seen.append(given)
        getattr(SparkRecordProcessor, name)(self, given)

    hooked = type("Hooked", (SparkRecordProcessor,), {name: hook})
    feed = Feed()
    getattr(Pipeline(hooked).open(SHARD, feed), name)(INPUTS[name])
    assert seen == [INPUTS[name]]
    assert feed.calls == [(name, INPUTS[name])]


def test_a_processor_without_process_says_what_is_missing():
    found = Pipeline(SparkRecordProcessor)
    found.open(SHARD, Feed())
    with pytest.raises(NotImplementedError, match="must override process"):
        found.process(None, context())


def test_a_processor_outside_the_host_says_so():
    with pytest.raises(RuntimeError, match="by the Spark host only"):
        SparkRecordProcessor().lease_lost(LeaseLostInput())
