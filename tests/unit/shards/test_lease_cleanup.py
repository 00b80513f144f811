from __future__ import annotations

import asyncio

import pytest

from kcl_mld.errors import NotFound, Unreachable
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.shards.lease_cleanup import ASKED_S
from tests.fakes.shard_world import HALF, MOVING, ShardWorld, shard_id, simulated

GONE = NotFound("GetShardIterator", "ResourceNotFoundException")


async def split(**options):
    """Shard 0 is finished and queued; its children 1 and 2 are being read."""
    world = ShardWorld(1, **options)
    await world.reshard()
    world.cleanup.enqueue(await world.read(0))
    await world.cleanup.clean_once()
    world.calls.clear()
    return world


def without_children(world):
    item = world.row(shard_id(0))
    del item["childShardIds"]
    world.put_item(item)


@simulated
async def test_nothing_is_deleted_before_its_interval():
    world = await split()
    await asyncio.sleep(298)
    outcome = await world.cleanup.clean_once()
    assert outcome.waiting == (shard_id(0),)
    assert len(world.checkpoints()) == 3


@simulated
async def test_a_finished_lease_goes_when_its_children_have_started():
    world = await split()
    await asyncio.sleep(300)
    outcome = await world.cleanup.clean_once()
    assert outcome.completed == (shard_id(0),)
    assert world.checkpoints() == {"1": MOVING, "2": MOVING}
    assert world.cleanup.queued == ()
    assert [operation for operation, _request in world.calls] == ["DescribeStreamSummary"]


@simulated
async def test_beside_rows_of_others_nothing_is_deleted():
    world = await split()
    await asyncio.sleep(300)
    world.put_item({**world.row(shard_id(1)), "leaseKey": {"S": "1:s:2:shardId-1"}})
    await world.lease_store.scan()
    assert (await world.cleanup.clean_once()).waiting == (shard_id(0),)


@simulated
async def test_a_lease_that_we_hold_and_delete_is_not_lost(caplog):
    world = await split()
    world.change(shard_id(0), leaseOwner="me")
    await world.renewer.adopt_own()
    assert world.renewer.get(shard_id(0)) is not None
    async with asyncio.TaskGroup() as group:
        renewing = group.create_task(world.renewer.heartbeat.run())
        await asyncio.sleep(300)
        assert (await world.cleanup.clean_once()).completed == (shard_id(0),)
        assert world.renewer.held() == ()
        await asyncio.sleep(10)
        renewing.cancel()
    assert "Lost" not in caplog.text
    assert world.metrics.total("RenewAllLeases", "LostLeases") == 0


@pytest.mark.parametrize(
    ("checkpoint", "stays"),
    [("TRIM_HORIZON", True), ("AT_TIMESTAMP", True), ("LATEST", False), ("SHARD_END", False)],
)
@simulated
async def test_children_count_as_started_by_their_checkpoint(checkpoint, stays):
    world = await split()
    world.at(2, checkpoint)
    await asyncio.sleep(300)
    await world.cleanup.clean_once()
    assert ("0" in world.checkpoints()) == stays
    assert (world.cleanup.queued == (shard_id(0),)) == stays


@simulated
async def test_a_missing_child_row_keeps_the_parent(caplog):
    world = await split()
    world.delete(2)
    await asyncio.sleep(300)
    await world.cleanup.clean_once()
    assert "0" in world.checkpoints()
    assert "has no lease" in caplog.text


@simulated
async def test_ancestors_go_first():
    world = await split()
    world.split(1, HALF // 2)
    children = await world.source.children_of(shard_id(1))
    await world.shard_end().create_child_leases(await world.read(1), children)
    for number, checkpoint in ((1, "SHARD_END"), (3, MOVING), (4, MOVING)):
        world.at(number, checkpoint)
    queue = await world.read(1)
    world.cleanup._queue.clear()
    world.cleanup.enqueue(queue)
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).completed == ()
    world.cleanup.enqueue(await world.read(0))
    assert (await world.cleanup.clean_once()).completed == (shard_id(0),)
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).completed == (shard_id(1),)


