"""A leader deletes the leases of streams that left the list or do not exist any more."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from kcl_mld.app.former_streams import FormerStreams
from kcl_mld.config.properties import parse
from kcl_mld.config.stream import Stream
from kcl_mld.config.stream_list import FormerPolicy, FormerStrategy, ListedStream
from kcl_mld.errors import Denied, Throttled, UnknownOutcome
from tests.fakes.clock import LoopClock
from tests.fakes.lease_world import CountingMetrics
from tests.fakes.shard_world import simulated
from tests.unit.app.streams_world import ACCOUNT, StreamsWorld

AUTO = {"formerStreamsLeasesDeletionStrategy": "AUTO_DETECTION"}
PROVIDED = {"formerStreamsLeasesDeletionStrategy": "PROVIDED_LIST"}
WAIT_S = 600.0
OLD = f"{ACCOUNT}:gone:1600000000"


def world_of(*names, **properties):
    """A worker with rules, so that streams come and go by their tags."""
    wait = {"formerStreamsLeasesDeletionWaitMillis": str(int(WAIT_S * 1000))}
    has_strategy = "formerStreamsLeasesDeletionStrategy" in properties
    rules = {"streamTags": "read=yes", **(wait if has_strategy else {})}
    # Hours pass here, and reading is not what they are about.
    world = StreamsWorld(**{"idleTimeBetweenReadsInMillis": "10000", **rules, **properties})
    for name in names:
        world.create(name)
        tag(world, name)
    return world


def tag(world, name):
    world.kinesis.call("AddTagsToStream", {"StreamName": name, "Tags": {"read": "yes"}})


def untag(world, name):
    world.kinesis.call("RemoveTagsFromStream", {"StreamName": name, "TagKeys": ["read"]})


def streams_of(world):
    """Streams that have leases."""
    return sorted({key.split(":")[1] for key in world.rows()})


@simulated
async def test_auto_detection_deletes_after_the_wait_and_children_hear_of_it():
    world = world_of("orders", "clicks", **AUTO)
    async with world.running() as worker:
        untag(world, "clicks")
        await asyncio.sleep(120 + WAIT_S - 60)
        assert streams_of(world) == ["clicks", "orders"]
        world.put("clicks", "still read")
        await asyncio.sleep(30)
        assert world.children.data("clicks") == ["still read"]
        await asyncio.sleep(240)
        assert streams_of(world) == ["orders"]
        (child,) = world.children.of("clicks")
        assert child.heard[-1]["action"] in ("leaseLost", "shutdownRequested")
        assert worker.status()["orphans"] == []
        assert [one.name for one in worker.streams.followed()] == ["orders"]
        assert not any(one["lease_key"].count("clicks") for one in worker.status()["leases"])


@simulated
async def test_a_stream_that_comes_back_is_revived_and_keeps_its_checkpoints():
    world = world_of("orders", "clicks", **AUTO)
    async with world.running():
        world.put("clicks", "one")
        await asyncio.sleep(30)
        kept = world.checkpoints()
        untag(world, "clicks")
        await asyncio.sleep(WAIT_S - 60)
        tag(world, "clicks")
        await asyncio.sleep(WAIT_S + 300)
        assert world.checkpoints() == kept
        assert world.children.data("clicks") == ["one"]


@pytest.mark.untraced
@simulated
async def test_without_deletion_the_leases_stay():
    world = world_of("orders", "clicks")
    async with world.running() as worker:
        untag(world, "clicks")
        await asyncio.sleep(7200)
        assert streams_of(world) == ["clicks", "orders"]
        assert [one.name for one in worker.streams.orphans()] == ["clicks"]


@pytest.mark.parametrize("properties", [{}, AUTO, PROVIDED])
@simulated
async def test_leases_of_a_stream_that_was_deleted_go_with_any_strategy(properties):
    world = world_of("orders", "clicks", **properties)
    async with world.running():
        world.delete("clicks")
        await asyncio.sleep(400)
        assert streams_of(world) == ["orders"]


@simulated
async def test_leases_of_a_stream_that_this_worker_never_read_are_former_ones_only():
    for properties, left in (({}, ["gone", "orders"]), (AUTO, ["orders"])):
        world = world_of("orders", **properties)
        await world.make_table()
        world.add_row(OLD)
        async with world.running():
            await asyncio.sleep(WAIT_S)
            assert streams_of(world) == ["gone", "orders"]
            await asyncio.sleep(200)
            assert streams_of(world) == left


@simulated
async def test_a_stream_of_the_list_that_is_deleted_keeps_its_leases():
    world = StreamsWorld("orders", "clicks")
    async with world.running():
        await asyncio.sleep(30)
        world.delete("clicks")
        await asyncio.sleep(1200)
        assert streams_of(world) == ["clicks", "orders"]


@simulated
async def test_a_recreated_stream_has_new_leases_and_the_old_ones_are_former():
    world = world_of("orders", "clicks", **AUTO)
    async with world.running():
        old = world.identifier("clicks")
        world.delete("clicks")
        await asyncio.sleep(100)
        world.create("clicks")
        tag(world, "clicks")
        world.put("clicks", "new")
        await asyncio.sleep(WAIT_S + 400)
        new = world.identifier("clicks")
        assert new != old
        identifiers = {row["streamName"]["S"] for row in world.rows().values()}
        assert identifiers == {new, world.identifier("orders")}
        assert world.children.data("clicks") == ["new"]


@simulated
async def test_of_provided_streams_only_those_of_the_file_as_it_is_now(caplog):
    world = world_of("orders", "clicks", "views", **PROVIDED)
    file = {"text": b""}
    world.read_entries = lambda: parse(file["text"])
    world.worker = world.new_worker()
    async with world.running():
        untag(world, "clicks")
        untag(world, "views")
        await asyncio.sleep(WAIT_S + 300)
        assert streams_of(world) == ["clicks", "orders", "views"]
        file["text"] = b"formerStreamsForLeaseCleanup = views, orders"
        await asyncio.sleep(120)
        file["text"] = b"formerStreamsForLeaseCleanup = v i"
        await asyncio.sleep(WAIT_S)
        assert streams_of(world) == ["clicks", "orders"]
        assert "keeping the last one: formerStreamsForLeaseCleanup: 'v i' is not" in caplog.text


# --- one look


class Looking:
    """The leader's look without the worker around it, which itself deletes nothing."""

    def __init__(self, world):
        self.leads = True
        tracker = self.tracker = world.worker.streams
        parts = tracker._parts
        policy = FormerPolicy(strategy=FormerStrategy.AUTO_DETECTION, wait_s=60.0)
        parts = replace(parts, options=replace(parts.options, former=policy))

        async def is_leader():
            return self.leads

        async def named():
            return ()

        self.metrics = CountingMetrics()
        self.former = FormerStreams(tracker, parts, is_leader, LoopClock(), self.metrics, named)

    async def look(self, pause_s=0.0):
        """A look, then a pause in which the list is read again."""
        await self.former.look_once()
        self.tracker.wake()
        await asyncio.sleep(max(pause_s, 0.5))

    def last(self, name):
        return self.metrics.values["MultiStreamTracker", name][-1]


