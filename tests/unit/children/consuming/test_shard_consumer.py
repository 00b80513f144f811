"""The life of a consumer, from its parents to each of its ends."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.errors import (
    BlockedOnParent,
    ChildFailed,
    ChildTimedOut,
    EndNotCheckpointed,
    InvalidShardEnd,
    LeaseLost,
    LimitExceeded,
    ResourceMissing,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.kernel.model.sequence import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)
from kcl_mld.leases.model.lease import Lease
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.children import ScriptedChildren, ends_at, polite
from tests.sim.loop import run
from tests.sim.stream import kpl_aggregate
from tests.unit.children.consumer_world import FIRST, STREAM, World

VECTORS = json.loads((Path(__file__).parents[3] / "data" / "kpl.json").read_text())
DAMAGED = base64.b64decode(
    next(one for one in VECTORS["deaggregation"] if one["name"] == "pk_index_out_of_range")[
        "input"
    ][0]["dataBase64"]
)
#: See tests/unit/retrieval/rules/test_deaggregate.py.
FOREIGN = base64.b64decode((Path(__file__).parents[3] / "data" / "aws_kinesis_agg.b64").read_text())
RESTART = {"failure_policy": ChildFailurePolicy.RESTART}


async def forgetful(child):
    """Answers everything and checkpoints batches, but never the end of the shard."""
    while (message := await child.receive()) is not None:
        if message["action"] == "processRecords":
            await child.checkpoint()
        await child.answer(message)
    return 0


crashing = ends_at("processRecords", 3)


def in_world(test, **settings):
    """Run a scenario in a fresh world."""

    async def main():
        world = World(**settings)
        await world.open()
        await test(world)
        assert world.budget.used_bytes == 0
        assert all(child.status is not None for child in world.children.children)

    run(main())


def test_a_shard_is_read_in_order_and_checkpointed_batch_by_batch():
    async def test(world):
        numbers = world.put(b"one", b"two", b"three")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
            world.put(b"four")
            await asyncio.sleep(5)
            assert world.payloads() == [b"one", b"two", b"three", b"four"]
        assert world.children.heard() == [
            "initialize",
            "processRecords",
            "processRecords",
            "shutdownRequested",
            "leaseLost",
        ]
        row = await world.row()
        assert row.lease_owner is None
        assert int(row.checkpoint.sequence_number) > int(numbers[-1])
        assert world.children.children[0].status == 0
        assert world.renewer.get(FIRST) is None

    in_world(test)


def test_the_child_learns_shard_and_position_and_gets_variables():
    async def test(world):
        async with world.consuming(await world.hold(checkpoint=At("49", 3))):
            await asyncio.sleep(1)
        assert world.children.children[0].heard[0] == {
            "action": "initialize",
            "shardId": FIRST,
            "sequenceNumber": "49",
            "subSequenceNumber": 3,
        }
        assert world.children.envs[0] == {
            "KCL_SHARD_ID": FIRST,
            "KCL_LEASE_KEY": FIRST,
            "KCL_STREAM_NAME": "orders",
            "KCL_APPLICATION_NAME": "app",
            "KCL_WORKER_ID": "w1",
            "KCL_MLD_PID": "4711",
            "KCL_MLD_CAPABILITIES": "log,tick",
        }

    in_world(test)


def test_the_child_learns_how_long_its_daemon_waits_for_an_answer():
    async def test(world):
        async with world.consuming(await world.hold()):
            await asyncio.sleep(1)
        assert world.children.envs[0]["KCL_MLD_TIMEOUT_S"] == "4"

    in_world(test, child={"answer_timeout_s": 4.0})


def test_reading_goes_on_behind_the_checkpoint():
    async def test(world):
        numbers = world.put(b"one", b"two", b"three")
        async with world.consuming(await world.hold(checkpoint=At(numbers[1]))):
            await asyncio.sleep(5)
        assert world.payloads() == [b"three"]

    in_world(test)


def test_the_end_of_a_shard_leaves_children_a_checkpoint_and_a_cleanup():
    async def test(world):
        consumer = await world.at_its_end()
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert world.children.heard() == ["initialize", "processRecords", "shardEnded"]
        row = await world.row()
        assert row.checkpoint == SHARD_END
        assert row.child_shard_ids == ("shardId-000000000001", "shardId-000000000002")
        assert row.lease_owner == "w1"
        child = await world.row("shardId-000000000001")
        assert child.checkpoint == TRIM_HORIZON
        assert child.parent_shard_ids == (FIRST,)
        assert world.cleanup.queued == (FIRST,)
        assert world.renewer.get(FIRST) is not None
        assert consumer.status().state == "SHUTDOWN_COMPLETE"

    in_world(test)


def test_a_finished_lease_needs_no_child():
    async def test(world):
        consumer = world.consumer(await world.hold(checkpoint=SHARD_END))
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert world.children.children == []
        assert world.cleanup.queued == (FIRST,)

    in_world(test)


def test_a_trimmed_shard_of_a_living_stream_ends_without_children():
    async def test(world):
        world.split()
        await asyncio.sleep(49 * 3600)
        consumer = world.consumer(await world.hold())
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert world.children.heard() == ["initialize", "shardEnded"]
        assert (await world.row()).checkpoint == SHARD_END

    in_world(test)


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("was_read", [False, True])
def test_a_shard_whose_stream_was_deleted_never_ends(*, was_read, comes_back):
    async def test(world):
        await world.existence.learn()
        if was_read:
            world.put(b"one")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(30)
            world.model.call("DeleteStream", {"StreamName": STREAM.name})
            if comes_back:
                world.model.call("CreateStream", {"StreamName": STREAM.name, "ShardCount": 1})
            with pytest.raises(
                ResourceMissing, match="created again" if comes_back else "was deleted"
            ):
                await world.existence.run()
            (condition,) = world.conditions.current()
            assert condition.reason == "stream_deleted"
        assert world.children.heard()[-2:] == ["shutdownRequested", "leaseLost"]
        assert "shardEnded" not in world.children.heard()
        assert not (await world.row()).is_finished
        assert world.cleanup.queued == ()

    in_world(test)


def test_nothing_is_read_while_it_is_not_known_whether_the_stream_was_created_again():
    """From the start of a shard the new stream would serve, and its shard's end would come."""

    async def test(world):
        await world.existence.learn()
        limited = LimitExceeded("DescribeStreamSummary", "LimitExceededException")
        is_limited = True

        async def before(_service, operation, _request):
            if is_limited and operation == "DescribeStreamSummary":
                raise limited

        world.kinesis.before = before
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(30)
            world.model.call("DeleteStream", {"StreamName": STREAM.name})
            world.model.call("CreateStream", {"StreamName": STREAM.name, "ShardCount": 1})
            await asyncio.sleep(1)
            world.put(b"of the new stream")
            world.split()
            await asyncio.sleep(300)
            assert world.children.heard() == ["initialize"]
            assert consumer.status().reading_fails_s is not None
            is_limited = False
            with pytest.raises(ResourceMissing, match="created again"):
                await world.existence.run()
        assert (await world.row()).checkpoint == TRIM_HORIZON

    in_world(test)


