"""What ends a consumer's waits: a reason to leave ends them all, another shard's end only one."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.errors import Unreachable
from tests.fakes.children import ScriptedChildren, ends_at
from tests.sim.loop import run
from tests.unit.children.consumer_world import STREAM, World

#: Pauses are between half of this and all of it.
BACKOFF_S = 40.0
TASK_BACKOFF_S = 5.0


crashing = ends_at("processRecords", 3)


async def forgetful(child):
    """Never checkpoints the shard's end."""
    while (message := await child.receive()) is not None:
        await child.answer(message)
    return 0


class Waiting:
    """A consumer in a world where other shards end all the time."""

    def __init__(self, world):
        self.world = world
        self.consumer = None

    async def others_end(self, seconds):
        for _ in range(int(seconds * 10)):
            self.consumer.parents_changed()
            await asyncio.sleep(0.1)


def waiting(test, *, prepare=lambda world: None, **settings):
    async def main():
        world = World(**settings)
        await world.open()
        prepare(world)
        here = Waiting(world)
        here.consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(here.consumer.run())
            await test(here)
            here.consumer.request_shutdown()
            assert await running is ShutdownReason.REQUESTED

    run(main())


def one_record(world):
    world.put(b"one")


def split(world):
    world.model.call(
        "SplitShard",
        {
            "StreamName": STREAM.name,
            "ShardToSplit": "shardId-000000000000",
            "NewStartingHashKey": str(2**127),
        },
    )


RESTART = {"failure_policy": ChildFailurePolicy.RESTART, "restart_backoff_s": BACKOFF_S}


@pytest.mark.parametrize(("prepare", "script"), [(one_record, crashing), (split, forgetful)])
def test_the_pause_before_a_new_child_is_kept_while_other_shards_end(prepare, script):
    times = []

    async def start_noting_the_time(child):
        times.append(asyncio.get_running_loop().time())
        return await script(child)

    async def test(here):
        await here.others_end(2.5 * BACKOFF_S)
        assert len(times) >= 3
        assert all(later - earlier >= BACKOFF_S / 2 for earlier, later in pairwise(times))

    children = ScriptedChildren(start_noting_the_time)
    waiting(test, prepare=prepare, children=children, child=RESTART)


def test_a_stop_and_a_lost_lease_end_the_pause_before_a_new_child():
    async def main():
        for leave, reason in (
            ("request_shutdown", ShutdownReason.REQUESTED),
            ("lease_lost", ShutdownReason.LEASE_LOST),
        ):
            world = World(children=ScriptedChildren(crashing), child=RESTART)
            await world.open()
            one_record(world)
            async with world.running(await world.hold()) as (consumer, running):
                await asyncio.sleep(5)
                began = world.clock.monotonic()
                getattr(consumer, leave)()
                assert await running is reason
            assert world.clock.monotonic() - began < 1
            assert len(world.children.children) == 1

    run(main())


def test_a_batch_that_cannot_be_read_is_not_read_again_at_once_because_others_end():
    times = []

    def prepare(world):
        one_record(world)
        real = world.kinesis.get_records

        async def get_records(**request):
            body = await real(**request)
            if b"PartitionKey" in body:
                times.append(world.clock.monotonic())
            return body.replace(b'"PartitionKey":"k"', b'"PartitionKey":[]')

        world.kinesis.get_records = get_records

    async def test(here):
        await here.others_end(30)
        assert len(times) >= 4
        assert all(later - earlier >= TASK_BACKOFF_S for earlier, later in pairwise(times))

    waiting(test, prepare=prepare, retrieval={"task_backoff_s": TASK_BACKOFF_S, "max_pending": 0})


@pytest.mark.parametrize("others_end", [True, False])
def test_an_end_that_cannot_be_settled_is_tried_again_after_its_pause(others_end):
    times = []

    async def main():
        world = World(retrieval={"task_backoff_s": TASK_BACKOFF_S})
        await world.open()
        split(world)

        async def failing(*_arguments, **_more):
            times.append(world.clock.monotonic())
            if len(times) < 4:
                raise Unreachable("GetItem", "refused")

        world.parts.shard_end.create_child_leases = failing
        here = Waiting(world)
        here.consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(here.consumer.run())
            if others_end:
                await here.others_end(20)
            assert await running is ShutdownReason.SHARD_END
        assert len(times) == 4
        assert all(later - earlier >= TASK_BACKOFF_S for earlier, later in pairwise(times))

    run(main())
