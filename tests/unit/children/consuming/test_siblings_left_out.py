"""Several children of one shard at the edges: full, left out, failed at the end, not written."""

from __future__ import annotations

import asyncio

import pytest

from kcl_mld.children.consuming.part_queue import PartQueue
from kcl_mld.children.rules import delivery
from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.children.rules.routing import Part
from kcl_mld.config.config import ChildConfirms, ChildFailurePolicy
from kcl_mld.errors import ChildFailed, Unreachable
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.retrieval.byte_budget import ByteBudget
from tests.fakes.aggregate import aggregate
from tests.fakes.children import ScriptedChildren
from tests.fakes.clock import LoopClock
from tests.sim.loop import run
from tests.unit.children.consumer_world import World
from tests.unit.children.consuming.test_several_children import (
    CARRY_CHECKPOINTS,
    KEYS,
    Program,
    in_order,
    keys_of,
    put,
    world_of,
)

RESTART = {"failure_policy": ChildFailurePolicy.RESTART}


async def dies(child, after_s: float) -> None:
    await asyncio.sleep(after_s)
    child.end(3)


def test_a_child_that_was_idle_for_long_is_not_left_out_when_its_first_part_fills_it(caplog):
    async def test():
        program = Program(2)
        world = world_of(program, retrieval={"max_records": 6})
        await world.open()
        async with world.consuming(await world.hold()):
            for start, index in ((0, 1), (12, 0), (24, 1)):
                await asyncio.sleep(100)
                put(world, 12, start, keys=keys_of(index, 2))
            await asyncio.sleep(100)
        assert program.payloads() == [str(number) for number in range(36)]
        assert not [one for one in caplog.records if "go on without" in one.message]

    run(test())


def test_a_child_that_memory_leaves_out_before_it_started_starts_and_reads_again():
    async def test():
        program = Program(2)
        world = world_of(program)
        await world.open()
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(10)
            put(world, 12, keys=keys_of(1, 2))
            slot = consumer._feed.children.slots[1]
            assign = slot.assign

            def assign_and_leave(*arguments):
                assign(*arguments)
                slot.assign = assign
                slot.leave()

            slot.assign = assign_and_leave
            await asyncio.sleep(30)
        assert program.payloads() == [str(number) for number in range(12)]

    run(test())


def test_a_part_that_is_being_processed_does_not_hold_the_reader_however_large():
    async def test():
        program = Program(2)

        async def slow(_child, _message):
            await asyncio.sleep(40)

        program.manners[1] = slow
        world = world_of(program, retrieval={"max_records": 4})
        await world.open()
        async with world.consuming(await world.hold()):
            put(world, 4, keys=keys_of(1, 2))
            put(world, 4, 4, keys=keys_of(0, 2))
            await asyncio.sleep(20)
            assert len(program.got.get(0, ())) == 4

    run(test())


def test_the_rest_of_a_batch_is_read_on_when_all_children_have_failed(monkeypatch):
    async def test():
        monkeypatch.setattr(delivery, "ENOUGH_BYTES", 1)
        program = Program(2)
        deaths = {0: 1, 1: 1}

        async def once(child, _message):
            await asyncio.sleep(1)
            return deaths.pop(int(child.env["KCL_MLD_CHILD"]), None)

        program.manners = {0: once, 1: once}
        # The first part of each fills it: the rest waits, and both fail meanwhile.
        world = world_of(program, child=RESTART, retrieval={"max_records": 4})
        await world.open()
        body = [(key, str(number).encode()) for number, key in enumerate(KEYS)]
        world.put(*(aggregate(*body) for _ in range(3)), key="aggregates")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(60)
            assert len(program.payloads()) == 3 * len(KEYS)

    run(test())


