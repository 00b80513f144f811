"""Consumers of a stream: names, states, limits, pages."""

from __future__ import annotations

from typing import Any

import pytest

from kcl_mld.local.kinesis import KinesisFault, KinesisSettings
from tests.unit.local.kinesis.model_world import ARN, World


def register(world: World, name: str, **more: Any) -> str:
    arn: str = world.call("RegisterStreamConsumer", ConsumerName=name, **more)["Consumer"][
        "ConsumerARN"
    ]
    return arn


def status(world: World, arn: str) -> str:
    described = world.call("DescribeStreamConsumer", ConsumerARN=arn)["ConsumerDescription"]
    text: str = described["ConsumerStatus"]
    return text


def test_a_consumer_is_creating_then_active_then_deleting_then_gone() -> None:
    world = World(consumer_create_s=2, consumer_delete_s=3)
    made = world.call("RegisterStreamConsumer", ConsumerName="c")["Consumer"]
    assert made == {
        "ConsumerName": "c",
        "ConsumerARN": f"{ARN}/consumer/c:1700000000",
        "ConsumerStatus": "CREATING",
        "ConsumerCreationTimestamp": 1_700_000_000.0,
    }
    arn = made["ConsumerARN"]
    world.now_s += 1.9
    assert status(world, arn) == "CREATING"
    world.now_s += 0.2
    assert world.call("DescribeStreamConsumer", ConsumerName="c")["ConsumerDescription"] == {
        **made,
        "ConsumerStatus": "ACTIVE",
        "StreamARN": ARN,
    }
    world.call("DeregisterStreamConsumer", ConsumerARN=arn)
    world.call("DeregisterStreamConsumer", ConsumerARN=arn)
    assert status(world, arn) == "DELETING"
    assert world.refused("RegisterStreamConsumer", ConsumerName="c") == "ResourceInUseException"
    world.now_s += 3
    assert world.call("ListStreamConsumers") == {"Consumers": []}
    assert world.refused("DescribeStreamConsumer", ConsumerARN=arn) == "ResourceNotFoundException"


def test_the_answer_says_creating_however_short_that_is() -> None:
    world = World()
    made = world.call("RegisterStreamConsumer", ConsumerName="c")["Consumer"]
    assert made["ConsumerStatus"] == "CREATING"
    assert status(world, made["ConsumerARN"]) == "ACTIVE"


def test_a_new_consumer_of_an_old_name_has_another_arn() -> None:
    world = World()
    old = register(world, "c")
    world.call("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    world.now_s += 1
    new = register(world, "c")
    assert new != old
    assert status(world, new) == "ACTIVE"
    assert world.refused("DescribeStreamConsumer", ConsumerARN=old) == "ResourceNotFoundException"


@pytest.mark.parametrize("name", [None, 5, "", "a b", "x" * 129])
def test_names_that_are_none_are_refused(name: object) -> None:
    assert World().refused("RegisterStreamConsumer", ConsumerName=name) == "ValidationException"


def test_a_stream_has_twenty_consumers_at_most() -> None:
    world = World()
    for number in range(20):
        register(world, f"c{number}")
    assert world.refused("RegisterStreamConsumer", ConsumerName="c20") == "LimitExceededException"
    world.call("DeregisterStreamConsumer", StreamARN=ARN, ConsumerName="c0")
    register(world, "c20")


def test_five_consumers_may_be_creating_in_the_account() -> None:
    world = World(consumer_create_s=10)
    world.model.call("CreateStream", {"StreamName": "t", "ShardCount": 1})
    for number in range(4):
        register(world, f"c{number}")
    register(world, "c4", StreamARN=ARN[:-1] + "t")
    assert world.refused("RegisterStreamConsumer", ConsumerName="c5") == "LimitExceededException"
    world.now_s += 10
    register(world, "c5")


def test_consumers_are_listed_in_pages() -> None:
    world = World()
    for name in ("b", "c", "a"):
        register(world, name)
    first = world.call("ListStreamConsumers", MaxResults=2)
    assert [consumer["ConsumerName"] for consumer in first["Consumers"]] == ["a", "b"]
    rest = world.call("ListStreamConsumers", StreamARN=ARN, NextToken=first["NextToken"])
    assert [consumer["ConsumerName"] for consumer in rest["Consumers"]] == ["c"]
    assert "NextToken" not in rest
    wrong = {"StreamARN": ARN, "NextToken": first["NextToken"]}
    both = {**wrong, "StreamCreationTimestamp": 1_700_000_000.0}
    assert world.refused("ListStreamConsumers", **both) == "InvalidArgumentException"
    assert world.refused("ListStreamConsumers", MaxResults=0) == "ValidationException"
    assert (
        world.refused("ListStreamConsumers", StreamARN=ARN, NextToken="x")
        == "InvalidArgumentException"
    )
    world.now_s += 301
    assert world.refused("ListStreamConsumers", **wrong) == "ExpiredNextTokenException"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"ConsumerARN": ARN}, "ValidationException"),
        ({"ConsumerARN": f"{ARN}/consumer/other:1"}, "ResourceNotFoundException"),
        ({"ConsumerARN": f"{ARN}x/consumer/c:1700000000"}, "ResourceNotFoundException"),
        ({"StreamARN": ARN}, "InvalidArgumentException"),
        ({"StreamARN": ARN, "ConsumerName": "other"}, "ResourceNotFoundException"),
        (
            {"ConsumerARN": f"{ARN}/consumer/c:1700000000", "ConsumerName": "d"},
            "InvalidArgumentException",
        ),
        (
            {"ConsumerARN": f"{ARN}/consumer/c:1700000000", "StreamARN": ARN + "x"},
            "InvalidArgumentException",
        ),
    ],
)
def test_requests_for_no_consumer_are_refused(request_: dict[str, Any], code: str) -> None:
    world = World()
    register(world, "c")
    for operation in ("DescribeStreamConsumer", "DeregisterStreamConsumer"):
        assert world.refused(operation, **request_) == code


