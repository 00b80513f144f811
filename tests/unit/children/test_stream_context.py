"""A lease finds its stream, and what belongs to a stream names it."""

from __future__ import annotations

import pytest

from kcl_mld.children.consuming.stream_context import StreamContext, StreamRegistry
from kcl_mld.config.stream import Stream
from kcl_mld.errors import LeaseLost
from kcl_mld.signals.model.metrics import RECORDS_PROCESSED
from kcl_mld.signals.ports import AllMetrics
from kcl_mld.streams.stream_metrics import metrics_of
from tests.fakes.lease_world import lease
from tests.fakes.shard_world import ShardWorld, simulated
from tests.unit.children.consumer_world import RecordedMetrics

MULTI = Stream(name="orders", account="123456789012", epoch=1700000000)


async def context(stream: Stream) -> StreamContext:
    (made,) = ShardWorld(0, stream=stream).streams
    return made


@simulated
async def test_a_lease_finds_its_stream_by_identifier():
    registry = StreamRegistry()
    single, multi = await context(Stream("s")), await context(MULTI)
    registry.add(single)
    registry.add(multi)
    assert tuple(registry) == (single, multi)
    row = lease(stream_identifier=MULTI.identifier, lease_key=MULTI.lease_key("shardId-0"))
    assert registry.of(row) is multi
    assert registry.of(lease()) is single
    registry.remove(MULTI.identifier)
    registry.remove(MULTI.identifier)
    with pytest.raises(LeaseLost, match=f"{MULTI.identifier} is not a stream of this worker"):
        registry.of(row)
    assert multi.existence is multi.source.existence


@simulated
async def test_streams_may_come_and_go_while_somebody_looks_at_all():
    registry = StreamRegistry()
    registry.add(await context(Stream("s")))
    for one in registry:
        registry.remove(one.stream.identifier)
    assert list(registry) == []
    with pytest.raises(LeaseLost, match="single-stream mode is not a stream"):
        registry.of(lease())


def test_metrics_of_one_of_several_streams_name_it():
    sink = RecordedMetrics()
    metrics = metrics_of(MULTI, sink)
    metrics.add(RECORDS_PROCESSED, 3, shard_id="shardId-0")
    metrics.add(RECORDS_PROCESSED, 3, stream_id="other")
    assert [one.stream_id for one in sink.data] == [MULTI.identifier, "other"]
    assert sink.data[0].shard_id == "shardId-0"


def test_metrics_of_a_single_stream_are_javas():
    sink = AllMetrics(())
    assert metrics_of(Stream("s"), sink) is sink