def test_a_position_that_a_recreated_stream_refuses_ends_the_worker():
    """Without an iterator that tells: a worker that starts after the stream was created again."""

    async def test(world):
        (number,) = world.put(b"one")
        world.model.call("DeleteStream", {"StreamName": STREAM.name})
        await asyncio.sleep(60)
        world.model.call("CreateStream", {"StreamName": STREAM.name, "ShardCount": 1})
        await world.existence.learn()
        async with world.consuming(await world.hold(checkpoint=At(number))):
            with pytest.raises(ResourceMissing, match=f"never had the record {number}"):
                await world.existence.run()
        assert (await world.row()).checkpoint == At(number)

    in_world(test)


def test_a_child_that_forgets_the_end_reads_it_again_and_then_gives_up():
    async def test(world):
        consumer = await world.at_its_end()
        with pytest.raises(EndNotCheckpointed, match="without a successful checkpoint"):
            await consumer.run()
        assert len(world.children.children) == 4
        assert world.children.heard() == ["initialize", "shardEnded"]
        assert consumer.status().restarts == 4
        assert world.metrics.values["", "ChildRestarts"] == [1, 1, 1]
        assert not (await world.row()).is_finished

    in_world(test, children=ScriptedChildren(forgetful))


def test_the_next_child_may_remember_the_end():
    async def test(world):
        consumer = await world.at_its_end()
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert len(world.children.children) == 2
        assert (await world.row()).is_finished

    in_world(test, children=ScriptedChildren(forgetful, polite))