def test_a_stream_is_named_by_its_arn_alone() -> None:
    refused = World().model
    for operation in ("RegisterStreamConsumer", "ListStreamConsumers"):
        with pytest.raises(Exception, match="StreamARN must not be null"):
            refused.call(operation, {"StreamName": "s", "ConsumerName": "c"})


def test_consumers_protect_their_stream() -> None:
    world = World()
    arn = register(world, "c")
    assert world.call("DescribeStreamSummary")["StreamDescriptionSummary"]["ConsumerCount"] == 1
    assert world.refused("DeleteStream") == "ResourceInUseException"
    world.call("DeregisterStreamConsumer", ConsumerARN=arn)
    world.call("DeleteStream")


def test_enforced_deletion_takes_the_consumers_along() -> None:
    world = World(delete_s=5)
    arn = register(world, "c")
    world.call("DeleteStream", EnforceConsumerDeletion=True)
    assert world.refused("DescribeStreamConsumer", ConsumerARN=arn) == "ResourceNotFoundException"
    world.now_s += 5
    assert world.refused("ListShards") == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("operation", "rate"),
    [
        ("RegisterStreamConsumer", 5),
        ("DescribeStreamConsumer", 20),
        ("ListStreamConsumers", 5),
    ],
)
def test_calls_are_limited_where_limits_are_on(operation: str, rate: int) -> None:
    world = World()
    register(world, "c")
    world.model.settings = KinesisSettings(limits=True)
    for number in range(rate):
        name = f"d{number}" if operation == "RegisterStreamConsumer" else "c"
        world.call(operation, ConsumerName=name)
    name = "e" if operation == "RegisterStreamConsumer" else "c"
    assert world.refused(operation, ConsumerName=name) == "LimitExceededException"
    world.now_s += 1
    world.call(operation, ConsumerName=name)


def test_a_consumer_can_be_adopted_with_its_arn() -> None:
    world = World(consumer_create_s=60)
    arn = f"{ARN}/consumer/named:1600000000"
    world.model.adopt_consumer(arn)
    world.model.adopt_consumer(arn)
    shown = world.call("DescribeStreamConsumer", ConsumerARN=arn)["ConsumerDescription"]
    assert shown["ConsumerStatus"] == "ACTIVE"
    assert shown["ConsumerCreationTimestamp"] == 1_600_000_000.0


@pytest.mark.parametrize(
    "arn", ["", ARN, f"{ARN}/consumer/c", f"{ARN}/consumer/c:x", f"{ARN}other/consumer/c:1"]
)
def test_what_no_stream_has_is_not_adopted(arn: str) -> None:
    with pytest.raises(KinesisFault):
        World().model.adopt_consumer(arn)
