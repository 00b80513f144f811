"""A stuck child of every shard leaves its siblings and the other shards their full rate."""

from __future__ import annotations

import asyncio
import base64
from zlib import crc32

import pytest

from tests.fakes.children import ScriptedChildren
from tests.sim.loop import run
from tests.unit.children.consumer_world import STREAM, World

CHILDREN = 4
STUCK = 1
WORKS_S = 10.0
#: Until a reader goes on without a child that does not answer.
SETTLED_S = 80
MEASURED_S = 30
KEYS = [
    next(f"k{n}" for n in range(100) if crc32(f"k{n}".encode()) % CHILDREN == index)
    for index in range(CHILDREN)
]


class Program:
    """Confirms all it gets; one of the children stops reading."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, int], int] = {}

    async def __call__(self, child) -> None:
        shard_id, index = child.env["KCL_SHARD_ID"], int(child.env["KCL_MLD_CHILD"])
        until = asyncio.get_running_loop().time() + WORKS_S
        while (message := await child.receive()) is not None:
            child.heard.clear()
            if index == STUCK and asyncio.get_running_loop().time() >= until:
                await asyncio.Event().wait()
            if message["action"] == "processRecords":
                key = shard_id, index
                self.counts[key] = self.counts.get(key, 0) + len(message["records"])
                await child.checkpoint()
            await child.answer(message)


async def feed(world: World, shards: int, payload: bytes) -> None:
    """A record a second for every child of every shard."""
    data = base64.b64encode(payload).decode()
    while True:
        for shard in range(shards):
            for key in KEYS:
                record = {"StreamName": STREAM.name, "Data": data, "PartitionKey": key}
                hash_key = str(2**128 // shards * shard + 1)
                world.model.call("PutRecord", {**record, "ExplicitHashKey": hash_key})
        await asyncio.sleep(1)


async def delivered(shards: int, payload: bytes, **options) -> tuple[dict[int, list[int]], int]:
    """Records within the measured time by child, one number a shard; the most bytes held."""
    program = Program()
    world = World(
        shards=shards,
        children=ScriptedChildren(program),
        child={"per_shard": CHILDREN},
        **options,
    )
    await world.open()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(feed(world, shards, payload))]
        for shard in range(shards):
            consumer = world.consumer(await world.hold(f"shardId-{shard:012d}"))
            tasks.append(group.create_task(consumer.run()))
        await asyncio.sleep(WORKS_S + SETTLED_S)
        before = dict(program.counts)
        world.budget.pop_peak_bytes()
        world.budget.pop_peak_bytes()  # what was held before is forgotten
        await asyncio.sleep(MEASURED_S)
        after = dict(program.counts)
        for task in tasks:
            task.cancel()
    rates: dict[int, list[int]] = {}
    for (shard_id, index), count in after.items():
        rates.setdefault(index, []).append(count - before[shard_id, index])
    return rates, world.budget.pop_peak_bytes()


@pytest.mark.parametrize(
    ("shards", "payload_bytes", "budget_bytes", "max_records"),
    [
        (6, 100_000, 4 * 2**20, 20),  # the lines of the stuck ones stay in memory
        pytest.param(50, 20_000, 64 * 2**20, 10_000, marks=pytest.mark.proof),
    ],
)
def test_healthy_children_have_their_full_rate_beside_a_stuck_one(
    shards, payload_bytes, budget_bytes, max_records
):
    rates, peak = run(
        delivered(
            shards,
            b"x" * payload_bytes,
            budget_bytes=budget_bytes,
            retrieval={"max_records": max_records, "idle_s": 1.0},
        )
    )
    assert set(rates.pop(STUCK)) == {0}
    assert {len(counts) for counts in rates.values()} == {shards}
    assert all(count >= MEASURED_S - 3 for counts in rates.values() for count in counts), rates
    assert peak <= budget_bytes
