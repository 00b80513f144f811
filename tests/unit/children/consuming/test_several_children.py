"""Several children of one shard: order by key, the mark, and one that fails alone."""

from __future__ import annotations

import asyncio
import base64
from itertools import pairwise
from zlib import crc32

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildConfirms, ChildFailurePolicy
from kcl_mld.errors import ChildFailed, Unreachable
from kcl_mld.kernel.model.sequence import LATEST, TRIM_HORIZON
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.shards.stream_existence import StreamExistence
from tests.fakes.children import ScriptedChildren
from tests.sim.loop import run
from tests.unit.children.consumer_world import World

REQUEST = LeaseRequest(request_id="r", verb="release", holder="w1", expires_s=1e10)
CARRY_CHECKPOINTS = {"processRecords", "shardEnded", "shutdownRequested"}
KEYS = [f"key-{number}" for number in range(12)]


def index_of(key: str, children: int) -> int:
    return crc32(key.encode()) % children


def keys_of(index: int, children: int) -> list[str]:
    return [key for key in KEYS if index_of(key, children) == index]


class Program:
    """What all children of a world run; by index its manners."""

    def __init__(self, children: int = 3) -> None:
        self.children = children
        #: Child index -> the records that it has processed, in order: (key, payload).
        self.got: dict[int, list[tuple[str, str]]] = {}
        self.positions: dict[int, list[str]] = {}
        self.actions: dict[int, list[str]] = {}
        self.starts: list[int] = []
        self.living: set[int] = set()
        #: Child index -> called before a batch is answered.
        self.manners = {}
        self.checkpoints = True
        self.checkpoints_end = True
        #: Child index -> how often it forgets to checkpoint the end.
        self.forgets: dict[int, int] = {}
        self.results: list[tuple[int, str | None]] = []

    async def __call__(self, child) -> int | None:
        index = int(child.env["KCL_MLD_CHILD"])
        assert child.env["KCL_MLD_CHILDREN"] == str(self.children)
        assert index not in self.living, "two children with the same keys"
        self.living.add(index)
        self.starts.append(index)
        try:
            while (message := await child.receive()) is not None:
                self.actions.setdefault(index, []).append(message["action"])
                if message["action"] == "processRecords":
                    if index in self.manners:
                        status = await self.manners[index](child, message)
                        if status is not None:
                            return status
                    self.note(index, message)
                is_end = message["action"] == "shardEnded"
                wants = self.checkpoints_end if is_end else self.checkpoints
                if is_end and self.forgets.get(index):
                    self.forgets[index] -= 1
                elif wants and message["action"] in CARRY_CHECKPOINTS:
                    self.results.append((index, await child.checkpoint()))
                await child.answer(message)
        finally:
            self.living.discard(index)
        return None

    def note(self, index, message) -> None:
        for record in message["records"]:
            assert index_of(record["partitionKey"], self.children) == index
            payload = base64.b64decode(record["data"]).decode()
            self.got.setdefault(index, []).append((record["partitionKey"], payload))
            self.positions.setdefault(index, []).append(record["sequenceNumber"])

    def payloads(self) -> list[str]:
        return sorted((payload for got in self.got.values() for _, payload in got), key=int)


def world_of(program: Program, **options) -> World:
    child = {"per_shard": program.children, **options.pop("child", {})}
    return World(children=ScriptedChildren(program), child=child, **options)


def put(world: World, count: int, start: int = 0, keys=KEYS) -> list[str]:
    numbers = []
    for number in range(start, start + count):
        numbers += world.put(str(number).encode(), key=keys[number % len(keys)])
    return numbers


async def hold_again(world: World):
    taken = await world.store.take(await world.row(), "w1")
    return world.renewer.hold(taken, world.clock.monotonic())


def in_order(program: Program) -> bool:
    return all(
        [int(payload) for key, payload in got if key == one]
        == sorted(int(payload) for key, payload in got if key == one)
        for got in program.got.values()
        for one in KEYS
    )


