"""Conditions and updates of lease writes, and that ``after`` tells the truth about them."""

from dataclasses import replace

import pytest

from kcl_mld.errors import ConditionFailed
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber
from kcl_mld.leases.model.containment import NO_FAILURE, FailureNote, PositionRange
from kcl_mld.leases.model.lease_item import lease_from_item, lease_to_item
from kcl_mld.leases.model.lease_writes import (
    assigning,
    checkpointing,
    children_update,
    containing,
    gaining,
    hand_off_start,
    hash_range_update,
    marking,
    releasing,
    renewal,
    taking,
)
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.clock import FakeClock
from tests.fakes.lease_world import TABLE, World, lease

KEY = "shardId-000000000000"
MINE = lease(lease_owner="me", lease_counter=7, owner_switches_since_checkpoint=2)
HANDED_OVER = lease(lease_owner="next", checkpoint_owner="me", lease_counter=7)


@pytest.fixture
def world():
    made = World(clock=FakeClock())
    made.create_table()
    return made


def stored(world, row, **extra):
    item = lease_to_item(row) | extra
    if row.checkpoint_owner:
        item["checkpointOwner"] = {"S": row.checkpoint_owner}
    world.put_item(item)


def apply(world, request):
    world.model.call("UpdateItem", {"TableName": TABLE, **request})


@pytest.mark.parametrize(
    ("row", "make"),
    [
        (MINE, renewal),
        (HANDED_OVER, renewal),
        (MINE, lambda row: renewal(row, 12.3456789)),
        (MINE, lambda row: checkpointing(row, ExtendedSequenceNumber("5", 1))),
        (MINE, lambda row: checkpointing(row, SHARD_END, ("shardId-2", "shardId-1"))),
        (HANDED_OVER, lambda row: checkpointing(row, ExtendedSequenceNumber("5"))),
        (MINE, releasing),
        (HANDED_OVER, releasing),
        (HANDED_OVER, lambda row: releasing(row, to_nobody=True)),
        (MINE, gaining),
        (MINE, lambda row: taking(row, "other")),
        (MINE, lambda row: taking(row, "me")),
        (HANDED_OVER, lambda row: taking(row, "other")),
        (HANDED_OVER, lambda row: taking(row, "me")),
        (HANDED_OVER, lambda row: taking(row, "next")),
        (lease(), lambda row: taking(row, "me")),
        *(
            (row, lambda row, make=make: marking(make(row), "1:r:s"))
            for row in (MINE, HANDED_OVER, lease(lease_owner="me", stream_mark="1:r:other"))
            for make in (
                renewal,
                releasing,
                lambda row: checkpointing(row, ExtendedSequenceNumber("5"), (), 1.5),
            )
        ),
        (lease(hash_range=None), lambda row: taking(row, "me")),
        (MINE, lambda row: checkpointing(row, ExtendedSequenceNumber("5"), (), 1.5)),
        *(
            (row, lambda row, to=to, fenced=fenced: assigning(row, to, only_unchanged=fenced))
            for row in (MINE, HANDED_OVER, lease())
            for to in ("me", "next", "other")
            for fenced in (True, False)
        ),
    ],
)
def test_the_row_after_a_write_is_the_row_that_was_promised(world, row, make):
    stored(world, row, somethingNew={"S": "kept"})
    write = make(row)
    assert write.before == row
    apply(world, write.request)
    item = world.row(KEY)
    assert lease_from_item(item) == write.after
    assert write.after.lease_counter == row.lease_counter + 1
    assert item["somethingNew"] == {"S": "kept"}
    assert item["entityType"] == {"S": "LEASE"}


def test_a_row_is_marked_once_and_never_anew():
    assert marking(renewal(MINE), "1:r:s").after.stream_mark == "1:r:s"
    assert marking(renewal(MINE), None) == renewal(MINE)
    marked = lease(lease_owner="me", stream_mark="1:r:other")
    assert marking(renewal(marked), "1:r:s") == renewal(marked)


