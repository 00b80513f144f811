"""A leader gives a lease to another worker while its shard is read: the old owner's side."""

from __future__ import annotations

import asyncio

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.errors import Unreachable
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON
from tests.fakes.children import ScriptedChildren, ends_at, polite
from tests.sim.loop import run
from tests.unit.children.consumer_world import FIRST, World


def in_world(test, *scripts, **settings):
    """Run a scenario in a fresh world."""

    async def main():
        world = World(children=ScriptedChildren(*scripts), **settings)
        await world.open()
        await test(world)
        assert world.budget.used_bytes == 0
        assert all(child.status is not None for child in world.children.children)

    run(main())


async def begin(world, to="next"):
    """What a leader writes: leases.md 2.8."""
    await world.dynamodb.update_item(
        TableName="app",
        Key={"leaseKey": {"S": FIRST}},
        UpdateExpression="SET leaseOwner = :to, checkpointOwner = :me",
        ExpressionAttributeValues={":to": {"S": to}, ":me": {"S": "w1"}},
    )


def owners(row):
    return row.lease_owner, row.checkpoint_owner


def test_the_child_finishes_and_the_next_owner_has_the_lease_before_the_child_has_ended():
    ends = asyncio.Event()

    async def slow_to_end(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "shutdownRequested":
                assert await child.checkpoint() is None
            if message["action"] == "leaseLost":
                await ends.wait()
            await child.answer(message)
        return 0

    async def test(world):
        (first,) = world.put(b"one")
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            await begin(world)
            (last,) = world.put(b"two")
            before = await world.row()
            consumer.request_hand_over()
            await asyncio.sleep(0.5)
            row = await world.row()
            assert owners(row) == ("next", None)
            assert row.lease_counter == before.lease_counter + 2  # its checkpoint, its hand-over
            assert row.owner_switches_since_checkpoint == 0
            assert world.renewer.get(FIRST) is None
            assert not running.done()
            ends.set()
            assert await running is ShutdownReason.REQUESTED
        assert world.children.heard() == [
            "initialize",
            "processRecords",
            "shutdownRequested",
            "leaseLost",
        ]
        # The next owner reads what came meanwhile, and nothing twice.
        assert int(first) <= int((await world.row()).checkpoint.sequence_number) < int(last)
        assert world.payloads() == [b"one"]
        assert world.metrics.values["", "HandOffs"] == [1]

    in_world(test, slow_to_end)


def test_a_child_that_hangs_holds_the_lease_up_for_as_long_as_is_configured():
    answers = asyncio.Event()

    async def hanging(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                await answers.wait()
                assert await child.checkpoint() == "ShutdownException"
            await child.answer(message)
        return 0

    async def test(world):
        world.put(b"one")
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            await begin(world)
            consumer.request_hand_over()
            await asyncio.sleep(29.9)
            assert owners(await world.row()) == ("next", "w1")
            await asyncio.sleep(0.2)
            assert owners(await world.row()) == ("next", None)
            assert not running.done()
            answers.set()
            assert await running is ShutdownReason.LEASE_LOST
        assert world.children.heard() == ["initialize", "processRecords", "leaseLost"]
        assert (await world.row()).checkpoint == TRIM_HORIZON
        assert world.metrics.values["", "HandOffs"] == [0]

    in_world(test, hanging)


def test_without_a_time_the_lease_is_handed_over_at_once():
    async def test(world):
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            await begin(world)
            consumer.request_hand_over()
            await asyncio.sleep(0.1)
            assert owners(await world.row()) == ("next", None)
            await running

    in_world(test, polite, leases={"hand_off_timeout_s": 0.0})


def test_a_child_that_fails_meanwhile_does_not_hold_the_lease_up():
    failing = ends_at("shutdownRequested", 3)

    async def test(world):
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            await begin(world)
            consumer.request_hand_over()
            assert await running is ShutdownReason.REQUESTED
        assert owners(await world.row()) == ("next", None)

    in_world(test, failing, child={"failure_policy": ChildFailurePolicy.RESTART})


def test_a_shard_that_ends_meanwhile_is_ended_here_and_its_lease_kept_for_the_cleanup():
    async def test(world):
        world.put(b"one")
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            world.split()
            while consumer.status().reason is None:  # noqa: ASYNC110 - it does not tell
                await asyncio.sleep(0.001)
            await begin(world)
            consumer.request_hand_over()
            assert await running is ShutdownReason.SHARD_END
        row = await world.row()
        assert row.checkpoint == SHARD_END
        assert owners(row) == ("next", "w1")
        assert len(row.child_shard_ids) == 2
        held = world.renewer.get(FIRST)
        assert await world.renewer.release(FIRST, held.token)
        assert owners(await world.row()) == ("next", None)

    in_world(test)


def test_the_end_of_a_shard_that_cannot_be_settled_is_left_to_the_next_owner():
    async def test(world):
        consumer = world.consumer(await world.hold())
        create = world.store.create_if_absent

        async def refuse(_lease):
            raise Unreachable("PutItem", "EndpointConnectionError")

        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(2)
            world.store.create_if_absent = refuse
            world.split()
            await asyncio.sleep(5)
            assert consumer.status().reason == "SHARD_END"
            await begin(world)
            consumer.request_hand_over()
            assert await running is ShutdownReason.REQUESTED
        world.store.create_if_absent = create
        row = await world.row()
        assert owners(row) == ("next", None)
        assert row.checkpoint == TRIM_HORIZON
        assert world.children.heard() == ["initialize", "shutdownRequested", "leaseLost"]

    in_world(test)


@pytest.mark.parametrize("waits_for", ["parent", "nothing"])
def test_a_consumer_without_a_child_hands_over_at_once(waits_for):
    async def test(world):
        parents = ("shardId-000000000007",) if waits_for == "parent" else ()
        if parents:
            await world.hold(*parents)
        consumer = world.consumer(await world.hold(parents=parents))
        await begin(world)
        async with asyncio.TaskGroup() as group:
            if parents:
                running = group.create_task(consumer.run())
                await asyncio.sleep(1)
                consumer.request_hand_over()
            else:
                consumer.request_hand_over()
                running = group.create_task(consumer.run())
            assert await running is ShutdownReason.REQUESTED
        assert owners(await world.row()) == ("next", None)

    in_world(test)


def test_the_worker_stops_meanwhile():
    async def test(world):
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            await begin(world)
            consumer.request_shutdown()
            consumer.request_hand_over()
            assert await running is ShutdownReason.REQUESTED
        assert owners(await world.row()) == ("next", None)
        assert world.children.heard() == ["initialize", "shutdownRequested", "leaseLost"]

    in_world(test)
