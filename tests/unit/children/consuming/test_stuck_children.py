"""A few children that stopped reading leave the other shards their full rate."""

from __future__ import annotations

import asyncio
import base64

import pytest

from kcl_mld.retrieval.byte_budget import STUCK_S
from tests.fakes.children import ScriptedChildren, polite
from tests.sim.loop import run
from tests.unit.children.consumer_world import STREAM, World

RECORD_BYTES = 100_000
#: Like the real limits: the largest answer, expected to be twice as large and counted twice while it
#: is read, fits once, not twice.
BATCH_RECORDS = 2
LINE_BYTES = 4 * RECORD_BYTES // 3 + 1000
WORKS_S = 10.0
MEASURED_S = 30
#: Until all of them are known to be stuck they hold the others up.
SETTLED_S = 5 * STUCK_S
HEALTHY = 3


async def gets_stuck(child):
    """Does its work for a while, and then never reads again."""
    until = asyncio.get_running_loop().time() + WORKS_S
    while (message := await child.receive()) is not None:
        await child.answer(message)
        if asyncio.get_running_loop().time() >= until:
            await asyncio.Event().wait()


def shard_of(index):
    return f"shardId-{index:012d}"


def hash_key(index, shards):
    return str(2**128 // shards * index + 1)


async def feed(world, shards):
    """A record a second for every shard."""
    while True:
        for index in range(shards):
            world.model.call(
                "PutRecord",
                {
                    "StreamName": STREAM.name,
                    "Data": base64.b64encode(b"x" * RECORD_BYTES).decode(),
                    "PartitionKey": "k",
                    "ExplicitHashKey": hash_key(index, shards),
                },
            )
        await asyncio.sleep(1)


async def delivered(stuck_children, budget_bytes):
    """What the healthy shards get while the others are stuck.

    Returns:
        for each healthy shard the number of records; the most bytes that were held at once.
    """
    shards = stuck_children + HEALTHY
    children = ScriptedChildren(*[gets_stuck] * stuck_children, polite)
    world = World(
        shards=shards,
        children=children,
        budget_bytes=budget_bytes,
        retrieval={"max_records": BATCH_RECORDS, "idle_s": 1.0},
    )
    await world.open()

    def counts():
        return [len(world.payloads(index)) for index in range(stuck_children, shards)]

    async with asyncio.TaskGroup() as group:
        tasks = []
        for index in range(shards):
            consumer = world.consumer(await world.hold(shard_of(index)))
            tasks.append(group.create_task(consumer.run()))
            await asyncio.sleep(0.1)  # children start in the order of the shards
        tasks.append(group.create_task(feed(world, shards)))
        await asyncio.sleep(WORKS_S + SETTLED_S)
        before = counts()
        world.budget.pop_peak_bytes()
        world.budget.pop_peak_bytes()  # what was held before is forgotten
        await asyncio.sleep(MEASURED_S)
        after = counts()
        for task in tasks:
            task.cancel()
    peak = world.budget.pop_peak_bytes()
    return [late - early for early, late in zip(before, after, strict=True)], peak


@pytest.mark.parametrize(
    ("stuck_children", "budget_lines"),
    [
        (3, 8),  # their lines fit, their read-ahead does not
        (10, 15),  # their lines fill the budget
        (20, 15),  # and more
    ],
)
def test_healthy_shards_have_their_full_rate_beside_stuck_ones(stuck_children, budget_lines):
    budget_bytes = budget_lines * LINE_BYTES
    rates, peak = run(delivered(stuck_children, budget_bytes))
    assert all(rate >= MEASURED_S - 3 for rate in rates), rates
    assert peak <= budget_bytes + stuck_children * BATCH_RECORDS * LINE_BYTES
