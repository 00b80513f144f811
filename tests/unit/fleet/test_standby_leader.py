"""Followers that watch the leases."""

import asyncio

from kcl_mld.config.fleet import FleetConfig
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, metrics_to_item
from kcl_mld.fleet.standby_leader import StandbyLeader
from kcl_mld.leases.rules.discovery import Informed
from tests.fakes.fleet_items import METRICS, create_metrics_table, legacy, migration
from tests.fakes.lease_world import World, lease, load_nothing
from tests.sim.loop import run
from tests.unit.fleet.test_fleet_member import Leading, stop


class Seeing:
    """Counts what it is shown."""

    def __init__(self):
        self.scans = []

    async def run(self, leadership):
        """Does nothing."""

    def wake(self):
        """Is not woken."""

    def observe(self, scan):
        self.scans.append(scan)


def watching(
    test, *workers, leads=False, in_old_table=False, scans_every_s=None, leases=1, announced=False
):
    async def main():
        world = World()
        world.create_table()
        world.put(*(lease(number) for number in range(leases)))
        now_s = int(world.clock.wall())
        if in_old_table:
            create_metrics_table(world)
            legacy(world, migration("CLIENT_VERSION_3X", "key"))
        for name in workers:
            metrics = WorkerMetrics(name, now_s)
            if in_old_table:
                item = metrics_to_item(metrics, "wid")
                world.model.call("PutItem", {"TableName": METRICS, "Item": item})
            else:
                world.put_item(metrics_to_item(metrics, "leaseKey"))
        items = world.fleet_items("me")
        state = world.fleet_state("me", items=items)
        await state.join(load_nothing, is_new=False)
        seen = Seeing()
        lock = Leading([], leads=leads)
        lock.informed = Informed.ANNOUNCED if announced else Informed.NO
        lock.follow_s = 8.0
        world.lock = lock
        runtime = world.runtime("me")
        store = world.store()
        others = asyncio.create_task(_scan_for_ever(store, scans_every_s))
        standby = StandbyLeader(store, items, lock, seen, "me", FleetConfig(), runtime)
        task = asyncio.create_task(standby.run())
        await test(world, seen)
        await stop(task)
        await stop(others)

    run(main())


async def _scan_for_ever(store, every_s):
    while every_s is not None:
        await store.scan()
        await asyncio.sleep(every_s)


def test_one_of_the_first_looks_as_often_as_a_leader_would_show_that_it_lives():
    async def test(world, seen):
        await asyncio.sleep(40)
        assert 10 <= len(seen.scans) <= 12
        world.fault("refuse", "Scan", times=5)
        await asyncio.sleep(40)
        assert len(seen.scans) >= 15

    watching(test, "a", "b", "me", "z")


def test_another_one_looks_now_and_then():
    async def test(world, seen):
        await asyncio.sleep(58)
        assert len(seen.scans) == 3

    watching(test, "a", "b", "c", "me")


def test_in_a_fleet_of_three_tables_the_metrics_are_in_their_own():
    async def test(world, seen):
        await asyncio.sleep(58)
        assert len(seen.scans) == 3
        world.fault("throttle", "Scan", times=0)

    watching(test, "a", "b", "c", "me", in_old_table=True)


def test_when_the_metrics_cannot_be_read_it_looks():
    async def test(world, seen):
        world.model.call("DeleteTable", {"TableName": METRICS})
        await asyncio.sleep(20)
        assert len(seen.scans) >= 5

    watching(test, "a", "b", "c", "me", in_old_table=True)


def test_a_leader_does_not_look_for_itself():
    async def test(world, seen):
        await asyncio.sleep(60)
        assert seen.scans == []

    watching(test, "me", leads=True)


def test_a_scan_of_another_purpose_serves():
    async def test(world, seen):
        await asyncio.sleep(60)
        asked = [one for one in world.requests if one[1] == "Scan"]
        assert len(asked) == 12
        assert len(seen.scans) >= 12

    watching(test, "me", scans_every_s=5.0)


def test_while_the_lock_shows_that_the_leader_lives_a_large_table_is_not_scanned():
    async def test(world, seen):
        await asyncio.sleep(300)
        assert len(seen.scans) == 1, "it has to know how large it is"
        world.lock.is_suspect = True
        world.lock.suspected.wake()
        await asyncio.sleep(0.1)
        assert len(seen.scans) == 2
        await asyncio.sleep(10)
        assert len(seen.scans) >= 4
        world.lock.is_suspect = False
        await asyncio.sleep(300)
        assert len(seen.scans) <= 6

    watching(test, "me", leases=30, announced=True)


def test_a_small_table_is_scanned_as_often_as_the_lock_is_looked_at():
    async def test(world, seen):
        await asyncio.sleep(120)
        scans = sum(one[1] == "Scan" for one in world.requests)
        assert 8 <= scans <= 16

    watching(test, "me", announced=True)
