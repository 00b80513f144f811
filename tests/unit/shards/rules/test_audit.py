from __future__ import annotations

import pytest

from kcl_mld.kernel.model.sequence import LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease import Lease
from kcl_mld.shards.rules.audit import (
    HoleTracker,
    Standstill,
    abandoned,
    active,
    fill_hash_ranges,
    first_hole,
    is_overdue,
    signs_of_recreation,
)
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange, Shard

TOP = MAX_HASH_KEY


def span(start, end=TOP):
    return HashRange(start, end)


def lease(number=0, checkpoint=TRIM_HORIZON, **fields):
    key = f"shardId-{number}"
    return Lease(lease_key=key, shard_id=key, checkpoint=checkpoint, **fields)


def shard(number=0, hash_range=None, *, sequence="100", closed=False, parent=None):
    return Shard(
        f"shardId-{number}", hash_range or span(0), sequence, "999" if closed else None, parent
    )


@pytest.mark.parametrize(
    ("ranges", "hole"),
    [
        ([], span(0)),
        ([span(0)], None),
        ([span(500), span(0, 499)], None),
        ([span(0), span(0, 499), span(500)], None),
        ([span(0, 499), span(499)], None),
        ([span(0, 499), span(501)], span(500, 500)),
        ([span(500)], span(0, 499)),
        ([span(0, 499)], span(500)),
        ([span(0, 9), span(20, 29)], span(10, 19)),
        # Java looks at the end of the last range in sorted order and finds a hole here.
        ([span(0), span(500, 600)], None),
        ([span(0, 600), span(500, 550), span(601)], None),
        ([span(0, 9), span(5, 20), span(30)], span(21, 29)),
        ([span(0, 9), span(10, 20), span(30)], span(21, 29)),
    ],
)
def test_the_first_hole_is_found(ranges, hole):
    assert first_hole(ranges) == hole


def test_finished_and_broken_leases_are_not_active():
    reading = lease(1)
    assert active([lease(0, SHARD_END), reading, lease(2, None)]) == (reading,)


@pytest.mark.parametrize(
    ("holes", "counts"),
    [
        ([span(0)] * 4, [1, 2, 3, 4]),
        ([span(2, 2)] * 2 + [span(2, 3)], [1, 2, 1]),
        ([span(0), None, span(0)], [1, 0, 1]),
    ],
)
def test_equal_holes_in_a_row_are_counted(holes, counts):
    tracker, found = HoleTracker(), []
    for hole in holes:
        tracker = tracker.see(hole)
        found.append(tracker.count)
    assert found == counts


def test_missing_hash_ranges_come_from_the_shards_and_unlisted_leases_are_dropped():
    known = lease(0, hash_range=span(0, 9))
    checked, filled = fill_hash_ranges(
        [known, lease(1), lease(2)], [shard(0), shard(1, span(10, 19))]
    )
    assert checked == (known, lease(1, hash_range=span(10, 19)))
    assert filled == (lease(1, hash_range=span(10, 19)),)


@pytest.mark.parametrize(
    ("row", "listed", "sign"),
    [
        (lease(hash_range=span(0)), shard(), None),
        (lease(), shard(), None),
        (lease(checkpoint=None), shard(), None),
        (lease(checkpoint=LATEST), shard(), None),
        (lease(checkpoint=ExtendedSequenceNumber("100")), shard(), None),
        (lease(checkpoint=SHARD_END), shard(closed=True), None),
        (lease(7, SHARD_END), shard(), None),
        (lease(hash_range=span(1)), shard(), "hash range"),
        (lease(parent_shard_ids=("shardId-9",)), shard(), "parents"),
        (lease(checkpoint=SHARD_END), shard(), "SHARD_END"),
        (lease(checkpoint=ExtendedSequenceNumber("99")), shard(), "before the first record"),
    ],
)
def test_rows_of_an_earlier_stream_are_recognized(row, listed, sign):
    found = signs_of_recreation([row], [listed])
    assert found == () if sign is None else sign in found[0]


def test_a_finished_lease_is_abandoned_without_owner_or_when_its_counter_stands_still():
    held = lease(0, SHARD_END, lease_owner="w", lease_counter=4)
    free = lease(1, SHARD_END)
    found, seen = abandoned([held, free, lease(2)], {}, now=10.0, after_s=20.0)
    assert found == (free,)
    assert seen == {"shardId-0": Standstill(4, 10.0), "shardId-1": Standstill(0, 10.0)}
    found, seen = abandoned([held], seen, now=29.9, after_s=20.0)
    assert found == ()
    found, seen = abandoned([held], seen, now=30.0, after_s=20.0)
    assert found == (held,)
    moved = lease(0, SHARD_END, lease_owner="w", lease_counter=5)
    found, seen = abandoned([moved], seen, now=31.0, after_s=20.0)
    assert (found, seen) == ((), {"shardId-0": Standstill(5, 31.0)})


@pytest.mark.parametrize(("confidence", "looks"), [(1, [2, 4, 6, 8]), (3, [6, 12]), (7, [14])])
def test_a_worker_that_does_not_lead_mends_at_every_other_time_of_the_leader(confidence, looks):
    last = looks[-1] + 1
    assert [count for count in range(1, last) if is_overdue(count, confidence)] == looks
