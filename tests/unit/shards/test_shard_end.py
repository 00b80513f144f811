from __future__ import annotations

import pytest

from kcl_mld.config.stream import Stream
from kcl_mld.errors import BlockedOnParent, InvalidShardEnd
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, Sentinel
from kcl_mld.streams.model.shard import MAX_HASH_KEY, ChildShard, HashRange
from tests.fakes.shard_world import HALF, ShardWorld, position, shard_id, simulated

LOWER = ChildShard(shard_id(1), (shard_id(0),), HashRange(0, HALF - 1))
UPPER = ChildShard(shard_id(2), (shard_id(0),), HashRange(HALF, MAX_HASH_KEY))
MERGED = ChildShard(shard_id(2), (shard_id(0), shard_id(1)), HashRange(0, MAX_HASH_KEY))


async def started(shards=1, **options):
    world = ShardWorld(shards, **options)
    await world.syncer.sync_if_empty()
    return world


@simulated
async def test_a_split_leaves_two_leases_and_notes_them():
    world = await started()
    await world.shard_end().create_child_leases(await world.read(0), (LOWER, UPPER))
    assert world.checkpoints() == {"0": "TRIM_HORIZON", "1": "TRIM_HORIZON", "2": "TRIM_HORIZON"}
    child = await world.read(2)
    assert child.parent_shard_ids == (shard_id(0),)
    assert child.hash_range == UPPER.hash_range
    assert (child.lease_owner, child.lease_counter) == (None, 0)
    assert (await world.read(0)).child_shard_ids == (shard_id(1), shard_id(2))
    assert world.metrics.total("ShutdownTask", "CreateLease.Success") == 2
    assert world.metrics.total("ShutdownTask", "CreateLease_TRIM_HORIZON.Success") == 2


@simulated
async def test_children_start_at_trim_horizon_whatever_the_initial_position():
    world = await started(position=Sentinel.LATEST)
    await world.shard_end().create_child_leases(await world.read(0), (LOWER, UPPER))
    assert world.checkpoints() == {"0": "LATEST", "1": "TRIM_HORIZON", "2": "TRIM_HORIZON"}


@simulated
async def test_leases_that_exist_are_not_touched():
    world = await started()
    end = world.shard_end()
    await end.create_child_leases(await world.read(0), (LOWER, UPPER))
    world.at(1, "55")
    await end.create_child_leases(await world.read(0), (LOWER, UPPER))
    assert world.checkpoints() == {"0": "TRIM_HORIZON", "1": "55", "2": "TRIM_HORIZON"}


@simulated
async def test_multi_stream_children_belong_to_the_stream_of_the_parent():
    stream = Stream("s", account="123456789012", epoch=7)
    world = await started(stream=stream)
    await world.shard_end().create_child_leases(await world.read(0), (LOWER, UPPER))
    child = await world.read(1)
    assert child.lease_key == f"123456789012:s:7:{shard_id(1)}"
    assert child.stream_identifier == "123456789012:s:7"


@simulated
async def test_a_vanished_shard_leaves_nothing():
    world = await started()
    await world.shard_end().create_child_leases(await world.read(0), ())
    assert world.checkpoints() == {"0": "TRIM_HORIZON"}


@simulated
async def test_the_children_of_a_vanished_shard_begin_at_trim_horizon():
    world = await started(position=Sentinel.LATEST)
    end, row = world.shard_end(), await world.read(0)
    await end.create_heirs(row, (LOWER, UPPER))
    assert world.checkpoints() == {"0": "LATEST", "1": "TRIM_HORIZON", "2": "TRIM_HORIZON"}
    world.at(1, "55")
    await end.create_heirs(row, (LOWER, UPPER))
    assert world.checkpoints() == {"0": "LATEST", "1": "55", "2": "TRIM_HORIZON"}


@pytest.mark.parametrize("has_other", [True, False])
@simulated
async def test_a_merged_child_of_a_vanished_shard_is_left_to_the_other_parent(*, has_other):
    world = await started(2)
    if not has_other:
        world.delete(1)
    await world.shard_end().create_heirs(await world.read(0), (MERGED,))
    assert ("2" in world.checkpoints()) is has_other


@simulated
async def test_grandchildren_go_on_for_a_vanished_shard():
    world = await started()
    grandchild = ChildShard(shard_id(5), (shard_id(1), shard_id(2)), HashRange(0, MAX_HASH_KEY))
    await world.shard_end().create_heirs(await world.read(0), (grandchild,))
    assert world.checkpoints() == {"0": "TRIM_HORIZON", "5": "TRIM_HORIZON"}


@simulated
async def test_a_vanished_shard_whose_own_row_is_gone_creates_nothing():
    world = await started()
    row = await world.read(0)
    world.delete(0)
    with pytest.raises(InvalidShardEnd, match="its own row is gone"):
        await world.shard_end().create_heirs(row, (LOWER,))


@simulated
async def test_the_first_merge_parent_creates_the_child():
    world = await started(2)
    await world.shard_end().create_child_leases(await world.read(0), (MERGED,))
    assert (await world.read(2)).parent_shard_ids == (shard_id(0), shard_id(1))


@simulated
async def test_a_merge_waits_for_the_row_of_the_other_parent():
    world = await started(2)
    lease = await world.read(0)
    world.delete(1)
    with pytest.raises(BlockedOnParent) as caught:
        await world.shard_end().create_child_leases(lease, (MERGED,))
    assert caught.value.parent_key == shard_id(1)
    assert world.checkpoints() == {"0": "TRIM_HORIZON"}
    assert world.metrics.total("ShutdownTask", "MissingMergeParentLease") == 1