@simulated
async def test_unknown_children_are_asked_for_and_noted():
    world = await split()
    without_children(world)
    world.at(2, "TRIM_HORIZON")
    await asyncio.sleep(300)
    await world.cleanup.clean_once()
    assert world.row(shard_id(0))["childShardIds"] == {"SS": [shard_id(1), shard_id(2)]}
    assert world.count("GetRecords") == 1


@simulated
async def test_a_lease_without_any_child_goes_with_an_error(caplog):
    world = ShardWorld(1)
    await world.syncer.sync_if_empty()
    world.at(0, "SHARD_END")
    await world.cleanup.clean_once()
    world.cleanup.enqueue(await world.read(0))
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).completed == (shard_id(0),)
    assert "no child shard of it is listed" in caplog.text


@simulated
async def test_a_vanished_shard_is_garbage():
    world = await split()
    without_children(world)
    world.trim(0)
    await asyncio.sleep(300)
    outcome = await world.cleanup.clean_once()
    assert outcome.garbage == (shard_id(0),)
    assert world.checkpoints() == {"1": MOVING, "2": MOVING}


@simulated
async def test_garbage_waits_for_the_leases_of_listed_children(caplog):
    world = await split(position=Sentinel.LATEST)
    world.delete(2)
    without_children(world)
    world.trim(0)
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).garbage == ()
    assert f"until the child shard {shard_id(2)} has a lease" in caplog.text
    for _ in range(3):
        await world.syncer.audit()
    assert world.checkpoints()["2"] == "TRIM_HORIZON"
    assert (await world.cleanup.clean_once()).garbage == (shard_id(0),)


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("knows_children", [False, True])
@simulated
async def test_the_leases_of_a_deleted_stream_stay(*, knows_children, comes_back):
    world = await split()
    for number in (1, 2):
        world.at(number, "SHARD_END")
        world.cleanup.enqueue(await world.read(number))
    if not knows_children:
        without_children(world)
    await asyncio.sleep(1)
    if comes_back:
        world.recreate_stream()
    else:
        world.delete_stream()
    task = asyncio.get_running_loop().create_task(world.cleanup.run())
    await asyncio.sleep(4000)
    task.cancel()
    assert world.checkpoints() == dict.fromkeys("012", "SHARD_END")


@simulated
async def test_a_shard_that_is_listed_is_no_garbage():
    world = await split()
    without_children(world)
    world.fail("GetShardIterator", GONE)
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).garbage == ()


@simulated
async def test_without_completed_cleanup_only_garbage_goes():
    world = await split(cleanup_completed=False)
    await asyncio.sleep(1799)
    await world.cleanup.clean_once()
    assert world.calls == []
    await asyncio.sleep(1)
    assert (await world.cleanup.clean_once()).waiting == (shard_id(0),)
    assert world.count("GetRecords") == 1
    world.trim(0)
    assert (await world.cleanup.clean_once()).garbage == (shard_id(0),)


@simulated
async def test_a_row_that_is_gone_counts_as_cleaned():
    world = await split()
    world.delete(0)
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).completed == (shard_id(0),)


@simulated
async def test_a_row_that_is_not_finished_is_never_deleted():
    world = await split()
    world.at(0, MOVING)
    await asyncio.sleep(300)
    outcome = await world.cleanup.clean_once()
    assert (outcome.completed, outcome.garbage, outcome.waiting) == ((), (), ())
    assert world.checkpoints()["0"] == MOVING
    assert world.cleanup.queued == ()


@pytest.mark.parametrize("is_garbage", [False, True])
@simulated
async def test_a_row_that_is_reset_meanwhile_is_not_deleted(is_garbage):
    world = await split()
    if is_garbage:
        without_children(world)
        world.trim(0)
    delete = world.lease_store.delete

    async def after_a_reset(key, *, only_finished):
        world.at(0, "TRIM_HORIZON")
        return await delete(key, only_finished=only_finished)

    world.lease_store.delete = after_a_reset
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).waiting == (shard_id(0),)
    assert world.checkpoints()["0"] == "TRIM_HORIZON"


