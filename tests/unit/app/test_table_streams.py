"""A worker of the streams of several tables: rows of Java, an old stream and a new one, deletion."""

from __future__ import annotations

import asyncio
import logging

from kcl_mld.config.stream import TableStreamArn
from kcl_mld.kernel.model.sequence import Sentinel
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.shard_world import simulated
from tests.unit.app.streams_world import ACCOUNT, FIRST, StreamsWorld, initialize_of

LABEL = "2026-11-28T07:09:24.310"
NEWER = "2026-11-29T08:00:00.000"
WAIT_S = 600.0


def arn_of(table, label=LABEL):
    return TableStreamArn("aws", "us-east-1", ACCOUNT, table, label)


def identifier_of(arn):
    return f"{ACCOUNT}:{arn.name}:1"


class ByArn(FakeKinesis):
    """Streams of tables: each has a stand-in, whose name is that of the table and its label's day."""

    async def describe_stream_summary(self, **request):
        answer = await super().describe_stream_summary(**_named(request))
        answer["StreamDescriptionSummary"]["StreamARN"] = request["StreamARN"]
        return answer

    async def list_shards(self, **request):
        return await super().list_shards(**_named(request))

    async def get_shard_iterator(self, **request):
        return await super().get_shard_iterator(**_named(request))

    async def get_records(self, **request):
        return await super().get_records(**_named(request))


def stand_in(arn):
    return f"{arn.table}-{arn.label[:10]}"


def _named(request):
    named = {name: value for name, value in request.items() if name != "StreamARN"}
    if "StreamName" in named:
        named["StreamName"] = stand_in(TableStreamArn.parse(request["StreamARN"]))
    return named


class TablesWorld(StreamsWorld):
    """Streams of tables, and a worker that reads them all."""

    def __init__(self, *arns, **properties):
        super().__init__(streams=", ".join(map(str, arns)), **properties)
        for arn in arns:
            self.create(stand_in(arn))
        self.port = ByArn(self.kinesis)
        self.worker = self.new_worker()

    def leased(self):
        return {row["streamName"]["S"] for row in self.rows().values()}


ORDERS, CLICKS = arn_of("Orders"), arn_of("Clicks")


@simulated
async def test_keys_are_those_of_java_and_a_child_learns_name_and_arn():
    world = TablesWorld(ORDERS, CLICKS)
    world.put(stand_in(ORDERS), "o1")
    async with world.running():
        assert set(world.rows()) == {f"{identifier_of(one)}:{FIRST}" for one in (ORDERS, CLICKS)}
        row = world.rows()[f"{identifier_of(ORDERS)}:{FIRST}"]
        assert (row["streamName"]["S"], row["shardId"]["S"]) == (identifier_of(ORDERS), FIRST)
        assert world.children.data(ORDERS.name) == ["o1"]
        (child,) = world.children.of(ORDERS.name)
        assert initialize_of(child)["streamArn"] == child.env["KCL_STREAM_ARN"] == str(ORDERS)
        assert child.env["KCL_STREAM_IDENTIFIER"] == identifier_of(ORDERS)


@simulated
async def test_rows_of_an_old_stream_of_the_table_are_read_beside_the_new_one(caplog):
    new = arn_of("Orders", NEWER)
    world = TablesWorld(new)
    world.create(stand_in(ORDERS))
    world.put(stand_in(ORDERS), "old")
    world.put(stand_in(new), "new")
    await world.make_table()
    world.add_row(identifier_of(ORDERS), endingHashKey={"S": "1"})
    async with world.running() as worker:
        await asyncio.sleep(60)
        assert world.children.data(ORDERS.name) == ["old"]
        assert world.children.data(new.name) == ["new"]
        (orphan,) = worker.streams.orphans()
        assert (orphan.arn, orphan.identifier) == (str(ORDERS), identifier_of(ORDERS))
        assert not worker.status()["unread"]
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


@simulated
async def test_leases_of_a_stream_that_left_the_list_are_deleted_after_the_wait():
    world = TablesWorld(
        ORDERS,
        CLICKS,
        formerStreamsLeasesDeletionStrategy="AUTO_DETECTION",
        formerStreamsLeasesDeletionWaitMillis=str(int(WAIT_S * 1000)),
    )
    async with world.running():
        assert world.leased() == {identifier_of(ORDERS), identifier_of(CLICKS)}
    world.worker = world.new_worker(streams=str(ORDERS))
    async with world.running():
        await asyncio.sleep(WAIT_S)
        assert world.leased() == {identifier_of(ORDERS), identifier_of(CLICKS)}
        await asyncio.sleep(200)
        assert world.leased() == {identifier_of(ORDERS)}


@simulated
async def test_named_by_its_arn_a_former_stream_loses_its_leases():
    world = TablesWorld(
        ORDERS,
        formerStreamsLeasesDeletionStrategy="PROVIDED_LIST",
        formerStreamsForLeaseCleanup=str(CLICKS),
        formerStreamsLeasesDeletionWaitMillis="0",
    )
    world.create(stand_in(CLICKS))
    await world.make_table()
    for one in (CLICKS, arn_of("Clicks", NEWER)):
        world.add_row(identifier_of(one))
    async with world.running():
        await asyncio.sleep(400)
        assert world.leased() == {identifier_of(one) for one in (ORDERS, arn_of("Clicks", NEWER))}


@simulated
async def test_a_stream_that_is_deleted_ends_alone(caplog):
    world = TablesWorld(ORDERS, CLICKS)
    async with world.running() as worker:
        await asyncio.sleep(30)
        world.delete(stand_in(CLICKS))
        await asyncio.sleep(300)
        assert [one.name for one in worker.streams.followed()] == [ORDERS.name]
        assert list(worker.status()["unread"]) == [identifier_of(CLICKS)]
        assert world.leased() == {identifier_of(ORDERS), identifier_of(CLICKS)}
        world.put(stand_in(ORDERS), "after")
        await asyncio.sleep(30)
        assert world.children.data(ORDERS.name) == ["after"]
        assert Sentinel.SHARD_END not in world.checkpoints().values()
    (error,) = [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]
    assert f"stream {CLICKS.name} was deleted" in error
    assert "Remove it from streams" in error
