"""Leases of the stream of a table: one child with one parent, late listings, no hash keys."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kcl_mld.aws.rules.shard_lineage import children_of, listed_shards
from kcl_mld.config.stream import Stream
from kcl_mld.errors import InconsistentShards, InvalidShardEnd, NotFound
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.streams.model.shard import ChildShard, HashRange
from tests.fakes.shard_world import ShardWorld, simulated

ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310"
NAME = "us-east-1$123456789012$Orders$2026-11-28T07_09_24.310"
NUMBER = "49590338271490256608559692540925702759324208523137515618"


class TableStream:
    """What the service lists: parent, and whether closed, by shard."""

    def __init__(self, world, **shards):
        self.world = world
        self.shards = shards
        self.status = "ACTIVE"
        world.kinesis.list_shards = self.list_shards
        world.kinesis.describe_stream_summary = self.describe_stream_summary

    async def list_shards(self, **request):
        self.world.calls.append(("ListShards", request))
        entries = [
            {
                "ShardId": shard_id,
                "SequenceNumberRange": {"StartingSequenceNumber": str(ord(shard_id))}
                | ({"EndingSequenceNumber": str(ord(shard_id))} if closed else {}),
            }
            | ({"ParentShardId": parent} if parent else {})
            for shard_id, (parent, closed) in self.shards.items()
        ]
        only = request.get("ShardFilter")
        return {
            "Shards": listed_shards(
                entries if only is None else children_of(only["ShardId"], entries)
            )
        }

    async def describe_stream_summary(self, **_request):
        summary = {"StreamARN": ARN, "StreamStatus": self.status, "StreamCreationTimestamp": 1.0}
        return {"StreamDescriptionSummary": summary | {"RetentionPeriodHours": 24}}


def world_of(position=Sentinel.TRIM_HORIZON, **shards):
    world = ShardWorld(0, position, stream=Stream(NAME, arn=ARN))
    return world, TableStream(world, **shards)


def at(world, shard_id, checkpoint, children=()):
    world.change(shard_id, checkpoint=checkpoint)
    if children:
        world.put_item({**world.row(shard_id), "childShardIds": {"SS": list(children)}})


OPEN = {"a": (None, True), "b": ("a", False)}


@pytest.mark.parametrize(
    ("position", "rows"),
    [
        (Sentinel.TRIM_HORIZON, {"a": "TRIM_HORIZON", "b": "TRIM_HORIZON"}),
        (Sentinel.LATEST, {"b": "LATEST"}),
    ],
)
def test_the_first_sync_asks_for_no_complete_list(position, rows):
    @simulated
    async def main():
        world, _ = world_of(position, **OPEN)
        outcome = await world.syncer.sync_if_empty()
        assert outcome.performed
        assert world.checkpoints() == rows
        assert [call for call, _ in world.calls] == ["ListShards"]
        assert world.row("b")["startingHashKey"] == {"S": "0"}

    main()


@simulated
async def test_a_list_without_shards_is_asked_for_again():
    world, _ = world_of()
    with pytest.raises(InconsistentShards, match="no shards"):
        await world.syncer.sync_if_empty()


@simulated
async def test_a_shard_that_rolls_over_gets_its_one_child():
    world, _ = world_of(a=(None, True))
    await world.syncer.sync_if_empty()
    lease = await world.lease_store.get("a")
    child = ChildShard("b", ("a",), HashRange(0, 1))
    with pytest.raises(InvalidShardEnd):  # as for Kinesis
        await world.shard_end().create_child_leases(lease, [child])
    await world.shard_end().create_child_leases(lease, [child], rolls_over=True)
    assert world.checkpoints() == {"a": "TRIM_HORIZON", "b": "TRIM_HORIZON"}
    assert world.row("a")["childShardIds"] == {"SS": ["b"]}


@simulated
async def test_a_child_that_is_listed_late_is_leased_by_the_next_audit(caplog):
    caplog.set_level(logging.INFO)
    world, stream = world_of(Sentinel.LATEST, a=(None, False))
    await world.syncer.sync_if_empty()
    at(world, "a", "SHARD_END")
    stream.shards["a"] = (None, True)
    caplog.clear()
    assert not (await world.syncer.audit()).created
    assert not caplog.records
    stream.shards["b"] = ("a", False)
    assert (await world.syncer.audit()).created == ("b",)
    assert world.checkpoints() == {"a": "SHARD_END", "b": "TRIM_HORIZON"}
    assert all(one.levelno < logging.WARNING for one in caplog.records)
    assert "b was listed after the end of its parent" in caplog.text
    # Its id shows whether anything can have expired from it before it is read.
    assert world.row("b")["kclMldReadUntil"]


@simulated
async def test_what_is_below_an_unfinished_lease_is_leased_without_a_word(caplog):
    world, stream = world_of(Sentinel.LATEST, a=(None, False))
    await world.syncer.sync_if_empty()
    at(world, "a", NUMBER)
    stream.shards |= {"a": (None, True), "b": ("a", True), "c": ("b", False)}
    assert (await world.syncer.audit()).created == ("b", "c")
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@simulated
async def test_a_worker_that_does_not_lead_sees_no_hole():
    world, _ = world_of(**OPEN)
    await world.syncer.sync_if_empty()
    world.leader.leads = False
    await world.lease_store.scan()
    for _ in range(10):
        assert not (await world.syncer.audit()).performed


# -- cleanup -------------------------------------------------------------------------------------


async def finished(world, *shard_ids):
    await world.syncer.sync_if_empty()
    for shard_id in shard_ids:
        at(world, shard_id, "SHARD_END")
        world.cleanup.enqueue(await world.lease_store.get(shard_id))
    await world.cleanup.clean_once()
    await asyncio.sleep(300)


@simulated
async def test_a_finished_lease_stays_until_its_child_is_known():
    world, stream = world_of(a=(None, True))
    await finished(world, "a")
    assert (await world.cleanup.clean_once()).waiting == ("a",)
    stream.shards["b"] = ("a", False)
    await world.syncer.audit()
    at(world, "b", NUMBER)
    assert (await world.cleanup.clean_once()).completed == ("a",)
    assert world.checkpoints() == {"b": NUMBER}


@simulated
async def test_a_second_child_that_is_listed_later_is_waited_for():
    world, stream = world_of(**OPEN)
    await finished(world, "a")
    at(world, "b", NUMBER)
    at(world, "a", "SHARD_END", ["b"])
    stream.shards["c"] = ("a", False)
    assert (await world.cleanup.clean_once()).waiting == ("a",)
    await world.syncer.audit()
    assert world.checkpoints()["c"] == "TRIM_HORIZON"
    at(world, "c", NUMBER)
    assert (await world.cleanup.clean_once()).completed == ("a",)


@simulated
async def test_a_row_in_which_java_noted_all_shards_is_deleted_all_the_same():
    world, _ = world_of(**OPEN)
    await finished(world, "a")
    at(world, "a", "SHARD_END", ["a", "b", "x"])
    at(world, "b", NUMBER)
    assert (await world.cleanup.clean_once()).completed == ("a",)


@simulated
async def test_the_lease_of_a_shard_that_is_listed_no_more_is_deleted():
    world, stream = world_of(**OPEN)
    await finished(world, "a")
    stream.shards = {"c": ("b", False)}
    await asyncio.sleep(3600)
    assert (await world.cleanup.clean_once()).garbage == ("a",)


@simulated
async def test_children_are_listed_and_not_read():
    world, _ = world_of(**OPEN)
    (child,) = await world.source.children_of("a")
    assert (child.shard_id, child.parent_shard_ids) == ("b", ("a",))
    assert await world.source.children_of("b") == ()
    with pytest.raises(NotFound, match="not listed"):
        await world.source.children_of("z")
    assert {call for call, _ in world.calls} == {"ListShards"}


# -- existence -----------------------------------------------------------------------------------


@simulated
async def test_a_closed_shard_that_can_not_be_read_has_ended_though_it_is_listed():
    world, _ = world_of(**OPEN)
    assert await world.existence.is_trimmed("a", "5")
    assert not await world.existence.is_trimmed("b", "5")
    assert not await world.existence.is_trimmed("z", None)  # it is not listed yet


@simulated
async def test_shards_that_are_listed_late_are_no_other_stream():
    world, stream = world_of(b=("a", False))
    await world.existence.check()
    stream.shards["a"] = (None, True)
    world.existence.check_shard("b", "1")
    await asyncio.sleep(1)
    await world.existence.check()
    assert await world.existence.confirm()
    assert world.existence.stream.mark == f"123456789012:us-east-1:{NAME}"


@simulated
async def test_a_stream_that_was_disabled_is_an_error_once(caplog):
    world, stream = world_of(**OPEN)
    await world.existence.check()
    stream.status = "DISABLED"
    for _ in range(3):
        await asyncio.sleep(1)
        await world.existence.check()
    (line,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "LatestStreamArn" in line.getMessage()


#: As the 1.x daemon wrote it: without hash keys, and with the zeros of DynamoDB Local.
ROW_OF_1X = {
    "checkpoint": {"S": "000000000000000000008"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
    "checkpointSubSequenceNumber": {"N": "0"},
    "leaseKey": {"S": "a"},
    "leaseOwner": {"S": "47d37d08-c985-4b6b-8a0e-a04bb0eda40c"},
    "leaseCounter": {"N": "33"},
}


@simulated
async def test_a_table_of_the_1x_daemon_goes_on(caplog):
    world, stream = world_of(Sentinel.LATEST, a=(None, False))
    world.put_item(ROW_OF_1X)
    assert not (await world.syncer.sync_if_empty()).performed
    assert not (await world.syncer.audit()).created
    lease = await world.lease_store.get("a")
    assert (str(lease.checkpoint), lease.hash_range) == ("000000000000000000008", None)
    stream.shards |= {"a": (None, True), "b": ("a", False)}
    assert (await world.syncer.audit()).created == ("b",)
    assert world.checkpoints()["b"] == "TRIM_HORIZON"
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]
