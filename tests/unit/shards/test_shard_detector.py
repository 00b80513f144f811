from __future__ import annotations

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    Denied,
    InUse,
    LimitExceeded,
    NotFound,
    ServiceError,
    StreamNotReady,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from tests.fakes.shard_world import ShardWorld, simulated

LIMIT = LimitExceeded("ListShards", "LimitExceededException")
LOST = UnknownOutcome("ListShards", "ReadTimeoutError")


def numbers(shards):
    return [int(shard.shard_id[-3:]) for shard in shards]


@simulated
async def test_all_pages_are_read_and_only_the_first_names_the_stream():
    world = ShardWorld(4, stream=Stream("s", arn="arn:aws:kinesis:us-east-1:123456789012:stream/s"))
    model, whole = world.kinesis, world.kinesis.list_shards

    async def two_a_page(**request):
        return await whole(**request, MaxResults=2)

    model.list_shards = two_a_page
    shards = await world.detector.list_shards({"Type": "AT_LATEST"})
    assert numbers(shards) == [0, 1, 2, 3]
    first, second = [request for operation, request in world.calls if operation == "ListShards"]
    assert first == {
        "StreamName": "s",
        "StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/s",
        "ShardFilter": {"Type": "AT_LATEST"},
        "MaxResults": 2,
    }
    assert set(second) == {"NextToken", "MaxResults"}


@simulated
async def test_limits_are_waited_out():
    world = ShardWorld()
    world.fail("ListShards", LIMIT, 3)
    world.fail("ListShards", Throttled("ListShards", "ThrottlingException"), 46)
    assert numbers(await world.detector.list_shards()) == [0, 1]
    assert 49 * 1.5 <= world.clock.monotonic() <= 49 * 1.65 + 0.01


@simulated
async def test_fifty_limits_on_one_page_are_too_many():
    world = ShardWorld()
    world.fail("ListShards", LIMIT, 50)
    with pytest.raises(LimitExceeded):
        await world.detector.list_shards()
    assert world.count("ListShards") == 50


@pytest.mark.parametrize(
    "error",
    [
        LOST,
        Unreachable("ListShards", "EndpointConnectionError"),
        ServiceError("ListShards", "InternalFailure"),
        ServiceError("ListShards", "ExpiredNextTokenException"),
        Denied("ListShards", "ExpiredTokenException"),
    ],
)
@simulated
async def test_passing_failures_are_retried_from_the_first_page(error):
    world = ShardWorld()
    world.fail("ListShards", error, 5)
    assert numbers(await world.detector.list_shards()) == [0, 1]
    assert 5 < world.clock.monotonic() < 20


@simulated
async def test_a_failure_that_stays_comes_out():
    world = ShardWorld()
    world.fail("ListShards", LOST, 6)
    with pytest.raises(UnknownOutcome):
        await world.detector.list_shards()
    assert world.count("ListShards") == 6


@pytest.mark.parametrize(
    "error",
    [
        Denied("ListShards", "AccessDeniedException"),
        ServiceError("ListShards", "ValidationException"),
        NotFound("ListShards", "ResourceNotFoundException"),
    ],
)
@simulated
async def test_lasting_failures_come_out_at_once(error):
    world = ShardWorld()
    world.fail("ListShards", error)
    with pytest.raises(type(error)):
        await world.detector.list_shards()
    assert world.count("ListShards") == 1


@simulated
async def test_a_stream_in_another_state_is_not_ready():
    world = ShardWorld()
    world.fail("ListShards", InUse("ListShards", "ResourceInUseException"))
    with pytest.raises(StreamNotReady, match="not in ACTIVE or UPDATING"):
        await world.detector.list_shards()
