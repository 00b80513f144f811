"""What a fleet has beside its leases, read from its items in either layout."""

import random

import pytest

from kcl_mld.errors import Denied
from kcl_mld.fleet.model.lock_item import LockItem, lock_to_item
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, metrics_to_item
from kcl_mld.observe.fleet_reader import fleet_items
from kcl_mld.observe.model.fleet_snapshot import FleetItems
from tests.fakes.clock import CountingIds
from tests.fakes.fleet_items import (
    COORDINATOR,
    METRICS,
    create_metrics_table,
    legacy,
    migration,
    status,
)
from tests.fakes.lease_world import TABLE, World
from tests.sim.loop import run

V3X = ClientVersion.CLIENT_VERSION_3X


def seen(prepare):
    async def main():
        world = World()
        world.create_table()
        prepare(world)
        return await fleet_items(
            world.dynamodb("me"), Layout.named(TABLE), CountingIds("me"), random.Random(0)
        )

    return run(main())


def now_s(world):
    return int(world.clock.wall())


def test_in_one_table():
    def prepare(world):
        world.put_item(migration(V3X))
        world.put_item(lock_to_item(LockItem("a", 8.0, "1"), "leaseKey"))
        for name, age_s in (("a", 5), ("b", 61)):
            item = metrics_to_item(WorkerMetrics(name, now_s(world) - age_s), "leaseKey")
            world.put_item(item)

    items = seen(prepare)
    assert (items.version, items.leader) == (V3X, "a")
    assert items.written_at_s["a"] - items.written_at_s["b"] == 56


def test_in_three_tables_without_a_leader_and_without_metrics():
    def prepare(world):
        legacy(world, migration(V3X, "key"))
        create_metrics_table(world)

    items = seen(prepare)
    assert (items.version, items.leader, items.metrics) == (V3X, None, ())


def test_a_worker_in_two_tables_is_one():
    def prepare(world):
        legacy(world, migration(V3X, "key"))
        create_metrics_table(world)
        new = now_s(world)
        old = new - 100
        world.put_item(metrics_to_item(WorkerMetrics("a", old), "leaseKey"))
        item = metrics_to_item(WorkerMetrics("a", new), "wid")
        world.model.call("PutItem", {"TableName": METRICS, "Item": item})

    items = seen(prepare)
    assert [one.worker_id for one in items.metrics] == ["a", "a"]
    assert items.written_at_s == {"a": max(one.updated_at_s for one in items.metrics)}


def test_a_table_that_was_left_is_not_looked_at():
    def prepare(world):
        legacy(world, status("COMPLETE"))
        world.put_item(migration(ClientVersion.CLIENT_VERSION_2X))

    assert seen(prepare).version is ClientVersion.CLIENT_VERSION_2X


def test_a_table_that_vanishes_meanwhile_has_no_lock():
    def prepare(world):
        world.put_item(migration(V3X))
        legacy(world)
        real = world.model.call

        def call(operation, request):
            key = request.get("Key", {}).get("key", {}).get("S")
            if operation == "GetItem" and key == "Leader":
                real("DeleteTable", {"TableName": COORDINATOR})
            return real(operation, request)

        world.model.call = call

    assert seen(prepare).lock is None


@pytest.mark.parametrize("is_denied", [False, True])
def test_a_fleet_of_2x_has_nothing_to_show(is_denied):
    def prepare(world):
        if is_denied:
            world.fault("refuse", "DescribeTable", error=Denied("DescribeTable", "no"))

    assert seen(prepare) == FleetItems()
