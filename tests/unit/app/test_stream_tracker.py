"""A worker of many streams: they start together, come, go and are created again; each alone."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kcl_mld.errors import (
    CredentialsRefused,
    Denied,
    LimitExceeded,
    MldError,
    ResourceMissing,
    Throttled,
    Unreachable,
    UnservableFleet,
)
from kcl_mld.local.kinesis.faults import KinesisFault
from kcl_mld.signals.model.conditions import Reason
from kcl_mld.streams import stream_names
from tests.fakes.shard_world import simulated
from tests.unit.app.streams_world import (
    ACCOUNT,
    FIRST,
    StreamsWorld,
    initialize_of,
)

GONE_S = 200.0


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.ERROR]


# --- start


@simulated
async def test_each_stream_has_its_rows_its_child_and_its_records():
    world = StreamsWorld("orders", "clicks")
    world.put("orders", "o1", "o2")
    world.put("clicks", "c1")
    async with world.running():
        orders, clicks = world.identifier("orders"), world.identifier("clicks")
        assert sorted(world.rows()) == [f"{clicks}:{FIRST}", f"{orders}:{FIRST}"]
        row = world.rows()[f"{orders}:{FIRST}"]
        assert row["streamName"] == {"S": orders}
        assert row["shardId"] == {"S": FIRST}
        assert row["entityType"] == {"S": "LEASE"}
        assert "parentShardId" not in row
        assert world.children.data("orders") == ["o1", "o2"]
        assert world.children.data("clicks") == ["c1"]
        (child,) = world.children.of("orders")
        arn = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/orders"
        told = initialize_of(child)
        assert list(told) == [
            "action",
            "shardId",
            "sequenceNumber",
            "subSequenceNumber",
            "streamIdentifier",
            "streamName",
            "streamArn",
            "leaseKey",
        ]
        assert told["shardId"] == FIRST
        assert told["streamIdentifier"] == orders
        assert told["streamArn"] == arn
        assert told["leaseKey"] == f"{orders}:{FIRST}"
        assert child.env["KCL_MULTI_STREAM"] == "true"
        assert child.env["KCL_STREAM_ARN"] == arn
        assert child.env["KCL_STREAM_IDENTIFIER"] == orders
        assert child.env["KCL_LEASE_KEY"] == f"{orders}:{FIRST}"
        assert child.env["KCL_SHARD_ID"] == FIRST
        shown = world.worker.status()
        assert "stream" not in shown
        assert shown["streams"] == [orders, clicks]
        assert shown["orphans"] == []
        assert shown["unread"] == {}
        assert {one["stream"] for one in shown["leases"]} == {"orders", "clicks"}


@simulated
async def test_an_option_may_hold_for_one_stream():
    world = StreamsWorld(
        "orders",
        "clicks",
        **{
            "stream.cl*.executableName": "count.py --of {streamName} {shardId} {other}",
            "stream.orders.initialPositionInStream": "LATEST",
            "initializeMessageExtras": "false",
        },
    )
    world.put("orders", "before")
    async with world.running():
        (orders,) = world.children.of("orders")
        (clicks,) = world.children.of("clicks")
        assert orders.argv == ("python", "app.py")
        assert clicks.argv == ("count.py", "--of", "clicks", FIRST, "{other}")
        assert world.children.data("orders") == []
        keys = {"action", "shardId", "sequenceNumber", "subSequenceNumber"}
        assert set(initialize_of(orders)) == keys


@simulated
async def test_a_stream_may_have_its_own_number_of_children():
    world = StreamsWorld("orders", "clicks", **{"stream.clicks.childrenPerShard": "4"})
    async with world.running():
        contexts = {one.stream.name: one for one in world.tracker()._parts.registry}
        assert (contexts["orders"].children, contexts["clicks"].children) == (None, 4)


@simulated
async def test_arns_and_identifiers_are_taken_as_they_stand():
    world = StreamsWorld("orders", "clicks")
    arn = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/clicks"
    world.worker = world.new_worker(streams=f"{ACCOUNT}:orders:77, {arn}")
    world.put("orders", "o1")
    async with world.running():
        assert sorted(world.rows()) == [
            f"{world.identifier('clicks')}:{FIRST}",
            f"{ACCOUNT}:orders:77:{FIRST}",
        ]
        assert world.children.data("orders") == ["o1"]


@simulated
async def test_the_unit_of_the_table_is_adopted():
    world = StreamsWorld("orders")
    millis = world.kinesis.stream("orders").created_ms
    await world.make_table()
    key = world.add_row(f"{ACCOUNT}:orders:{millis}")
    world.put("orders", "o1")
    async with world.running():
        assert list(world.rows()) == [key]
        await asyncio.sleep(30)
        assert world.children.data("orders") == ["o1"]


@simulated
async def test_all_streams_that_are_missing_are_named_and_end_the_start(caplog):
    world = StreamsWorld("orders")
    world.worker = world.new_worker(streams="orders, lost, gone")
    with pytest.raises(ResourceMissing, match=r"streams lost, gone do not exist in us-east-1") as e:
        await world.worker.run()
    assert e.value.exit_code == 4
    assert "check streams, regionName" in str(e.value)
    assert "waiting 5 s for it" in caplog.text or "waiting" in caplog.text


@simulated
async def test_one_that_is_missing_is_named_alone_and_waited_for():
    world = StreamsWorld("orders")
    world.worker = world.new_worker(streams="orders, late")
    running = asyncio.create_task(world.worker.run())
    await asyncio.sleep(2)
    world.create("late")
    await asyncio.sleep(5)
    assert len(world.rows()) == 2
    world.worker.scheduler.stop()
    assert (await running).complete
    world.worker = world.new_worker(streams="orders, never")
    with pytest.raises(ResourceMissing, match="the stream never does not exist"):
        await world.worker.run()


@simulated
async def test_a_call_that_is_denied_is_said_with_the_way_out(monkeypatch):
    world = StreamsWorld("orders")

    async def denied(**_request):
        raise Denied("DescribeStreamSummary", "AccessDeniedException", "no")

    monkeypatch.setattr(world.port, "describe_stream_summary", denied)
    with pytest.raises(MldError, match="or write account:name:epoch in streams"):
        await world.worker.run()
    world.worker = world.new_worker(streams=f"{ACCOUNT}:orders:77")
    async with world.running():
        assert list(world.rows()) == [f"{ACCOUNT}:orders:77:{FIRST}"]


@simulated
async def test_a_limit_of_calls_is_waited_out(monkeypatch):
    world = StreamsWorld("orders")
    real, left = world.port.describe_stream_summary, [2]

    async def limited(**request):
        if left[0]:
            left[0] -= 1
            raise Throttled("DescribeStreamSummary", "LimitExceededException")
        return await real(**request)

    monkeypatch.setattr(world.port, "describe_stream_summary", limited)
    monkeypatch.setattr(stream_names, "ATTEMPTS", 3)
    async with world.running():
        assert len(world.rows()) == 1


@simulated
async def test_a_table_of_a_single_stream_is_refused():
    world = StreamsWorld("orders")
    await world.make_table()
    world.add_row(None)
    with pytest.raises(UnservableFleet, match="kcl-mld leases migrate --to multi-stream") as e:
        await world.worker.run()
    assert e.value.exit_code == 5


# --- one stream ends, others go on


@simulated
async def test_a_deleted_stream_is_given_up_and_the_others_go_on(caplog):
    world = StreamsWorld("orders", "clicks")
    orders = world.identifier("orders")
    async with world.running() as worker:
        world.put("orders", "o1")
        await asyncio.sleep(5)
        world.delete("orders")
        await asyncio.sleep(GONE_S)
        (said,) = errors(caplog)
        assert said.startswith("Reading of the stream ends in 30 s: stream orders was deleted.")
        row = world.rows()[f"{orders}:{FIRST}"]
        assert "leaseOwner" not in row
        assert row["checkpoint"]["S"].isdigit()
        (child,) = world.children.of("orders")
        told = [message["action"] for message in child.heard if message["action"] != "checkpoint"]
        assert told == ["initialize", "processRecords", "shutdownRequested", "leaseLost"]
        (reason,) = worker.readiness().reasons
        assert reason.reason is Reason.STREAM_DELETED
        assert "stream orders was deleted" in reason.message
        assert worker.status()["unread"].keys() == {orders}
        world.put("clicks", "c1")
        await asyncio.sleep(5)
        assert world.children.data("clicks") == ["c1"]
        assert len(errors(caplog)) == 1


@simulated
async def test_who_is_gone_with_a_stream_leads_nobody(monkeypatch):
    world = StreamsWorld("orders")
    await world.make_table()
    for number in range(9):
        lost, owner = f"{ACCOUNT}:lost{number}:1700000000", {"S": f"dead{number}"}
        world.add_row(lost, leaseOwner=owner)
    async with world.running() as worker:
        assert await worker.coordinator.elector.is_leader()
        assert worker.coordinator.elector.leader in (None, "w1")
        await asyncio.sleep(400)
        assert worker.coordinator.elector.leader == "w1"


@simulated
async def test_a_stream_that_is_created_again_gets_leases_of_its_own(caplog):
    world = StreamsWorld("orders", "clicks")
    before = world.identifier("orders")
    async with world.running() as worker:
        world.put("orders", "old")
        await asyncio.sleep(5)
        world.delete("orders")
        await asyncio.sleep(1)
        world.create("orders", shards=2)
        after = world.identifier("orders")
        assert after != before
        world.put("orders", "new")
        await asyncio.sleep(GONE_S)
        assert world.children.data("orders") == ["old", "new"]
        owned = {key for key, row in world.rows().items() if "leaseOwner" in row}
        second = "shardId-000000000001"
        assert owned == {
            f"{after}:{FIRST}",
            f"{after}:{second}",
            f"{world.identifier('clicks')}:{FIRST}",
        }
        assert worker.readiness().is_ready
        assert worker.status()["unread"].keys() == {before}
        (said,) = errors(caplog)
        assert "stream orders was deleted" in said
    world.worker = world.new_worker()
    async with world.running() as worker:
        assert worker.status()["unread"].keys() == {before}
        assert "leaseOwner" not in world.rows()[f"{before}:{FIRST}"]


@simulated
async def test_leases_of_the_new_stream_tell_that_ours_is_gone(caplog):
    world = StreamsWorld("orders", "clicks")
    async with world.running():
        world.delete("orders")
        await asyncio.sleep(2)
        world.create("orders")
        world.add_row(world.identifier("orders"))
        await asyncio.sleep(25)
        assert "are not read yet: stream orders was deleted and created again" in caplog.text
        (said,) = errors(caplog)
        assert said.startswith("Reading of the stream ends in 30 s: stream orders was deleted")
        world.put("orders", "new")
        await asyncio.sleep(100)
        assert world.children.data("orders") == ["new"]


@simulated
async def test_an_epoch_of_another_kind_does_not_end_the_stream():
    world = StreamsWorld("orders")
    await world.make_table()
    other = f"{ACCOUNT}:orders:{world.created_s('orders') + 1000}"
    world.add_row(other)
    async with world.running() as worker:
        await asyncio.sleep(100)
        assert worker.status()["unread"].keys() == {other}
        assert worker.status()["streams"] == [world.identifier("orders")]


@simulated
async def test_a_recreated_stream_whose_epoch_the_file_names_is_not_read(caplog):
    world = StreamsWorld("orders", "clicks")
    epoch = world.created_s("orders")
    world.worker = world.new_worker(streams=f"{ACCOUNT}:orders:{epoch}, clicks")
    async with world.running() as worker:
        world.delete("orders")
        world.create("orders")
        world.put("orders", "new")
        await asyncio.sleep(GONE_S)
        assert world.children.data("orders") == []
        (reason,) = worker.readiness().reasons
        assert "was deleted and created again" in reason.message
        assert "then correct it" in reason.message
        assert len(errors(caplog)) == 1


@simulated
async def test_a_stream_that_only_seemed_to_be_gone_is_read_again():
    world = StreamsWorld("orders", "clicks")

    def denied(_operation, request):
        if "orders" in str(request):
            raise KinesisFault("ResourceNotFoundException", "not now")

    async with world.running() as worker:
        world.kinesis.before = denied
        await asyncio.sleep(GONE_S)
        assert not worker.readiness().is_ready
        world.kinesis.before = None
        world.put("orders", "o1")
        await asyncio.sleep(GONE_S)
        assert worker.readiness().is_ready
        assert worker.status()["unread"] == {}
        assert world.children.data("orders") == ["o1"]


@simulated
async def test_each_stream_is_resharded_alone():
    world = StreamsWorld("orders", "clicks")
    world.put("orders", "o1")
    async with world.running():
        world.split("orders")
        world.put("orders", "o2")
        await asyncio.sleep(60)
        orders, clicks = world.identifier("orders"), world.identifier("clicks")
        checkpoints = world.checkpoints()
        assert checkpoints[f"{orders}:{FIRST}"] == "SHARD_END"
        assert checkpoints[f"{clicks}:{FIRST}"] == "TRIM_HORIZON"
        row = world.rows()[f"{orders}:shardId-000000000001"]
        assert row["parentShardId"] == {"SS": [FIRST]}
        assert row["streamName"] == {"S": orders}
        assert world.children.data("orders") == ["o1", "o2"]


# --- streams that are in the table only


@simulated
async def test_leases_of_a_stream_that_is_not_in_the_list_are_read(caplog):
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams="orders")
    extra = world.identifier("extra")
    await world.make_table()
    world.add_row(extra)
    world.put("extra", "e1")
    async with world.running() as worker:
        assert world.children.data("extra") == ["e1"]
        (child,) = world.children.of("extra")
        assert child.env["KCL_STREAM_ARN"] == f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/extra"
        assert worker.status()["orphans"] == [extra]
        assert f"the lease table has leases of it ({extra})" in caplog.text
        world.delete("extra")
        await asyncio.sleep(GONE_S)
        assert worker.readiness().is_ready
        assert worker.status()["unread"].keys() == {extra}
        world.model.call(
            "DeleteItem", {"TableName": "app", "Key": {"leaseKey": {"S": f"{extra}:{FIRST}"}}}
        )
        await asyncio.sleep(GONE_S)
        assert worker.status()["unread"] == {}


@simulated
async def test_an_orphan_that_comes_later_is_noticed():
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams="orders")
    world.put("extra", "e1")
    async with world.running():
        world.add_row(world.identifier("extra"))
        await asyncio.sleep(60)
        assert world.children.data("extra") == ["e1"]


@pytest.mark.parametrize("row", ["of no stream", "of an earlier stream", "that makes no sense"])
@simulated
async def test_leases_that_nobody_can_read_are_left_alone(row, caplog):
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams="orders")
    await world.make_table()
    identifier = {
        "of no stream": f"{ACCOUNT}:lost:1700000000",
        "of an earlier stream": f"{ACCOUNT}:extra:{world.created_s('extra') - 60}",
        "that makes no sense": "extra",
    }[row]
    key = world.add_row(identifier)
    async with world.running() as worker:
        await asyncio.sleep(GONE_S)
        assert "leaseOwner" not in world.rows()[key]
        assert worker.status()["unread"].keys() == {identifier}
        assert worker.readiness().is_ready
        assert caplog.text.count("are ignored") == 1
        assert len(world.children.children) == 1


@simulated
async def test_a_lease_without_its_stream_is_nobodys():
    world = StreamsWorld("orders")
    await world.make_table()
    key = f"{world.identifier('orders')}:shardId-000000000009"
    row = world.add_row(None, key)
    async with world.running():
        await asyncio.sleep(60)
        assert "leaseOwner" not in world.rows()[row]


def failing(world, monkeypatch, name, *failures):
    """DescribeStreamSummary of one stream fails so often; a status instead of an error is put in."""
    real, left = world.port.describe_stream_summary, list(failures)

    async def describe(**request):
        if request["StreamName"] == name and left:
            if isinstance(left[0], Exception):
                raise left.pop(0)
            answer = await real(**request)
            answer["StreamDescriptionSummary"]["StreamStatus"] = left.pop(0)
            return answer
        return await real(**request)

    monkeypatch.setattr(world.port, "describe_stream_summary", describe)


@simulated
async def test_an_orphan_that_cannot_be_asked_for_is_looked_at_again(monkeypatch, caplog):
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams="orders")
    await world.make_table()
    world.add_row(world.identifier("extra"))
    world.put("extra", "e1")
    failing(world, monkeypatch, "extra", Unreachable("DescribeStreamSummary", "ConnectionError"))
    async with world.running():
        await asyncio.sleep(60)
        assert "are not read yet: DescribeStreamSummary: ConnectionError" in caplog.text
        assert world.children.data("extra") == ["e1"]


@simulated
async def test_an_orphan_that_may_not_be_asked_for_is_read(monkeypatch):
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams="orders")
    await world.make_table()
    world.add_row(world.identifier("extra"))
    world.put("extra", "e1")
    failing(world, monkeypatch, "extra", *[Denied("DescribeStreamSummary", "AccessDenied")] * 9)
    async with world.running():
        assert world.children.data("extra") == ["e1"]


@simulated
async def test_an_orphan_that_is_there_again_is_read_again(monkeypatch):
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams="orders")
    await world.make_table()
    world.add_row(world.identifier("extra"))
    world.put("extra", "e1")
    failing(world, monkeypatch, "extra", "DELETING", "DELETING")
    async with world.running() as worker:
        assert worker.status()["unread"] == {world.identifier("extra"): "the stream does not exist"}
        await asyncio.sleep(150)
        assert world.children.data("extra") == ["e1"]


@pytest.mark.parametrize("streams", ["orders, extra", "orders"])
@simulated
async def test_keys_that_are_refused_are_not_taken_for_a_missing_permission(streams, monkeypatch):
    world = StreamsWorld("orders", "extra")
    world.worker = world.new_worker(streams=streams)
    await world.make_table()
    world.add_row(world.identifier("extra"))
    refused = CredentialsRefused("DescribeStreamSummary", "ExpiredTokenException")
    failing(world, monkeypatch, "extra", refused)
    async with world.running() as worker:
        await asyncio.sleep(60)
        assert len(worker.status()["leases"]) == 2


@simulated
async def test_a_limit_that_lasts_is_an_error_of_the_start(monkeypatch):
    world = StreamsWorld("orders")
    limited = [LimitExceeded("DescribeStreamSummary", "LimitExceededException")] * 1000
    failing(world, monkeypatch, "orders", *limited)
    with pytest.raises(MldError, match=r"unable to initialize within \d+ s: DescribeStreamSummary"):
        await world.worker.run()


# --- the list changes


class Changing:
    """A list that tests change."""

    def __init__(self, world: StreamsWorld) -> None:
        self.tracker = world.tracker()
        self.parts = self.tracker._parts
        self.listed = world.worker.config.streams.streams
        self.fails: MldError | None = None
        object.__setattr__(self.parts, "names", self)

    async def names(self):
        if self.fails is not None:
            raise self.fails
        return self.listed


@simulated
async def test_a_stream_that_comes_into_the_list_is_read_and_one_that_leaves_is_an_orphan():
    world = StreamsWorld("orders", "clicks", "views")
    names = Changing(world)
    orders, clicks, views = names.listed
    names.listed = (orders, clicks)
    async with world.running() as worker:
        assert len(world.rows()) == 2
        names.listed = (clicks, views)
        world.put("views", "v1")
        await asyncio.sleep(100)
        world.put("orders", "o1")
        await asyncio.sleep(5)
        assert world.children.data("views") == ["v1"]
        assert world.children.data("orders") == ["o1"]
        status = worker.status()
        assert status["streams"] == [world.identifier("clicks"), world.identifier("views")]
        assert status["orphans"] == [world.identifier("orders")]
        world.split("orders")
        world.put("orders", "o2")
        names.listed = (orders, clicks, views)
        names.tracker.wake()
        await asyncio.sleep(60)
        assert world.children.data("orders") == ["o1", "o2"]
        assert worker.status()["orphans"] == []


@simulated
async def test_an_orphan_with_an_epoch_of_its_own_ends_when_its_name_comes_into_the_list():
    world = StreamsWorld("orders", "extra")
    names = Changing(world)
    orders, extra = names.listed
    names.listed = (orders,)
    await world.make_table()
    world.add_row(f"{ACCOUNT}:extra:1")
    async with world.running() as worker:
        assert worker.status()["orphans"] == [f"{ACCOUNT}:extra:1"]
        names.listed = (orders, extra)
        names.tracker.wake()
        await asyncio.sleep(30)
        assert worker.status()["orphans"] == []
        assert worker.status()["unread"].keys() == {f"{ACCOUNT}:extra:1"}
        assert "leaseOwner" not in world.rows()[f"{ACCOUNT}:extra:1:{FIRST}"]
        assert world.identifier("extra") in worker.status()["streams"]


@simulated
async def test_a_stream_whose_leases_are_seen_as_it_comes_into_the_list_is_no_orphan():
    world = StreamsWorld("orders", "extra")
    names = Changing(world)
    orders, extra = names.listed
    names.listed = (orders,)
    async with world.running() as worker:
        world.add_row(world.identifier("extra"))
        names.listed = (orders, extra)
        await asyncio.sleep(60)
        assert worker.status()["orphans"] == []
        assert world.identifier("extra") in worker.status()["streams"]


@simulated
async def test_a_deleted_stream_that_leaves_the_list_is_no_reason_against_readiness():
    world = StreamsWorld("orders", "clicks")
    names = Changing(world)
    async with world.running() as worker:
        world.delete("orders")
        await asyncio.sleep(GONE_S)
        assert not worker.readiness().is_ready
        names.listed = names.listed[1:]
        await asyncio.sleep(100)
        assert worker.readiness().is_ready


@simulated
async def test_a_consumer_of_a_deleted_stream_is_missed_no_longer():
    world = StreamsWorld("orders", "clicks")
    async with world.running() as worker:
        worker.conditions.report(Reason.NO_CONSUMER, "there is none", "orders")
        worker.conditions.report(Reason.NO_CONSUMER, "there is none", "clicks")
        world.delete("orders")
        await asyncio.sleep(GONE_S)
        reasons = {(one.reason, one.message) for one in worker.conditions.current()}
        assert (Reason.NO_CONSUMER, "there is none") in reasons
        worker.conditions.clear(Reason.NO_CONSUMER, "clicks")
        assert Reason.NO_CONSUMER not in {one.reason for one in worker.conditions.current()}


@simulated
async def test_a_list_that_is_not_known_changes_nothing(caplog):
    world = StreamsWorld("orders")
    names = Changing(world)
    async with world.running() as worker:
        names.fails = Throttled("ListStreams", "LimitExceededException")
        await asyncio.sleep(100)
        assert "keeping the last one" in caplog.text
        assert len(worker.status()["streams"]) == 1


@simulated
async def test_an_unexpected_error_of_the_list_ends_nothing(caplog):
    world = StreamsWorld("orders")
    names = Changing(world)
    async with world.running() as worker:
        names.fails = ZeroDivisionError("a defect")
        await asyncio.sleep(100)
        assert "Looking for streams failed unexpectedly" in caplog.text
        assert worker.readiness().is_ready


@simulated
async def test_a_stream_that_is_not_ready_yet_is_said_once_and_read_later(caplog):
    world = StreamsWorld("orders", "clicks")
    names = Changing(world)
    orders, clicks = names.listed
    names.listed = (orders,)
    async with world.running() as worker:
        stream = world.kinesis.stream("clicks")
        stream.status = "CREATING"
        names.listed = (orders, clicks)
        await asyncio.sleep(250)
        assert caplog.text.count("Stream clicks cannot be read yet") == 1
        stream.status = "ACTIVE"
        world.put("clicks", "c1")
        await asyncio.sleep(100)
        assert world.children.data("clicks") == ["c1"]
        assert worker.readiness().is_ready
