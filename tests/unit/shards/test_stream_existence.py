"""A stream is deleted, created again, or only hard to ask for."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    CredentialsRefused,
    Denied,
    LimitExceeded,
    MalformedData,
    NotFound,
    ResourceMissing,
    StreamNotReady,
)
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.local.kinesis import KinesisSettings
from kcl_mld.shards import stream_existence
from kcl_mld.shards.stream_existence import FRESH_S
from kcl_mld.streams.existence_watch import GIVE_UP_S
from tests.fakes.lease_world import lease
from tests.fakes.shard_world import HALF, ShardWorld, shard_id, simulated

DENIED = Denied("DescribeStreamSummary", "AccessDeniedException", "no policy allows it")
NOT_FOUND = NotFound("GetShardIterator", "ResourceNotFoundException")


async def learned(*, may_describe: bool = True, **options: Any) -> ShardWorld:
    """A worker that knows its stream, of two shards."""
    world = ShardWorld(2, **options)
    if not may_describe:
        world.fail("DescribeStreamSummary", DENIED, times=999)
    await world.existence.learn()
    await asyncio.sleep(1)
    return world


@pytest.mark.parametrize("may_describe", [True, False])
@simulated
async def test_a_trimmed_shard_of_a_living_stream_has_ended(*, may_describe):
    world = await learned(may_describe=may_describe)
    world.split(0, HALF // 2)
    await asyncio.sleep(1)
    await world.existence.check()
    assert not await world.existence.is_trimmed(shard_id(0))
    world.trim(0)
    await asyncio.sleep(60)
    assert await world.existence.is_trimmed(shard_id(0))


@pytest.mark.parametrize("may_describe", [True, False])
@pytest.mark.parametrize("comes_back", [True, False])
@simulated
async def test_a_shard_of_a_deleted_stream_has_not_ended(*, comes_back, may_describe):
    world = await learned(may_describe=may_describe)
    if comes_back:
        world.recreate_stream(1)
    else:
        world.delete_stream()
    says = "deleted and created again" if comes_back else "stream s was deleted"
    with pytest.raises(ResourceMissing, match=says):
        await world.existence.is_trimmed(shard_id(0))
    with pytest.raises(ResourceMissing, match=says):
        await world.existence.run()
    assert world.clock.monotonic() < 10 + GIVE_UP_S


@simulated
async def test_a_stream_that_is_being_deleted_is_gone():
    world = await learned()
    world.kinesis_model.settings = KinesisSettings(delete_s=1000)
    world.delete_stream()
    with pytest.raises(ResourceMissing, match="is being deleted"):
        await world.existence.check()


@simulated
async def test_what_the_policy_does_not_allow_is_said_once(caplog):
    world = await learned(may_describe=False)
    for _ in range(5):
        await world.existence.check()
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "Allow kinesis:DescribeStreamSummary for stream s" in warnings[0]
    assert "ListShards is used instead" in warnings[0]


@simulated
async def test_the_permission_for_the_stream_of_a_table_is_named_and_nothing_replaces_it(caplog):
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310"
    await learned(may_describe=False, stream=Stream("s", arn=arn))
    (warning,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "Allow dynamodb:DescribeStream for stream s: its shards" in warning
    assert "ListShards" not in warning


@simulated
async def test_a_creation_time_that_is_known_counts_again_when_the_policy_allows_the_call_again():
    world = await learned()
    world.fail("DescribeStreamSummary", DENIED)
    world.recreate_stream(2)
    await world.existence.check()  # the first list that it sees may be that of the same stream
    with pytest.raises(ResourceMissing, match="the new one was created at"):
        await world.existence.check()


@simulated
async def test_a_creation_time_is_learned_only_from_the_stream_whose_shards_are_known():
    world = await learned(may_describe=False)
    world.kinesis_faults.clear()
    world.recreate_stream(2)
    for _ in range(2):
        with pytest.raises(ResourceMissing, match="begin at other sequence numbers"):
            await world.existence.check()


@pytest.mark.parametrize(
    "code", ["ExpiredTokenException", "UnrecognizedClientException", "RequestTimeTooSkewed"]
)
@simulated
async def test_refused_credentials_are_no_missing_permission(code):
    world = ShardWorld(1)
    world.fail("DescribeStreamSummary", CredentialsRefused("DescribeStreamSummary", code))
    with pytest.raises(CredentialsRefused):
        await world.existence.check()
    await world.existence.check()
    assert world.count("DescribeStreamSummary") == 2
    assert world.count("ListShards") == 0


@simulated
async def test_a_server_that_tells_no_creation_time_is_asked_for_its_shards():
    world = ShardWorld(1)
    ask = world.kinesis.describe_stream_summary

    async def without_time(**request: Any) -> dict[str, Any]:
        summary = (await ask(**request))["StreamDescriptionSummary"]
        del summary["StreamCreationTimestamp"]
        return {"StreamDescriptionSummary": summary}

    world.kinesis.describe_stream_summary = without_time  # type: ignore[method-assign]
    await world.existence.learn()
    await asyncio.sleep(1)
    world.recreate_stream(1)
    with pytest.raises(ResourceMissing, match="begin at other sequence numbers"):
        await world.existence.check()


@simulated
async def test_a_stream_that_cannot_be_asked_for_at_the_start_is_asked_for_soon():
    world = ShardWorld(1)
    world.fail("DescribeStreamSummary", LimitExceeded("DescribeStreamSummary", "LimitExceeded"))
    await world.existence.learn()
    task = asyncio.get_running_loop().create_task(world.existence.run())
    await asyncio.sleep(1)
    assert world.count("DescribeStreamSummary") == 2
    world.recreate_stream(1)
    with pytest.raises(ResourceMissing):
        await task


@simulated
async def test_a_shard_list_that_cannot_be_read_fails_no_start():
    world = ShardWorld(1)
    world.fail("DescribeStreamSummary", DENIED)
    world.fail("ListShards", MalformedData("a shard has no id"))
    await world.existence.learn()
    await asyncio.sleep(1)
    await world.existence.check()


@simulated
async def test_a_start_waits_two_seconds_for_the_creation_time():
    world = ShardWorld(1)

    async def hang(**_request: Any) -> dict[str, Any]:
        await asyncio.sleep(1000)
        return {}

    world.kinesis.describe_stream_summary = hang  # type: ignore[method-assign]
    await world.existence.learn()
    assert world.clock.monotonic() == pytest.approx(stream_existence.LEARN_S, abs=0.01)


@simulated
async def test_a_start_without_a_stream_leaves_that_to_the_first_sync():
    world = ShardWorld(0)
    await world.existence.learn()
    assert world.conditions.current() == ()
    world.create_stream(1)
    await world.existence.learn()
    await world.existence.check()


@simulated
async def test_a_shard_above_all_others_belongs_to_an_earlier_stream():
    """A worker that starts after the stream was created again, with fewer shards."""
    world = await learned()
    with pytest.raises(ResourceMissing, match=f"it never had the shard {shard_id(7)} of a lease"):
        await world.existence.is_trimmed(shard_id(7))


@simulated
async def test_a_new_shard_that_is_not_listed_yet_is_no_sign_for_long():
    world = await learned()
    task = asyncio.get_running_loop().create_task(world.existence.run())
    with pytest.raises(ResourceMissing):
        await world.existence.is_trimmed(shard_id(3))
    world.split(0, HALF // 2)
    await asyncio.sleep(2 * GIVE_UP_S)
    assert world.conditions.current() == ()
    assert not await world.existence.is_trimmed(shard_id(3))
    task.cancel()


@simulated
async def test_a_position_before_the_first_record_belongs_to_an_earlier_stream():
    world = await learned()
    world.existence.check_shard(shard_id(0), "1")
    with pytest.raises(ResourceMissing, match=f"never had the record 1 of shard {shard_id(0)}"):
        await world.existence.run()


@simulated
async def test_one_lease_that_does_not_fit_costs_its_shard_alone(caplog):
    world = ShardWorld(2)
    existence = world.existence
    world.seen_leases = leases((0, "1"), (1, "9" * 60))
    await existence.learn()
    for _ in range(3):
        existence.check_shard(shard_id(0), "1")
        await existence.check()
        await asyncio.sleep(25)
    assert not await existence.is_trimmed(shard_id(7))
    said = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert [one.split()[0] for one in said] == [shard_id(0), shard_id(7)]
    assert "never had the record 1" in said[0]


@simulated
async def test_leases_none_of_which_fits_belong_to_an_earlier_stream():
    world = ShardWorld(2)
    world.seen_leases = leases((0, "1"), (1, "1"), (7, "9" * 60), (1, "LATEST"))
    world.existence.check_shard(shard_id(0), "1")
    with pytest.raises(ResourceMissing, match="deleted and created again"):
        await world.existence.check()


def leases(*rows):
    return [lease(number, checkpoint=ExtendedSequenceNumber(at)) for number, at in rows]


@pytest.mark.parametrize(
    ("arn", "mark"),
    [
        (None, None),
        ("nonsense", None),
        ("arn:aws:kinesis:eu-west-1:123456789012:stream/s", "123456789012:eu-west-1:s"),
    ],
)
@simulated
async def test_a_stream_is_known_by_account_region_and_name_once_its_arn_is(arn, mark):
    world = ShardWorld(0, stream=Stream("s", arn=arn))
    assert world.existence.stream.mark == mark


@simulated
async def test_the_account_of_a_stream_is_learned_with_its_creation_time():
    world = ShardWorld(1)
    assert world.existence.stream.mark is None
    await world.existence.learn()
    account, region, name = world.existence.stream.mark.split(":")
    assert (len(account), name) == (12, "s")
    assert region


@simulated
async def test_a_doubt_without_ground_is_forgotten():
    world = await learned()
    listed = await world.detector.list_shards()
    world.existence.check_shard(shard_id(0), listed[0].starting_sequence_number)
    world.existence.check_shard(shard_id(1), None)
    before = world.count("ListShards")
    await world.existence.check()
    await world.existence.check()
    assert world.count("ListShards") == before + 1


@simulated
async def test_many_missing_shards_share_two_lists():
    world = await learned()
    world.split(0, HALF // 2)
    world.trim(0)
    before = world.count("ListShards")
    fates = await asyncio.gather(*(world.existence.is_trimmed(shard_id(0)) for _ in range(100)))
    assert set(fates) == {True}
    assert world.count("ListShards") == before + 2


@simulated
async def test_an_empty_list_tells_nothing():
    world = await learned()

    async def nothing(**_request: Any) -> dict[str, Any]:
        return {"Shards": []}

    world.kinesis.list_shards = nothing  # type: ignore[method-assign]
    with pytest.raises(StreamNotReady):
        await world.existence.is_trimmed(shard_id(0))


# -- before what fits any stream is handed out ----------------------------------------------------


@pytest.mark.parametrize("may_describe", [True, False])
@simulated
async def test_what_is_got_of_a_stream_that_was_created_again_is_not_confirmed(*, may_describe):
    world = await learned(may_describe=may_describe)
    assert await world.existence.confirm()
    await asyncio.sleep(FRESH_S)
    world.recreate_stream(2)
    assert not await world.existence.confirm()


@simulated
async def test_shards_that_begin_at_once_share_a_look():
    world = await learned()
    await asyncio.sleep(FRESH_S)
    before, began = world.count("DescribeStreamSummary"), world.clock.monotonic()
    assert all(await asyncio.gather(*(world.existence.confirm() for _ in range(300))))
    assert world.count("DescribeStreamSummary") - before == 1
    assert world.clock.monotonic() - began < 0.1


@simulated
async def test_shards_that_begin_one_after_the_other_do_not_wait_a_second_each():
    """Each asks when its first records have come; the second one of a start waited for a second."""
    world = await learned()
    began = world.clock.monotonic()
    for _ in range(40):
        assert await world.existence.confirm()
        await asyncio.sleep(0.1)
    assert world.clock.monotonic() - began == pytest.approx(4.0, abs=0.01)
    assert world.count("DescribeStreamSummary") <= 1 + 4


@pytest.mark.parametrize(
    "error",
    [
        LimitExceeded("DescribeStreamSummary", "LimitExceededException"),
        CredentialsRefused("DescribeStreamSummary", "ExpiredTokenException"),
    ],
)
@simulated
async def test_a_look_that_fails_is_repeated_before_anything_is_handed_out(error):
    world = await learned()
    world.recreate_stream(2)
    world.fail("DescribeStreamSummary", error, times=4)
    assert not await world.existence.confirm()


@simulated
async def test_a_shard_does_not_wait_for_ever_for_a_look(caplog):
    world = await learned()
    error = LimitExceeded("DescribeStreamSummary", "LimitExceededException")
    world.fail("DescribeStreamSummary", error, times=999)
    began = world.clock.monotonic()
    assert await world.existence.confirm()
    took_s = world.clock.monotonic() - began
    assert took_s == pytest.approx(stream_existence.CONFIRM_S, abs=0.1)
    assert "Reading stream s, although it could not be checked" in caplog.records[-1].getMessage()
    assert "LimitExceededException" in caplog.records[-1].getMessage()


@simulated
async def test_where_the_stream_may_not_be_looked_at_nobody_waits(caplog):
    world = await learned()
    for operation in ("DescribeStreamSummary", "ListShards"):
        world.fail(operation, Denied(operation, "AccessDeniedException"), times=999)
    began = world.clock.monotonic()
    assert await world.existence.confirm()
    assert world.clock.monotonic() - began < 1
    assert "Reading stream s, although it could not be checked" in caplog.records[-1].getMessage()