@simulated
async def test_a_restored_merge_parent_ends_although_the_other_was_cleaned_up():
    world = await started(2)
    lease = await world.read(0)
    await world.shard_end().create_child_leases(lease, (MERGED,))
    world.delete(1)
    await world.shard_end().create_child_leases(lease, (MERGED,))
    assert (await world.read(0)).child_shard_ids == (shard_id(2),)


@simulated
async def test_one_in_thirty_waiting_merges_gives_the_lease_away_where_a_worker_is_full():
    world = await started(2)
    lease = await world.read(1)
    world.delete(0)
    end = world.shard_end(has_room=False)
    outcomes = []
    for _ in range(3000):
        with pytest.raises((BlockedOnParent, InvalidShardEnd)) as caught:
            await end.create_child_leases(lease, (MERGED,))
        outcomes.append(caught.type)
    assert 60 < outcomes.count(InvalidShardEnd) < 150
    assert world.checkpoints() == {"1": "TRIM_HORIZON"}


@simulated
async def test_a_waiting_merge_keeps_the_lease_of_a_worker_that_has_room():
    """Given up, it only goes round among workers that all find the same rows."""
    world = await started(2)
    lease = await world.read(1)
    world.delete(0)
    end = world.shard_end()
    for _ in range(1000):
        with pytest.raises(BlockedOnParent):
            await end.create_child_leases(lease, (MERGED,))


@simulated
async def test_a_shard_whose_own_row_is_gone_creates_nothing():
    """The table was deleted and created again since its lease was taken."""
    world = await started(2)
    lease = await world.read(0)
    world.delete(0, 1)
    with pytest.raises(InvalidShardEnd, match="its own row is gone"):
        await world.shard_end().create_child_leases(lease, (MERGED,))
    assert world.checkpoints() == {}


@simulated
async def test_an_only_child_of_one_parent_contradicts_itself():
    world = await started()
    with pytest.raises(InvalidShardEnd):
        await world.shard_end().create_child_leases(await world.read(0), (LOWER,))
    assert world.metrics.total("ShutdownTask", "MissingMergeParent") == 1


@simulated
async def test_a_child_without_parents_contradicts_itself():
    world = await started()
    orphan = ChildShard(shard_id(1), (), HashRange(0, 5))
    with pytest.raises(InvalidShardEnd):
        await world.shard_end().create_child_leases(await world.read(0), (orphan, UPPER))
    assert world.checkpoints() == {"0": "TRIM_HORIZON"}


@pytest.mark.parametrize(
    ("first", "second", "blocking"),
    [
        (SHARD_END, SHARD_END, None),
        (None, None, None),
        (SHARD_END, None, None),
        (TRIM_HORIZON, SHARD_END, shard_id(0)),
        (SHARD_END, position("12"), shard_id(1)),
    ],
)
@simulated
async def test_a_child_waits_for_every_parent_that_has_a_row(first, second, blocking):
    world = await started(2)
    await world.shard_end().create_child_leases(await world.read(0), (MERGED,))
    for number, checkpoint in enumerate((first, second)):
        if checkpoint is None:
            world.delete(number)
        else:
            world.at(number, str(checkpoint))
    assert await world.shard_end().blocking_parent(await world.read(2)) == blocking
    reads = [request for _, operation, request in world.requests if operation == "GetItem"]
    assert reads[-1]["ConsistentRead"] is True


@simulated
async def test_a_child_whose_own_row_is_gone_waits():
    """In a table that was created again every parent's row is missing."""
    world = await started(2)
    await world.shard_end().create_child_leases(await world.read(0), (MERGED,))
    child = await world.read(2)
    world.delete(0, 1, 2)
    assert await world.shard_end().blocking_parent(child) == shard_id(0)


@simulated
async def test_a_root_waits_for_nobody():
    world = await started()
    assert await world.shard_end().blocking_parent(await world.read(0)) is None


@simulated
async def test_a_child_whose_row_cannot_be_read_has_a_row():
    world = await started()
    lease = await world.read(0)
    await world.shard_end().create_child_leases(lease, (LOWER, UPPER))
    world.delete(2)
    world.change(shard_id(1), leaseCounter="x")
    await world.shard_end().create_child_leases(lease, (LOWER, UPPER))
    assert (await world.read(2)).parent_shard_ids == (shard_id(0),)
    assert world.row(shard_id(1))["leaseCounter"] == {"S": "x"}


@simulated
async def test_a_merge_parent_whose_row_cannot_be_read_has_a_row():
    world = await started(2)
    world.change(shard_id(1), leaseCounter="x")
    await world.shard_end().create_child_leases(await world.read(0), (MERGED,))
    assert (await world.read(2)).parent_shard_ids == (shard_id(0), shard_id(1))


@simulated
async def test_a_parent_whose_row_cannot_be_read_is_not_known_to_be_finished():
    world = await started(2)
    await world.shard_end().create_child_leases(await world.read(0), (MERGED,))
    world.at(0, "SHARD_END")
    world.at(1, "SHARD_END")
    world.change(shard_id(1), leaseCounter="x")
    assert await world.shard_end().blocking_parent(await world.read(2)) == shard_id(1)