@simulated
async def test_only_the_leader_deletes_and_a_new_leader_begins_to_wait_anew():
    world = world_of("orders")
    async with world.running():
        looking = Looking(world)
        looking.leads = False
        world.add_row(OLD)
        await looking.look()
        assert looking.metrics.values == {}
        looking.leads = True
        await looking.look(40)
        looking.leads = False
        await looking.look(10)
        looking.leads = True
        await looking.look(40)
        await looking.look(30)
        assert streams_of(world) == ["gone", "orders"]
        await looking.look()
        assert streams_of(world) == ["orders"]


@simulated
async def test_counts_are_those_of_java():
    world = world_of("orders", "clicks")
    async with world.running():
        looking = Looking(world)
        await looking.look()
        assert looking.last("ActiveStreams.Count") == 2
        assert looking.last("StreamsPendingDeletion.Count") == 0
        untag(world, "clicks")
        await asyncio.sleep(150)
        world.add_row(OLD)
        await looking.look(61)
        assert looking.last("ActiveStreams.Count") == 1
        assert looking.last("StreamsPendingDeletion.Count") == 2
        assert looking.last("DeletedStreams.Count") == 0
        await looking.look()
        assert looking.last("DeletedStreams.Count") == 2
        assert looking.last("NonExistingStreamDelete.Count") == 0