def test_a_child_that_dies_after_checkpointing_the_end_leaves_a_finished_shard():
    async def dies(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "shardEnded":
                assert await child.checkpoint() is None
                return 3
            await child.answer(message)
        return 0

    async def test(world):
        consumer = await world.at_its_end()
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert len(world.children.children) == 1
        assert (await world.row()).is_finished
        assert world.cleanup.queued == (FIRST,)

    in_world(test, children=ScriptedChildren(dies), child=RESTART)


def hindered(*errors):
    """A world's renewer whose SHARD_END checkpoints fail, whether they happened or not."""

    def hinder(world):
        real, left = world.renewer.checkpoint, list(errors)

        async def checkpoint(key, token, position, **rest):
            if position.is_shard_end and left:
                error = left.pop(0)
                if isinstance(error, UnknownOutcome):
                    row = world.renewer._held.find(key).lease
                    await world.store.checkpoint(row, position)
                raise error
            await real(key, token, position, **rest)

        world.renewer.checkpoint = checkpoint

    return hinder


def test_an_end_whose_checkpoint_got_no_answer_is_not_read_again():
    async def swallows(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "shardEnded":
                assert await child.checkpoint() is not None
            await child.answer(message)
        return 0

    async def test(world):
        world.put(b"one")
        world.split()
        await asyncio.sleep(60)
        hindered(UnknownOutcome("UpdateItem", "ReadTimeoutError"))(world)
        refresh, troubles = world.renewer.refresh, [Unreachable("UpdateItem", "refused")]

        async def late(key, token):
            if troubles:
                raise troubles.pop()
            return await refresh(key, token)

        world.renewer.refresh = late
        consumer = world.consumer(await world.hold())
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert len(world.children.children) == 1
        assert (await world.row()).is_finished
        assert world.cleanup.queued == (FIRST,)

    in_world(test, children=ScriptedChildren(swallows))


def test_an_end_of_unknown_outcome_whose_lease_is_lost_is_left_to_the_next_owner():
    async def test(world):
        world.split()
        await asyncio.sleep(60)
        hindered(UnknownOutcome("UpdateItem", "ReadTimeoutError"))(world)
        held = await world.hold()
        consumer = world.consumer(held)

        async def lost(key, token):
            raise LeaseLost(key, "it is not held any more")

        world.renewer.refresh = lost
        assert await consumer.run() is ShutdownReason.LEASE_LOST
        assert len(world.children.children) == 1

    in_world(test)


def test_a_table_that_is_throttled_for_minutes_at_the_end_of_a_shard_ends_no_daemon():
    async def test(world):
        world.split()
        await asyncio.sleep(60)
        hindered(*[Throttled("UpdateItem", "ThrottlingException")] * 200)(world)
        consumer = world.consumer(await world.hold())
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert len(world.children.children) > 4
        assert (await world.row()).is_finished

    in_world(test)


def test_a_lease_that_lapses_during_the_conversion_delivers_nothing():
    async def test(world):
        world.put(b"one")
        held = await world.hold()
        consumer = world.consumer(held)
        real = world.parts.lines.write

        async def slow(*arguments):
            delivery = await real(*arguments)
            await world.renewer.drop(FIRST, held.token)
            return delivery

        world.parts.lines.write = slow
        assert await consumer.run() is ShutdownReason.LEASE_LOST
        assert world.children.heard() == ["initialize", "leaseLost"]

    in_world(test)


def test_a_lost_lease_ends_the_child_without_a_checkpoint():
    async def test(world):
        world.put(b"one")
        held = await world.hold()
        async with world.running(held) as (consumer, running):
            await asyncio.sleep(5)
            consumer.lease_lost()
            assert await running is ShutdownReason.LEASE_LOST
        assert world.children.heard() == ["initialize", "processRecords", "leaseLost"]
        assert world.renewer.get(FIRST) is None
        assert (await world.row()).lease_owner == "w1"

    in_world(test)


def test_a_checkpoint_that_finds_another_owner_ends_the_consumer():
    errors = []

    async def asks(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                errors.append(await child.checkpoint())
            await child.answer(message)
        return 0

    async def test(world):
        await world.hold()
        row = await world.row()
        held = world.renewer.get(FIRST)
        consumer = world.consumer(held)
        assert await world.store.take(row, "w2")
        world.put(b"one")
        assert await consumer.run() is ShutdownReason.LEASE_LOST
        assert errors == ["ShutdownException"]
        assert world.children.heard() == ["initialize", "processRecords", "leaseLost"]
        assert (await world.row()).lease_owner == "w2"

    in_world(test, children=ScriptedChildren(asks))


def test_a_child_waits_for_its_parents_and_starts_at_once_when_told():
    async def test(world):
        await world.store.create_if_absent(
            Lease(lease_key="parent", shard_id="parent", checkpoint=TRIM_HORIZON)
        )
        async with world.consuming(await world.hold(parents=("parent",))) as consumer:
            await asyncio.sleep(1)
            assert consumer.status().blocked_by == "parent"
            assert consumer.status().state == "WAITING_ON_PARENT_SHARDS"
            assert world.children.children == []
            row = await world.store.get("parent", consistent=True)
            taken = await world.store.take(row, "w2")
            await world.store.checkpoint(taken, SHARD_END)
            consumer.parents_changed()
            await asyncio.sleep(1)
            assert consumer.status().blocked_by is None
            assert len(world.children.children) == 1

    in_world(test)


@pytest.mark.parametrize(
    ("stop", "reason", "owner"),
    [
        ("request_shutdown", ShutdownReason.REQUESTED, None),
        ("lease_lost", ShutdownReason.LEASE_LOST, "w1"),
    ],
)
def test_waiting_for_a_parent_ends_at_once(stop, reason, owner):
    async def test(world):
        await world.store.create_if_absent(
            Lease(lease_key="parent", shard_id="parent", checkpoint=TRIM_HORIZON)
        )
        async with world.running(await world.hold(parents=("parent",))) as (consumer, running):
            await asyncio.sleep(1)
            began = world.clock.monotonic()
            getattr(consumer, stop)()
            assert await running is reason
        assert world.clock.monotonic() - began < 1
        assert world.children.children == []
        assert (await world.row()).lease_owner == owner

    in_world(test)


def test_parents_that_cannot_be_read_are_looked_at_again():
    async def test(world):
        consumer = world.consumer(await world.hold(parents=("gone",)))
        failures = iter([Unreachable("GetItem", "refused")])

        async def before(_service, operation, _request):
            if operation == "GetItem":
                for failure in failures:
                    raise failure

        world.dynamodb.before = before
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(15)
            assert len(world.children.children) == 1
            consumer.request_shutdown()
            await running

    in_world(test)


def test_by_default_a_dead_child_ends_the_daemon(caplog):
    async def test(world):
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        with pytest.raises(ChildFailed) as failed:
            await consumer.run()
        assert failed.value.action == "processRecords"
        assert failed.value.child_exit_code == 3
        assert len(world.children.children) == 1
        errors = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
        assert errors == [str(failed.value)]

    in_world(test, children=ScriptedChildren(crashing))


def test_with_restart_the_next_child_gets_the_same_records():
    async def test(world):
        world.put(b"one", b"two")
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(20)
            assert consumer.status().restarts == 1
            assert "processRecords" in consumer.status().last_error
        assert world.payloads(1) == [b"one", b"two"]

    in_world(test, children=ScriptedChildren(crashing, polite), child=RESTART)


def test_a_restart_at_latest_skips_nothing():
    async def test(world):
        async with world.consuming(await world.hold(checkpoint=LATEST)):
            await asyncio.sleep(5)
            world.put(b"one")
            await asyncio.sleep(1.5)  # the first child is dead of it
            world.put(b"two")
            await asyncio.sleep(20)
        assert world.payloads(1) == [b"one", b"two"]
        assert world.parts.latest_starts == {}  # a number is stored by now

    in_world(test, children=ScriptedChildren(crashing, polite), child=RESTART)


@pytest.mark.parametrize(("others", "seen"), [(False, [b"one"]), (True, [])])
def test_a_lapsed_lease_at_latest_goes_on_where_it_began_unless_others_had_it(others, seen):
    async def test(world):
        held = await world.hold(checkpoint=LATEST)
        async with world.running(held) as (consumer, running):
            await asyncio.sleep(20)
            consumer.lease_lost()
            await running
            world.put(b"one")
            await asyncio.sleep(20)
            lease = replace(await world.row(), owner_switches_since_checkpoint=int(others))
        async with world.consuming(world.renewer.hold(lease, world.clock.monotonic())):
            await asyncio.sleep(20)
        assert world.payloads() == seen

    in_world(test)


@pytest.mark.parametrize("pipe", ["stdin", "stdout"])
def test_a_child_that_cuts_itself_off_is_told_of_and_ended_at_once(caplog, pipe):
    async def cuts(child):
        child.ignores_eof = True
        await child.answer(await child.receive())
        if pipe == "stdout":
            child.stdout.close()
        else:
            child.stdin.break_off()
        await asyncio.Event().wait()

    async def test(world):
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
            world.put(b"one")
            await asyncio.sleep(3)
            assert world.children.children[0].signals == ["TERM"]
            when = "while idle" if pipe == "stdout" else "at processRecords"
            assert f"child failed {when}" in caplog.text
            await asyncio.sleep(10)
        assert world.payloads(1) == [b"one"]

    in_world(test, children=ScriptedChildren(cuts, polite), child=RESTART)


def test_restarts_end_when_nothing_gets_done():
    async def test(world):
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        with pytest.raises(ChildFailed):
            await consumer.run()
        assert len(world.children.children) == 3

    in_world(test, children=ScriptedChildren(crashing), child=RESTART | {"restart_attempts": 2})


def test_progress_between_failures_keeps_restarting():
    async def one_batch(child):
        batches = 0
        while (message := await child.receive()) is not None:
            if message["action"] == "processRecords":
                batches += 1
                if batches > 1:
                    return 3
                await child.checkpoint()
            await child.answer(message)
        return 0

    async def test(world):
        async with world.consuming(await world.hold()) as consumer:
            for number in range(12):
                world.put(b"%d" % number)
                await asyncio.sleep(10)
            assert consumer.status().restarts > 3

    in_world(test, children=ScriptedChildren(one_batch), child=RESTART | {"restart_attempts": 2})


def test_a_stop_during_the_pause_before_a_restart_releases_the_lease():
    async def test(world):
        world.put(b"one")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
        assert len(world.children.children) == 1
        assert (await world.row()).lease_owner is None

    in_world(test, children=ScriptedChildren(crashing), child=RESTART | {"restart_backoff_s": 60.0})


def test_a_child_that_cannot_be_started_fails_the_shard():
    async def test(world):
        world.children.refuses = FileNotFoundError(2, "No such file")
        consumer = world.consumer(await world.hold())
        with pytest.raises(ChildFailed, match="cannot start 'child'"):
            await consumer.run()

    in_world(test)


def test_the_batch_in_hand_is_finished_before_the_stop():
    order = []

    async def slow(child):
        while (message := await child.receive()) is not None:
            order.append(message["action"])
            if message["action"] == "processRecords":
                await asyncio.sleep(30)
                order.append("done")
                await child.checkpoint()
            await child.answer(message)
        return 0

    async def test(world):
        world.put(b"one")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
            world.put(b"two")
            await asyncio.sleep(5)
        assert order == ["initialize", "processRecords", "done", "shutdownRequested", "leaseLost"]
        assert (await world.row()).checkpoint.sequence_number.isdigit()

    in_world(test, children=ScriptedChildren(slow))


def test_a_child_that_dies_at_the_shutdown_notice_still_releases_its_lease():
    leaves = ends_at("shutdownRequested", 0)

    async def test(world):
        consumer = world.consumer(await world.hold())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(settled(consumer.run()))
            await asyncio.sleep(5)
            consumer.request_shutdown()
            assert isinstance(await running, ChildFailed)
        assert (await world.row()).lease_owner is None

    in_world(test, children=ScriptedChildren(leaves))


def test_an_unreadable_batch_is_fetched_again_and_never_dropped():
    async def test(world):
        world.put(b"one")
        real = world.kinesis.get_records
        damaged = []

        async def get_records(**request):
            body = await real(**request)
            if b"PartitionKey" in body and len(damaged) < 2:
                damaged.append(1)
                return body.replace(b'"PartitionKey":"k"', b'"PartitionKey":[]')
            return body

        world.kinesis.get_records = get_records
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(3)
            assert "cannot be read" in consumer.status().last_error
            await asyncio.sleep(10)
        assert damaged == [1, 1]
        assert world.payloads() == [b"one"]

    in_world(test)


def test_empty_batches_are_delivered_when_asked_for():
    async def test(world):
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
        batches = [one for one in world.children.heard() if one == "processRecords"]
        assert len(batches) >= 3

    in_world(test, retrieval={"call_even_if_empty": True})


def test_an_empty_last_batch_is_never_delivered():
    async def test(world):
        world.split()
        await asyncio.sleep(60)
        consumer = world.consumer(await world.hold())
        await consumer.run()
        assert world.children.heard() == ["initialize", "shardEnded"]

    in_world(test, retrieval={"call_even_if_empty": True})


def test_a_cancelled_consumer_kills_its_child():
    async def test(world):
        async with world.running(await world.hold()) as (_, running):
            await asyncio.sleep(5)
            running.cancel()
        assert world.children.children[0].signals == ["KILL"]
        assert (await world.row()).lease_owner == "w1"

    in_world(test)


def test_a_hanging_child_times_out():
    async def hangs(child):
        message = await child.receive()
        await child.answer(message)
        await asyncio.get_running_loop().create_future()

    async def test(world):
        world.put(b"one")
        consumer = world.consumer(await world.hold())
        began = world.clock.monotonic()
        with pytest.raises(ChildTimedOut, match="no answer within 5"):
            await consumer.run()
        assert world.clock.monotonic() - began < 6
        assert world.children.children[0].signals == ["TERM"]

    in_world(test, children=ScriptedChildren(hangs), child={"answer_timeout_s": 5.0})


def test_metrics_of_a_batch_have_javas_names():
    async def test(world):
        world.put(b"one", b"four")
        async with world.consuming(await world.hold()):
            await asyncio.sleep(1)
        values = world.metrics.values
        assert values["ProcessTask", "RecordsProcessed"] == [0, 2]
        assert values["ProcessTask", "DataBytesProcessed"] == [0, 7]
        assert values["ProcessTask", "Success"] == [1]
        assert values["ProcessTask", "MillisBehindLatest"] == [0]
        assert values["ApplicationTracker", "MillisBehindLatest"] == [0]
        for operation, name in (
            ("ProcessTask", "Time"),
            ("ProcessTask", "RecordProcessor.processRecords.Time"),
            ("ProcessTask", "KinesisDataFetcher.getRecords.Success"),
            ("ProcessTask", "KinesisDataFetcher.getRecords.Time"),
            ("ProcessTask", "KinesisDataFetcher.getShardIterator.Success"),
            ("ProcessTask", "UpdateLease.Success"),
            ("InitializeTask", "RecordProcessor.initialize.Time"),
            ("ShutdownTask", "RecordProcessor.shutdown.Time"),
        ):
            assert len(values[operation, name]) >= 1

    in_world(test)


def test_the_status_can_be_shown_as_json():
    async def test(world):
        world.put(b"one")
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(3)
            status = consumer.status()
        shown = json.loads(json.dumps(status.as_dict()))
        assert shown["state"] == "PROCESSING"
        assert shown["child_pid"] == 1000
        assert shown["millis_behind_latest"] == 0
        assert shown["checkpoint"].isdigit()
        assert 0 <= shown["last_batch_age_s"] < 3

    in_world(test)


def test_a_merge_whose_other_parent_has_no_row_waits_and_a_stop_releases():
    async def test(world):
        world.put(b"one")
        world.model.call(
            "MergeShards",
            {
                "StreamName": STREAM.name,
                "ShardToMerge": FIRST,
                "AdjacentShardToMerge": "shardId-000000000001",
            },
        )
        await asyncio.sleep(60)
        async with world.consuming(await world.hold()) as consumer:
            await asyncio.sleep(3)
            assert consumer.status().state == "SHUTTING_DOWN"
        assert "shardEnded" not in world.children.heard()
        assert world.children.heard()[-2:] == ["shutdownRequested", "leaseLost"]
        assert (await world.row()).lease_owner is None

    in_world(test, shards=2)


def test_large_batches_are_converted_away_from_the_loop():
    async def test(world):
        world.put(*[b"x" * 50_000] * 20)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
        assert world.offload.count >= 1
        assert len(world.payloads()) == 20

    in_world(test)


def test_a_lease_lost_during_the_end_leaves_the_end_to_the_next_owner():
    async def loses(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "shardEnded":
                row = await worlds[0].row()
                assert await worlds[0].store.take(row, "w2")
                assert await child.checkpoint() == "ShutdownException"
            await child.answer(message)
        return 0

    worlds = []

    async def test(world):
        worlds.append(world)
        world.split()
        await asyncio.sleep(60)
        consumer = world.consumer(await world.hold())
        assert await consumer.run() is ShutdownReason.LEASE_LOST
        assert world.cleanup.queued == ()
        assert len(world.children.children) == 1
        assert world.children.heard() == ["initialize", "shardEnded"]

    in_world(test, children=ScriptedChildren(loses))


def test_a_lease_that_lapsed_before_the_end_is_not_ended():
    async def test(world):
        world.put(b"one")
        held = await world.hold()
        consumer = world.consumer(held)
        world.split()
        await asyncio.sleep(60)

        async def lapses(lease, children, **_):
            await world.renewer.drop(FIRST, held.token)
            raise Unreachable("PutItem", "refused")

        world.parts.shard_end.create_child_leases = lapses
        assert await consumer.run() is ShutdownReason.LEASE_LOST
        assert world.children.heard()[-1] == "leaseLost"

    in_world(test)


def test_a_contradictory_end_gives_the_lease_up():
    async def test(world):
        world.split()
        await asyncio.sleep(60)
        consumer = world.consumer(await world.hold())

        async def contradicts(lease, children, **_):
            raise InvalidShardEnd(lease.lease_key, "only one parent")

        world.parts.shard_end.create_child_leases = contradicts
        assert await consumer.run() is ShutdownReason.LEASE_LOST
        assert world.children.heard() == ["initialize", "leaseLost"]
        assert world.renewer.get(FIRST) is None

    in_world(test)


def test_an_end_that_cannot_be_written_yet_is_repeated():
    async def test(world):
        world.split()
        await asyncio.sleep(60)
        consumer = world.consumer(await world.hold())
        real = world.parts.shard_end.create_child_leases
        failures = [Unreachable("PutItem", "refused")] * 3

        async def fails(lease, children, **more):
            if failures:
                raise failures.pop()
            await real(lease, children, **more)

        world.parts.shard_end.create_child_leases = fails
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert "refused" in consumer.status().last_error

    in_world(test)


def test_a_shard_that_cannot_be_finished_says_so_once_a_minute(caplog):
    async def test(world):
        world.split()
        await asyncio.sleep(60)
        consumer = world.consumer(await world.hold())
        real = world.parts.shard_end.create_child_leases
        until = world.clock.monotonic() + 150

        async def fails(lease, children, **more):
            if world.clock.monotonic() < until:
                raise BlockedOnParent(FIRST, "another", "it has no lease yet")
            if world.clock.monotonic() < until + 5:
                raise Unreachable("PutItem", "refused")
            await real(lease, children, **more)

        world.parts.shard_end.create_child_leases = fails
        assert await consumer.run() is ShutdownReason.SHARD_END
        assert world.expected == {"another"}  # the syncer creates it if nobody does

    in_world(test)
    told = [one.getMessage() for one in caplog.records if "cannot finish" in one.getMessage()]
    assert ["refused" in text for text in told] == [False] * 3 + [True]


def test_a_lease_that_cannot_be_released_is_left_to_expire(caplog):
    async def test(world):
        consumer = world.consumer(await world.hold())

        async def refuses(_key, _token):
            raise Unreachable("UpdateItem", "refused")

        world.renewer.release = refuses
        async with asyncio.TaskGroup() as group:
            running = group.create_task(consumer.run())
            await asyncio.sleep(3)
            consumer.request_shutdown()
            assert await running is ShutdownReason.REQUESTED

    in_world(test)
    assert any("cannot release the lease" in record.getMessage() for record in caplog.records)


def test_a_stop_now_during_lease_lost_kills_at_once():
    async def hangs(child):
        await child.answer(await child.receive())
        await child.answer(await child.receive())
        await asyncio.get_running_loop().create_future()

    async def test(world):
        async with world.running(await world.hold()) as (consumer, running):
            await asyncio.sleep(3)
            consumer.request_shutdown()
            await asyncio.sleep(3)
            began = world.clock.monotonic()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert world.clock.monotonic() - began < 0.1
        assert world.children.children[0].signals == ["KILL"]

    in_world(test, children=ScriptedChildren(hangs))


def test_a_child_that_fails_at_lease_lost_under_restart_is_let_go():
    leaves = ends_at("leaseLost", 5)

    async def test(world):
        async with world.consuming(await world.hold()):
            await asyncio.sleep(3)
        assert (await world.row()).lease_owner is None

    in_world(test, children=ScriptedChildren(leaves), child=RESTART)


def test_a_lease_lost_while_waiting_for_data_is_noticed_without_being_told():
    async def test(world):
        held = await world.hold()
        async with world.running(held) as (_, running):
            await asyncio.sleep(3)
            await world.renewer.drop(FIRST, held.token)
            world.put(b"one")
            assert await running is ShutdownReason.LEASE_LOST
        assert world.payloads() == []

    in_world(test)


def test_a_stop_that_meets_a_forgotten_end_starts_no_other_child():
    async def slow_to_forget(child):
        while (message := await child.receive()) is not None:
            if message["action"] == "shardEnded":
                await asyncio.sleep(10)
            await child.answer(message)
        return 0

    async def test(world):
        world.split()
        await asyncio.sleep(60)
        async with world.consuming(await world.hold()):
            await asyncio.sleep(5)
        assert len(world.children.children) == 1
        assert (await world.row()).lease_owner is None

    in_world(test, children=ScriptedChildren(slow_to_forget))


def test_readable_records_of_a_damaged_aggregate_are_delivered(caplog):
    numbers = []

    async def test(world):
        world.put(kpl_aggregate([("a", b"one"), ("b", b"two")]))
        numbers.extend(world.put(DAMAGED))
        async with world.consuming(await world.hold()):
            await asyncio.sleep(3)
        assert world.payloads() == [b"one", b"two", b"keep", b"lost"]
        assert (await world.row()).checkpoint.sequence_number.isdigit()
        assert world.metrics.values["ProcessTask", "UnreadableUserRecords"] == [1.0]
        assert ("ProcessTask", "UserRecordsOutsideShard") not in world.metrics.values

    in_world(test)
    (error,) = (one.getMessage() for one in caplog.records if one.levelname == "ERROR")
    assert error.startswith(f"{FIRST}: 1 user record in aggregated records {numbers[0]} can't")
    assert "sub-sequence number 1" in error


async def read_aggregates(world, *rounds):
    """Put these aggregates with pauses of a second, and read the lower half of all keys."""
    held = await world.hold()
    lower_half = replace(held.lease, hash_range=HashRange(0, 2**127 - 1))
    consumer = world.consumer(world.renewer.hold(lower_half, world.clock.monotonic()))
    numbers = []
    async with asyncio.TaskGroup() as group:
        running = group.create_task(consumer.run())
        for aggregates in rounds:
            numbers += world.put(*aggregates)
            await asyncio.sleep(2)
        consumer.request_shutdown()
        await running
    return numbers


def test_user_records_outside_the_shard_are_counted_and_warned_about(caplog):
    numbers = []

    async def test(world):
        numbers.extend(await read_aggregates(world, [FOREIGN] * 2, [FOREIGN], *[[b"plain"]] * 30))
        numbers.extend(world.put(FOREIGN))
        assert world.payloads() == [b"plain"] * 30
        assert sum(world.metrics.values["ProcessTask", "UserRecordsOutsideShard"]) == 300

    in_world(test)
    (warning,) = (one.getMessage() for one in caplog.records if "keys of other" in one.getMessage())
    assert warning.startswith(f"{FIRST}: 200 user records in aggregated records {numbers[0]} to")
    assert "aggregatedRecordsOutsideShard = deliver" in warning


def test_a_shard_warns_of_records_outside_it_no_more_than_once_a_minute(caplog):
    async def test(world):
        await read_aggregates(world, *[[FOREIGN]] * 40)

    in_world(test)
    counts = [
        int(one.getMessage().split()[1])
        for one in caplog.records
        if "keys of other" in one.getMessage()
    ]
    assert counts == [100, 3000]


def test_user_records_outside_the_shard_are_delivered_on_request(caplog):
    async def test(world):
        await read_aggregates(world, [FOREIGN, b"plain"])
        assert world.payloads() == [*(b"record %d" % n for n in range(100)), b"plain"]

    in_world(test, retrieval={"deliver_outside_shard": True})
    assert not [one for one in caplog.records if one.levelname in {"WARNING", "ERROR"}]


async def settled(work):
    """Result or error of a coroutine."""
    try:
        return await work
    except ChildFailed as error:
        return error


async def make_unreadable(world, lease_key):
    await world.dynamodb.update_item(
        TableName="app",
        Key={"leaseKey": {"S": lease_key}},
        UpdateExpression="SET leaseCounter = :word",
        ExpressionAttributeValues={":word": {"S": "x"}},
    )


def test_a_parent_whose_row_cannot_be_read_keeps_only_its_child_waiting():
    async def test(world):
        await world.store.create_if_absent(
            Lease(lease_key="parent", shard_id="parent", checkpoint=SHARD_END)
        )
        await make_unreadable(world, "parent")
        async with world.consuming(await world.hold(parents=("parent",))) as consumer:
            await asyncio.sleep(15)
            assert consumer.status().blocked_by == "parent"
        assert world.children.children == []

    in_world(test)


def test_a_child_whose_row_cannot_be_read_does_not_keep_its_parent_from_ending():
    async def test(world):
        world.split()
        lower, upper = "shardId-000000000001", "shardId-000000000002"
        await world.store.create_if_absent(
            Lease(lease_key=lower, shard_id=lower, checkpoint=TRIM_HORIZON)
        )
        await make_unreadable(world, lower)
        assert await world.consumer(await world.hold()).run() is ShutdownReason.SHARD_END
        assert (await world.row()).child_shard_ids == (lower, upper)
        assert (await world.row(upper)).checkpoint == TRIM_HORIZON

    in_world(test)
