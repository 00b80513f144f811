"""The metrics of a fleet, as its leader reads them."""

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, metrics_to_item
from kcl_mld.fleet.worker_metrics import WorkerMetricsReader
from tests.fakes.clock import FakeClock
from tests.fakes.fleet_items import METRICS, create_metrics_table, legacy, migration
from tests.fakes.lease_world import World, load_nothing
from tests.sim.loop import run


def test_a_worker_with_a_wrong_clock_is_read_as_it_is_and_can_be_deleted():
    async def main():
        world = World()
        world.create_table()
        store = world.store()
        read = WorkerMetricsReader(world.fleet_items("me"), store, world.clock)
        world.put_item(metrics_to_item(WorkerMetrics("slow", 100), "leaseKey"))
        scan = await store.scan()
        (found,) = await read.read(scan)
        assert found.updated_at_s == 100
        assert read.in_scan(scan) == (found,)
        await read.delete(found)
        assert await read.read(await store.scan()) == ()

    run(main())


def test_a_clock_that_is_set_anew_makes_no_metrics_young_or_old():
    clock = FakeClock()
    world = World()
    items = WorkerMetricsReader(world.fleet_items("me"), world.store(), clock)
    began_s = items.now_s()
    for jump_s in (-86_400, 172_800):
        clock.advance(10)
        clock.epoch += jump_s
    assert items.now_s() == began_s + 20


def test_a_clock_that_is_ahead_makes_no_metrics_old_and_one_that_is_behind_none_young():
    clock = FakeClock()
    world = World()
    items = WorkerMetricsReader(world.fleet_items("me"), world.store(), clock)
    began_s = items.now_s()
    for ahead_s, now_s in ((300.0, began_s - 300), (-300.0, began_s), (0.0, began_s)):
        clock.ahead = ahead_s
        assert items.now_s() == now_s


def test_of_a_worker_in_two_tables_the_newer_item_counts():
    async def main():
        world = World()
        world.create_table()
        create_metrics_table(world)
        legacy(world, migration("CLIENT_VERSION_3X", "key"))
        items = world.fleet_items("me")
        await world.fleet_state("me", items=items).join(load_nothing, is_new=False)
        for name, old, new in (("a", 5, 7), ("b", 7, 5)):
            world.put_item(metrics_to_item(WorkerMetrics(name, new), "leaseKey"))
            item = metrics_to_item(WorkerMetrics(name, old), "wid")
            world.model.call("PutItem", {"TableName": METRICS, "Item": item})
        read = WorkerMetricsReader(items, world.store(), world.clock)
        scan = await world.store().scan()
        assert read.in_scan(scan) is None
        found = await read.read(scan)
        assert [(one.worker_id, one.updated_at_s) for one in found] == [("a", 7), ("b", 7)]
        for one in found:
            await read.delete(one)
        left = world.model.items(METRICS)
        assert [item["wid"]["S"] for item in left] == ["a"]
        assert world.row("a") == {}

    run(main())


def test_metrics_that_cannot_be_read_are_told_once(caplog):
    """Their worker got no leases, and nobody saw why."""

    async def main():
        world = World()
        world.create_table()
        world.put_item(
            {
                "leaseKey": {"S": "odd"},
                "entityType": {"S": "WORKER_METRIC_STATS"},
                "lut": {"S": "now"},
            }
        )
        read = WorkerMetricsReader(world.fleet_items("me"), world.store(), world.clock)
        for _ in range(3):
            assert await read.read(await world.store().scan()) == ()

    run(main())
    (said,) = caplog.messages
    assert said.startswith("The metrics of worker odd can't be read, so it is given no leases")