@pytest.mark.parametrize("policy", [ChildFailurePolicy.EXIT, ChildFailurePolicy.RESTART])
def test_the_end_is_not_stored_when_a_child_that_owes_has_failed_for_good(policy):
    async def test():
        program = Program(2)
        program.checkpoints = False

        async def leaves(child, _message):
            loop = asyncio.get_running_loop()
            program.leaving = loop.create_task(dies(child, 3))

        program.manners[1] = leaves
        world = world_of(program, child={"failure_policy": policy, "restart_attempts": 0})
        await world.open()
        put(world, 24)
        world.split()
        await asyncio.sleep(60)
        create_child_leases = world.parts.shard_end.create_child_leases

        async def slow(*arguments, **traits):
            await asyncio.sleep(10)
            await create_child_leases(*arguments, **traits)

        world.parts.shard_end.create_child_leases = slow
        with pytest.raises(ExceptionGroup) as caught:
            async with world.running(await world.hold()):
                pass
        assert isinstance(caught.value.exceptions[0], ChildFailed)
        assert not (await world.row()).is_finished

    run(test())


def test_a_child_that_does_not_answer_a_stop_does_not_end_the_daemon_where_it_is_to_be_replaced():
    async def test():
        async def script(child):
            while (message := await child.receive()) is not None:
                if message["action"] == "shutdownRequested" and child.env["KCL_MLD_CHILD"] == "1":
                    await asyncio.Event().wait()
                if message["action"] in CARRY_CHECKPOINTS:
                    await child.checkpoint()
                await child.answer(message)

        child = {"per_shard": 2, "answer_timeout_s": 5.0, **RESTART}
        world = World(children=ScriptedChildren(script), child=child)
        await world.open()
        last = put(world, 24)[-1]
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(5)
            consumer.request_hand_over()
        assert running.result() is ShutdownReason.REQUESTED
        row = await world.row()
        assert (row.lease_owner, row.checkpoint.sequence_number) == (None, last)
        assert all(one.status is not None for one in world.children.children)

    run(test())


def test_a_child_that_fails_again_and_again_does_not_hold_its_siblings_at_what_it_is_to_read():
    async def test():
        program = Program(2)
        put_at, waited_s = {}, []

        async def always(_child, _message):
            return 1

        async def measures(_child, message):
            now = world.clock.monotonic()
            waited_s.extend(now - put_at[one["sequenceNumber"]] for one in message["records"])

        program.manners = {0: measures, 1: always}
        child = {**RESTART, "restart_attempts": 1000}
        world = world_of(program, child=child, retrieval={"max_records": 8})
        await world.open()
        async with world.consuming(await world.hold()):
            for start in range(0, 1200, 12):
                put_at |= dict.fromkeys(put(world, 12, start), world.clock.monotonic())
                await asyncio.sleep(6)
            await asyncio.sleep(10)
        assert len(waited_s) == 100 * len(keys_of(0, 2))
        assert max(waited_s) < 10

    run(test())


@pytest.mark.parametrize("busy_s", [3, 10_000])
def test_siblings_of_a_child_that_ends_the_daemon_end_as_at_a_stop(busy_s):
    async def test():
        program = Program(3)

        async def fails(child, _message):
            await asyncio.sleep(1)
            child.end(7)

        async def is_busy(_child, _message):
            await asyncio.sleep(busy_s)

        program.manners = {1: is_busy, 2: fails}
        world = world_of(program)
        await world.open()
        put(world, 24, keys=[*keys_of(0, 3)[:1], *keys_of(1, 3)[:1]])
        put(world, 1, 24, keys=keys_of(2, 3))
        began = world.clock.monotonic()
        with pytest.raises(ExceptionGroup) as caught:
            async with world.running(await world.hold()):
                pass
        assert caught.value.exceptions[0].child_exit_code == 7
        assert program.living == set()
        assert program.actions[0][-1] == "shutdownRequested"
        assert ("shutdownRequested" in program.actions[1]) is (busy_s == 3)
        assert world.clock.monotonic() - began < world.config.shutdown_grace_s + 5

    run(test())


