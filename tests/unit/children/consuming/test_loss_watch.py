"""What a consumer says of records that expired before it began, and what it leaves in the row."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from kcl_mld.children.consuming.loss_watch import RISK_AFTER_S, LossWatch
from kcl_mld.config.stream import DYNAMODB_STREAMS, KINESIS
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.leases.model.reading import ReadNote
from kcl_mld.local.kinesis.shard import next_sequence
from kcl_mld.retrieval.model.wire import read_batch
from kcl_mld.signals.model.metrics import PASSED_RESET, PASSED_TRIMMED, PassCause
from tests.fakes.children import ScriptedChildren
from tests.fakes.clock import FakeClock
from tests.sim.loop import run
from tests.unit.children.consumer_world import FIRST, World

HOUR_S = 3600.0


async def checkpoints(child):
    while (message := await child.receive()) is not None:
        if message["action"] in {"processRecords", "shardEnded"}:
            await child.checkpoint()
        await child.answer(message)


async def opened():
    """A stream that is older than its retention, in which records were read to the tip."""
    world = World(children=ScriptedChildren(checkpoints), retrieval={"idle_s": 1.0})
    await world.open()
    await world.existence.learn()
    await asyncio.sleep(48 * HOUR_S)
    world.numbers = world.put(b"one", b"two")
    async with world.consuming(await world.hold()):
        await asyncio.sleep(100)
    return world


async def consume_again(world, seconds=100.0):
    """The next holding of the shard; what was logged of losses."""
    now = world.clock.monotonic()
    taken = await world.store.take(await world.row(), "w1")
    assert taken is not None
    async with world.consuming(world.renewer.hold(taken, now)) as consumer:
        await asyncio.sleep(seconds)
        return consumer.status().loss


def said(caplog):
    return [
        (record.levelno, record.getMessage())
        for record in caplog.records
        if "LOST" in record.getMessage()
    ]


def counted(world, metric):
    return sum(one.value for one in world.metrics.data if one.metric is metric)


def test_the_row_says_until_when_the_shard_was_read():
    async def main():
        world = await opened()
        row = await world.row()
        assert row.checkpoint is not None
        assert row.checkpoint.sentinel is None
        assert row.read_until_s is not None
        # It was read for 100 s; the time in the row may be a minute behind.
        assert 0 <= world.clock.wall() - row.read_until_s <= 61
        assert row.loss is None

    run(main())


@pytest.mark.parametrize("hours", [23, 30])
def test_records_of_a_time_without_a_worker(caplog, hours):
    async def main():
        world = await opened()
        lost = world.put(b"three")
        await asyncio.sleep(hours * HOUR_S)
        world.put(b"four")
        shown = await consume_again(world)
        row = await world.row()
        if hours == 23:
            assert shown is None
            assert (row.loss, said(caplog)) == (None, [])
            assert counted(world, PASSED_TRIMMED) == 0
            return
        ((level, text),) = said(caplog)
        assert level == logging.WARNING
        assert text.startswith(f"{FIRST}: records MAY BE LOST: those between ")
        assert shown == text.removeprefix(f"{FIRST}: ")
        assert lost[0] not in text
        assert counted(world, PASSED_TRIMMED) == 1
        assert row.loss is not None
        assert (row.loss.cause, row.loss.is_certain) == (PassCause.TRIMMED, False)
        # The next owner shows it, and does not say it again.
        assert await consume_again(world) == shown
        assert len(said(caplog)) == 1

    run(main())


def test_a_quiet_shard_is_silent_however_long_it_was_not_read(caplog):
    async def main():
        world = await opened()
        await asyncio.sleep(100 * HOUR_S)
        now = world.clock.monotonic()
        taken = await world.store.take(await world.row(), "w1")
        async with world.consuming(world.renewer.hold(taken, now)):
            await asyncio.sleep(100)
            world.put(b"three")
            await asyncio.sleep(100)
        assert world.payloads() == [b"three"]
        assert said(caplog) == []

    run(main())


def test_a_row_of_another_program_is_a_warning_at_most(caplog):
    async def main():
        world = await opened()
        await asyncio.sleep(30 * HOUR_S)
        await strip(world)
        world.put(b"three")
        await consume_again(world)
        ((level, text),) = said(caplog)
        assert level == logging.WARNING
        assert "(not known when)" in text

    run(main())


async def strip(world):
    """Take away what only kcl-mld writes, as a row of Java has it."""
    await world.dynamodb.update_item(
        TableName="app",
        Key={"leaseKey": {"S": FIRST}},
        UpdateExpression="REMOVE kclMldReadUntil, kclMldHolder",
    )


@pytest.mark.parametrize("is_marked", [True, False])
def test_a_checkpoint_that_was_moved_back_makes_the_time_void(caplog, is_marked):
    async def main():
        world = await opened()
        back = world.numbers[0]
        await world.dynamodb.update_item(
            TableName="app",
            Key={"leaseKey": {"S": FIRST}},
            UpdateExpression="SET checkpoint = :back",
            ExpressionAttributeValues={":back": {"S": back}},
        )
        if not is_marked:
            await strip(world)
        assert (await world.row()).read_until_s is None
        await asyncio.sleep(30 * HOUR_S)
        world.put(b"three")
        await consume_again(world)
        ((_, text),) = said(caplog)
        assert f"between {back} (not known when)" in text

    run(main())


def test_a_number_that_is_no_record_is_silent_while_an_older_record_is_there(caplog):
    async def main():
        world = await opened()
        await asyncio.sleep(30 * HOUR_S)
        (before,) = world.put(b"three")
        await asyncio.sleep(1)
        world.put(b"four")
        await strip(world)
        await world.dynamodb.update_item(
            TableName="app",
            Key={"leaseKey": {"S": FIRST}},
            UpdateExpression="SET checkpoint = :number",
            ExpressionAttributeValues={":number": {"S": str(int(before) + next_sequence(0, 1))}},
        )
        await consume_again(world)
        assert world.payloads() == [b"four"]
        assert said(caplog) == []

    run(main())


async def never_checkpoints(child):
    while (message := await child.receive()) is not None:
        await child.answer(message)


def test_a_child_that_does_not_checkpoint_is_a_risk(caplog):
    async def main():
        world = World(
            children=ScriptedChildren(never_checkpoints),
            retrieval={"idle_s": 60.0},
        )
        await world.open()
        await world.existence.learn()
        world.put(b"one")
        held = await world.hold()
        async with world.consuming(held):
            for _hour in range(23):
                await asyncio.sleep(HOUR_S)
                await world.renewer.refresh(FIRST, held.token)
        texts = [record.getMessage() for record in caplog.records]
        warned = [one for one in texts if "is checkpointed, and records stay for 24 h" in one]
        assert len(warned) == 4  # from 19.2 h on, once an hour

    run(main())


@pytest.mark.parametrize("is_forward", [True, False])
def test_a_checkpoint_that_a_person_moves_forward_is_counted(is_forward):
    async def main():
        world = await opened()
        (later,) = world.put(b"three")
        request = LeaseRequest(
            request_id="r",
            verb="reset",
            holder="w1",
            expires_s=1e12,
            sequence_number=later if is_forward else world.numbers[0],
        )
        now = world.clock.monotonic()
        taken = await world.store.take(await world.row(), "w1")
        held = world.renewer.hold(taken, now)
        await world.dynamodb.update_item(
            TableName="app",
            Key={"leaseKey": {"S": FIRST}},
            UpdateExpression="SET kclMldHolder = :me, kclMldRequest = :request",
            ExpressionAttributeValues={":me": {"S": "w1"}, ":request": {"S": request.text}},
        )
        consumer = world.consumer(held)
        await world.renewer.refresh(FIRST, held.token)
        consumer.request_steer(request)
        await consumer.run()
        assert (await world.row()).checkpoint == request.position
        assert counted(world, PASSED_RESET) == int(is_forward)

    run(main())


def test_a_lease_is_renewed_whatever_its_row_would_say_besides(caplog):
    async def main():
        world = World()
        await world.open()
        held = await world.hold()

        def broken(_lease):
            raise ZeroDivisionError

        world.parts.notes.add(FIRST, broken)
        await world.renewer.refresh(FIRST, held.token)
        assert (await world.row()).lease_counter > held.lease.lease_counter
        assert "is left out" in caplog.text

    run(main())


START_S = FakeClock().corrected()
CREATED_S = START_S - 900 * HOUR_S


class Watched:
    """One shard in a world of its own; answers are given by hand."""

    def __init__(self, traits, shard_id="shard-1", checkpoint=TRIM_HORIZON, read=None):
        self.clock = FakeClock()
        self.added = []
        existence = SimpleNamespace(
            retention_s=24 * HOUR_S, stream=SimpleNamespace(created_at_s=CREATED_S)
        )
        self.context = SimpleNamespace(
            parts=SimpleNamespace(
                runtime=SimpleNamespace(clock=self.clock), service_time=lambda: None
            ),
            stream_context=SimpleNamespace(
                stream=SimpleNamespace(traits=traits), existence=existence
            ),
            checkpointer=SimpleNamespace(last=checkpoint, largest=ExtendedSequenceNumber("5")),
            held=SimpleNamespace(lease=SimpleNamespace(loss=None, read=read)),
            metrics=SimpleNamespace(add=lambda metric, _: self.added.append(metric)),
            shard_id=shard_id,
        )
        self.watch = LossWatch(self.context)

    async def judge(self, number, arrived_s, behind_ms, *, refused=False, following="i"):
        """A batch of one record, or of none."""
        record = {"SequenceNumber": number, "PartitionKey": "k", "Data": "YQ=="}
        body = {
            "Records": [{**record, "ApproximateArrivalTimestamp": arrived_s}] if number else [],
            "NextShardIterator": following,
            "EndedWithoutChildren": following is None,
            "MillisBehindLatest": behind_ms,
        }
        batch = read_batch(json.dumps(body).encode())
        at = self.clock.monotonic()
        fetched = SimpleNamespace(batch=batch, fetched_at=at, follows_refusal=refused)
        await self.watch.judge(fetched, self)

    async def oldest_number(self):
        return None


@pytest.mark.parametrize(("traits", "losses"), [(KINESIS, 1), (DYNAMODB_STREAMS, 0)])
def test_an_old_last_record_is_no_sign_of_another_one_that_waits(caplog, traits, losses):
    """The stream of a table says how old the last record is, also at the tip."""

    async def main():
        shard = Watched(traits)
        await shard.judge("5", START_S - 20 * HOUR_S, 20 * 3_600_000)
        shard.clock.advance(5 * HOUR_S)
        await shard.judge("9", START_S + HOUR_S, 4 * 3_600_000)

    run(main())
    assert sum("were LOST" in text for _, text in said(caplog)) == losses


def shard_made_at(epoch_s):
    return f"shardId-{int(epoch_s * 1000):020}-0a1b2c3d"


def test_a_checkpoint_that_dynamodb_streams_refuses_is_an_error_with_the_first_record(caplog):
    async def main():
        shard = Watched(
            DYNAMODB_STREAMS, shard_made_at(START_S - HOUR_S), ExtendedSequenceNumber("007")
        )
        shard.watch.begin(ExtendedSequenceNumber("007"))
        await shard.judge(None, None, None, refused=True)
        assert said(caplog) == []  # an answer without records is no end
        await shard.judge("0900", START_S, 1000)
        await shard.judge("0901", START_S, 1000)
        return shard

    shard = run(main())
    ((level, text),) = said(caplog)
    assert level == logging.ERROR
    assert text.startswith(f"{shard.context.shard_id}: records MAY BE LOST: those between 007 (")
    at = datetime.fromtimestamp(START_S, UTC).isoformat(timespec="seconds")
    assert f" and 0900 ({at})" in text
    assert "it keeps records for some 24 hours" in text
    assert shard.added == [PASSED_TRIMMED]
    assert "0900" in shard.watch.loss.last


def test_a_refused_checkpoint_of_a_shard_without_records_is_reported_at_its_end(caplog):
    async def main():
        shard = Watched(DYNAMODB_STREAMS, checkpoint=ExtendedSequenceNumber("007"))
        shard.watch.begin(ExtendedSequenceNumber("007"))
        await shard.judge(None, None, None, refused=True, following=None)

    run(main())
    ((level, text),) = said(caplog)
    assert (level, "those after 007" in text) == (logging.ERROR, True)


@pytest.mark.parametrize(("age_h", "warned"), [(4, 0), (25, 1)])
@pytest.mark.parametrize("empties", [0, 2])
def test_from_a_shard_that_is_younger_than_the_retention_nothing_has_expired(
    caplog, age_h, warned, empties
):
    """A quiet table: its last change is 30 hours old, and shards were replaced meanwhile."""

    async def main():
        read = ReadNote(START_S - 30 * HOUR_S, TRIM_HORIZON)
        shard = Watched(DYNAMODB_STREAMS, shard_made_at(START_S - age_h * HOUR_S), read=read)
        shard.watch.begin(TRIM_HORIZON)
        for _ in range(empties):
            await shard.judge(None, None, None)
        await shard.judge("9", START_S, 1000)

    run(main())
    assert [level for level, _ in said(caplog)] == [logging.WARNING] * warned


def test_a_quiet_shard_of_a_table_is_no_older_than_itself(caplog):
    read = ReadNote(START_S - 30 * HOUR_S, TRIM_HORIZON)
    shard = Watched(DYNAMODB_STREAMS, shard_made_at(START_S - HOUR_S), read=read)
    assert shard.watch.checkpoint_age_s() == pytest.approx(HOUR_S, abs=1)
    shard.clock.advance(RISK_AFTER_S + 1)
    shard.watch.notes(SimpleNamespace(checkpoint=None))
    assert said(caplog) == []