WRITES = {
    "renew": renewal,
    "checkpoint": lambda row: checkpointing(row, ExtendedSequenceNumber("5")),
    "release": releasing,
    "take": lambda row: taking(row, "other"),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize(
    "change",
    [{"leaseCounter": 8}, {"leaseCounter": 6}, {"leaseOwner": "other"}, {"leaseOwner": None}],
)
def test_no_write_succeeds_on_another_counter_or_owner(world, write, change):
    stored(world, MINE)
    world.change(KEY, **change)
    before = world.row(KEY)
    with pytest.raises(ConditionFailed) as refused:
        apply(world, WRITES[write](MINE).request)
    assert refused.value.item == before
    assert world.row(KEY) == before


@pytest.mark.parametrize("write", WRITES)
def test_no_write_brings_a_deleted_row_back(world, write):
    with pytest.raises(ConditionFailed):
        apply(world, WRITES[write](MINE).request)
    assert world.row(KEY) == {}


@pytest.mark.parametrize("write", ["renew", "checkpoint", "release"])
def test_a_hand_off_that_the_holder_does_not_know_refuses_its_writes(world, write):
    stored(world, HANDED_OVER)
    with pytest.raises(ConditionFailed):
        apply(world, WRITES[write](MINE).request)


@pytest.mark.parametrize("write", ["renew", "checkpoint", "release"])
def test_a_take_by_a_2x_worker_during_a_hand_off_refuses_the_holder(world, write):
    # A 2.x worker leaves checkpointOwner behind, which still names the old holder.
    stored(world, HANDED_OVER)
    world.change(KEY, leaseOwner="java2", leaseCounter=8)
    with pytest.raises(ConditionFailed):
        apply(world, WRITES[write](HANDED_OVER).request)


def test_taking_ends_a_hand_off_and_counts_the_switch():
    after = taking(HANDED_OVER, "other").after
    assert (after.lease_owner, after.checkpoint_owner) == ("other", None)
    assert after.owner_switches_since_checkpoint == 1


@pytest.mark.parametrize(
    ("row", "worker", "switches"),
    [
        (lease(), "me", 0),
        (lease(lease_owner="me"), "me", 0),
        (lease(lease_owner="other"), "me", 1),
        (lease(lease_owner="me", checkpoint_owner="me"), "me", 1),
        (lease(lease_owner="me", checkpoint_owner="other"), "me", 0),
        (lease(checkpoint_owner="other"), "me", 0),
    ],
)
def test_a_switch_is_counted_when_the_owner_changes(row, worker, switches):
    assert taking(row, worker).after.owner_switches_since_checkpoint == switches


def test_a_checkpoint_resets_switches_and_the_pending_checkpoint(world):
    stored(
        world,
        MINE,
        pendingCheckpoint={"S": "9"},
        pendingCheckpointSubSequenceNumber={"N": "0"},
        pendingCheckpointState={"B": b"x"},
    )
    apply(world, checkpointing(MINE, ExtendedSequenceNumber("12", 3)).request)
    item = world.row(KEY)
    assert item["checkpoint"] == {"S": "12"}
    assert item["checkpointSubSequenceNumber"] == {"N": "3"}
    assert item["ownerSwitchesSinceCheckpoint"] == {"N": "0"}
    assert not [name for name in item if name.startswith("pending")]
    assert "childShardIds" not in item


def test_a_multi_stream_checkpoint_writes_stream_and_shard(world):
    key = "1:s:2:shardId-000000000000"
    row = lease(lease_key=key, stream_identifier="1:s:2", lease_owner="me")
    item = lease_to_item(row)
    del item["streamName"], item["shardId"]
    world.put_item(item)
    apply(world, checkpointing(row, SHARD_END).request)
    assert world.row(key)["streamName"] == {"S": "1:s:2"}
    assert world.row(key)["shardId"] == {"S": "shardId-000000000000"}


def test_a_release_removes_the_owner_or_finishes_the_hand_off():
    assert releasing(MINE).after.lease_owner is None
    finished = releasing(HANDED_OVER).after
    assert (finished.lease_owner, finished.checkpoint_owner) == ("next", None)


def test_metadata_updates_leave_the_counter_alone(world):
    stored(world, MINE)
    apply(world, children_update(KEY, ("shardId-2", "shardId-1")))
    apply(world, hash_range_update(KEY, HashRange(5, 9)))
    row = lease_from_item(world.row(KEY))
    assert row.lease_counter == 7
    assert row.child_shard_ids == ("shardId-1", "shardId-2")
    assert row.hash_range == HashRange(5, 9)


@pytest.mark.parametrize(
    "request_", [children_update(KEY, ("a",)), hash_range_update(KEY, HashRange(5, 9))]
)
def test_metadata_updates_bring_no_deleted_row_back(world, request_):
    with pytest.raises(ConditionFailed):
        apply(world, request_)


@pytest.mark.parametrize("throughput_kbps", [None, float("nan"), float("inf"), -1.0, 1e30])
def test_a_heartbeat_says_no_throughput_that_cannot_be_true(throughput_kbps):
    assert renewal(MINE, throughput_kbps) == renewal(MINE)
    assert "throughput" not in str(renewal(MINE, throughput_kbps).request)


def test_a_heartbeat_says_its_throughput_with_six_decimals():
    write = renewal(MINE, 12.3456789)
    assert write.request["ExpressionAttributeValues"][":throughputKBps"] == {"N": "12.345679"}
    assert write.after.throughput_kbps == 12.345679


# -- a leader's writes ----------------------------------------------------------------------------


def test_a_lease_is_assigned_while_its_owners_are_those_that_were_read(world):
    stored(world, lease(lease_owner="me", lease_counter=9))
    apply(world, assigning(MINE, "other", only_unchanged=False).request)
    row = lease_from_item(world.row(KEY))
    assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == ("other", None, 10)
    assert row.owner_switches_since_checkpoint == 1


@pytest.mark.parametrize(
    "row", [lease(lease_owner="third", lease_counter=7), HANDED_OVER, lease(lease_counter=7)]
)
def test_a_lease_whose_owners_changed_is_not_assigned(world, row):
    stored(world, row)
    for write in (assigning(MINE, "other", only_unchanged=False), hand_off_start(MINE, "other")):
        with pytest.raises(ConditionFailed):
            apply(world, write.request)


def test_a_lease_that_was_renewed_at_the_last_moment_keeps_its_owner(world):
    stored(world, lease(lease_owner="me", lease_counter=8))
    with pytest.raises(ConditionFailed):
        apply(world, assigning(MINE, "other", only_unchanged=True).request)


def test_nothing_of_a_leader_brings_a_deleted_lease_back(world):
    for write in (
        assigning(lease(), "other", only_unchanged=False),
        assigning(lease(), "other", only_unchanged=True),
    ):
        with pytest.raises(ConditionFailed):
            apply(world, write.request)
    assert world.row(KEY) == {}


def test_the_start_of_a_hand_off_leaves_the_counter_to_the_owner(world):
    """The counter may move meanwhile, and the owner's writes go on."""
    stored(world, lease(lease_owner="me", lease_counter=12))
    apply(world, hand_off_start(MINE, "other").request)
    row = lease_from_item(world.row(KEY))
    assert (row.lease_owner, row.checkpoint_owner, row.lease_counter) == ("other", "me", 12)


@pytest.mark.parametrize("row", [lease(), HANDED_OVER, lease(lease_owner="other")])
def test_only_an_owned_lease_in_no_hand_off_can_be_handed_to_another(row):
    with pytest.raises(ValueError, match="no hand-off of shardId-000000000000 to other"):
        hand_off_start(row, "other")


def test_a_hand_off_from_beginning_to_end_counts_as_java_counts(world):
    """Case H-02: counters 1, 1, 2, 3, 4, no switch of owner."""
    stored(world, lease())
    write = taking(lease(), "a")
    counters = [write.after.lease_counter]
    apply(world, write.request)
    for make in (
        lambda row: hand_off_start(row, "b"),
        renewal,
        lambda row: checkpointing(row, ExtendedSequenceNumber("5")),
        releasing,
    ):
        write = make(lease_from_item(world.row(KEY)))
        apply(world, write.request)
        assert lease_from_item(world.row(KEY)) == write.after
        counters.append(write.after.lease_counter)
    assert counters == [1, 1, 2, 3, 4]
    assert (write.after.lease_owner, write.after.checkpoint_owner) == ("b", None)
    assert write.after.owner_switches_since_checkpoint == 0


# -- what children fail at

SKIPPED = tuple(
    PositionRange(At, At) for At in (ExtendedSequenceNumber("5"), ExtendedSequenceNumber("8"))
)
NOTE = FailureNote(PositionRange(ExtendedSequenceNumber("7"), ExtendedSequenceNumber("9")), 1, 5)


def test_what_children_fail_at_is_stored_and_leaves_with_the_checkpoint_that_covers_it(world):
    stored(world, MINE)
    noted = containing(replace(MINE, checkpoint=None), NOTE, SKIPPED, 2.5)
    apply(world, noted.request)
    row = lease_from_item(world.row(KEY))
    assert (row.failure, row.skipped, row.throughput_kbps) == (NOTE, SKIPPED, 2.5)
    assert row == replace(noted.after, checkpoint=row.checkpoint)
    for number, failure, skipped in (("6", NOTE, SKIPPED[1:]), ("9", NO_FAILURE, ())):
        write = checkpointing(row, ExtendedSequenceNumber(number))
        apply(world, write.request)
        row = lease_from_item(world.row(KEY))
        assert row == write.after
        assert (row.failure, row.skipped) == (failure, skipped)


def test_only_what_changes_is_written(world):
    mine = replace(MINE, holder=MINE.lease_owner)
    failing = replace(mine, failure=NOTE, skipped=SKIPPED)
    again = containing(failing, NOTE, SKIPPED)
    assert again.request["UpdateExpression"] == "SET leaseCounter = :next"
    plain = checkpointing(mine, ExtendedSequenceNumber("6"))
    assert "kclMld" not in plain.request["UpdateExpression"]
    settled = containing(failing, NO_FAILURE, ())
    assert settled.request["UpdateExpression"].endswith(" REMOVE kclMldFailure, kclMldSkip")
