"""A child that ends while it has nothing to answer is noticed at once, whatever is waited for."""

from __future__ import annotations

import asyncio

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.errors import ChildFailed, Unreachable
from tests.fakes.children import ScriptedChildren, polite
from tests.sim.loop import run
from tests.unit.children.consumer_world import STREAM, World

#: After the child's end.
NOTICED_S = 1.0
LIFE_S = 30.0
RESTART = {"failure_policy": ChildFailurePolicy.RESTART, "restart_backoff_s": 0.1}
#: Far longer than the test waits.
LONG_S = 10_000.0


def ends_idle(end):
    """A child that answers everything until its time is over, and then ends as told."""

    async def script(child):
        async def ends():
            await asyncio.sleep(LIFE_S)
            end(child)

        async with asyncio.TaskGroup() as group:
            group.create_task(ends())
            await polite(child)

    return script


def exits(child):
    child.stderr(b"Traceback")
    child.stderr(b"MemoryError")
    child.end(7)


def exits_leaving_stdout_open(child):
    child.holds_stdout = True
    child.end(7)


def closes_stdout(child):
    child.ignores_eof = True
    child.stdout.close()


def nothing(_world):
    """An idle shard."""


def cannot_be_read(world):
    world.put(b"one")
    real = world.kinesis.get_records

    async def get_records(**request):
        body = await real(**request)
        return body.replace(b'"PartitionKey":"k"', b'"PartitionKey":[]')

    world.kinesis.get_records = get_records


def end_cannot_be_settled(world):
    world.model.call(
        "SplitShard",
        {
            "StreamName": STREAM.name,
            "ShardToSplit": "shardId-000000000000",
            "NewStartingHashKey": str(2**127),
        },
    )

    async def failing(*_arguments, **_more):
        raise Unreachable("GetItem", "refused")

    world.parts.shard_end.create_child_leases = failing


def kinesis_stalls(world):
    async def stalls(**_request):
        await asyncio.Event().wait()

    world.kinesis.get_records = stalls


def consuming(test, script, *, prepare=nothing, scripts=(), **settings):
    async def main():
        children = ScriptedChildren(script, *scripts)
        world = World(children=children, retrieval={"task_backoff_s": LONG_S}, **settings)
        await world.open()
        prepare(world)
        await test(world, world.consumer(await world.hold()))
        assert world.budget.used_bytes == 0

    run(main())


@pytest.mark.parametrize(
    "prepare", [nothing, cannot_be_read, end_cannot_be_settled, kinesis_stalls]
)
def test_the_end_of_an_idle_child_is_a_failure_at_once(prepare, caplog):
    async def test(world, consumer):
        began = world.clock.monotonic()
        with pytest.raises(ChildFailed) as failed:
            await consumer.run()
        assert LIFE_S <= world.clock.monotonic() - began < LIFE_S + NOTICED_S
        assert (failed.value.action, failed.value.child_exit_code) == (None, 7)
        assert str(failed.value) == (
            "shardId-000000000000: child failed while idle: it exited unexpectedly;"
            " its stderr: MemoryError (exit status 7)"
        )
        errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert errors[-1] == str(failed.value)

    consuming(test, ends_idle(exits), prepare=prepare)


def test_another_child_is_started_where_that_is_configured():
    async def test(world, consumer):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(LIFE_S + NOTICED_S + 0.2)
            assert len(world.children.children) == 2
            assert "exit status 7" in consumer.status().last_error
            world.put(b"one")
            await asyncio.sleep(5)
            assert world.payloads(1) == [b"one"]
            consumer.request_shutdown()
            assert await running is ShutdownReason.REQUESTED

    consuming(test, ends_idle(exits), scripts=(polite,), child=RESTART)


def test_an_exit_is_noticed_although_something_holds_stdout_open():
    async def test(_world, consumer):
        with pytest.raises(ChildFailed, match=r"while idle: it exited .*exit status 7"):
            await consumer.run()

    consuming(test, ends_idle(exits_leaving_stdout_open))


def test_a_child_that_closes_its_stdout_is_ended():
    async def test(world, consumer):
        with pytest.raises(ChildFailed, match=r"while idle: it closed its stdout$"):
            await consumer.run()
        assert world.children.children[0].signals == ["TERM"]

    consuming(test, ends_idle(closes_stdout))


def test_the_end_between_two_ticks_is_noticed():
    async def ticking(child):
        await child.say(action="tick", seconds=20.0)
        await ends_idle(exits)(child)

    async def test(world, consumer):
        began = world.clock.monotonic()
        with pytest.raises(ChildFailed, match="while idle"):
            await consumer.run()
        assert world.clock.monotonic() - began < LIFE_S + NOTICED_S
        assert world.children.heard() == ["initialize", "processRecords"]

    consuming(test, ticking, prepare=kinesis_stalls)


def test_what_an_idle_child_prints_waits_for_its_next_message_as_in_java(caplog):
    async def talkative(child):
        await child.answer(await child.receive())
        await child.print(b"between two messages")
        await child.print(b'{"action":"status","responseFor":"processRecords"}')
        await child.receive()
        await asyncio.Event().wait()

    async def test(world, consumer):
        caplog.set_level("INFO")
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(10)
            assert "between two messages" not in caplog.text
            world.put(b"one")
            await asyncio.sleep(5)
            assert "between two messages" in caplog.text
            assert consumer.status().last_error is None
            running.cancel()

    consuming(test, talkative)


def test_a_child_that_floods_its_stdout_while_idle_is_slowed_down_by_its_pipe():
    printed = 0

    async def flooding(child):
        nonlocal printed
        await child.answer(await child.receive())
        for _ in range(1000):
            await child.print(b"x" * 1023)
            printed += 1024
        await polite(child)

    async def test(world, consumer):
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(10)
            assert printed < 300_000
            world.put(b"one")
            await asyncio.sleep(5)
            assert world.payloads() == [b"one"]
            assert printed == 1_024_000
            consumer.request_shutdown()
            await running

    consuming(test, flooding)
