"""How far checkpoints are behind, and how seldom shards are asked."""

from __future__ import annotations

import random

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import Denied, LimitExceeded, Throttled
from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber,
)
from kcl_mld.local.kinesis import KinesisModel
from kcl_mld.observe.tip_reader import EVERY_S, THROTTLED_S, TipReader
from tests.fakes.clock import FakeClock
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.lease_world import lease
from tests.fakes.shard_world import simulated

KEY = "shardId-000000000000"


class Shards:
    """A stream of one shard, whoever asks it, and what befalls the requests."""

    def __init__(self, begins_s=None):
        self.clock = FakeClock()
        self.model = KinesisModel(self.clock.wall, random.Random(0))
        self.model.call("CreateStream", {"StreamName": "s", "ShardCount": 1})
        self.requests = []
        self.error = None
        self.service_s = None

        async def before(_service, operation, request):
            self.requests.append((operation, request))
            if self.error is not None:
                raise self.error

        kinesis = FakeKinesis(self.model, before=before)
        self.reader = TipReader(
            kinesis, self.clock, lambda: self.service_s, lambda _stream: begins_s
        )

    def put(self):
        answer = self.model.call(
            "PutRecord", {"StreamName": "s", "Data": "eA==", "PartitionKey": "k"}
        )
        return answer["SequenceNumber"]

    async def tip(self, position):
        row = lease(0, checkpoint=position)
        return (await self.reader.ask([row], {None: Stream("s")})).get(KEY)


@simulated
async def test_the_record_behind_the_checkpoint_tells_the_lag():
    shards = Shards()
    first = ExtendedSequenceNumber(shards.put(), 3)
    assert (await shards.tip(first)).behind_s == 0
    shards.clock.advance(EVERY_S)
    shards.put()
    shards.clock.advance(EVERY_S)
    tip = await shards.tip(first)
    assert tip.behind_s == pytest.approx(60, abs=1)
    assert tip.position == first
    assert shards.requests[-1][1]["Limit"] == 1
    shards.clock.advance(EVERY_S)
    shards.service_s = shards.clock.wall() + 40  # the clock here is late
    assert (await shards.tip(first)).behind_s == pytest.approx(160, abs=1)


@simulated
async def test_a_record_that_has_just_come_is_behind():
    shards = Shards()
    shards.put()
    assert (await shards.tip(TRIM_HORIZON)).behind_s > 0


@simulated
async def test_a_shard_is_asked_once_a_minute_and_seldom_when_it_is_throttled():
    shards = Shards()
    await shards.tip(TRIM_HORIZON)
    assert len(shards.requests) == 2
    shards.clock.advance(EVERY_S - 1)
    assert (await shards.tip(TRIM_HORIZON)).behind_s == 0
    assert len(shards.requests) == 2
    for error in (LimitExceeded("GetRecords", "x"), Throttled("GetRecords", "x")):
        shards.clock.advance(THROTTLED_S)
        shards.error = error
        tip = await shards.tip(TRIM_HORIZON)
        assert tip.behind_s is None
        assert "not asked again for 300 s" in tip.unknown
        count = len(shards.requests)
        shards.clock.advance(THROTTLED_S - 1)
        await shards.tip(TRIM_HORIZON)
        assert len(shards.requests) == count


@simulated
async def test_what_is_denied_is_said():
    shards = Shards()
    shards.error = Denied("GetRecords", "KMSAccessDeniedException")
    assert "KMSAccessDeniedException" in (await shards.tip(TRIM_HORIZON)).unknown


@simulated
async def test_rows_that_have_no_place_to_ask_at_are_left_out():
    shards = Shards()
    for position in (LATEST, SHARD_END, None):
        assert await shards.tip(position) is None
    stranger = lease(0, stream_identifier="1:other:2")
    assert await shards.reader.ask([stranger], {None: Stream("s")}) == {}
    assert shards.requests == []


@simulated
async def test_a_shard_at_a_time_begins_where_the_file_says():
    shards = Shards(begins_s=1_600_000_000.0)
    await shards.tip(AT_TIMESTAMP)
    assert shards.requests[0][1]["Timestamp"] == 1_600_000_000.0


@simulated
async def test_answers_that_make_no_sense_are_not_known():
    shards = Shards()

    async def nothing(**_request):
        return {}

    shards.reader._kinesis.get_shard_iterator = nothing
    assert "without an iterator" in (await shards.tip(TRIM_HORIZON)).unknown
