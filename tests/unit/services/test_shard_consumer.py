"""The life of a consumer, from its parents to each of its ends."""

from __future__ import annotations

import asyncio

from mld.decide.lifecycle import ShutdownReason
from tests.sim.loop import run
from tests.unit.services.consuming import FIRST, World


def test_a_shard_is_read_in_order_and_checkpointed_batch_by_batch():
    async def main():
        world = World()
        await world.open()
        numbers = world.put(b"one", b"two", b"three")
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(5)
            world.put(b"four")
            await asyncio.sleep(5)
            assert world.payloads() == [b"one", b"two", b"three", b"four"]
            consumer.request_shutdown()
            assert await running is ShutdownReason.REQUESTED
        assert world.children.heard() == [
            "initialize",
            "processRecords",
            "processRecords",
            "shutdownRequested",
            "leaseLost",
        ]
        row = await world.row()
        assert row.lease_owner is None
        assert row.checkpoint.sequence_number > numbers[-1]
        assert world.children.children[0].status == 0
        assert world.budget.used_bytes == 0
        assert world.renewer.get(FIRST) is None

    run(main())
