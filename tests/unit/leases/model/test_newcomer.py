"""The mark of a row that a newcomer took."""

import pytest

from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.lease_item import lease_from_item, lease_to_item
from kcl_mld.leases.model.lease_writes import (
    checkpointing,
    marking_newcomer,
    releasing,
    renewal,
    taking,
    without_newcomer,
)
from kcl_mld.leases.model.newcomer import NEWCOMER, NewcomerMark, newcomer_mark_of

MARK = NewcomerMark("i1", "w 1", 1_000)
ROW = Lease(lease_key="s1", shard_id="s1", checkpoint=TRIM_HORIZON, lease_owner="you")
MARKED = Lease(
    lease_key="s1", shard_id="s1", checkpoint=TRIM_HORIZON, lease_owner="you", newcomer=MARK
)


def test_a_mark_comes_back_from_its_row():
    item = {**lease_to_item(ROW), NEWCOMER: {"S": MARK.text()}}
    assert lease_from_item(item).newcomer == MARK


@pytest.mark.parametrize("text", [None, "", "{}", "[1]", '{"instance": 1}', "\ud800"])
def test_what_cannot_be_read_is_no_mark(text):
    assert newcomer_mark_of(text) is None


def test_a_take_leaves_the_mark():
    write = marking_newcomer(taking(ROW, "me"), MARK)
    assert write.after.newcomer == MARK
    assert write.request["UpdateExpression"] == (
        f"SET {NEWCOMER} = :{NEWCOMER}, leaseOwner = :me, leaseCounter = :next "
        "REMOVE checkpointOwner, kclMldRequest ADD ownerSwitchesSinceCheckpoint :one"
    )
    assert write.request["ExpressionAttributeValues"][f":{NEWCOMER}"] == {"S": MARK.text()}


def test_every_write_can_remove_it():
    write = without_newcomer(taking(MARKED, "me"))
    assert write.after.newcomer is None
    assert write.request["UpdateExpression"] == (
        "SET leaseOwner = :me, leaseCounter = :next "
        f"REMOVE {NEWCOMER}, checkpointOwner, kclMldRequest ADD ownerSwitchesSinceCheckpoint :one"
    )
    write = without_newcomer(releasing(MARKED))
    assert write.request["UpdateExpression"] == (
        f"SET leaseCounter = :next REMOVE {NEWCOMER}, leaseOwner"
    )
    update = without_newcomer(renewal(MARKED)).request["UpdateExpression"]
    assert update.endswith(f" REMOVE {NEWCOMER}")
    write = without_newcomer(checkpointing(MARKED, ExtendedSequenceNumber("7")))
    assert f"REMOVE {NEWCOMER}, pendingCheckpoint" in write.request["UpdateExpression"]


def test_where_there_is_none_nothing_is_removed():
    write = renewal(ROW)
    assert without_newcomer(write) is write