def test_each_key_has_one_child_and_its_records_are_in_order():
    async def test():
        program = Program()
        world = world_of(program)
        await world.open()
        put(world, 24)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
            last = put(world, 24, 24)[-1]
            await asyncio.sleep(5)
            assert (await world.row()).checkpoint.sequence_number == last
        assert program.payloads() == [str(number) for number in range(48)]
        assert in_order(program)
        assert sorted(program.got) == [0, 1, 2]
        assert sorted(program.starts) == [0, 1, 2]
        assert {actions[0] for actions in program.actions.values()} == {"initialize"}
        assert {actions[-1] for actions in program.actions.values()} == {"leaseLost"}
        assert {actions[-2] for actions in program.actions.values()} == {"shutdownRequested"}

    run(test())


def test_a_child_without_records_is_not_started_but_the_first():
    async def test():
        program = Program()
        world = world_of(program)
        await world.open()
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
            assert program.starts == [0]
            put(world, 3, keys=keys_of(2, 3))
            await asyncio.sleep(5)
            assert program.starts == [0, 2]

    run(test())


def test_the_mark_waits_for_the_slowest_child():
    async def test():
        program, gate = Program(), asyncio.Event()

        async def slow(_child, _message):
            await gate.wait()

        program.manners[1] = slow
        world = world_of(program)
        await world.open()
        numbers = put(world, 24)
        first = next(n for n, key in enumerate(KEYS) if index_of(key, 3) == 1)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(20)
            stored = (await world.row()).checkpoint
            assert stored == TRIM_HORIZON or int(stored.sequence_number) < int(numbers[first])
            assert len(program.got[0]) == 2 * len(keys_of(0, 3))
            gate.set()
            await asyncio.sleep(5)
            assert (await world.row()).checkpoint.sequence_number == numbers[-1]

    run(test())


def test_a_child_that_dies_is_replaced_alone_and_reads_again_what_it_did_not_confirm():
    async def test():
        program = Program()
        deaths = [3, 2, 1]

        async def dies(_child, message):
            if message["records"] and deaths:
                deaths.pop()
                return 1
            return None

        program.manners[1] = dies
        world = world_of(program, child={"failure_policy": ChildFailurePolicy.RESTART})
        await world.open()
        put(world, 24)
        async with world.consuming(await world.hold()):
            for start in range(24, 96, 12):
                await asyncio.sleep(1)
                put(world, 12, start)
            await asyncio.sleep(30)
            last = put(world, 1, 96)[0]
            await asyncio.sleep(5)
            assert (await world.row()).checkpoint.sequence_number == last
        assert program.payloads() == [str(number) for number in range(97)]
        assert in_order(program)
        assert sorted(program.starts) == [0, 1, 1, 1, 1, 2]

    run(test())


class FailsAsItStarts(Program):
    """The second process of child 1 fails before it has answered ``initialize``."""

    async def __call__(self, child):
        if child.env["KCL_MLD_CHILD"] == "1" and self.starts.count(1) == 1:
            self.starts.append(1)
            return 1
        return await super().__call__(child)


def test_records_that_are_read_while_a_child_is_away_for_the_second_time_are_read_once_more():
    async def test():
        program = FailsAsItStarts(2)

        async def dies(_child, message):
            return 1 if message["records"] and program.starts.count(1) == 1 else None

        program.manners[1] = dies
        child = {"failure_policy": ChildFailurePolicy.RESTART, "restart_backoff_s": 5.0}
        world = world_of(program, child=child)
        await world.open()
        put(world, 12)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(60)
        assert program.starts.count(1) == 3
        assert program.payloads() == [str(number) for number in range(12)]

    run(test())


def test_a_failure_ends_the_daemon_by_the_default_policy():
    async def test():
        program = Program()

        async def dies(_child, _message):
            return 7

        program.manners[2] = dies
        world = world_of(program)
        await world.open()
        put(world, 24)
        with pytest.raises(ExceptionGroup) as caught:
            async with world.running(await world.hold()):
                await asyncio.sleep(30)
        (failed,) = caught.value.exceptions
        assert isinstance(failed, ChildFailed)
        assert failed.child_exit_code == 7
        assert program.living == set()

    run(test())


