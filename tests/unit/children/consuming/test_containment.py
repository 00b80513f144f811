"""Records that children fail at: found, kept, skipped; and what holds a shard."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.config.contain_config import ContainConfig
from kcl_mld.errors import LetterRefused, ThreadRefused, UnknownOutcome, Unreachable
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber as At
from kcl_mld.leases.model.containment import NO_FAILURE
from tests.fakes.children import ScriptedChildren
from tests.sim.loop import run
from tests.sim.stream import kpl_aggregate
from tests.unit.children.consumer_world import FIRST, World


class Letters:
    """A LetterStore in memory."""

    def __init__(self) -> None:
        self.documents: dict[str, dict] = {}
        self.refuses = 0
        self.error = LetterRefused("file: no space left")
        self.is_silent = False
        self.puts = 0

    async def put(self, letter_id, shard_id, document):
        assert shard_id == FIRST
        await asyncio.sleep(0)
        self.puts += 1
        if self.refuses:
            self.refuses -= 1
            raise self.error
        if self.is_silent:
            await asyncio.Event().wait()
        self.documents[letter_id] = json.loads(document)

    @property
    def only(self):
        (document,) = self.documents.values()
        return document


def payloads(message):
    return [record["data"] for record in message["records"]]


def failing_at(*poison, checkpoints=True, status=3):
    """A script that ends at some payloads (base64)."""

    async def script(child):
        while (message := await child.receive()) is not None:
            action = message["action"]
            if action == "processRecords":
                if set(poison) & set(payloads(message)):
                    return status
                if checkpoints:
                    await child.checkpoint()
            elif action in {"shardEnded", "shutdownRequested"}:
                await child.checkpoint()
            await child.answer(message)
        return 0

    return script


def in_world(test, *scripts, contain=None, child=None, **settings):
    async def main():
        letters = Letters()
        policy = {"failure_policy": ChildFailurePolicy.DEADLETTER, "restart_attempts": 2}
        children = ScriptedChildren(*scripts)
        world = World(children=children, child=policy | (child or {}), **settings)
        world.config = replace(
            world.config, contain=ContainConfig(destination="file:x", **(contain or {}))
        )
        world.parts.config, world.parts.letters = world.config, letters
        await world.open()
        await test(world, letters)
        assert world.budget.used_bytes == 0

    run(main())


def lines(world):
    """What children were given, a list of payloads a line."""
    return [
        payloads(message)
        for child in world.children.children
        for message in child.heard
        if message["action"] == "processRecords"
    ]


#: Base64 of the payloads.
A, B, C, D = "YQ==", "Yg==", "Yw==", "ZA=="
DATA = (b"a", b"b", b"c", b"d")


def test_a_batch_is_halved_and_the_record_that_fails_is_skipped():
    async def test(world, letters):
        numbers = world.put(*DATA)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
            assert lines(world) == [
                [A, B, C, D], [A, B], [A], [B, C, D], [B], [B], [B], [C, D],
            ]  # fmt: skip
            row = await world.row()
            assert row.checkpoint == At(numbers[3])
            assert row.skipped == ()
            assert row.failure.suspects is None
        letter = letters.only
        assert letter["firstSequenceNumber"] == letter["lastSequenceNumber"] == numbers[1]
        assert (letter["reason"], letter["exitCode"], letter["attempts"]) == ("exit", 3, 3)
        assert (letter["application"], letter["shardId"]) == ("app", FIRST)
        assert "records" not in letter
        assert world.metrics.values["ProcessTask", "DeadLetteredRecords"] == [1.0]

    in_world(test, failing_at(B))


def test_what_no_checkpoint_covers_is_left_out_of_what_is_sent_again():
    async def test(world, letters):
        numbers = world.put(*DATA)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
            row = await world.row()
            assert list(map(str, row.skipped)) == [numbers[1]]
            assert row.checkpoint.sentinel is not None
            assert lines(world)[-1] == [A, C, D]
        row = await world.row()
        assert row.checkpoint == At(numbers[3])
        assert row.skipped == ()
        assert len(letters.documents) == 1

    in_world(test, failing_at(B, checkpoints=False))


def test_attempts_survive_a_move_of_the_lease():
    async def test(world, letters):
        world.put(b"a")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(0.5)
        row = await world.row()
        assert row.failure.attempts == 1
        taken = await world.store.take(row, "w1")
        held = world.renewer.hold(taken, world.clock.monotonic())
        async with world.consuming(held):
            await asyncio.sleep(60)
        assert len(world.children.children) == 4
        assert letters.only["attempts"] == 3

    in_world(test, failing_at(A))


def test_nothing_is_skipped_while_the_letter_cannot_be_kept():
    async def test(world, letters):
        letters.refuses = 5
        numbers = world.put(b"a", b"c")
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(12)
            assert letters.puts > 0
            assert not letters.documents
            assert "no space left" in consumer.status().last_error
            assert (await world.row()).checkpoint.sentinel is not None
            await asyncio.sleep(120)
            assert (await world.row()).checkpoint == At(numbers[1])
        assert letters.puts == 6

    in_world(test, failing_at(A))


def test_a_stop_ends_the_wait_for_a_letter():
    async def test(world, letters):
        letters.refuses = 1000
        world.put(b"a")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(60)
        assert not letters.documents
        assert (await world.row()).failure.attempts == 2

    in_world(test, failing_at(A))


def test_a_stop_does_not_wait_for_a_destination_without_an_answer():
    async def test(world, letters):
        letters.is_silent = True
        world.put(b"a")
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(60)
            began = world.clock.monotonic()
            consumer.request_shutdown()
        assert letters.puts == 1
        assert world.clock.monotonic() - began < 5
        assert not letters.documents
        assert (await world.row()).lease_owner is None

    in_world(test, failing_at(A))


def test_a_worker_without_a_thread_for_letters_waits_for_one():
    async def test(world, letters):
        letters.refuses, letters.error = 3, ThreadRefused("letters")
        numbers = world.put(b"a", b"c")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
            assert (await world.row()).checkpoint == At(numbers[1])
        assert letters.puts == 4

    in_world(test, failing_at(A))


def test_a_held_shard_that_is_read_again_is_called_held_no_more_without_a_checkpoint():
    async def test(world, _letters):
        world.put(b"a", b"b", b"c")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(100)
            held = await world.row()
            assert held.failure.held
        world.children.scripts = [failing_at(checkpoints=False)]
        taken = await world.store.take(await world.row(), "w1")
        again = world.renewer.hold(taken, world.clock.monotonic())
        async with world.consuming(again):
            await asyncio.sleep(5)
            row = await world.row()
            assert row.checkpoint == held.checkpoint
            assert row.failure.held is None

    in_world(test, failing_at(A, B), contain={"limit": 1})


def test_a_shard_with_too_many_letters_is_held_and_the_next_owner_tries_again():
    async def test(world, letters):
        numbers = world.put(b"a", b"b", b"c")
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(100)
            assert "it had 1 dead letter within five minutes" in consumer.status().held_because
            assert consumer.status().child_pid is None
            assert len(letters.documents) == 1
            row = await world.row()
            assert row.failure.held == consumer.status().held_because
            assert world.renewer.get(FIRST) is not None
            count = len(world.children.children)
            await asyncio.sleep(300)
            assert len(world.children.children) == count
        held = world.metrics.values["ProcessTask", "ShardHeld"]
        assert len(held) >= 5
        world.children.scripts = [failing_at()]
        taken = await world.store.take(await world.row(), "w1")
        world.children.children.clear()
        again = world.renewer.hold(taken, world.clock.monotonic())
        async with world.consuming(again) as consumer:
            await asyncio.sleep(5)
            assert consumer.status().held_because is None
            row = await world.row()
            assert row.checkpoint == At(numbers[2])
            assert row.failure.held is None

    in_world(test, failing_at(A, B), contain={"limit": 1})


#: What the properties say of themselves.
DEFAULT = {"restart_attempts": 10, "restart_backoff_s": 1.0}


def test_a_shard_that_would_set_everything_aside_is_held_with_the_default_attempts_too():
    async def fails_late(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                await asyncio.sleep(40)
                return 3
            await child.answer(message)
        return 0

    async def test(world, letters):
        world.put(*(bytes([number]) for number in range(20)))
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(9500)
            assert "it had 10 dead letters within five minutes" in consumer.status().held_because
            assert len(letters.documents) == 10

    in_world(test, fails_late, child=DEFAULT)


def test_a_record_that_fails_now_and_then_holds_no_shard():
    async def test(world, letters):
        async with world.consuming(await world.hold()) as consumer:
            for count in range(6):
                world.put(b"a", b"b")
                await asyncio.sleep(1200)
                assert consumer.status().held_because is None
                assert len(letters.documents) == count + 1
            world.put(b"b", b"b", b"b")
            await asyncio.sleep(3600)
            assert len(letters.documents) == 6 + 2
            assert consumer.status().held_because is not None

    in_world(test, failing_at(B), child=DEFAULT, contain={"limit": 2})


def test_a_shard_whose_row_is_full_of_skips_is_held(monkeypatch):
    monkeypatch.setattr("kcl_mld.children.consuming.containment.MOST_SKIPPED", 1)

    async def test(world, letters):
        world.put(*DATA)
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(300)
            assert "no checkpoint of the child covers" in consumer.status().held_because
        assert len(letters.documents) == 1

    in_world(test, failing_at(B, D, checkpoints=False))


def test_a_lost_lease_ends_a_held_shard():
    async def test(world, _letters):
        world.put(b"a", b"b")
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(100)
            assert consumer.status().held_because
            consumer.lease_lost()
        assert running.result() is ShutdownReason.LEASE_LOST

    in_world(test, failing_at(A, B), contain={"limit": 1})


def test_a_user_record_of_an_aggregate_is_set_aside_alone():
    async def test(world, letters):
        (number,) = world.put(kpl_aggregate([("k", b"a"), ("k", b"b"), ("k", b"c")]))
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
            assert (await world.row()).checkpoint == At(number, 2)
        letter = letters.only
        assert (letter["firstSubSequenceNumber"], letter["aggregated"]) == (1, True)

    in_world(test, failing_at(B))


def test_a_child_that_checkpoints_by_the_number_alone_goes_on_inside_an_aggregate():
    """As ``checkpoint(record.sequence_number)`` of amazon_kclpy, which raises what is refused."""

    async def by_number(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                last = message["records"][-1]["sequenceNumber"]
                if B in payloads(message) or await child.checkpoint(last):
                    return 3
            await child.answer(message)
        return 0

    async def test(world, letters):
        (number,) = world.put(kpl_aggregate([("k", b"a"), ("k", b"b"), ("k", b"c"), ("k", b"d")]))
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
            assert lines(world)[-1] == [C, D]
            assert (await world.row()).checkpoint == At(number, 1)
            (later,) = world.put(b"e")
            await asyncio.sleep(10)
            assert (await world.row()).checkpoint == At(later)
        assert letters.only["firstSubSequenceNumber"] == 1

    in_world(test, by_number)


def test_what_a_child_confirmed_inside_a_batch_is_not_sent_again():
    async def confirms(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                for record in message["records"]:
                    if record["data"] == C:
                        return 3
                    await child.checkpoint(record["sequenceNumber"])
            await child.answer(message)
        return 0

    async def test(world, letters):
        numbers = world.put(*DATA)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
        assert lines(world) == [[A, B, C, D], [C], [C], [C], [D]]
        assert letters.only["firstSequenceNumber"] == numbers[2]

    in_world(test, confirms)


def test_a_child_that_has_confirmed_all_blames_none():
    failures = 1

    async def confirms_and_ends(child):
        nonlocal failures
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                await child.checkpoint()
                if failures:
                    failures -= 1
                    return 3
            await child.answer(message)
        return 0

    async def test(world, letters):
        world.put(b"a")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(10)
            assert (await world.row()).failure == NO_FAILURE
        assert not letters.documents

    in_world(test, confirms_and_ends)


async def reporting(child):
    while (message := await child.receive()) is not None:
        if message["action"] == "processRecords":
            bad = [one for one in message["records"] if one["data"] == C]
            if bad:
                await child.say(
                    action="status",
                    responseFor="processRecords",
                    failure="cannot parse",
                    failedSequenceNumber=bad[0]["sequenceNumber"],
                )
                continue
            await child.checkpoint()
        await child.answer(message)
    return 0


def test_a_child_may_name_the_record_in_its_status():
    async def test(world, letters):
        numbers = world.put(*DATA)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
        assert lines(world) == [[A, B, C, D], [A, B], [C], [C], [D]]
        letter = letters.only
        assert letter["firstSequenceNumber"] == numbers[2]
        assert (letter["reason"], letter["exitCode"]) == ("status", None)
        assert "cannot parse" in letter["message"]
        assert "failure" in world.children.envs[0]["KCL_MLD_CAPABILITIES"]

    in_world(test, reporting)


def test_other_policies_announce_no_failure():
    async def test(world, letters):
        world.put(b"a")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(10)
        assert world.children.envs[0]["KCL_MLD_CAPABILITIES"] == "log,tick"
        assert not letters.documents

    in_world(test, failing_at(), child={"failure_policy": ChildFailurePolicy.RESTART})


async def raising(child):
    while (message := await child.receive()) is not None:
        if message["action"] == "processRecords":
            if B in payloads(message):
                child.unread_stderr.append(b"Caught exception from action dispatch: boom")
            else:
                await child.checkpoint()
        await child.answer(message)
    return 0


def test_an_exception_that_amazon_kclpy_caught_is_a_failure():
    async def test(world, letters):
        world.put(*DATA)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(120)
        letter = letters.only
        assert letter["reason"] == "exception"
        assert letter["stderrTail"] == "Caught exception from action dispatch: boom"
        assert [one["data"] for one in letter["records"]] == [B]

    in_world(test, raising, contain={"with_stderr": True, "with_records": True})


def test_a_failure_beside_a_batch_is_no_records_fault():
    async def fails_at_the_end(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "shutdownRequested":
                return 3
            await child.answer(message)
        return 0

    async def test(world, letters):
        world.put(b"a")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
        assert not letters.documents
        assert (await world.row()).failure == NO_FAILURE

    in_world(test, fails_at_the_end)


def test_attempts_at_a_record_leave_the_restarts_that_other_failures_have():
    """Else one of them after the last attempt would end the worker, with all its shards."""

    async def dies_at_once(_child):
        return 3

    async def test(world, letters):
        world.put(*DATA)
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(120)
            assert len(letters.documents) == 1
            assert len(world.children.children) == 8
            assert lines(world)[-1] == [A, C, D]
            assert consumer.status().child_failures == 1

    poisoned = failing_at(B, checkpoints=False)
    in_world(test, *[poisoned] * 6, dies_at_once, poisoned)


def test_a_child_that_the_stop_of_the_whole_group_ended_has_not_failed():
    async def killed(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                return -15
            await child.answer(message)
        return 0

    async def test(world, letters):
        world.put(b"a")
        async with world.running(await world.hold()) as (consumer, _running):
            await asyncio.sleep(0.5)
            consumer.request_shutdown()
        assert (await world.row()).failure == NO_FAILURE
        assert not letters.documents

    in_world(test, killed)


@pytest.mark.parametrize("error", [Unreachable, UnknownOutcome])
def test_a_note_that_cannot_be_written_holds_nothing_up(error):
    async def test(world, letters):
        failing = True

        async def refuse(_service, _operation, request):
            names = request.get("UpdateExpression", "")
            if failing and ("kclMldFailure" in names or "kclMldSkip" in names):
                raise error("UpdateItem", "Silence")

        world.dynamodb.before = refuse
        world.put(*DATA)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(30)
            assert len(letters.documents) == 1
            assert lines(world)[-1] == [B]
            failing = False
            await asyncio.sleep(120)
            assert lines(world)[-1] == [C, D]

    in_world(test, failing_at(B))
