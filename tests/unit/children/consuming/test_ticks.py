"""Ticks: an idle child hears something in time, and nothing else changes."""

from __future__ import annotations

import asyncio
import itertools
import logging

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from tests.fakes.children import ScriptedChildren
from tests.unit.children.consumer_world import FIRST
from tests.unit.children.consuming.test_shard_consumer import in_world
from tests.unit.children.test_record_processor import answering, talking


def ticking(*seconds, during="initialize", work_s=0.0):
    """A polite child that asks for ticks, and notes when each batch came."""

    async def script(child):
        child.times = []
        loop = asyncio.get_running_loop()
        while (message := await child.receive()) is not None:
            if message["action"] == during:
                for period in seconds:
                    await child.say(action="tick", seconds=period)
            if message["action"] == "processRecords":
                child.times.append(loop.time())
                await asyncio.sleep(work_s)
            if message["action"] == "shardEnded" or message.get("records"):
                await child.checkpoint()
            await child.answer(message)
        return 0

    return ScriptedChildren(script)


def batches(world, index=-1):
    """Records of each batch that a child got, and what it was told of the lag."""
    return [
        (len(message["records"]), message["millisBehindLatest"])
        for message in world.children.children[index].heard
        if message["action"] == "processRecords"
    ]


def gaps(world):
    times = world.children.children[-1].times
    return [later - earlier for earlier, later in itertools.pairwise(times)]


async def stalls(**_request):
    """Kinesis does not answer."""
    await asyncio.sleep(1000)


def consuming(test, children, **settings):
    """Run ``test(world, consumer)`` beside a consumer, then stop it."""

    async def main(world):
        async with world.consuming(await world.hold()) as consumer:
            await test(world, consumer)

    in_world(main, children=children, **settings)


def test_an_idle_child_hears_something_at_its_own_pace():
    async def test(world, _consumer):
        await asyncio.sleep(20.5)
        assert 18 <= len(batches(world)) <= 20
        assert {count for count, _ in batches(world)} == {0}
        assert gaps(world) == pytest.approx([1.0] * len(gaps(world)), abs=0.1)

    consuming(test, ticking(1.0))


def test_a_child_that_does_not_ask_is_left_alone():
    async def test(world, _consumer):
        await asyncio.sleep(20)
        assert batches(world) == []

    consuming(test, ticking())


def test_the_time_a_child_works_is_no_idle_time():
    async def test(world, _consumer):
        await asyncio.sleep(20)
        assert gaps(world) == pytest.approx([4.0] * len(gaps(world)), abs=0.1)

    consuming(test, ticking(1.0, work_s=3.0))


def test_a_tick_can_be_asked_for_in_any_message_and_changed():
    async def test(world, _consumer):
        await asyncio.sleep(5)
        assert batches(world) == []
        world.put(b"one")
        await asyncio.sleep(20)
        assert batches(world)[0][0] == 1
        assert gaps(world) == pytest.approx([2.5] * len(gaps(world)), abs=0.1)

    consuming(test, ticking(9.0, 2.5, during="processRecords"))


def test_records_come_between_ticks_and_none_is_lost():
    async def test(world, _consumer):
        sent = []
        for number in range(40):
            world.put(payload := b"%d" % number)
            sent.append(payload)
            await asyncio.sleep(0.37)
        await asyncio.sleep(5)
        assert world.payloads() == sent
        counts = [count for count, _ in batches(world)]
        assert 0 in counts
        assert sum(counts) == 40
        assert all(behind is not None for _, behind in batches(world)[1:])

    consuming(test, ticking(0.1), retrieval={"idle_s": 0.5})


def test_ticks_go_on_while_kinesis_stalls():
    async def test(world, _consumer):
        world.put(b"one")
        await asyncio.sleep(5)

        world.polling.kinesis.get_records = stalls
        before = len(batches(world))
        await asyncio.sleep(30)
        assert len(batches(world)) - before >= 29
        assert batches(world)[-1] == (0, 0)

    consuming(test, ticking(1.0))


