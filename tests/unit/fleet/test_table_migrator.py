"""Three tables become one, step by step, under the lock."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from kcl_mld.config.fleet import FleetConfig
from kcl_mld.errors import TransactionCanceled
from kcl_mld.fleet.fleet_upgrade import TABLE_LOOK_S, TableMigrator
from kcl_mld.fleet.leader_lock import LeaderLock
from kcl_mld.fleet.lock_store import LockStore
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.rules.leader_lock import LockTiming
from kcl_mld.fleet.rules.table_migration import TableStep
from kcl_mld.signals.model.conditions import Conditions
from tests.fakes.fleet_items import (
    COORDINATOR,
    METRICS,
    create_metrics_table,
    legacy,
    migration,
    status,
)
from tests.fakes.lease_world import TABLE, World, lease, load_nothing
from tests.fakes.reporting import reporter_with
from tests.sim.loop import run

BAKE_S = 3600.0


class Worker:
    """One process of a fleet with three tables."""

    def __init__(self, world, name, migrates):
        config = FleetConfig(migrates_tables=migrates, bake_s=BAKE_S)
        runtime = world.runtime(name)
        self.items = world.fleet_items(name)
        self.state = world.fleet_state(name, config=config, items=self.items)

        async def confirm_place():
            if not self.items.layout.is_single_table:
                await self.state.look()

        self.lock = LeaderLock(
            LockStore(world.dynamodb(name)),
            lambda: self.items.layout.lock,
            name,
            LockTiming(8.0, 4.0, 10.0),
            runtime,
            on_gain=lambda _former: None,
            on_loss=lambda: None,
            confirm_place=confirm_place,
            scanned=lambda: None,
            may_lead=lambda: True,
            on_call=lambda: None,
            on_news=lambda: None,
            conditions=Conditions(),
        )
        self.reporter = reporter_with(self.items, config, name, runtime)
        self.migrator = TableMigrator(
            self.state, self.items, world.store(name), self.lock, config, name, runtime
        )
        self.tasks = []

    async def start(self):
        await self.state.join(load_nothing, is_new=False)
        loops = (self.lock.run, self.reporter.run, self.migrator.run)
        self.tasks = [asyncio.create_task(loop()) for loop in loops]
        return self

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@asynccontextmanager
async def fleet(world, *names, migrates=False):
    workers = [await Worker(world, name, migrates).start() for name in names]
    await asyncio.sleep(1)
    yield workers
    for worker in workers:
        await worker.stop()


def keys(world, table, key="key"):
    return sorted(item[key]["S"] for item in world.model.items(table))


def stored(world, table=COORDINATOR):
    states = [item["tm"]["S"] for item in world.model.items(table) if "tm" in item]
    return [state.removeprefix("TABLE_MIGRATION_STATUS_") for state in states]


def of_three_tables(test, *items):
    async def main():
        world = World()
        world.create_table()
        create_metrics_table(world)
        legacy(world, migration(ClientVersion.CLIENT_VERSION_3X, "key"), *items)
        world.put(lease(0, lease_owner="a"), lease(1, lease_owner="b"))
        await test(world)

    run(main())


def test_a_fleet_goes_from_three_tables_to_one_in_two_deployments(caplog):
    async def test(world):
        async with fleet(world, "a", "b"):
            await asyncio.sleep(TABLE_LOOK_S + 1)
            assert stored(world) == ["INIT"]
            assert keys(world, METRICS, "wid") == ["a", "b"]
            await asyncio.sleep(3600 + TABLE_LOOK_S)
            assert stored(world) == ["DEPLOYED"]
        async with fleet(world, "a", "b", migrates=True) as workers:
            await asyncio.sleep(2 * TABLE_LOOK_S)
            assert stored(world) == ["PENDING"]
            assert keys(world, COORDINATOR) == ["Leader", "TableMigration3.5"]
            assert {"a", "b", "Migration3.0"} <= set(keys(world, TABLE, "leaseKey"))
            assert keys(world, METRICS, "wid") == []
            await asyncio.sleep(BAKE_S + TABLE_LOOK_S + 10)
            assert stored(world) == ["COMPLETE"]
            assert stored(world, TABLE) == ["COMPLETE"]
            for worker in workers:
                await worker.state.look()
            await asyncio.sleep(10)
            assert keys(world, COORDINATOR) == ["TableMigration3.5"]
            assert "Leader" in keys(world, TABLE, "leaseKey")
            assert sum([await worker.lock.is_leader() for worker in workers]) == 1
            assert all(worker.items.layout.is_single_table for worker in workers)

    of_three_tables(test)
    assert "bake time is over" in caplog.text


def test_never_two_lead_while_the_lock_moves():
    async def test(world):
        world.put_item(migration(ClientVersion.CLIENT_VERSION_3X))
        world.model.call(
            "DeleteItem", {"TableName": COORDINATOR, "Key": {"key": {"S": "Migration3.0"}}}
        )
        async with fleet(world, "a", "b", "c", migrates=True) as workers:
            most = 0
            for _ in range(int(BAKE_S + 200) * 2):
                await asyncio.sleep(0.5)
                most = max(most, sum([await one.lock.is_leader() for one in workers]))
            assert stored(world) == ["COMPLETE"]
            assert most == 1

    of_three_tables(test, {**status("PENDING"), "mts": {"N": "946684800000"}})


@pytest.mark.parametrize("fault", ["slow answer", "lose answer"])
def test_whoever_moves_the_lock_leads_no_more_while_it_waits_for_the_answer(fault):
    """A worker that starts then finds no lock in the lease table, and leads at once."""

    async def test(world):
        world.put_item(migration(ClientVersion.CLIENT_VERSION_3X))
        world.model.call(
            "DeleteItem", {"TableName": COORDINATOR, "Key": {"key": {"S": "Migration3.0"}}}
        )
        world.fault(fault, "TransactWriteItems", times=3, seconds=4.0)
        async with fleet(world, "a", migrates=True) as workers:
            while not stored(world, TABLE):  # noqa: ASYNC110 - the table does not tell
                await asyncio.sleep(0.1)
            async with fleet(world, "b", migrates=True) as more:
                most = 0
                for _ in range(600):
                    await asyncio.sleep(0.1)
                    leads = [await one.lock.is_leader() for one in (*workers, *more)]
                    most = max(most, sum(leads))
                assert most == 1

    of_three_tables(test, {**status("PENDING"), "mts": {"N": "946684800000"}})


def test_a_worker_that_cannot_move_takes_the_beginning_back():
    async def test(world):
        async with fleet(world, "a", "b") as (_, second):
            await asyncio.sleep(TABLE_LOOK_S + 1)
            assert stored(world) == ["INIT"]
            await second.stop()
            await asyncio.sleep(TABLE_LOOK_S + 1)
            assert stored(world) == []

    of_three_tables(test)


def test_what_is_written_into_the_old_table_takes_the_move_back():
    async def test(world):
        async with fleet(world, "a", "b", migrates=True) as workers:
            await asyncio.sleep(2 * TABLE_LOOK_S)
            assert stored(world) == ["PENDING"]
            stream = {"key": {"S": "s"}, "entityType": {"S": "STREAM"}, "streamId": {"S": "s"}}
            world.model.call("PutItem", {"TableName": COORDINATOR, "Item": stream})
            assert TableStep.TAKE_BACK in [await worker.migrator.look() for worker in workers]
            assert stored(world) == ["DEPLOYED"]
            await asyncio.sleep(2 * TABLE_LOOK_S)
            assert stored(world) == ["PENDING"]
            assert keys(world, COORDINATOR) == ["Leader", "TableMigration3.5"]

    of_three_tables(test, status("DEPLOYED"))


def test_what_is_written_during_the_move_is_moved_by_the_next_look():
    async def test(world):
        async with fleet(world, "a", "b", migrates=True) as workers:
            (leader,) = [one for one in workers if await one.lock.is_leader()]
            move, said = leader.items.move_items, []

            async def writes_one_more(worker_id):
                said.append(await move(worker_id))
                stream = {"key": {"S": "s"}, "entityType": {"S": "STREAM"}}
                if len(said) == 1:
                    world.model.call("PutItem", {"TableName": COORDINATOR, "Item": stream})

            leader.items.move_items = writes_one_more
            assert await leader.migrator.look() is None
            assert await leader.migrator.look() is TableStep.MOVE
            assert stored(world) == ["PENDING"]

    of_three_tables(test, status("DEPLOYED"))


def test_without_the_lock_nothing_is_moved(caplog):
    async def test(world):
        async with fleet(world, "a", "b", migrates=True) as workers:
            (leader,) = [one for one in workers if await one.lock.is_leader()]
            other = next(one for one in workers if one is not leader)
            assert await other.migrator.look() is None
            item = {**world.model.items(COORDINATOR)[0]}
            assert item
            world.model.call(
                "PutItem",
                {
                    "TableName": COORDINATOR,
                    "Item": {
                        "key": {"S": "Leader"},
                        "ownerName": {"S": "java"},
                        "leaseDuration": {"S": "120000"},
                        "recordVersionNumber": {"S": "v"},
                    },
                },
            )
            with pytest.raises(TransactionCanceled):
                await leader.migrator.look()
            assert stored(world) == ["DEPLOYED"]
            await asyncio.sleep(TABLE_LOOK_S + 1)
            assert stored(world) == ["DEPLOYED"]

    of_three_tables(test, status("DEPLOYED"))


def test_a_step_that_is_not_answered_is_tried_again(caplog):
    async def test(world):
        async with fleet(world, "a", "b"):
            await asyncio.sleep(TABLE_LOOK_S - 2)
            world.fault("refuse", "Scan")
            await asyncio.sleep(3)
            assert stored(world) == []
            await asyncio.sleep(TABLE_LOOK_S)
            assert stored(world) == ["INIT"]

    of_three_tables(test)
    assert "could not be moved into the lease table" in caplog.text