def test_a_line_that_is_made_when_the_worker_stops_is_assigned_to_nobody():
    async def test():
        program = Program(2)
        world = world_of(program)
        await world.open()
        convert = world.offload.run

        async def slow(*work, **options):
            await asyncio.sleep(5)
            return await convert(*work, **options)

        world.offload.run = slow
        for key in KEYS:
            world.put(b"x" * 40_000, key=key)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(2)
        assert program.got == {}
        assert (await world.row()).checkpoint == TRIM_HORIZON

    run(test())


def test_a_child_that_was_never_started_does_not_hold_a_stop_while_renewals_are_late():
    async def test():
        program = Program(2)
        world = world_of(program)
        await world.open()
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(5)
            world.renewer.in_time.clear()
            consumer.request_shutdown()
            await asyncio.sleep(5)
            assert running.done()
        assert program.starts == [0]

    run(test())


def test_a_write_that_failed_is_repeated_although_no_child_confirms_anything_more():
    async def test():
        program = Program(2)
        program.checkpoints = False
        world = world_of(program, child={"confirms": ChildConfirms.STATUS})
        await world.open()
        fails = False

        async def refuse(*_call):
            if fails:
                raise Unreachable("UpdateItem", "refused")

        world.dynamodb.before = refuse
        async with world.consuming(await world.hold()):
            fails = True
            first = put(world, 12)[-1]
            await asyncio.sleep(30)
            fails = False
            await asyncio.sleep(10)
            assert (await world.row()).checkpoint.sequence_number == first
            fails = True
            last = put(world, 12, 12)[-1]
            await asyncio.sleep(12)
            fails = False
        assert (await world.row()).checkpoint.sequence_number == last

    run(test())


def test_the_mark_moves_when_a_replaced_child_reads_again_what_others_have_confirmed():
    async def test():
        program = Program(2)
        deaths = [1]

        async def once(_child, _message):
            if deaths:
                await asyncio.sleep(40)
                return deaths.pop()
            return None

        program.manners[1] = once
        world = world_of(program, child=RESTART, retrieval={"max_records": 4})
        await world.open()
        async with world.consuming(await world.hold()):
            put(world, 1, keys=keys_of(1, 2))
            last = put(world, 60, 1, keys=keys_of(0, 2))[-1]
            await asyncio.sleep(120)
            assert (await world.row()).checkpoint.sequence_number == last
        assert program.payloads() == [str(number) for number in range(61)]
        assert in_order(program)

    run(test())


def test_a_child_that_owes_is_called_if_others_had_records_while_it_was_busy():
    async def test():
        program = Program(2)
        program.checkpoints = False
        calls = []

        async def late(child, _message):
            calls.append(child)
            if len(calls) == 1:
                await asyncio.sleep(5)
            else:
                await child.checkpoint()

        async def at_once(child, _message):
            await child.checkpoint()

        program.manners = {0: at_once, 1: late}
        world = world_of(program)
        await world.open()
        async with world.consuming(await world.hold()):
            put(world, 12)
            await asyncio.sleep(2)
            last = put(world, 3, 12, keys=keys_of(0, 2))[-1]
            await asyncio.sleep(10)
            assert (await world.row()).checkpoint.sequence_number == last

    run(test())


def test_the_memory_of_a_part_is_given_back_when_its_process_is_gone_before_the_write():
    async def test():
        budget = ByteBudget(1000, LoopClock())
        share = budget.share(is_awaited=lambda: False)
        position = ExtendedSequenceNumber("7")
        queue = PartQueue()
        part = Part(0, b"line\n", 1, 1, position, position, None)
        queue.append(part, 1, ExtendedSequenceNumber("6"), share.spend(5))
        queue.send()
        assert budget.used_bytes == 5
        queue.fail()
        assert (budget.used_bytes, queue.is_empty) == (0, True)

    run(test())
