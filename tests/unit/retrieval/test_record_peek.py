"""A few records behind a checkpoint, from a stream of the embedded Kinesis."""

from __future__ import annotations

import random
from base64 import b64encode

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import AT_TIMESTAMP, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.local.kinesis import KinesisModel
from kcl_mld.retrieval.record_peek import MOST_READS, peek
from tests.fakes.aggregate import aggregate
from tests.fakes.clock import FakeClock
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.shard_world import simulated

SHARD = "shardId-000000000000"


class Shard:
    """A stream of one shard, and what is asked of it."""

    def __init__(self):
        self.clock = FakeClock()
        self.model = KinesisModel(self.clock.wall, random.Random(0))
        self.model.call("CreateStream", {"StreamName": "s", "ShardCount": 1})
        self.requests = []

        async def before(_service, operation, request):
            self.requests.append((operation, request))

        self.kinesis = FakeKinesis(self.model, before=before)

    def put(self, data=b"x"):
        request = {"StreamName": "s", "Data": b64encode(data).decode(), "PartitionKey": "k"}
        return self.model.call("PutRecord", request)["SequenceNumber"]

    async def peek(self, checkpoint, count=10, begins_s=None):
        return await peek(
            self.kinesis, Stream("s"), SHARD, checkpoint, count, begins_s, hash_range=None
        )


@simulated
async def test_the_records_behind_a_number_are_found_by_one_read():
    shard = Shard()
    numbers = [shard.put(b"%d" % number) for number in range(5)]
    found = await shard.peek(ExtendedSequenceNumber(numbers[1]), count=2)
    assert [one.data for one in found.records] == [b"2", b"3"]
    assert (found.reads, found.is_end) == (1, False)
    (iterator, read) = shard.requests
    assert iterator[1]["ShardIteratorType"] == "AT_SEQUENCE_NUMBER"
    assert read[1]["Limit"] == 3


@simulated
async def test_a_checkpoint_inside_an_aggregate():
    shard = Shard()
    number = shard.put(aggregate(("a", b"1"), ("b", b"2")))
    found = await shard.peek(ExtendedSequenceNumber(number))
    assert [str(one.position) for one in found.records] == [f"{number}/1"]


@simulated
async def test_at_the_tip_there_is_nothing():
    shard = Shard()
    number = shard.put()
    found = await shard.peek(ExtendedSequenceNumber(number))
    assert (found.records, found.behind_s, found.reads) == ((), 0.0, 1)


@simulated
async def test_sentinels_begin_where_a_worker_would():
    shard = Shard()
    shard.put(b"old")
    shard.clock.advance(100)
    at_s = shard.clock.wall()
    shard.clock.advance(1)
    shard.put(b"new")
    assert [one.data for one in (await shard.peek(TRIM_HORIZON)).records] == [b"old", b"new"]
    found = await shard.peek(AT_TIMESTAMP, begins_s=at_s)
    assert [one.data for one in found.records] == [b"new"]


@simulated
async def test_the_end_of_a_shard_is_said():
    shard = Shard()
    shard.put()
    shard.clock.advance(1)
    request = {
        "StreamName": "s",
        "ShardToSplit": SHARD,
        "NewStartingHashKey": str(2**127),
    }
    shard.model.call("SplitShard", request)
    shard.clock.advance(100)
    found = await shard.peek(TRIM_HORIZON)
    assert len(found.records) == 1
    number = found.records[0].position
    assert (await shard.peek(number)).is_end


@simulated
async def test_answers_without_records_are_followed_for_a_while():
    shard = Shard()
    empty = b'{"Records": [], "NextShardIterator": "n", "MillisBehindLatest": 5000}'

    async def get_records(**request):
        shard.requests.append(("GetRecords", request))
        return empty

    shard.kinesis.get_records = get_records
    found = await shard.peek(TRIM_HORIZON)
    assert (found.records, found.reads, found.behind_s) == ((), MOST_READS, 5.0)
    assert shard.requests[-1][1]["ShardIterator"] == "n"


@simulated
async def test_an_answer_without_an_iterator_is_an_error():
    shard = Shard()

    async def get_shard_iterator(**_request):
        return {}

    shard.kinesis.get_shard_iterator = get_shard_iterator
    with pytest.raises(MalformedData, match="without an iterator"):
        await shard.peek(TRIM_HORIZON)