@pytest.mark.parametrize(
    "error",
    [Unreachable("GetShardIterator", "ConnectTimeoutError"), RuntimeError("a defect")],
)
def test_one_failing_lease_does_not_stop_the_others(error):
    @simulated
    async def main():
        world = await split()
        world.at(1, "SHARD_END")
        world.cleanup._queue.clear()
        world.cleanup.enqueue(await world.read(1))
        world.cleanup.enqueue(await world.read(0))
        world.fail("GetShardIterator", error)
        await asyncio.sleep(300)
        outcome = await world.cleanup.clean_once()
        assert outcome.waiting == (shard_id(1),)
        assert outcome.completed == (shard_id(0),)

    main()


@simulated
async def test_a_lease_is_queued_once_whatever_its_counter():
    world = await split()
    world.change(shard_id(0), leaseCounter=9)
    world.cleanup.enqueue(await world.read(0))
    assert world.cleanup.queued == (shard_id(0),)


@simulated
async def test_an_interval_starts_again_only_when_something_was_cleaned():
    world = await split()
    world.at(2, "TRIM_HORIZON")
    await asyncio.sleep(300)
    await world.cleanup.clean_once()
    await asyncio.sleep(60)
    world.at(2, MOVING)
    assert (await world.cleanup.clean_once()).completed == (shard_id(0),)
    world.at(1, "SHARD_END")
    world.cleanup.enqueue(await world.read(1))
    await asyncio.sleep(60)
    assert (await world.cleanup.clean_once()).waiting == (shard_id(1),)


@simulated
async def test_the_loop_cleans_every_minute(caplog):
    caplog.set_level("INFO")
    world = await split()
    task = asyncio.get_running_loop().create_task(world.cleanup.run())
    await asyncio.sleep(301)
    assert "0" not in world.checkpoints()
    assert (
        "deleted 1 lease of finished shards and 0 of shards past retention, kept 0" in caplog.text
    )
    task.cancel()


@simulated
async def test_a_slow_pass_asks_again_whether_the_stream_is_there():
    """Its last leases were deleted minutes after the stream was asked for, and gone since."""
    world = await split()
    world.at(1, "SHARD_END")
    world.cleanup._queue.clear()
    for number in (1, 0):
        world.cleanup.enqueue(await world.read(number))
    await asyncio.sleep(300)
    get = world.lease_store.get

    async def slowly(key, **options):
        await asyncio.sleep(ASKED_S + 1)
        if key == shard_id(1) and world.count("DescribeStreamSummary") == 1:
            world.recreate_stream(2)
        return await get(key, **options)

    world.lease_store.get = slowly
    outcome = await world.cleanup.clean_once()
    assert outcome.completed == ()
    assert shard_id(0) in outcome.waiting
    assert world.count("DescribeStreamSummary") >= 2


@simulated
async def test_a_stream_that_is_not_there_is_asked_for_once_a_pass():
    world = await split()
    world.cleanup.enqueue(await world.read(1))
    await asyncio.sleep(300)
    checks = []

    async def gone():
        checks.append(world.clock.monotonic())
        await asyncio.sleep(ASKED_S + 1)
        raise Unreachable("DescribeStreamSummary", "refused")

    world.existence.check = gone
    outcome = await world.cleanup.clean_once()
    assert outcome.waiting == (shard_id(0), shard_id(1))
    assert len(checks) == 1


@simulated
async def test_a_lease_that_is_queued_while_streams_are_asked_for_waits_for_the_next_pass():
    """Its own stream was not asked for, and had been gone for minutes."""
    world = await split()
    late = world.cleanup._queue.pop(shard_id(0))
    world.cleanup.enqueue(await world.read(1))
    check = world.existence.check

    async def slowly():
        await check()
        world.cleanup.enqueue(late)

    world.existence.check = slowly
    await asyncio.sleep(300)
    outcome = await world.cleanup.clean_once()
    assert outcome.completed == ()
    assert world.cleanup.queued == (shard_id(0),)
    await asyncio.sleep(300)
    assert (await world.cleanup.clean_once()).completed == (shard_id(0),)