def test_ticks_go_on_while_a_batch_cannot_be_read():
    async def test(world, _consumer):
        await asyncio.sleep(2)
        write = world.parts.lines.write

        async def malformed(fetched, *rest):
            if fetched.batch.is_empty:
                return await write(fetched, *rest)
            raise MalformedData("a torn record")

        world.parts.lines.write = malformed
        world.put(b"one")
        await asyncio.sleep(5)
        before = len(batches(world))
        await asyncio.sleep(20)
        assert len(batches(world)) - before >= 9
        world.parts.lines.write = write
        await asyncio.sleep(5)
        assert world.payloads() == [b"one"]

    consuming(test, ticking(1.0))


def test_a_tick_is_no_delivery():
    async def test(world, consumer):
        await asyncio.sleep(10)
        assert len(batches(world)) >= 15
        values = world.metrics.values
        assert not any(values["ProcessTask", "RecordsProcessed"])
        assert len(values["ProcessTask", "Success"]) < 10  # one for each answer of Kinesis
        assert ("ProcessTask", "RecordProcessor.processRecords.Time") not in values
        assert consumer.status().checkpoint == str(TRIM_HORIZON)

    consuming(test, ticking(0.5))


def test_no_tick_follows_a_reason_to_stop():
    async def main(world):
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5.05)
        heard = world.children.heard()
        end = heard.index("shutdownRequested")
        assert heard[end:] == ["shutdownRequested", "leaseLost"]
        assert set(heard[1:end]) == {"processRecords"}

    in_world(main, children=ticking(0.1))


def test_no_tick_follows_the_loss_of_the_lease():
    async def main(world):
        held = await world.hold()
        async with world.running(held) as (_, running):
            await asyncio.sleep(5.05)
            world.polling.kinesis.get_records = stalls  # no answer makes the consumer look
            await asyncio.sleep(3)
            before = len(batches(world))
            assert before > 6
            await world.renewer.drop(FIRST, held.token)  # nobody tells the consumer
            assert await running is ShutdownReason.LEASE_LOST
        assert len(batches(world)) == before
        assert world.children.heard()[-1] == "leaseLost"

    in_world(main, children=ticking(1.0))


def test_the_end_of_a_shard_comes_after_its_last_batch_as_ever():
    async def main(world):
        world.put(b"one")
        async with world.running(await world.hold()) as (_, running):
            await asyncio.sleep(5)
            world.split()
            assert await running is ShutdownReason.SHARD_END
        assert world.children.heard()[-1] == "shardEnded"
        assert world.payloads() == [b"one"]

    in_world(main, children=ticking(0.3))


def test_a_new_child_must_ask_again():
    async def dies(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "initialize":
                await child.say(action="tick", seconds=0.5)
            if message["action"] == "processRecords":
                return 3
            await child.answer(message)
        return 0

    async def quiet(child):
        while (message := await child.receive()) is not None:
            await child.answer(message)
        return 0

    async def test(world, _consumer):
        await asyncio.sleep(20)
        assert len(world.children.children) == 2
        assert batches(world) == []

    restart = {"failure_policy": ChildFailurePolicy.RESTART}
    consuming(test, ScriptedChildren(dies, quiet), child=restart)


@pytest.mark.parametrize("seconds", [0, 0.05, 3601, -1, "1", None, True])
def test_a_period_that_cannot_be_kept_is_ignored_with_one_error(seconds, caplog):
    async def asks(child, _message):
        await child.say(action="tick", seconds=seconds)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        assert world.processor.tick_due_at is None
        errors = [r for r in caplog.records if r.levelno == logging.ERROR]
        assert len(errors) == 1
        assert "shard-1" in errors[0].getMessage()
        assert "0.1 to 3600" in errors[0].getMessage()

    talking(test, answering(initialize=asks, processRecords=asks))
