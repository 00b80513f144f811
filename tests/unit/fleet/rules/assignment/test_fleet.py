"""How much a worker has."""

import pytest

from kcl_mld.fleet.rules.assignment.fleet import Fleet, Group, Participant, throughputs_of
from tests.fakes.assigned_fleet import row


def pair(*kept, metrics=None, leaving=()):
    group = Group("", workers=2)
    workers = [Participant(name, group, 0.0, limits={"C": 100.0}) for name in "ab"]
    fleet = Fleet(workers, kept, {}, by_count=False)
    for lease in kept:
        fleet.give(lease, fleet.workers[lease.lease_owner])
    fleet.measure(metrics or {}, leaving)
    return fleet.workers["a"], fleet.workers["b"], fleet


def test_a_lease_of_unknown_throughput_carries_as_much_as_the_others_do():
    keys = [row(number).lease_key for number in range(3)]
    known = {keys[0]: 10.0, keys[1]: 20.0}
    assert throughputs_of([row(0), row(1), row(2)], known) == known | {keys[2]: 15.0}
    assert throughputs_of([row(0)], {}) == {keys[0]: 0.0}


def test_without_throughput_leases_weigh_the_same():
    a, b, _fleet = pair(row(0, "a"), row(1, "a"), row(2, "a"), row(3, "b"))
    assert (a.load, b.load) == (1.5, 0.5)


def test_metrics_count_where_they_differ_by_more_than_chance_from_what_the_leases_explain():
    leases = [row(0, "a"), row(1, "b")]
    a, b, fleet = pair(*leases, metrics={"a": {"C": 52.0}, "b": {"C": 48.0}})
    assert (a.load, b.load, fleet.ratio(a)) == (1.0, 1.0, 1.04)
    a, b, _fleet = pair(*leases, metrics={"a": {"C": 70.0}, "b": {"C": 30.0}})
    assert a.load == pytest.approx(1 + 0.4 - 0.05)
    assert b.load == pytest.approx(1 - 0.4 + 0.05)


def test_metrics_of_zero_say_nothing():
    a, _b, fleet = pair(row(0, "a"), metrics={"a": {"C": 0.0}, "b": {"C": 0.0}})
    assert a.load == 2.0
    assert fleet.ratio(a) == 2.0
    assert fleet.level_room(a, fleet.workers["b"]) == pytest.approx(2.0)


def test_a_lease_in_a_hand_off_is_still_in_the_metrics_of_its_old_owner():
    going = row(0, "b", checkpoint_owner="a")
    metrics = {"a": {"C": 80.0}, "b": {"C": 20.0}}
    leases = [going, *(row(n, "a") for n in (1, 2, 3))]
    a, b, _fleet = pair(*leases, metrics=metrics, leaving=[going])
    # All four are on a as long as it is measured, and half a fair share is on its way to b.
    assert a.metrics["C"] == pytest.approx(80 - 25)
    assert b.metrics["C"] == pytest.approx(20 + 25)
    assert (a.held, b.held) == (1.5, 0.5)


def test_a_worker_moves_with_its_leases():
    a, b, fleet = pair(row(0, "a"), row(1, "a"), metrics={"a": {"C": 60.0}, "b": {"C": 20.0}})
    fleet.move(a.leases[row(0).lease_key], a, b)
    assert (a.held, b.held) == (1.0, 1.0)
    assert (a.metrics["C"], b.metrics["C"]) == (20.0, 60.0)
    assert fleet.level_room(a, b) < 0.1
    assert fleet.ratio(b) == pytest.approx(1.5)


def test_limits_hold_for_whoever_takes():
    a, b, fleet = pair(row(0, "a"), row(1, "a"), metrics={"a": {"C": 60.0}, "b": {"C": 20.0}})
    assert fleet.level_room(a, b) == pytest.approx(1.0)
    assert fleet.keeps_limits(b, 0.5)
    b.limits = {"C": 30.0}
    assert fleet.level_room(a, b) == pytest.approx(0.25)
    assert not fleet.keeps_limits(b, 0.5)


def test_where_hardly_anything_is_used_metrics_do_not_keep_leases_from_becoming_level():
    a, b, fleet = pair(row(0, "a"), row(1, "a"), metrics={"a": {"C": 1.9}, "b": {"C": 2.0}})
    assert fleet.level_room(a, b) >= 1.0
