"""Numbers become even, unless something keeps a lease where it is."""

from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits, Fleet, Group, Participant
from kcl_mld.fleet.rules.assignment.levelling import Levelling
from tests.fakes.assigned_fleet import row


def fleet_of(**workers):
    """``fleet_of(a_1=[1, 1], b_1=[])``: throughputs of each worker's leases; groups by prefix."""
    groups, made, number = {}, [], 0
    for name, kbps in workers.items():
        group = groups.setdefault(name[0], Group(name[0]))
        group.workers += 1
        leases = [row(number + n, name, throughput_kbps=float(k)) for n, k in enumerate(kbps)]
        number += len(leases)
        made.append((Participant(name, group, float(len(made))), leases))
    fleet = Fleet(
        [worker for worker, _leases in made],
        [lease for _worker, leases in made for lease in leases],
        {lease.lease_key: lease.throughput_kbps for _worker, of in made for lease in of},
        by_count=False,
    )
    for worker, leases in made:
        for lease in leases:
            fleet.give(lease, worker)
    return fleet


def levelled(fleet, fixed=(), **limits):
    levelling = Levelling(fleet, fixed, AssignmentLimits(**limits))
    moves = [*levelling.by_worker(), *levelling.by_group()]
    return [(lease.lease_owner, worker.id) for lease, worker in moves]


def test_the_fullest_gives_to_the_emptiest():
    assert levelled(fleet_of(a=[1] * 4, b=[1], c=[1] * 2)) == [("a", "b")]


def test_without_workers_there_is_nothing_to_do():
    assert levelled(Fleet((), (), {}, by_count=True)) == []


def test_what_is_fixed_stays_and_the_next_gives():
    fleet = fleet_of(a=[1] * 4, b=[1] * 3, c=[])
    fixed = {lease.lease_key for lease in fleet.workers["a"].leases.values()}
    assert levelled(fleet, fixed) == [("b", "c")]


def test_a_worker_that_may_have_no_more_gets_none():
    assert levelled(fleet_of(a=[1] * 6, b=[], c=[]), max_leases=1) == [("a", "b"), ("a", "c")]
    assert levelled(fleet_of(a=[1] * 3, b=[9]), max_throughput_kbps=8.0) == []


def test_a_worker_that_can_not_renew_more_gets_none():
    fleet = fleet_of(a=[1] * 6, b=[], c=[])
    fleet.workers["b"].most = 1
    assert levelled(fleet) == [("a", "b"), ("a", "c"), ("a", "c")]


def test_numbers_never_make_the_more_loaded_of_two_more_loaded():
    assert levelled(fleet_of(a=[1] * 5, b=[100])) == []
    # The light ones of a would help, too, but only c has room for them.
    assert levelled(fleet_of(a=[1] * 5, b=[100], c=[1] * 2)) == [("a", "c")]


def test_the_lease_moves_that_makes_loads_the_nearest():
    fleet = fleet_of(a=[10, 40, 60], b=[10])
    levelling = Levelling(fleet, (), AssignmentLimits())
    ((lease, _worker),) = levelling.by_worker()
    assert lease.throughput_kbps == 40.0


def test_of_two_groups_with_the_same_numbers_a_worker_the_fuller_one_gives():
    assert levelled(fleet_of(a=[1] * 3, a2=[1] * 3, b=[1] * 2, b2=[1] * 2)) == [("a2", "b")]


def test_a_group_that_can_not_give_to_the_emptiest_gives_to_another():
    fleet = fleet_of(a1=[1] * 2, a2=[1] * 2, a3=[1] * 2, b1=[50], b2=[50], b3=[50], c=[1])
    assert levelled(fleet) == [("a3", "c")]


def test_groups_of_different_sizes_have_shares_by_their_workers():
    fleet = fleet_of(a1=[1] * 2, a2=[1] * 2, a3=[1] * 2, a4=[1] * 2, b=[1])
    assert levelled(fleet) == [("a4", "b")]
    assert levelled(fleet) == []
    assert (fleet.groups["a"].fair, fleet.groups["b"].fair) == (7.2, 1.8)
