"""Intents: from a child's line to the lease's row, and from there to the next child."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

import pytest

from mld.decide.lifecycle import ShutdownReason
from mld.errors import ChildFailed, LeaseLost, Throttled, UnknownOutcome
from mld.model.config import ChildFailurePolicy
from mld.model.intent import LeaseIntent
from mld.model.sequence import TRIM_HORIZON
from protocol import BatchIntent
from tests.fakes.children import ScriptedChildren
from tests.unit.services.child.test_record_processor import answering, talking
from tests.unit.services.consuming.test_checkpointer import THROTTLED, asking
from tests.unit.services.consuming.test_shard_consumer import in_world
from tests.unit.services.leases.test_lease_renewer import KEY, only, stored, with_held

if TYPE_CHECKING:
    from tests.unit.services.consumer_world import World

FIRST_INTENT = LeaseIntent(1, "TRIM_HORIZON", "40:0", "app/0")
SECOND_INTENT = LeaseIntent(2, "40:0", "49:2", "app/0")
RESTART = {"failure_policy": ChildFailurePolicy.RESTART}


async def intend(child, intent=FIRST_INTENT):
    """The error name that a scripted child gets for an intent."""
    await child.say(
        action="intent",
        number=intent.number,
        after=intent.after,
        to=intent.to,
        appId=intent.app_id,
    )
    result = await child.receive()
    assert result["action"] == "intent"
    assert result["number"] == intent.number
    return result["error"]


def token(renewer):
    return only(renewer).token


# -- the row --------------------------------------------------------------------------------------


def test_an_intent_is_stored_and_counts_as_a_heartbeat():
    async def test(world, renewer):
        await asyncio.sleep(3)
        await renewer.intend(KEY, token(renewer), FIRST_INTENT)
        row = stored(world)
        assert row.intent == FIRST_INTENT
        assert row.checkpoint == TRIM_HORIZON
        assert only(renewer).lease == row
        assert only(renewer).valid_until > world.clock.monotonic() + 9

    with_held(test)


def test_an_intent_of_a_lost_lease_is_not_stored():
    async def test(world, renewer):
        mine = token(renewer)
        world.change(KEY, leaseOwner="other", leaseCounter=17)
        with pytest.raises(LeaseLost):
            await renewer.intend(KEY, mine, FIRST_INTENT)
        assert stored(world).intent is None
        assert renewer.held() == ()
        with pytest.raises(LeaseLost):
            await renewer.intend(KEY, mine, FIRST_INTENT)

    with_held(test)


@pytest.mark.parametrize("fault", ["lose answer", "lose request"])
def test_an_intent_whose_answer_is_lost_is_resolved_by_reading(fault):
    async def test(world, renewer):
        world.fault(fault)
        await renewer.intend(KEY, token(renewer), FIRST_INTENT)
        assert stored(world).intent == FIRST_INTENT
        assert only(renewer).lease == stored(world)

    with_held(test)


def test_a_lower_number_is_refused_even_if_only_the_table_knows_the_higher_one():
    async def test(world, renewer):
        world.fault("lose answer")
        world.fault("refuse", "GetItem")
        with pytest.raises(UnknownOutcome):
            await renewer.intend(KEY, token(renewer), SECOND_INTENT)
        assert only(renewer).lease.intent is None
        assert stored(world).intent == SECOND_INTENT
        with pytest.raises(Exception, match="intent 1 comes after intent 2"):
            await renewer.intend(KEY, token(renewer), FIRST_INTENT)
        assert stored(world).intent == SECOND_INTENT
        assert only(renewer)
        await renewer.refresh(KEY, token(renewer))
        assert only(renewer).lease.intent == SECOND_INTENT

    with_held(test)


# -- error names ----------------------------------------------------------------------------------


def intending(test, *troubles):
    async def with_renewer(world):
        async def write(key, mine, intent):
            if world.renewer.troubles:
                raise world.renewer.troubles.pop(0)
            world.renewer.written.append((key, mine, intent))

        world.renewer.intend = write
        await test(world)

    asking(with_renewer, *troubles)


ASKED = BatchIntent(1, "TRIM_HORIZON", "40:0", "app/0")


def test_a_stored_intent_has_no_error():
    async def test(world):
        assert await world.checkpointer.intend(ASKED) is None
        assert world.renewer.written == [("key", "token", FIRST_INTENT)]
        assert world.checkpointer.last == TRIM_HORIZON
        assert world.stored == 0

    intending(test)


def test_an_impossible_intent_is_not_written():
    async def test(world):
        refused = "IllegalArgumentException"
        assert await world.checkpointer.intend(BatchIntent(0, "", "", "")) == refused
        assert await world.checkpointer.intend(BatchIntent(1, "x" * 257, "", "")) == refused
        assert world.renewer.written == []

    intending(test)


def test_a_throttled_intent_is_tried_again_for_two_seconds():
    async def test(world):
        assert await world.checkpointer.intend(ASKED) is None
        world.renewer.troubles = [THROTTLED] * 99
        began = asyncio.get_running_loop().time()
        assert await world.checkpointer.intend(ASKED) == "ThrottlingException"
        assert 0.5 < asyncio.get_running_loop().time() - began <= 2

    intending(test, THROTTLED, THROTTLED)


def test_a_lost_lease_and_an_unknown_outcome_have_the_names_of_checkpoints():
    async def test(world):
        assert await world.checkpointer.intend(ASKED) == "ShutdownException"
        assert world.lost == 1
        assert not world.checkpointer.is_unsure
        dependency = "KinesisClientLibDependencyException"
        assert await world.checkpointer.intend(ASKED) == dependency
        assert world.checkpointer.is_unsure
        assert await world.checkpointer.intend(ASKED) is None
        assert world.checkpointer.is_unsure  # of a checkpoint, for all that this write tells

    intending(test, LeaseLost("key", "taken"), UnknownOutcome("UpdateItem", "timeout"))


# -- the conversation -----------------------------------------------------------------------------


class Intents:
    """A checkpointer that takes intents."""

    def __init__(self):
        self.taken = []

    async def checkpoint(self, _sequence_number, _sub_sequence_number):
        return None

    async def intend(self, intent):
        self.taken.append(intent)
        return "ThrottlingException" if len(self.taken) == 1 else None


def test_an_intent_is_answered_in_the_three_actions_that_may_write(caplog):
    answers = []

    async def asks(child, message):
        answers.append((message["action"], await intend(child)))

    async def test(world):
        world.processor._checkpointer = Intents()
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        await world.processor.shutdown_requested()
        await world.processor.lease_lost()
        assert answers == [
            ("initialize", "InvalidStateException"),
            ("processRecords", "ThrottlingException"),
            ("shutdownRequested", None),
            ("leaseLost", "InvalidStateException"),
        ]
        assert len(world.processor._checkpointer.taken) == 2

    actions = ("initialize", "processRecords", "shutdownRequested", "leaseLost")
    talking(test, answering(**dict.fromkeys(actions, asks)))
    assert sum("sent an intent during" in r.getMessage() for r in caplog.records) == 2


def test_an_intent_whose_result_cannot_be_written_fails_the_child():
    async def asks_and_leaves(child, _message):
        await child.say(action="intent", number=1, after="", to="", appId="")
        child.stdin.break_off()
        return 1

    async def test(world):
        world.processor._checkpointer = Intents()
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed, match="processRecords: the intent result cannot"):
            await world.process()

    talking(test, answering(processRecords=asks_and_leaves))


def test_a_child_is_told_the_last_intent():
    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON, SECOND_INTENT)
        assert world.child.heard[0] == {
            "action": "initialize",
            "shardId": "shard-1",
            "sequenceNumber": "TRIM_HORIZON",
            "subSequenceNumber": 0,
            "intentNumber": 2,
            "intentAfter": "40:0",
            "intentTo": "49:2",
            "intentAppId": "app/0",
        }

    talking(test)


@pytest.mark.parametrize("during", ["processRecords", "shutdownRequested"])
def test_keep_alives_start_the_time_out_again(during, caplog):
    caplog.set_level(logging.INFO)

    async def withholds(child, _message):
        for _ in range(10):
            await asyncio.sleep(4)
            await child.say(action="leaseLost")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        began = asyncio.get_running_loop().time()
        if during == "processRecords":
            await world.process()
        else:
            assert await world.processor.shutdown_requested()
        assert asyncio.get_running_loop().time() - began >= 40
        assert not [r for r in caplog.records if "leaseLost" in r.getMessage()]

    talking(test, answering(**{during: withholds}), answer_timeout_s=5.0)


# -- a shard's life -------------------------------------------------------------------------------


def initializations(world):
    return [child.heard[0] for child in world.children.children]


def test_the_next_child_of_the_same_hold_is_told_the_newest_intent():
    async def writes_and_dies(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                assert await intend(child) is None
                assert await child.checkpoint() is None
                assert await intend(child, SECOND_INTENT) is None
                return 3
            await child.answer(message)
        return 0

    async def polite(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                assert await intend(child) == "IllegalArgumentException"
                assert await intend(child, SECOND_INTENT) is None
            await child.answer(message)
        return 0

    async def test(world):
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(10)
            world.put(b"two")
            await asyncio.sleep(10)
            consumer.request_shutdown()
            assert await running is ShutdownReason.REQUESTED
        first, second = initializations(world)
        assert "intentNumber" not in first
        assert second["intentNumber"] == 2
        assert second["intentTo"] == "49:2"
        row = await world.row()
        assert (row.lease_owner, row.intent) == (None, SECOND_INTENT)

    in_world(test, children=ScriptedChildren(writes_and_dies, polite), child=RESTART)


def test_after_an_unknown_outcome_the_row_is_read_before_the_next_child_is_told():
    async def unsure(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                assert await intend(child) == "KinesisClientLibDependencyException"
                return 3
            await child.answer(message)
        return 0

    async def answers(child):
        while (message := await child.receive()) is not None:
            await child.answer(message)
        return 0

    async def test(world):
        real = world.renewer.intend

        async def unanswered(key, mine, intent):
            world.renewer.intend = real
            row = world.renewer._held.find(key).lease
            await world.store.intend(row, intent)
            raise UnknownOutcome("UpdateItem", "ReadTimeoutError")

        world.renewer.intend = unanswered
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(10)
            consumer.request_shutdown()
            await running
        assert initializations(world)[1]["intentNumber"] == 1

    in_world(test, children=ScriptedChildren(unsure, answers), child=RESTART)


def test_an_intent_that_is_stored_does_not_hide_a_checkpoint_of_unknown_outcome():
    async def unsure(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                assert await child.checkpoint() == "KinesisClientLibDependencyException"
                assert await intend(child) is None
                return 3
            await child.answer(message)
        return 0

    async def answers(child):
        while (message := await child.receive()) is not None:
            await child.answer(message)
        return 0

    async def test(world):
        real = world.renewer.checkpoint

        async def unanswered(key, mine, position, *, child_shard_ids):
            world.renewer.checkpoint = real
            row = world.renewer._held.find(key).lease
            await world.store.checkpoint(row, position, child_shard_ids=child_shard_ids)
            raise UnknownOutcome("UpdateItem", "ReadTimeoutError")

        world.renewer.checkpoint = unanswered
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(10)
            consumer.request_shutdown()
            await running
        first, second = initializations(world)
        stored = (await world.row()).checkpoint
        assert first["sequenceNumber"] == "TRIM_HORIZON"
        assert second["sequenceNumber"] == stored.sequence_number != "TRIM_HORIZON"
        assert second["intentNumber"] == 1

    in_world(test, children=ScriptedChildren(unsure, answers), child=RESTART)


def test_children_learn_the_files_spark_keys_and_nobody_else_does(caplog):
    caplog.set_level(logging.DEBUG)

    async def main(world):
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(2)
            consumer.request_shutdown()
            await running
        told = json.loads(world.children.envs[0]["KCL_MLD_SPARK"])
        assert told == {"spark.sink": "jdbc", "spark.sink.options.password": "hunter2"}
        assert "hunter2" not in caplog.text
        assert "hunter2" not in repr(world.config)

    spark = {"spark.sink": "jdbc", "spark.sink.options.password": "hunter2"}
    in_world(main, spark=spark)


def test_a_throttled_intent_in_a_shards_life_is_only_late():
    async def writes(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                assert await intend(child) is None
            await child.answer(message)
        return 0

    async def test(world: World):
        real, left = world.store.intend, [Throttled("UpdateItem", "x")] * 2

        async def busy(lease, intent):
            if left:
                raise left.pop()
            return await real(lease, intent)

        world.store.intend = busy
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(10)
            consumer.request_shutdown()
            await running
        assert (await world.row()).intent == FIRST_INTENT

    in_world(test, children=ScriptedChildren(writes))
