"""Busy workers are relieved, by the rules of Java's variance decider."""

import random

import pytest

from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits, Fleet, Group, Participant
from kcl_mld.fleet.rules.assignment.levelling import Relief
from tests.fakes.assigned_fleet import row


def fleet_of(held, cpu=None, operating=100.0, **limits):
    """Workers by name with the throughputs of their leases, and their CPU."""
    group = Group("", workers=len(held))
    rows = {}
    for name, kbps in held.items():
        rows[name] = [row(len(rows) * 100 + n, name, throughput_kbps=k) for n, k in enumerate(kbps)]
    workers = [Participant(name, group, float(n)) for n, name in enumerate(held)]
    leases = [lease for of in rows.values() for lease in of]
    kbps = {lease.lease_key: lease.throughput_kbps for lease in leases}
    fleet = Fleet(workers, leases, kbps, by_count=False)
    for worker in workers:
        for lease in rows[worker.id]:
            fleet.give(lease, worker)
        worker.limits = dict.fromkeys((cpu or {}).get(worker.id, {}), operating)
    fleet.measure(cpu or {}, [])
    return fleet


def moved(fleet, fixed=(), **limits):
    relief = Relief(fleet, fixed, AssignmentLimits(**limits), random.Random(0))
    return [
        (lease.lease_owner, worker.id, lease.throughput_kbps) for lease, worker in relief.moves()
    ]


def c(**values):
    return {name: {"C": value} for name, value in values.items()}


def test_a_worker_at_70_percent_gives_a_part_of_its_surplus_to_one_at_40():
    # 1000 KiB/s x 15/70 x 60 % are 128.6 KiB/s.
    fleet = fleet_of({"a": [30.0] * 20 + [400.0], "b": [571.0]}, c(a=70.0, b=40.0))
    moves = moved(fleet)
    assert 90 <= sum(kbps for _from, _to, kbps in moves) <= 128.6
    assert {(giver, taker) for giver, taker, _kbps in moves} == {("a", "b")}


def test_a_worker_that_can_not_renew_more_relieves_nobody():
    fleet = fleet_of({"a": [30.0] * 20 + [400.0], "b": [571.0]}, c(a=70.0, b=40.0))
    fleet.workers["b"].most = 1
    assert moved(fleet) == []


def test_where_every_lease_is_too_much_the_smallest_goes_unless_that_is_not_allowed():
    leases = {"a": [200.0] * 4 + [199.0], "b": [571.0]}
    assert moved(fleet_of(leases, c(a=70.0, b=40.0))) == [("a", "b", 199.0)]
    assert moved(fleet_of(leases, c(a=70.0, b=40.0)), allows_overshoot=False) == []


def test_a_busy_worker_whose_leases_carry_nothing_gives_one():
    assert len(moved(fleet_of({"a": [0.0] * 10, "b": [0.0] * 2}, c(a=90.0, b=10.0)))) == 1


def test_a_busy_worker_without_leases_gives_none():
    assert moved(fleet_of({"a": [], "b": [5.0]}, c(a=90.0, b=10.0))) == []


@pytest.mark.parametrize(("busy", "moves"), [(52.0, 0), (56.0, 1)])
def test_the_threshold_starts_it(busy, moves):
    fleet = fleet_of({"a": [1.0] * 40, "b": [1.0] * 40}, c(a=busy, b=100 - busy))
    assert bool(moved(fleet)) == bool(moves)


def test_a_few_points_are_chance_however_much_of_the_mean_they_are():
    assert moved(fleet_of({"a": [1.0] * 9, "b": [1.0] * 9}, c(a=5.0, b=0.5))) == []


def test_the_most_loaded_gives_to_one_that_has_far_less_though_it_is_no_outlier_itself():
    cpu = c(a=50.0, b=50.0, c=50.5, d=41.0)
    leases = dict.fromkeys("abcd", [1.0] * 40)
    assert {(giver, taker) for giver, taker, _kbps in moved(fleet_of(leases, cpu))} == {("c", "d")}


def test_an_operating_range_counts_like_the_threshold():
    leases = {"a": [1.0] * 40, "b": [1.0] * 40}
    cpu = c(a=52.0, b=48.0)
    assert moved(fleet_of(leases, cpu)) == []
    assert moved(fleet_of(leases, cpu, operating=50.0)) != []
    assert moved(fleet_of(leases, cpu, operating=47.0)) == []


def test_the_metric_by_which_most_has_to_move_decides():
    cpu = {"a": {"C": 60.0, "N": 10.0}, "b": {"C": 50.0, "N": 90.0}}
    moves = moved(fleet_of({"a": [1.0] * 40, "b": [1.0] * 40}, cpu))
    # More would lift a's CPU over the mean, and does so already.
    assert moves == []
    cpu["a"]["C"] = 50.0
    cpu["b"]["C"] = 60.0
    moves = moved(fleet_of({"a": [1.0] * 40, "b": [1.0] * 40}, cpu))
    assert {(giver, taker) for giver, taker, _kbps in moves} == {("b", "a")}


def test_a_worker_that_can_not_take_one_lease_is_asked_again_for_the_next():
    leases = {"a": [100.0, 3.0, 3.0, 3.0], "b": [91.0], "c": [91.0]}
    moves = moved(fleet_of(leases), dampening=1.0)
    assert {kbps for _from, _to, kbps in moves} == {3.0}


def test_a_worker_that_may_have_no_more_gets_none():
    leases = {"a": [10.0] * 10, "b": [10.0]}
    assert moved(fleet_of(leases), max_leases=1) == []


def test_what_is_fixed_stays():
    fleet = fleet_of({"a": [10.0] * 10, "b": [10.0]})
    assert moved(fleet, fixed=set(fleet.workers["a"].leases)) == []


def test_without_metrics_throughput_decides():
    leases = {"a": [50.0, 50.0, 1.0], "b": [1.0, 1.0, 1.0]}
    assert moved(fleet_of(leases)) == [("a", "b", 1.0)]
    assert moved(fleet_of({"a": [0.0] * 6, "b": [0.0]})) == []


def test_a_worker_without_metrics_is_compared_by_its_leases():
    leases = {"a": [10.0] * 10, "b": [10.0] * 10, "new": []}
    moves = moved(fleet_of(leases, c(a=60.0, b=60.0)))
    assert moves == []  # those with metrics are alike; the numbers are for others to level
    moves = moved(fleet_of(leases, c(a=80.0, b=60.0)))
    assert {(giver, taker) for giver, taker, _kbps in moves} == {("a", "new")}
