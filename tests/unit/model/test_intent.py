"""The intent in a lease's row: written, read, kept by everybody, and never guessed."""

import pytest

from mld.errors import MalformedData
from mld.model.intent import INTENT, LeaseIntent, intent_attribute, intent_from
from mld.model.lease_item import lease_from_item, lease_to_item
from mld.model.lease_writes import (
    checkpointing,
    children_update,
    hash_range_update,
    intending,
    releasing,
    renewal,
    taking,
)
from mld.model.sequence import SHARD_END, ExtendedSequenceNumber
from mld.model.shard import HashRange
from tests.fakes.clock import FakeClock
from tests.fakes.lease_world import TABLE, World, lease

KEY = "shardId-000000000000"
THIRD = LeaseIntent(3, "40:0", "49:2", "app/x")
ATTRIBUTE = {
    "M": {
        "n": {"N": "3"},
        "after": {"S": "40:0"},
        "to": {"S": "49:2"},
        "appId": {"S": "app/x"},
    }
}
MINE = lease(lease_owner="me", lease_counter=7, intent=THIRD)
HANDED_OVER = lease(lease_owner="next", checkpoint_owner="me", lease_counter=7, intent=THIRD)


@pytest.fixture
def world():
    made = World(clock=FakeClock())
    made.create_table()
    return made


def apply(world, request):
    world.model.call("UpdateItem", {"TableName": TABLE, **request})


def test_an_intent_is_a_map_of_four():
    assert intent_attribute(THIRD) == ATTRIBUTE
    assert intent_from(ATTRIBUTE) == THIRD
    assert intent_from(None) is None


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ({"S": "3"}, "is of type S, not M"),
        ({"NULL": True}, "is of type NULL, not M"),
        ({"M": {}}, "n is not a whole number"),
        ({"M": ATTRIBUTE["M"] | {"n": {"N": "0"}}}, "n is not a whole number"),
        ({"M": ATTRIBUTE["M"] | {"n": {"N": "1.5"}}}, "n is not a whole number"),
        ({"M": ATTRIBUTE["M"] | {"n": {"N": "9" * 5000}}}, "n is not a whole number"),
        ({"M": ATTRIBUTE["M"] | {"n": {"S": "3"}}}, "n is not a whole number"),
        ({"M": ATTRIBUTE["M"] | {"to": {"N": "3"}}}, "to is not a text"),
        ({"M": {"n": {"N": "3"}, "after": {"S": ""}, "to": {"S": ""}}}, "appId is not a text"),
    ],
)
def test_a_row_with_what_is_no_intent_cannot_be_read_before_its_shard_is_finished(attribute, why):
    with pytest.raises(MalformedData, match=why):
        intent_from(attribute)
    with pytest.raises(MalformedData, match=why):
        lease_from_item(lease_to_item(lease()) | {INTENT: attribute})
    ended = lease_from_item(lease_to_item(lease(checkpoint=SHARD_END)) | {INTENT: attribute})
    assert ended.intent is None


def test_a_row_with_an_intent_is_read_and_written_back():
    assert lease_to_item(MINE)[INTENT] == ATTRIBUTE
    assert lease_from_item(lease_to_item(MINE)) == MINE
    assert INTENT not in lease_to_item(lease())


@pytest.mark.parametrize(
    ("row", "request_"),
    [
        (MINE, renewal(MINE).request),
        (MINE, checkpointing(MINE, ExtendedSequenceNumber("5", 1)).request),
        (MINE, checkpointing(MINE, SHARD_END, ("shardId-1",)).request),
        (MINE, releasing(MINE).request),
        (MINE, taking(MINE, "other").request),
        (HANDED_OVER, renewal(HANDED_OVER).request),
        (HANDED_OVER, releasing(HANDED_OVER).request),
        (HANDED_OVER, taking(HANDED_OVER, "next").request),
        (MINE, children_update(KEY, ("shardId-1",))),
        (MINE, hash_range_update(KEY, HashRange(5, 9))),
    ],
)
def test_no_other_write_of_ours_removes_an_intent(world, row, request_):
    item = lease_to_item(row)
    if row.checkpoint_owner:
        item["checkpointOwner"] = {"S": row.checkpoint_owner}
    world.put_item(item)
    apply(world, request_)
    assert world.row(KEY)[INTENT] == ATTRIBUTE


def test_the_rows_that_writes_promise_keep_the_intent():
    for write in (renewal(MINE), releasing(MINE), taking(MINE, "other")):
        assert write.after.intent == THIRD
    assert checkpointing(MINE, ExtendedSequenceNumber("5")).after.intent == THIRD


def test_an_intent_replaces_the_one_before_and_beats_the_heart(world):
    world.put(MINE, somethingNew={"S": "kept"}, pendingCheckpoint={"S": "9"})
    write = intending(MINE, LeaseIntent(4, "49:2", "60:0", "app/x"))
    apply(world, write.request)
    item = world.row(KEY)
    assert item[INTENT]["M"]["n"] == {"N": "4"}
    assert item["leaseCounter"] == {"N": "8"}
    assert item["checkpoint"] == {"S": "TRIM_HORIZON"}
    assert item["somethingNew"] == {"S": "kept"}
    assert item["pendingCheckpoint"] == {"S": "9"}
    read = lease_from_item(item)
    assert read.intent == write.after.intent
    assert read.lease_counter == write.after.lease_counter


def test_a_java_peer_that_takes_renews_and_checkpoints_leaves_the_intent(world):
    """The requests of 2.x workers: legacy parameters, as recorded."""
    world.put(MINE)
    actions = {
        "take": {
            "leaseOwner": {"Value": {"S": "java"}, "Action": "PUT"},
            "leaseCounter": {"Value": {"N": "8"}, "Action": "PUT"},
            "ownerSwitchesSinceCheckpoint": {"Value": {"N": "1"}, "Action": "ADD"},
        },
        "renew": {"leaseCounter": {"Value": {"N": "9"}, "Action": "PUT"}},
        "checkpoint": {
            "leaseCounter": {"Value": {"N": "10"}, "Action": "PUT"},
            "checkpoint": {"Value": {"S": "77"}, "Action": "PUT"},
            "checkpointSubSequenceNumber": {"Value": {"N": "0"}, "Action": "PUT"},
            "ownerSwitchesSinceCheckpoint": {"Value": {"N": "0"}, "Action": "PUT"},
            "pendingCheckpoint": {"Action": "DELETE"},
            "pendingCheckpointSubSequenceNumber": {"Action": "DELETE"},
            "pendingCheckpointState": {"Action": "DELETE"},
        },
    }
    for counter, updates in zip((7, 8, 9), actions.values(), strict=True):
        world.model.call(
            "UpdateItem",
            {
                "TableName": TABLE,
                "Key": {"leaseKey": {"S": KEY}},
                "Expected": {"leaseCounter": {"Value": {"N": str(counter)}}},
                "AttributeUpdates": updates,
            },
        )
    row = lease_from_item(world.row(KEY))
    assert (row.lease_owner, row.intent) == ("java", THIRD)
    assert row.checkpoint == ExtendedSequenceNumber("77")
