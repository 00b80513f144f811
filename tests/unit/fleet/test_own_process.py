"""What a process notes of its end, and of the end of the one before it."""

import asyncio
from dataclasses import replace

from kcl_mld.config.fleet import FleetConfig
from kcl_mld.errors import ChildFailed, Denied, UnservableFleet
from kcl_mld.fleet.model.state_history import TableStatus
from kcl_mld.fleet.model.worker_life import failed_lives_in
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.lease import Lease
from tests.fakes.lease_world import TABLE, Fault, on_table_with
from tests.fakes.reporting import reporter_with

on_table = on_table_with()

LEASE = Lease(lease_key="shardId-1", shard_id="shardId-1", checkpoint=ExtendedSequenceNumber("77"))
FAILED = ChildFailed("shardId-1", "initialize", "a secret", 1)


def lives(world):
    return failed_lives_in(world.model.items(TABLE), "leaseKey")


def reporting(world, process, worker="me"):
    reporter = reporter_with(
        world.fleet_items(worker),
        FleetConfig(),
        worker,
        world.runtime(worker),
        process=process,
    )
    return asyncio.create_task(reporter.run())


async def ended(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_process_that_fails_leaves_an_item_and_takes_that_of_its_worker_away():
    async def on(world):
        process = world.own_process("me")
        task = reporting(world, process)
        await asyncio.sleep(7.5)
        process.fail(FAILED, LEASE)
        await ended(task)
        assert world.row("me") == {}
        (life,) = lives(world)
        assert (life.instance, life.worker_id, life.lived_s) == (process.instance.id, "me", 7)
        assert (life.lease_key, life.position) == ("shardId-1", "77")
        assert life.why == "its child failed at initialize (exit status 1)"

    on_table(on)


def test_a_process_that_is_asked_to_stop_leaves_nothing():
    async def on(world):
        task = reporting(world, world.own_process("me"))
        await asyncio.sleep(7)
        await ended(task)
        assert world.model.items(TABLE) == []

    on_table(on)


def test_a_process_that_never_reported_leaves_nothing():
    async def on(world):
        world.faults.append(Fault("throttle", "UpdateItem", times=100))
        process = world.own_process("me")
        task = reporting(world, process)
        process.fail(FAILED, LEASE)
        await ended(task)
        assert world.model.items(TABLE) == []

    on_table(on)


def test_a_long_life_is_noted_only_where_it_ended_at_a_lease():
    async def on(world):
        process = world.own_process("me")
        await asyncio.sleep(361)
        process.fail(UnservableFleet("it was rolled back"), None)
        await process.ended()
        assert lives(world) == ()
        process.fail(ChildFailed("shardId-1", None, "a secret"), LEASE)
        await process.ended()
        (life,) = lives(world)
        assert (life.lived_s, life.why) == (361, "its child failed while idle")

    on_table(on)


def test_what_is_no_failure_of_a_child_is_noted_by_its_kind():
    async def on(world):
        process = world.own_process("me")
        process.fail(RuntimeError("a secret"), None)
        await process.ended()
        (life,) = lives(world)
        assert (life.why, life.lease_key, life.position) == ("RuntimeError", None, None)

    on_table(on)


def test_the_next_process_under_the_id_notes_one_that_was_killed():
    async def on(world):
        first, second = world.own_process("me"), world.own_process("me")
        task = reporting(world, first)
        await asyncio.sleep(40)
        # kill -9: its item stays.
        item = world.row("me")
        await ended(task)
        world.put_item(item)
        task = reporting(world, second)
        await asyncio.sleep(1)
        (life,) = lives(world)
        assert (life.instance, life.worker_id, life.lived_s) == (first.instance.id, "me", 30)
        assert (life.lease_key, life.why) == (None, "it ended without a word")
        await asyncio.sleep(60)
        assert len(lives(world)) == 1
        await ended(task)

    on_table(on)


def test_the_end_of_a_long_life_and_of_another_program_is_not_noted():
    async def on(world):
        process = world.own_process("me")
        task = reporting(world, process)
        await asyncio.sleep(400)
        item = world.row("me")
        await ended(task)
        world.put_item(item)
        again = reporting(world, world.own_process("me"))
        await asyncio.sleep(1)
        await ended(again)
        # A Java worker went on under the id: it keeps the properties.
        world.put_item({**item, "lut": {"N": str(int(item["lut"]["N"]) - 390)}})
        again = reporting(world, world.own_process("me"))
        await asyncio.sleep(1)
        await ended(again)
        assert lives(world) == ()

    on_table(on)


def test_in_a_fleet_whose_leases_are_taken_nothing_is_noted():
    async def on(world):
        process = world.own_process("me", is_assigned=False)
        process.fail(FAILED, LEASE)
        await process.ended()
        assert world.model.items(TABLE) == []

    on_table(on)


def test_nothing_is_noted_while_the_metrics_have_a_table_of_their_own():
    async def on(world):
        items = world.fleet_items("me")
        items.layout = replace(
            items.layout,
            status=TableStatus.TABLE_MIGRATION_STATUS_INIT,
            writes_to_lease_table=False,
        )
        process = world.own_process("me", items)
        process.fail(FAILED, LEASE)
        await process.ended()
        assert world.model.items(TABLE) == []

    on_table(on)


def test_a_table_that_refuses_the_item_does_not_keep_the_process_from_ending(caplog):
    async def on(world):
        process = world.own_process("me")
        world.faults.append(Fault("refuse", "PutItem", error=Denied("PutItem", "AccessDenied")))
        process.fail(FAILED, LEASE)
        with caplog.at_level("INFO"):
            await process.ended()
        assert "Could not note in the table" in caplog.text
        assert lives(world) == ()

    on_table(on)
