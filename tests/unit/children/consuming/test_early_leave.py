"""A shard that is given up while its child has not begun."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import AsyncExitStack

import pytest

from kcl_mld.children.consuming.consumer_parts import PLACES, START_S as CHILD_START_S
from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.errors import ChildFailed
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from tests.fakes.children import ScriptedChildren, polite
from tests.sim.loop import run
from tests.unit.children.consumer_world import World

START_S = 300.0
AT_ONCE_S = 1.0


async def waits_and_says_so(child):
    """As kcl-mld-spark while Spark starts: only the end of its input interests it."""
    await child.receive()
    await child.say(action="leaseLost")
    try:
        async with asyncio.timeout(START_S):
            await child.receive()
            return
    except TimeoutError:
        pass
    await child.answer({"action": "initialize"})
    await polite(child)


async def answers_as_its_input_ends(child):
    """What it waited for came at that very moment."""
    await child.receive()
    await child.say(action="leaseLost")
    await child.receive()
    await child.answer({"action": "initialize"})


async def waits_deaf(child):
    child.ignores_eof = True
    await child.receive()
    await child.say(action="leaseLost")
    await asyncio.sleep(START_S)


async def prepares_in_silence(child):
    message = await child.receive()
    await asyncio.sleep(START_S)
    await child.answer(message)
    await polite(child)


def consuming(script, test):
    async def main():
        world = World(children=ScriptedChildren(script))
        await world.open()
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(10)
            began = world.clock.monotonic()
            await test(consumer)
            reason = await running
        return world, reason, world.clock.monotonic() - began

    return run(main())


@pytest.mark.parametrize(
    ("leave", "why"),
    [
        (lambda consumer: consumer.request_shutdown(), ShutdownReason.REQUESTED),
        (lambda consumer: consumer.lease_lost(), ShutdownReason.LEASE_LOST),
        (lambda consumer: consumer.request_hand_over(), ShutdownReason.REQUESTED),
    ],
)
@pytest.mark.parametrize("script", [waits_and_says_so, answers_as_its_input_ends])
def test_a_child_that_says_that_it_waits_is_ended_at_once(script, leave, why, caplog):
    caplog.set_level(logging.INFO)

    async def test(consumer):
        leave(consumer)

    world, reason, took_s = consuming(script, test)
    assert reason is why
    assert took_s < AT_ONCE_S
    assert world.children.heard() == ["initialize"]
    assert world.children.children[0].signals == []
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert "the shard is being given up, so its waiting child is ended" in caplog.text


def is_interrupted(after_s):
    """As by a Ctrl-C that reached it before it had a session of its own."""

    async def script(child):
        await child.receive()
        await asyncio.sleep(after_s)
        return -signal.SIGINT

    return script


@pytest.mark.parametrize("after_s", [9.9, 10.1])
def test_a_child_that_the_ctrl_c_of_a_stop_has_ended_has_not_failed(after_s, caplog):
    async def test(consumer):
        consumer.request_shutdown()

    world, reason, _ = consuming(is_interrupted(after_s), test)
    assert reason is ShutdownReason.REQUESTED
    assert world.children.heard() == ["initialize"]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_child_that_is_interrupted_while_nobody_stops_has_failed():
    async def main():
        world = World(children=ScriptedChildren(is_interrupted(10.0)))
        await world.open()
        async with asyncio.timeout(60), world.running(await world.hold()) as (_, running):
            await running

    with pytest.raises(ExceptionGroup) as failed:
        run(main())
    assert failed.group_contains(ChildFailed)


def test_one_that_does_not_obey_is_terminated():
    async def test(consumer):
        consumer.request_shutdown()

    world, reason, took_s = consuming(waits_deaf, test)
    assert reason is ShutdownReason.REQUESTED
    assert took_s < START_S / 3
    assert world.children.children[0].signals[0] == "TERM"


def test_a_child_that_prepares_in_silence_gets_the_whole_order_of_messages():
    """As in Java: it may be in the middle of something."""

    async def test(consumer):
        consumer.request_shutdown()

    world, reason, took_s = consuming(prepares_in_silence, test)
    assert reason is ShutdownReason.REQUESTED
    assert took_s > START_S / 2
    assert world.children.heard() == ["initialize", "shutdownRequested", "leaseLost"]


def test_a_shard_that_is_given_up_before_its_child_may_start_gets_none():
    async def main():
        world = World(children=ScriptedChildren(polite))
        await world.open()
        consumer = world.consumer(await world.hold())
        async with AsyncExitStack() as taken, asyncio.TaskGroup() as group:
            for _ in range(PLACES):
                await taken.enter_async_context(world.parts.starts.place(TRIM_HORIZON))
            running = group.create_task(consumer.run())
            await asyncio.sleep(CHILD_START_S / 2)
            consumer.lease_lost()
            await asyncio.sleep(CHILD_START_S / 4)
            assert world.children.children == []
        assert running.result() is ShutdownReason.LEASE_LOST
        assert world.children.children == []

    run(main())
