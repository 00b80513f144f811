"""Subscriptions to shards: what they send, when they end, who may have one."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.local.kinesis import KinesisFault, KinesisSettings
from tests.unit.local.kinesis.model_world import ARN, FIRST, HOUR_S, SECOND, World

if TYPE_CHECKING:
    from kcl_mld.local.kinesis.fan_out import LocalSubscription


class Subscriber(World):
    """The world with a consumer that subscribes."""

    def __init__(self, shards: int = 1, **settings: Any) -> None:
        super().__init__(shards, **settings)
        made = self.call("RegisterStreamConsumer", ConsumerName="c")["Consumer"]
        self.arn: str = made["ConsumerARN"]

    def subscribe(
        self, kind: str = "TRIM_HORIZON", shard: object = FIRST, arn: str = "", **position: Any
    ) -> LocalSubscription:
        return self.model.subscribe(
            {
                "ConsumerARN": arn or self.arn,
                "ShardId": shard,
                "StartingPosition": {"Type": kind, **position},
            }
        )

    def refused_subscription(self, *args: Any, **more: Any) -> str:
        with pytest.raises(KinesisFault) as caught:
            self.subscribe(*args, **more)
        return caught.value.code


def event(subscription: LocalSubscription) -> dict[str, Any]:
    """The event that must be due now."""
    body = subscription.next_event()
    assert body is not None
    decoded: dict[str, Any] = json.loads(body)
    return decoded


def texts(shown: dict[str, Any]) -> list[str]:
    return [base64.b64decode(record["Data"]).decode() for record in shown["Records"]]


def ended_by(subscription: LocalSubscription) -> str:
    """Code of the exception that ends the subscription now."""
    with pytest.raises(KinesisFault) as caught:
        subscription.next_event()
    assert subscription.is_over
    assert subscription.next_event() is None
    return caught.value.code


# --- events ---------------------------------------------------------------------------------


def test_records_come_at_once_and_then_as_they_are_put() -> None:
    world = Subscriber()
    numbers = world.put("a", "b")
    subscription = world.subscribe()
    first = event(subscription)
    assert texts(first) == ["a", "b"]
    assert [record["SequenceNumber"] for record in first["Records"]] == numbers
    assert first["MillisBehindLatest"] == 0
    assert int(first["ContinuationSequenceNumber"]) >= int(numbers[-1])
    assert "ChildShards" not in first
    assert subscription.next_event() is None
    assert subscription.pause_s == 0.2
    world.now_s += 0.2
    world.put("c")
    assert texts(event(subscription)) == ["c"]
    assert subscription.next_event() is None


def test_an_idle_subscription_says_how_far_it_is() -> None:
    world = Subscriber()
    subscription = world.subscribe()
    world.now_s += 4.9
    assert subscription.next_event() is None
    world.now_s += 0.1
    first = event(subscription)
    assert first["Records"] == []
    assert first["MillisBehindLatest"] == 0
    world.now_s += 5
    second = event(subscription)
    (number,) = world.put("a")
    assert (
        int(first["ContinuationSequenceNumber"])
        < int(second["ContinuationSequenceNumber"])
        < int(number)
    )


@pytest.mark.parametrize("kind", ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"])
def test_a_continuation_leads_on_without_loss_and_without_repetition(kind: str) -> None:
    world = Subscriber(takeover_s=0)
    world.put("a")
    subscription = world.subscribe()
    event(subscription)
    world.now_s += 7
    number = event(subscription)["ContinuationSequenceNumber"]
    world.put("b")
    assert texts(event(world.subscribe(kind, SequenceNumber=number))) == ["b"]
    iterator = world.iterator(kind=kind, StartingSequenceNumber=number)
    assert world.read(iterator)[0] == ["b"]


def test_events_are_of_bounded_size_and_say_how_far_behind_they_are() -> None:
    world = Subscriber()
    world.put(*("x" * 400_000 for _ in range(3)))
    world.put("y" * 2_000_000)
    world.now_s += 3
    subscription = world.subscribe()
    sizes, behind, pauses = [], [], []
    for _ in range(3):
        shown = event(subscription)
        sizes.append([len(text) for text in texts(shown)])
        behind.append(shown["MillisBehindLatest"])
        pauses.append(subscription.pause_s)
    assert sizes == [[400_000, 400_000], [400_000], [2_000_000]]
    assert behind == [3000, 3000, 0]
    assert pauses == [0, 0, 0.2]


def test_nothing_is_made_for_who_does_not_ask() -> None:
    world = Subscriber()
    subscription = world.subscribe("LATEST")
    for number in range(100):
        world.now_s += 1
        world.put(str(number))
    assert len(texts(event(subscription))) == 100


def test_a_reader_that_is_too_slow_goes_on_with_the_oldest_record_left() -> None:
    world = Subscriber(subscription_s=1e9)
    subscription = world.subscribe()
    world.put("old")
    world.now_s += 20 * HOUR_S
    world.put("young")
    world.now_s += 5 * HOUR_S
    assert texts(event(subscription)) == ["young"]


def test_the_rate_is_two_megabytes_a_second_where_limits_are_on() -> None:
    world = Subscriber()
    for _ in range(8):
        world.put("x" * 1_000_000)
    subscription = world.subscribe()
    world.model.settings = KinesisSettings(limits=True)
    sent: list[float] = []
    for tenth in range(60):
        if subscription.next_event() is not None:
            sent.append(tenth / 10)
        world.now_s += 0.1
    assert len(sent) == 8
    # The full bucket gives two, and overdraws for a third; then one every 0.48 s.
    assert sent[:3] == [0.0, 0.1, 0.2]
    assert sent[7] - sent[2] == pytest.approx(5 * 0.48, abs=0.3)


def test_a_whimsical_service_sends_empty_events_and_loses_nothing() -> None:
    world = Subscriber(spare_answer_probability=0.5)
    world.put(*"abcdefgh")
    subscription = world.subscribe()
    seen: list[str] = []
    empty = 0
    while not subscription.is_over:
        shown = event(subscription)
        if shown["Records"]:
            world.split()
        seen += texts(shown)
        empty += not shown["Records"]
        assert ("ChildShards" in shown) is subscription.is_over
        assert ("ContinuationSequenceNumber" in shown) is not subscription.is_over
    assert seen == list("abcdefgh")
    assert empty > 0


# --- starting positions ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ({"kind": "TRIM_HORIZON"}, ["a", "b", "c"]),
        ({"kind": "AT_SEQUENCE_NUMBER", "number": 1}, ["b", "c"]),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "number": 1}, ["c"]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": 1_700_000_001.0}, ["b", "c"]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": 1_700_000_001.5}, ["c"]),
        ({"kind": "AT_TIMESTAMP", "Timestamp": 1}, ["a", "b", "c"]),
    ],
)
def test_every_kind_of_position(position: dict[str, Any], expected: list[str]) -> None:
    world = Subscriber()
    numbers = []
    for text in "abc":
        numbers += world.put(text)
        world.now_s += 1
    if (index := position.pop("number", None)) is not None:
        position["SequenceNumber"] = numbers[index]
    assert texts(event(world.subscribe(**position))) == expected


def test_latest_begins_with_what_comes() -> None:
    world = Subscriber()
    world.put("a")
    subscription = world.subscribe("LATEST")
    assert subscription.next_event() is None
    world.put("b")
    assert texts(event(subscription)) == ["b"]


def test_the_ends_of_a_shard_are_positions() -> None:
    world = Subscriber(takeover_s=0)
    world.put("a")
    world.split()
    closed = world.call("ListShards")["Shards"][0]["SequenceNumberRange"]
    start, end = closed["StartingSequenceNumber"], closed["EndingSequenceNumber"]
    for kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        assert texts(event(world.subscribe(kind, SequenceNumber=start))) == ["a"]
        assert event(world.subscribe(kind, SequenceNumber=end))["ChildShards"]


@pytest.mark.parametrize(
    ("position", "code"),
    [
        ({"kind": "SHARD_END"}, "ValidationException"),
        ({"kind": "AT_TIMESTAMP"}, "InvalidArgumentException"),
        ({"kind": "AT_TIMESTAMP", "Timestamp": 1_700_000_009}, "InvalidArgumentException"),
        ({"kind": "AT_SEQUENCE_NUMBER"}, "InvalidArgumentException"),
        ({"kind": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "5"}, "InvalidArgumentException"),
        ({"shard": "shardId-000000000009"}, "ResourceNotFoundException"),
        ({"shard": None}, "ResourceNotFoundException"),
        ({"arn": f"{ARN}/consumer/other:1700000000"}, "ResourceNotFoundException"),
        ({"arn": f"{ARN}/consumer/c:1600000000"}, "ResourceNotFoundException"),
        ({"arn": ARN}, "ValidationException"),
    ],
)
def test_what_makes_no_sense_is_refused(position: dict[str, Any], code: str) -> None:
    assert Subscriber().refused_subscription(**position) == code


@pytest.mark.parametrize("missing", ["ConsumerARN", "StartingPosition"])
def test_what_is_missing_is_told(missing: str) -> None:
    world = Subscriber()
    request = {"ConsumerARN": world.arn, "ShardId": FIRST, "StartingPosition": {"Type": "LATEST"}}
    del request[missing]
    with pytest.raises(KinesisFault, match=f"ValidationException: {missing}"):
        world.model.subscribe(request)


# --- the end --------------------------------------------------------------------------------


def test_a_closed_shard_ends_with_its_children() -> None:
    world = Subscriber(reshard_s=1)
    world.put("a")
    subscription = world.subscribe()
    assert texts(event(subscription)) == ["a"]
    world.split()
    world.put("b")
    world.now_s += 1
    last = event(subscription)
    assert texts(last) == ["b"]
    assert "ContinuationSequenceNumber" not in last
    assert last["MillisBehindLatest"] == 0
    assert [child["ShardId"] for child in last["ChildShards"]] == [SECOND, "shardId-000000000002"]
    assert all(child["ParentShards"] == [FIRST] for child in last["ChildShards"])
    assert subscription.is_over
    assert subscription.next_event() is None


def test_a_closed_shard_that_was_read_ends_without_records() -> None:
    world = Subscriber()
    subscription = world.subscribe("LATEST")
    world.split()
    assert event(subscription)["Records"] == []
    assert subscription.is_over


def test_a_subscription_ends_after_five_minutes_and_can_be_renewed_at_once() -> None:
    world = Subscriber(empty_event_s=1000)
    subscription = world.subscribe()
    world.now_s += 299.9
    assert subscription.next_event() is None
    assert not subscription.is_over
    world.put("a")
    world.now_s += 0.1
    assert subscription.next_event() is None
    assert subscription.is_over
    assert texts(event(world.subscribe())) == ["a"]


def test_a_short_life_does_not_meet_the_five_second_rule() -> None:
    world = Subscriber(subscription_s=1)
    subscription = world.subscribe()
    world.now_s += 1
    assert world.refused_subscription() == "ResourceInUseException"
    assert subscription.next_event() is None
    world.subscribe()


def test_a_deleted_stream_is_not_found() -> None:
    world = Subscriber()
    subscription = world.subscribe()
    world.call("DeleteStream", EnforceConsumerDeletion=True)
    world.call("CreateStream", ShardCount=1)
    assert ended_by(subscription) == "ResourceNotFoundException"
    assert world.refused_subscription() == "ResourceNotFoundException"


def test_a_deregistered_consumer_is_not_found() -> None:
    world = Subscriber(consumer_delete_s=10)
    subscription = world.subscribe()
    world.call("DeregisterStreamConsumer", ConsumerARN=world.arn)
    assert ended_by(subscription) == "ResourceNotFoundException"
    world.now_s += 5
    assert world.refused_subscription() == "ResourceInUseException"


def test_a_trimmed_shard_is_not_found() -> None:
    world = Subscriber(subscription_s=1e9)
    world.put("a")
    subscription = world.subscribe()
    world.split()
    world.now_s += 24 * HOUR_S + 1
    assert ended_by(subscription) == "ResourceNotFoundException"
    assert world.refused_subscription() == "ResourceNotFoundException"


# --- who may have one -----------------------------------------------------------------------


def test_a_second_call_within_five_seconds_is_refused_and_a_later_one_wins() -> None:
    world = Subscriber()
    first = world.subscribe()
    world.now_s += 4.9
    assert world.refused_subscription() == "ResourceInUseException"
    world.put("a")
    assert texts(event(first)) == ["a"]
    world.now_s += 0.1
    second = world.subscribe()
    assert ended_by(first) == "ResourceInUseException"
    assert texts(event(second)) == ["a"]


def test_the_rule_is_for_each_consumer_and_each_shard() -> None:
    world = Subscriber(shards=2)
    other = world.call("RegisterStreamConsumer", ConsumerName="d")["Consumer"]["ConsumerARN"]
    subscriptions = [
        world.subscribe(),
        world.subscribe(shard=SECOND),
        world.subscribe(arn=other),
    ]
    world.put("a")
    assert [s.next_event() is not None for s in subscriptions] == [True, False, True]


def test_a_consumer_that_is_being_created_cannot_subscribe() -> None:
    world = Subscriber(consumer_create_s=3)
    assert world.refused_subscription() == "ResourceInUseException"
    world.now_s += 3
    world.subscribe()


def test_one_call_a_second_where_limits_are_on() -> None:
    world = Subscriber(limits=True, takeover_s=0)
    world.subscribe()
    assert world.refused_subscription() == "LimitExceededException"
    world.now_s += 1
    world.subscribe()


def test_a_fault_can_be_ordered() -> None:
    world = Subscriber()

    def before(operation: str, _request: Any) -> None:
        raise KinesisFault("AccessDeniedException", operation)

    world.model.before = before
    with pytest.raises(KinesisFault, match="SubscribeToShard"):
        world.subscribe()
