"""A worker whose shards have several children says which limits are too low for them."""

import asyncio
import logging

import pytest

from kcl_mld.app.child_limits import PERIOD_S
from kcl_mld.ops.rules.doctor import FILES_OF_WORKER, THREADS_OF_WORKER, MachineLimits
from tests.fakes.shard_world import simulated
from tests.unit.app.streams_world import StreamsWorld

MIB = 2**20


def world_with(limits, **properties):
    world = StreamsWorld("orders", "clicks", **properties)
    world.limits = lambda: limits
    world.worker = world.new_worker()
    return world


def said(caplog):
    texts = (one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
    return [text for text in texts if text.startswith("Limit of ")]


@simulated
async def test_each_limit_is_said_once(caplog):
    few = MachineLimits(
        files=2 + 4 * 9 + FILES_OF_WORKER - 1,
        processes=9 + THREADS_OF_WORKER - 1,
        memory_bytes=90 * MIB,
    )
    world = world_with(few, **{"stream.orders.childrenPerShard": "8"})
    world.resident_bytes = 10 * MIB
    async with world.running():
        await asyncio.sleep(3 * PERIOD_S)
    found = said(caplog)
    assert [text.partition(":")[0] for text in found] == [
        "Limit of files",
        "Limit of processes",
        "Limit of memory",
    ]
    assert "one worker with 2 shards and 9 children needs about 238" in found[0]
    assert "raise it: ulimit -n" in found[0]
    assert "9 children take 90 MiB" in found[2]


@simulated
async def test_limits_that_suffice_are_not_spoken_of(caplog):
    enough = MachineLimits(
        files=2 + 4 * 9 + FILES_OF_WORKER,
        processes=9 + THREADS_OF_WORKER,
        memory_bytes=91 * MIB,
    )
    world = world_with(enough, **{"stream.orders.childrenPerShard": "8"})
    world.resident_bytes = 10 * MIB
    async with world.running():
        await asyncio.sleep(2 * PERIOD_S)
    assert said(caplog) == []


@simulated
async def test_shards_that_are_finished_or_not_read_here_do_not_count(caplog):
    limits = MachineLimits(files=2 + 8 + FILES_OF_WORKER)
    world = world_with(limits, childrenPerShard="1", **{"stream.x.childrenPerShard": "32"})
    await world.make_table()
    for number in range(9):
        done = {"checkpoint": {"S": "SHARD_END"}}
        world.add_row(world.identifier("orders"), f"shardId-99999999999{number}", **done)
        world.add_row("123456789012:gone:1", f"shardId-99999999999{number}")
    async with world.running():
        await asyncio.sleep(2 * PERIOD_S)
    assert said(caplog) == []


@pytest.mark.parametrize(
    "properties", [{}, {"childrenPerShard": "1"}, {"childrenPerShard": "2", "childPrefork": "true"}]
)
def test_one_child_for_a_shard_and_the_memory_of_forked_ones_are_not_checked(properties, caplog):
    @simulated
    async def test():
        files = 10 if properties.get("childrenPerShard", "1") == "1" else None
        world = world_with(MachineLimits(files=files, memory_bytes=MIB), **properties)
        world.resident_bytes = 10 * MIB
        async with world.running():
            await asyncio.sleep(2 * PERIOD_S)

    test()
    assert said(caplog) == []
