"""A closed shard is asked for its children."""

from __future__ import annotations

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData, NotFound
from tests.fakes.shard_world import ShardWorld, shard_id, simulated


@simulated
async def test_children_come_from_the_end_of_the_shard():
    world = ShardWorld(1)
    world.split(0)
    children = await world.source.children_of(shard_id(0))
    assert [child.shard_id for child in children] == [shard_id(1), shard_id(2)]
    assert {child.parent_shard_ids for child in children} == {(shard_id(0),)}
    iterator, records = world.calls[-2:]
    assert iterator[1]["ShardIteratorType"] == "LATEST"
    assert set(records[1]) == {"ShardIterator"}


@simulated
async def test_the_arn_goes_alone_with_get_records():
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
    world = ShardWorld(1, stream=Stream("s", arn=arn))
    world.split(0)
    await world.source.children_of(shard_id(0))
    assert world.calls[-2][1]["StreamARN"] == arn
    assert world.calls[-1][1]["StreamARN"] == arn
    assert "StreamName" not in world.calls[-1][1]


@simulated
async def test_children_of_a_vanished_shard_are_not_found():
    world = ShardWorld(1)
    with pytest.raises(NotFound):
        await world.source.children_of(shard_id(7))


@simulated
async def test_an_answer_without_iterator_is_malformed():
    world = ShardWorld(1)

    async def nothing(**_request):
        return {}

    world.kinesis.get_shard_iterator = nothing
    with pytest.raises(MalformedData):
        await world.source.children_of(shard_id(0))
