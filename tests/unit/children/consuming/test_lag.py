"""What a shard's status says of its lag and of a child that raises or does not answer."""

from __future__ import annotations

import asyncio

import pytest

from kcl_mld.config.config import ChildExceptionPolicy, ChildFailurePolicy
from kcl_mld.errors import ChildFailed, Throttled
from kcl_mld.observe.rules.readiness import ShardHealth, health_of
from tests.fakes.children import ScriptedChildren, polite
from tests.sim.loop import run
from tests.unit.children.consumer_world import World

CAUGHT = (
    b"Caught exception from action dispatch: boomTraceback (most recent call last):",
    b"ValueError: boom",
)


async def hangs_in_its_batch(child):
    await child.answer(await child.receive())
    await asyncio.sleep(10_000)


async def never_begins(child):
    await asyncio.sleep(10_000)


async def dies_in_its_batch(child):
    await child.answer(await child.receive())
    await child.receive()
    return 1


async def dies_at_once(child):
    await child.receive()
    await asyncio.sleep(0.1)
    return 1


async def takes_twenty_seconds(child):
    while (message := await child.receive()) is not None:
        if message["action"] == "processRecords":
            await asyncio.sleep(20)
            await child.checkpoint()
        await child.answer(message)


async def raises(child):
    while (message := await child.receive()) is not None:
        if message["action"] == "processRecords":
            child.unread_stderr += CAUGHT
        await child.answer(message)


def consuming(test, script, **child):
    async def main():
        world = World(children=ScriptedChildren(script), child=child, retrieval={"idle_s": 1.0})
        await world.open()
        consumer = world.consumer(await world.hold())
        running = asyncio.create_task(consumer.run())
        try:
            await test(world, consumer, running)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run(main())


@pytest.mark.parametrize(
    "script", [hangs_in_its_batch, never_begins, dies_in_its_batch, dies_at_once]
)
def test_records_that_are_not_answered_are_a_growing_lag(script):
    async def test(world, consumer, _running):
        world.put(b"one")
        for _ in range(8):
            await asyncio.sleep(10)
            world.put(b"more")
        shard = consumer.status()
        assert shard.processing_lag_s == pytest.approx(80, abs=1)
        assert shard.lag_s >= shard.processing_lag_s
        assert health_of(shard) is not ShardHealth.READ

    consuming(test, script, failure_policy=ChildFailurePolicy.RESTART, restart_attempts=100)


def test_the_clock_of_this_machine_does_not_matter():
    async def test(world, consumer, _running):
        real_wall = world.clock.wall
        world.parts.service_time = real_wall
        world.clock.wall = lambda: real_wall() - 86_400
        world.put(b"one")
        await asyncio.sleep(30)
        assert consumer.status().processing_lag_s == pytest.approx(30, abs=1)

    consuming(test, hangs_in_its_batch)


def test_a_child_that_is_slower_than_its_records_come_has_a_lag():
    async def test(world, consumer, _running):
        for _ in range(60):
            world.put(b"x")
            await asyncio.sleep(1)
        assert 18 < consumer.status().lag_s <= 60

    consuming(test, takes_twenty_seconds)


def test_a_shard_that_is_refused_has_a_growing_lag():
    async def test(world, consumer, _running):
        world.put(b"one")
        await asyncio.sleep(5)
        shard = consumer.status()
        assert shard.processing_lag_s is None
        assert shard.lag_s == shard.reading_lag_s <= 1.5

        async def refuses(**_request):
            raise Throttled("GetRecords", "ProvisionedThroughputExceededException", "slow down")

        world.kinesis.get_records = refuses
        await asyncio.sleep(60)
        assert consumer.status().lag_s == pytest.approx(60, abs=2)

    consuming(test, polite)


def test_before_the_first_answer_nothing_is_known():
    async def test(world, consumer, _running):
        shard = consumer.status()
        assert shard.processing_lag_s is shard.reading_lag_s is shard.lag_s is None

    consuming(test, polite)


def test_an_exception_of_the_processor_is_an_error_with_shard_and_range(caplog):
    async def test(world, consumer, running):
        first, second = world.put(b"one", b"two")
        await asyncio.sleep(10)
        (error,) = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
        assert error == (
            "shardId-000000000000: processRecords: its processor raised an exception: "
            f"ValueError: boom; records {first} to {second} may not be processed"
        )
        shard = consumer.status()
        assert (shard.child_exceptions, shard.last_error) == (1, error)
        assert world.metrics.values["ProcessTask", "ProcessorExceptions"] == [1.0]
        assert not running.done()

    consuming(test, raises)


def test_where_the_file_says_so_an_exception_of_the_processor_is_a_failed_child():
    async def test(world, _consumer, running):
        world.put(b"one")
        with pytest.raises(ChildFailed, match=r"ValueError: boom; records \d+ to \d+ may not"):
            await asyncio.wait_for(running, 60)

    consuming(test, raises, exception_policy=ChildExceptionPolicy.FAIL)


def test_and_its_batch_is_delivered_again():
    async def main():
        children = ScriptedChildren(raises, polite)
        child = {
            "exception_policy": ChildExceptionPolicy.FAIL,
            "failure_policy": ChildFailurePolicy.RESTART,
        }
        world = World(children=children, child=child)
        await world.open()
        (stored,) = world.put(b"one")
        consumer = world.consumer(await world.hold())
        running = asyncio.create_task(consumer.run())
        await asyncio.sleep(30)
        shard = consumer.status()
        assert (shard.checkpoint, shard.restarts, shard.child_exceptions) == (stored, 1, 1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    run(main())


def test_a_lease_that_is_lost_is_no_matter_of_the_policy(caplog):
    async def raises_at_the_end(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "leaseLost":
                child.unread_stderr += CAUGHT
            await child.answer(message)

    async def test(_world, consumer, running):
        await asyncio.sleep(5)
        consumer.lease_lost()
        await asyncio.wait_for(running, 60)
        assert "leaseLost: its processor raised an exception: ValueError: boom" in caplog.text

    consuming(test, raises_at_the_end, exception_policy=ChildExceptionPolicy.FAIL)
