"""The model behind the port."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.errors import (
    Denied,
    InUse,
    InvalidArgument,
    NotFound,
    ServiceError,
    Throttled,
    UnknownOutcome,
)
from kcl_mld.local.kinesis import KinesisFault, KinesisModel, KinesisSettings
from tests.fakes.fake_kinesis import FakeKinesis, raise_as_port_error
from tests.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.aws.ports import Kinesis, Subscription

NOW_S = 1_700_000_000.0


def model_with_stream() -> KinesisModel:
    model = KinesisModel(lambda: NOW_S, random.Random(0))
    model.call("CreateStream", {"StreamName": "s", "ShardCount": 1})
    model.call("PutRecord", {"StreamName": "s", "PartitionKey": "k", "Data": "YQ=="})
    return model


def test_the_fake_is_the_port_and_reads() -> None:
    async def run() -> bytes:
        kinesis: Kinesis = FakeKinesis(model_with_stream())
        summary = (await kinesis.describe_stream_summary(StreamName="s"))[
            "StreamDescriptionSummary"
        ]
        assert summary["StreamCreationTimestamp"] == datetime.fromtimestamp(NOW_S, UTC)
        chosen = {"Type": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(NOW_S, UTC)}
        assert (await kinesis.list_streams(Limit=1))["StreamNames"] == ["s"]
        assert (await kinesis.list_tags_for_stream(StreamName="s"))["Tags"] == []
        (shard,) = (await kinesis.list_shards(StreamName="s", ShardFilter=chosen))["Shards"]
        iterator = await kinesis.get_shard_iterator(
            StreamName="s",
            ShardId=shard["ShardId"],
            ShardIteratorType="AT_TIMESTAMP",
            Timestamp=datetime.fromtimestamp(NOW_S, UTC),
        )
        return await kinesis.get_records(ShardIterator=iterator["ShardIterator"])

    assert b'"Data":"YQ=="' in asyncio.run(run())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceNotFoundException", NotFound),
        ("ProvisionedThroughputExceededException", Throttled),
        ("InvalidArgumentException", InvalidArgument),
        ("AccessDeniedException", Denied),
        ("InternalFailure", ServiceError),
    ],
)
def test_errors_are_those_of_the_port(code: str, kind: type[ServiceError]) -> None:
    with pytest.raises(ServiceError) as caught:
        raise_as_port_error("ListShards", KinesisFault(code, "why"))
    assert type(caught.value) is kind
    assert (caught.value.operation, caught.value.code) == ("ListShards", code)


def test_hooks_run_before_and_after_the_effect() -> None:
    model = model_with_stream()
    seen: list[tuple[str, str, int]] = []
    calls: list[str] = []
    model.before = lambda operation, _request: calls.append(operation)

    async def note(service: str, operation: str, _request: Mapping[str, Any]) -> None:
        seen.append((service, operation, len(calls)))

    async def run() -> None:
        kinesis = FakeKinesis(model, before=note, after=note)
        await kinesis.list_shards(StreamName="s")
        with pytest.raises(InvalidArgument):
            await kinesis.get_records(ShardIterator="junk")
        with pytest.raises(NotFound):
            await kinesis.list_shards(StreamName="nowhere")

    asyncio.run(run())
    assert seen == [
        ("kinesis", "ListShards", 0),
        ("kinesis", "ListShards", 1),
        ("kinesis", "GetRecords", 1),
        ("kinesis", "GetRecords", 2),
        ("kinesis", "ListShards", 2),
        ("kinesis", "ListShards", 3),
    ]


def test_a_lost_answer_replaces_the_answer() -> None:
    async def lose(_service: str, operation: str, _request: Mapping[str, Any]) -> None:
        raise UnknownOutcome(operation, "ReadTimeout")

    async def run() -> None:
        await FakeKinesis(model_with_stream(), after=lose).list_shards(StreamName="nowhere")

    with pytest.raises(UnknownOutcome):
        asyncio.run(run())


# --- subscriptions, on a loop whose clock jumps ---------------------------------------------

STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/s"


class Subscriber:
    """A fake with a stream and a consumer."""

    def __init__(self, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.model = KinesisModel(
            lambda: NOW_S + loop.time(), random.Random(0), KinesisSettings(**settings)
        )
        self.model.call("CreateStream", {"StreamName": "s", "ShardCount": 1})
        self.kinesis = FakeKinesis(self.model)

    async def subscribe(self, kind: str = "TRIM_HORIZON", **position: Any) -> Subscription:
        kinesis: Kinesis = self.kinesis
        named = {"StreamARN": STREAM, "ConsumerName": "c"}
        try:
            shown = (await kinesis.describe_stream_consumer(**named))["ConsumerDescription"]
        except NotFound:
            shown = (await kinesis.register_stream_consumer(**named))["Consumer"]
        assert shown["ConsumerCreationTimestamp"].tzinfo is UTC
        return await kinesis.subscribe_to_shard(
            ConsumerARN=shown["ConsumerARN"],
            ShardId="shardId-000000000000",
            StartingPosition={"Type": kind, **position},
        )

    def put(self, data: str = "YQ==") -> None:
        self.model.call("PutRecord", {"StreamName": "s", "PartitionKey": "k", "Data": data})


def now_s() -> float:
    return asyncio.get_running_loop().time()


def test_events_come_when_there_are_records_and_the_end_after_five_minutes() -> None:
    async def life() -> list[tuple[float, bytes]]:
        world = Subscriber(empty_event_s=1000)
        asyncio.get_running_loop().call_later(10, world.put)
        subscription = await world.subscribe(
            "AT_TIMESTAMP", Timestamp=datetime.fromtimestamp(1, UTC)
        )
        seen = []
        while (event := await subscription.next_event()) is not None:
            seen.append((now_s(), event))
        assert 300 <= now_s() <= 300.3
        assert await subscription.next_event() is None
        return seen

    ((at_s, event),) = run(life())
    assert 10 <= at_s <= 10.3
    assert b'"Data":"YQ=="' in event
    assert b'"ContinuationSequenceNumber":"4' in event


def test_two_lives_are_the_same() -> None:
    async def life() -> list[tuple[float, bytes]]:
        world = Subscriber(spare_answer_probability=0.5)
        for second in (1, 7, 7, 33):
            asyncio.get_running_loop().call_later(second, world.put)
        subscription = await world.subscribe()
        seen = []
        while (event := await subscription.next_event()) is not None:
            seen.append((now_s(), event))
        return seen

    first = run(life())
    assert len(first) > 50
    assert first == run(life())


def test_exceptions_in_the_stream_are_the_errors_of_the_port() -> None:
    async def life() -> None:
        world = Subscriber()
        first = await world.subscribe()
        with pytest.raises(InUse):
            await world.subscribe()
        await asyncio.sleep(5)
        second = await world.subscribe()
        with pytest.raises(InUse) as caught:
            await first.next_event()
        assert caught.value.operation == "SubscribeToShard"
        assert await first.next_event() is None
        world.model.call("DeleteStream", {"StreamName": "s", "EnforceConsumerDeletion": True})
        with pytest.raises(NotFound):
            await second.next_event()

    run(life())


def test_close_ends_the_waiting_at_once() -> None:
    async def life() -> None:
        world = Subscriber()
        subscription = await world.subscribe()
        asyncio.get_running_loop().call_later(1.5, subscription.close)
        assert await subscription.next_event() is None
        assert now_s() == pytest.approx(1.5, abs=0.01)
        subscription.close()
        world.put()
        assert await subscription.next_event() is None

    run(life())


def test_who_stops_waiting_loses_no_event() -> None:
    async def life() -> bytes | None:
        world = Subscriber()
        subscription = await world.subscribe()
        world.put()
        for _ in range(5):
            asking = asyncio.ensure_future(subscription.next_event())
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.sleep(1)
        return await subscription.next_event()

    assert b'"Data":"YQ=="' in (run(life()) or b"")


def test_the_hook_breaks_and_silences_a_subscription() -> None:
    asked: list[tuple[str, str, Any]] = []

    async def life() -> None:
        world = Subscriber()

        async def on_event(service: str, operation: str, request: Mapping[str, Any]) -> None:
            asked.append((service, operation, request["ShardId"]))
            if len(asked) == 1:
                raise UnknownOutcome(operation, "ProtocolError")
            await asyncio.get_running_loop().create_future()

        world.kinesis.on_event = on_event
        world.put()
        broken = await world.subscribe()
        with pytest.raises(UnknownOutcome):
            await broken.next_event()
        await asyncio.sleep(5)
        silent = await world.subscribe()
        asyncio.get_running_loop().call_later(60, silent.close)
        assert await silent.next_event() is None
        assert now_s() >= 65

    run(life())
    assert asked == [("kinesis", "SubscribeToShardEvent", "shardId-000000000000")] * 2


def test_an_error_that_nobody_asks_for_is_no_noise() -> None:
    async def life() -> None:
        world = Subscriber()
        subscription = await world.subscribe()
        asking = asyncio.ensure_future(subscription.next_event())
        await asyncio.sleep(0.1)
        asking.cancel()
        world.model.call("DeleteStream", {"StreamName": "s", "EnforceConsumerDeletion": True})
        await asyncio.sleep(1)
        subscription.close()

    run(life())


def test_a_lost_answer_leaves_the_subscription_open() -> None:
    async def lose(_service: str, operation: str, _request: Mapping[str, Any]) -> None:
        if operation == "SubscribeToShard":
            raise UnknownOutcome(operation, "ReadTimeout")

    async def life() -> None:
        world = Subscriber()
        world.kinesis.after = lose
        with pytest.raises(UnknownOutcome):
            await world.subscribe()
        world.kinesis.after = None
        with pytest.raises(InUse):
            await world.subscribe()

    run(life())