@simulated
async def test_a_row_that_cannot_be_deleted_is_deleted_at_the_next_look(caplog):
    world = world_of("orders")
    async with world.running():
        looking = Looking(world)
        keys = [world.add_row(OLD, f"shardId-{number:012d}") for number in range(3)]
        await looking.look(61)

        async def refuse(_service, operation, request):
            if operation == "DeleteItem" and request["Key"]["leaseKey"]["S"] == keys[1]:
                raise Throttled("DeleteItem", "ThrottlingException")

        world.dynamodb.before = refuse
        await looking.look()
        left = [key for key in keys if key in world.rows()]
        assert left == keys[:2], "children go first"
        assert f"Deleted 1 of 3 leases of {OLD}, the rest follows later" in caplog.text
        assert looking.last("DeletedStreams.Count") == 0
        world.dynamodb.before = None
        await looking.look()
        assert streams_of(world) == ["orders"]
        assert looking.last("DeletedStreams.Count") == 1


@simulated
async def test_a_stream_that_comes_into_the_list_during_the_look_is_spared():
    world = world_of("orders")
    async with world.running():
        looking = Looking(world)
        world.add_row(OLD)
        await looking.look(61)
        tracker = world.worker.streams

        async def listed_meanwhile():
            tracker._listed = (*tracker._listed, ListedStream("gone"))

        looking.former._refresh_named = listed_meanwhile
        await looking.look()
        assert streams_of(world) == ["gone", "orders"]


@simulated
async def test_while_the_list_cannot_be_read_nothing_is_deleted():
    world = world_of("orders", "clicks")
    async with world.running():
        looking = Looking(world)
        untag(world, "clicks")
        await asyncio.sleep(150)
        await looking.look(61)

        async def fail(_service, operation, _request):
            if operation == "ListStreams":
                raise Denied("ListStreams", "AccessDeniedException")

        world.port.before = fail
        await asyncio.sleep(150)
        await looking.look(61)
        assert streams_of(world) == ["clicks", "orders"]
        world.port.before = None
        await asyncio.sleep(150)
        await looking.look()
        assert streams_of(world) == ["orders"]


@simulated
async def test_who_follows_no_stream_deletes_nothing():
    world = world_of(**AUTO)
    await world.make_table()
    world.add_row(OLD)
    async with world.running():
        await asyncio.sleep(2 * WAIT_S)
        assert OLD in str(world.rows())


@simulated
async def test_leases_whose_stream_makes_no_sense_are_left_alone():
    world = world_of("orders", **AUTO)
    async with world.running():
        world.add_row(f"{ACCOUNT}:orders:x")
        await asyncio.sleep(2 * WAIT_S)
        assert f"{ACCOUNT}:orders:x" in str(world.rows())


@pytest.mark.parametrize(
    "error", [Denied("x", "AccessDeniedException"), UnknownOutcome("x", "ReadTimeout")]
)
@simulated
async def test_a_stream_that_cannot_be_asked_for_is_not_taken_for_absent(error):
    world = world_of("orders", "clicks")
    async with world.running():

        async def fail(_service, operation, request):
            if operation == "DescribeStreamSummary" and request["StreamName"] == "clicks":
                raise error

        world.port.before = fail
        world.delete("clicks")
        await asyncio.sleep(600)
        assert streams_of(world) == ["clicks", "orders"]
        world.port.before = None
        await asyncio.sleep(300)
        assert streams_of(world) == ["orders"]


@simulated
async def test_a_look_that_fails_is_said_and_the_next_one_comes(caplog):
    # A leader of 3.x that cannot scan gives the lead up, and looks after nothing.
    version = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"
    changes = {"formerStreamsLeasesDeletionWaitMillis": "0", "clientVersionConfig": version}
    world = world_of("orders", **AUTO, **changes)
    async with world.running():
        await asyncio.sleep(80)
        world.add_row(OLD)

        async def fail(_service, operation, _request):
            if operation == "Scan":
                raise Throttled("Scan", "ThrottlingException")

        world.dynamodb.before = fail
        await asyncio.sleep(65)
        assert "Could not clean up leases of former streams: Scan: Throttling" in caplog.text
        assert OLD in str(world.rows())
        world.dynamodb.before = None
        await asyncio.sleep(120)
        assert streams_of(world) == ["orders"]


@simulated
async def test_leases_of_a_stream_of_the_list_that_was_not_found_yet_are_not_former():
    tracker = StreamsWorld("orders").worker.streams
    tracker._listed = (ListedStream("orders"),)
    assert tracker.may_be_listed(Stream.parse_identifier(f"{ACCOUNT}:orders:7"))
    assert not tracker.may_be_listed(Stream.parse_identifier(OLD))
