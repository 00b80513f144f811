"""One look at a fleet, in every layout of its tables."""

from __future__ import annotations

import random
from functools import partial

import pytest

from kcl_mld.errors import Denied, NotFound
from kcl_mld.fleet.model.lock_item import LockItem, lock_to_item
from kcl_mld.fleet.model.state_history import ClientVersion, TableStatus
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.leases.model.lease_move import staged
from kcl_mld.observe.fleet_reader import FleetReader, fleet_items
from kcl_mld.observe.stream_reader import StreamReader
from kcl_mld.observe.tip_reader import TipReader
from tests.fakes.clock import CountingIds
from tests.fakes.fleet_items import legacy, migration, status
from tests.fakes.lease_rows import single
from tests.fakes.lease_world import TABLE, lease
from tests.fakes.shard_world import ShardWorld, simulated


def reader_of(world, tips=True):
    streams = StreamReader(
        world.kinesis,
        world.config_tree,
        "us-east-1",
        world.stream,
        None,
        world.clock,
        random.Random(0),
    )
    asked = TipReader(world.kinesis, world.clock, world.clock.wall, lambda _stream: None)
    return FleetReader(
        partial(
            fleet_items,
            world.dynamodb("watcher"),
            Layout.named(TABLE),
            CountingIds("watcher"),
            random.Random(0),
        ),
        world.store("watcher"),
        streams,
        asked if tips else None,
        world.clock,
    )


@simulated
async def test_a_look_at_a_fleet_of_one_table():
    world = ShardWorld(shards=2)
    world.put(lease(0, lease_owner="w1"), lease(1))
    world.put_item({"leaseKey": {"S": "shardId-000000000002"}})
    world.put_item(staged(single(3), "1:s:2:shardId-000000000003"))
    world.put_item(migration(ClientVersion.CLIENT_VERSION_3X))
    world.put_item(lock_to_item(LockItem("w1", 8.0, "1"), "leaseKey"))
    before = len(world.requests)
    seen = await reader_of(world).look()
    assert list(seen.leases) == ["shardId-000000000000", "shardId-000000000001"]
    assert [key for key, _why in seen.broken] == ["shardId-000000000002"]
    assert seen.moving == ("1:s:2:shardId-000000000003",)
    assert seen.items.version is ClientVersion.CLIENT_VERSION_3X
    assert seen.items.lock.owner == "w1"
    assert len(seen.streams[0].shards) == 2
    assert {key: tip.behind_s for key, tip in seen.tips.items()} == dict.fromkeys(seen.leases, 0)
    asked = {operation for _worker, operation, _request in world.requests[before:]}
    assert asked <= {"DescribeTable", "Scan", "GetItem"}


@simulated
async def test_a_fleet_on_its_way_to_one_table_and_one_of_2x():
    world = ShardWorld(shards=1)
    legacy(world, migration(ClientVersion.CLIENT_VERSION_3X, "key"), status("PENDING"))
    seen = await reader_of(world, tips=False).look()
    assert seen.items.table_status is TableStatus.TABLE_MIGRATION_STATUS_PENDING
    assert seen.tips == {}
    assert seen.wall_s == world.clock.wall()
    world.clock.ahead = 300.0
    assert (await reader_of(world).look()).wall_s == world.clock.wall() - 300.0
    assert (await reader_of(ShardWorld(shards=1)).look()).items.version is None


@simulated
async def test_items_that_cannot_be_read_are_said_and_the_rest_is_seen():
    world = ShardWorld(shards=1)
    world.put(lease(0))
    world.fault("refuse", "GetItem", times=99, error=Denied("GetItem", "AccessDenied"))
    seen = await reader_of(world).look()
    assert seen.items is None
    assert "GetItem" in seen.items_unknown
    assert len(seen.leases) == 1


@simulated
async def test_without_the_lease_table_there_is_nothing_to_see():
    world = ShardWorld(shards=1)
    world.delete_table()
    with pytest.raises(NotFound):
        await reader_of(world).look()
