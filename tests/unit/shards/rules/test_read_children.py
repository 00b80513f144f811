"""What the row of a new child says of its reading."""

from kcl_mld.kernel.model.sequence import LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.reading import ReadNote
from kcl_mld.shards.rules.shardsync import lease_of_child, never_read
from kcl_mld.streams.model.shard import ChildShard, HashRange

CHILD = ChildShard("c", ("p",), HashRange(0, 9))


def test_a_child_has_nothing_older_than_what_was_read_of_its_parent():
    note = ReadNote(7.0, ExtendedSequenceNumber("5"))
    parent = Lease(lease_key="p", shard_id="p", checkpoint=SHARD_END, read=note)
    child = lease_of_child(parent, CHILD)
    assert child.read == ReadNote(7.0, TRIM_HORIZON)
    assert child.read_until_s == 7.0


def test_a_shard_without_a_lease_was_never_read():
    row = Lease(lease_key="p", shard_id="p", checkpoint=TRIM_HORIZON)
    unread = never_read(row)
    assert unread.read == ReadNote(0.0, TRIM_HORIZON)
    assert unread.read_until_s is None
    latest = Lease(lease_key="p", shard_id="p", checkpoint=LATEST)
    assert never_read(latest) is latest


def test_nothing_is_known_below_a_parent_of_which_nothing_is_known():
    note = ReadNote(7.0, ExtendedSequenceNumber("5"))
    back = Lease(lease_key="p", shard_id="p", checkpoint=TRIM_HORIZON, read=note)
    assert lease_of_child(back, CHILD).read is None