def test_the_end_of_the_shard_is_stored_by_the_last_child_that_confirms_it():
    async def test():
        program = Program()
        world = world_of(program)
        await world.open()
        put(world, 24)
        world.split()
        await asyncio.sleep(60)
        async with world.running(await world.hold()) as (_, running):
            pass
        assert running.result() is ShutdownReason.SHARD_END
        row = await world.row()
        assert row.is_finished
        assert len(row.child_shard_ids) == 2
        assert program.payloads() == [str(number) for number in range(24)]
        assert {tuple(a[-1:]) for a in program.actions.values()} == {("shardEnded",)}

    run(test())


def test_a_child_that_is_busy_when_the_lease_lapses_is_not_told_the_end():
    async def test():
        program = Program(2)

        async def is_busy_with_ticks(child, message):
            if message["records"]:
                await child.say(action="tick", seconds=0.1)
            else:
                await asyncio.sleep(3)

        program.manners = {0: is_busy_with_ticks}
        world = world_of(program)
        await world.open()
        put(world, 24)
        world.split()
        await asyncio.sleep(60)
        held = await world.hold()
        create_child_leases = world.parts.shard_end.create_child_leases

        async def slow(*arguments, **traits):
            await create_child_leases(*arguments, **traits)
            await asyncio.sleep(1)  # a tick is on its way when the children are told

        world.parts.shard_end.create_child_leases = slow
        async with world.running(held) as (_, running):
            while "shardEnded" not in program.actions.get(1, ()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await world.renewer.drop(held.lease.lease_key, held.token)
        assert running.result() is ShutdownReason.LEASE_LOST
        assert "shardEnded" not in program.actions[0]
        assert program.actions[0][-1] == "leaseLost"
        assert not (await world.row()).is_finished

    run(test())


def test_a_child_that_owes_nothing_need_not_confirm_the_end():
    async def test():
        program = Program()
        program.checkpoints_end = False
        world = world_of(program)
        await world.open()
        put(world, 24)
        world.split()
        await asyncio.sleep(60)
        async with world.running(await world.hold()) as (_, running):
            pass
        assert running.result() is ShutdownReason.SHARD_END
        assert (await world.row()).is_finished

    run(test())


def test_a_child_that_forgets_the_end_is_replaced_and_the_others_are_not():
    async def test():
        program = Program()
        program.checkpoints = False
        program.forgets = {1: 1}
        world = world_of(program, child={"failure_policy": ChildFailurePolicy.RESTART})
        await world.open()
        put(world, 24)
        world.split()
        await asyncio.sleep(60)
        async with world.running(await world.hold()) as (_, running):
            pass
        assert running.result() is ShutdownReason.SHARD_END
        assert (await world.row()).is_finished
        assert sorted(program.starts) == [0, 1, 1, 2]
        assert [len(program.got[index]) for index in range(3)] == [
            2 * len(keys_of(0, 3)),
            4 * len(keys_of(1, 3)),
            2 * len(keys_of(2, 3)),
        ]

    run(test())


def test_a_child_that_confirms_only_when_called_is_called_without_records():
    """As kclpy's sample does, which checkpoints once 30 seconds have passed."""

    async def test():
        program = Program(2)
        program.checkpoints = False
        began = {}

        async def sample(child, _message):
            now = asyncio.get_running_loop().time()
            index = int(child.env["KCL_MLD_CHILD"])
            if now - began.setdefault(index, now) >= 30:
                began[index] = now
                program.results.append((index, await child.checkpoint()))

        program.manners = {0: sample, 1: sample}
        world = world_of(program)
        await world.open()
        async with world.consuming(await world.hold()):
            first = put(world, 1, keys=keys_of(1, 2))[0]
            for start in range(1, 100):
                put(world, 1, start, keys=keys_of(0, 2))
                await asyncio.sleep(1)
            stored = (await world.row()).checkpoint.sequence_number
            assert int(stored) > int(first)

    run(test())


def test_a_child_that_wants_ticks_gets_none_once_the_lease_has_lapsed():
    async def test():
        program = Program(2)

        async def wants_ticks(child, _message):
            await child.say(action="tick", seconds=0.1)

        program.manners = {0: wants_ticks}
        world = world_of(program)
        await world.open()
        put(world, 1, keys=keys_of(0, 2))
        held = await world.hold()
        async with world.running(held) as (_consumer, running):
            await asyncio.sleep(5.45)
            ticks = program.actions[0].count("processRecords")
            assert ticks > 20
            await world.renewer.drop(held.lease.lease_key, held.token)
            assert await running is ShutdownReason.LEASE_LOST
        assert program.actions[0].count("processRecords") == ticks
        assert program.actions[0][-1] == "leaseLost"

    run(test())


def test_a_child_that_owes_is_called_until_it_confirms_although_the_stream_is_quiet():
    async def test():
        program = Program(2)
        program.checkpoints = False
        calls = []

        async def late(child, message):
            now = asyncio.get_running_loop().time()
            calls.append(now)
            if now - calls[0] >= 30:
                program.results.append((1, await child.checkpoint()))

        async def at_once(child, _message):
            await child.checkpoint()

        program.manners = {0: at_once, 1: late}
        world = world_of(program)
        await world.open()
        async with world.consuming(await world.hold()):
            put(world, 1, keys=keys_of(1, 2))
            await asyncio.sleep(2)
            last = put(world, 1, 1, keys=keys_of(0, 2))[0]
            await asyncio.sleep(120)
            assert (await world.row()).checkpoint.sequence_number == last
            assert [round(later - call) for call, later in pairwise(calls)][1:] == [2, 4, 8, 16]
            await asyncio.sleep(600)
            assert len(calls) == 6, "it owes nothing any more"

    run(test())


def test_an_answer_confirms_a_batch_where_the_file_says_so():
    async def test():
        program = Program()
        program.checkpoints = False
        world = world_of(program, child={"confirms": ChildConfirms.STATUS})
        await world.open()
        last = put(world, 24)[-1]
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
            assert (await world.row()).checkpoint.sequence_number == last

    run(test())


def test_nothing_is_read_twice_after_an_orderly_stop():
    async def test():
        program = Program()

        async def slow(_child, _message):
            await asyncio.sleep(2)

        program.manners[0] = slow
        world = world_of(program, retrieval={"max_records": 4})
        await world.open()
        put(world, 48)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(3)
        first = len(program.payloads())
        assert 0 < first < 48
        held = await hold_again(world)
        async with world.consuming(held):
            await asyncio.sleep(120)
        assert program.payloads() == [str(number) for number in range(48)]
        assert in_order(program)

    run(test())


def test_a_lost_lease_ends_all_children_after_their_batch():
    async def test():
        program = Program()

        async def slow(_child, _message):
            await asyncio.sleep(3)

        program.manners = dict.fromkeys(range(3), slow)
        world = world_of(program, retrieval={"max_records": 6})
        await world.open()
        put(world, 48)
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(1)
            consumer.lease_lost()
        assert running.result() is ShutdownReason.LEASE_LOST
        assert {tuple(actions) for actions in program.actions.values()} == {
            ("initialize", "processRecords", "leaseLost")
        }

    run(test())


def test_a_child_that_hangs_lets_the_others_go_on_and_gets_its_records_later():
    async def test():
        program, gate = Program(), asyncio.Event()

        async def hangs(_child, _message):
            await gate.wait()

        program.manners[1] = hangs
        world = world_of(program, retrieval={"max_records": 4})
        await world.open()
        async with world.consuming(await world.hold()) as consumer:
            for start in range(0, 240, 12):
                put(world, 12, start)
                await asyncio.sleep(10)
            assert len(program.got[0]) == 20 * len(keys_of(0, 3))
            status = consumer.status()
            assert status.child_silent_s > 150
            assert status.unconfirmed_s > 150
            (left_out,) = (one for one in status.children if one.is_left_out)
            assert (left_out.child, left_out.owes) == (1, True)
            gate.set()
            program.manners.clear()
            await asyncio.sleep(120)
        assert program.payloads() == [str(number) for number in range(240)]
        assert in_order(program)

    run(test())


def test_one_warning_when_the_checkpoint_waits_and_one_error_before_records_expire(
    caplog, monkeypatch
):
    async def test():
        program, gate = Program(2), asyncio.Event()

        async def hangs(_child, _message):
            await gate.wait()

        program.manners[1] = hangs
        world = world_of(program)
        await world.open()
        monkeypatch.setattr(StreamExistence, "retention_s", 1000.0)
        put(world, 24)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(300)
            warned = [one.levelname for one in caplog.records if "does not move" in one.message]
            assert warned == ["WARNING"]
            await asyncio.sleep(600)
            warned = [one.levelname for one in caplog.records if "does not move" in one.message]
            assert warned == ["WARNING", "ERROR"]
            gate.set()

    run(test())


def test_a_write_that_fails_is_repeated_by_the_next_checkpoint_of_any_child():
    async def test():
        program = Program(2)
        program.checkpoints = False
        asks = asyncio.Event()

        async def once(child, _message):
            await asks.wait()
            program.results.append((int(child.env["KCL_MLD_CHILD"]), await child.checkpoint()))

        program.manners = {0: once, 1: once}
        world = world_of(program)
        await world.open()
        put(world, 12)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(2)
            fails = True

            async def refuse(*_call):
                if fails:
                    raise Unreachable("UpdateItem", "refused")

            world.dynamodb.before = refuse
            asks.set()
            await asyncio.sleep(5)
            refused = "KinesisClientLibDependencyException"
            assert {error for _, error in program.results} <= {None, refused}
            assert refused in {error for _, error in program.results}
            fails = False
            last = put(world, 1, 12, keys=keys_of(0, 2))[0]
            await asyncio.sleep(5)
            assert program.results[-1] == (0, None)
            assert (await world.row()).checkpoint.sequence_number == last

    run(test())


def test_an_operators_request_ends_children_that_do_not_answer():
    async def test():
        program = Program(2)

        async def hangs(_child, _message):
            await asyncio.Event().wait()

        program.manners[1] = hangs
        world = world_of(program, leases={"hand_off_timeout_s": 5.0})
        await world.open()
        put(world, 24)
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(2)
            consumer.request_steer(REQUEST)
        assert running.result() is ShutdownReason.REQUESTED
        assert program.living == set()
        assert [child.signals for child in world.children.children] == [[], ["TERM"]]

    run(test())


def test_a_hand_off_passes_the_lease_on_after_the_last_answer():
    async def test():
        program = Program()

        async def slow(_child, _message):
            await asyncio.sleep(3)

        program.manners[1] = slow
        world = world_of(program)
        await world.open()
        last = put(world, 24)[-1]
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(1)
            consumer.request_hand_over()
            await asyncio.sleep(1)
            assert (await world.row()).lease_owner == "w1"
        assert running.result() is ShutdownReason.REQUESTED
        row = await world.row()
        assert (row.lease_owner, row.checkpoint.sequence_number) == (None, last)

    run(test())


def test_reading_at_latest_begins_where_it_began_for_a_child_that_is_replaced():
    async def test():
        program = Program(2)
        deaths = [1]

        async def dies(_child, message):
            if message["records"] and deaths:
                return deaths.pop()
            return None

        program.manners[1] = dies
        program.checkpoints = True
        world = world_of(program, child={"failure_policy": ChildFailurePolicy.RESTART})
        await world.open()
        put(world, 12)
        await asyncio.sleep(60)
        async with world.consuming(await world.hold(checkpoint=LATEST)):
            await asyncio.sleep(5)
            put(world, 12, 12)
            await asyncio.sleep(20)
        assert program.payloads() == [str(number) for number in range(12, 24)]

    run(test())
