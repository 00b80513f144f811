"""Leases that wait for their parents: spread by number, counted, and never moved."""

from collections import Counter

import pytest

from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.looks import waiting_for_parents
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber, Sentinel
from tests.fakes.assigned_fleet import AssignedFleet, row

LATEST = ExtendedSequenceNumber(Sentinel.LATEST)


def key(number):
    return row(number).lease_key


def child(number, *parents, owner=None, **changes):
    return row(number, owner, parent_shard_ids=tuple(key(one) for one in parents), **changes)


@pytest.mark.parametrize(
    ("parents", "checkpoint", "waits"),
    [
        ({0: TRIM_HORIZON}, TRIM_HORIZON, True),
        ({0: ExtendedSequenceNumber("7")}, LATEST, True),
        ({0: SHARD_END, 1: TRIM_HORIZON}, TRIM_HORIZON, True),
        ({0: TRIM_HORIZON}, None, True),
        ({0: SHARD_END}, TRIM_HORIZON, False),
        ({}, TRIM_HORIZON, False),
        ({0: TRIM_HORIZON}, ExtendedSequenceNumber("7"), False),
        ({0: TRIM_HORIZON}, SHARD_END, False),
    ],
)
def test_a_lease_waits_while_a_parent_has_an_unfinished_row_and_it_was_not_begun(
    parents, checkpoint, waits
):
    rows = [row(number, checkpoint=one) for number, one in parents.items()]
    rows.append(child(9, 0, 1, checkpoint=checkpoint))
    assert waiting_for_parents(rows) == ({key(9)} if waits else set())


def test_a_lease_that_waits_has_no_part_in_what_moves():
    """Without traffic it was nearest to what was to move: nobody read it for 62 s."""
    parents = [row(number, "a" if number % 2 else "b", throughput_kbps=100) for number in range(4)]
    parents[1] = row(1, "a", throughput_kbps=900)
    children = [child(10 + number, 1, owner="a") for number in range(6)]
    fleet = AssignedFleet([*parents, *children], ["a", "b"])
    fleet.run(400)
    assert {fleet.leases[key(10 + number)].lease_owner for number in range(6)} == {"a"}
    assert not [move for _, move in fleet.moves if move.lease.parent_shard_ids]


def test_waiting_leases_are_spread_by_number_among_themselves():
    parents = [row(number, "a", throughput_kbps=100) for number in range(4)]
    children = [child(10 + number, number // 2) for number in range(8)]
    fleet = AssignedFleet([*parents, *children], ["a", "b"])
    fleet.look(may_balance=False)
    owners = Counter(fleet.leases[key(10 + number)].lease_owner for number in range(8))
    assert owners == {"a": 4, "b": 4}


def test_readable_leases_are_evened_out_whatever_waits():
    parents = [row(number, "a") for number in range(4)]
    children = [child(10 + number, number, owner="b") for number in range(4)]
    fleet = AssignedFleet([*parents, *children], ["a", "b"])
    fleet.run(120)
    assert Counter(fleet.leases[key(number)].lease_owner for number in range(4)) == {"a": 2, "b": 2}


def test_waiting_leases_take_room_and_readable_ones_come_first():
    rows = [child(9, 0), row(0), child(10, 0), row(1)]
    fleet = AssignedFleet(rows, ["a"], limits=AssignmentLimits(max_leases=3))
    plan = fleet.look()
    taken = [move.lease.lease_key for move in plan.moves]
    assert set(taken[:2]) == {key(0), key(1)}
    assert len(taken) == 3
    assert plan.figures.unassigned == 1
    assert plan.figures.by_worker == {"a": 3}


def test_a_waiting_lease_whose_owner_died_goes_to_another_one():
    fleet = AssignedFleet([row(0, "a"), child(9, 0, owner="gone")], ["a"])
    fleet.run(15)
    assert fleet.leases[key(9)].lease_owner == "a"


def test_a_waiting_lease_in_a_hand_off_counts_for_its_next_owner():
    coming = child(9, 0, owner="b", checkpoint_owner="a")
    fleet = AssignedFleet([row(0, "a"), coming], ["a", "b"])
    plan = fleet.look(may_balance=False)
    assert plan.figures.by_worker == {"a": 1, "b": 1}
