"""What a newcomer to a 2.x fleet leaves to others."""

from dataclasses import replace

import pytest

from kcl_mld.leases.model.newcomer import NewcomerMark
from kcl_mld.leases.rules.newcomers import Probation, failed_marks, probation, wait_s
from kcl_mld.leases.rules.taking import NEVER, Sighting, TakePlan, TakeReason
from tests.fakes.lease_world import lease

NOW_S = 1_000.0


def marked(number, instance="i1", worker="x1", at_s=NOW_S, owner=None):
    mark = NewcomerMark(instance, worker, int(at_s))
    return lease(number, newcomer=mark, lease_owner=owner)


def failed(*leases, alive=()):
    return failed_marks(leases, alive, "mine", NOW_S)


def key(number):
    return lease(number).lease_key


def test_a_mark_that_stays_is_of_a_process_that_failed():
    free, other, unmarked = marked(0), marked(1, "i2", owner="you"), lease(2)
    found = failed(free, other, unmarked, alive={key(1)})
    assert found == {key(0): free.newcomer, key(1): other.newcomer}


@pytest.mark.parametrize(
    ("row", "alive"),
    [
        (marked(0, "mine"), ()),
        (marked(0, owner="x1"), {key(0)}),
        (marked(0, at_s=NOW_S - 601), ()),
        (marked(0, at_s=NOW_S + 61), ()),
    ],
    ids=["own", "of a newcomer that lives", "long ago", "of a clock that is far ahead"],
)
def test_others_are_not(row, alive):
    assert failed(row, alive=alive) == {}


def test_a_newcomer_that_lives_does_so_in_all_of_its_rows():
    """One of them was taken from it by a worker that keeps what it does not know."""
    assert failed(marked(0, owner="x1"), marked(1, owner="java"), alive={key(0), key(1)}) == {}


def test_one_that_does_not_renew_has_failed():
    assert key(0) in failed(marked(0, owner="x1"))


def test_each_process_doubles_the_wait_and_those_that_took_several_leases_count_once():
    assert wait_s({}, 10.0) == 0.0
    one = failed(marked(0), marked(1))
    assert wait_s(one, 10.0) == 10.0
    rows = [marked(number, f"i{number}") for number in range(8)]
    assert [wait_s(failed(*rows[:count]), 10.0) for count in (2, 3, 6, 8)] == [20, 40, 300, 300]


def allowed(lived_s, now=100.0, seen_at=95.0, found=None):
    seen = {key(number): Sighting(0, seen_at) for number in range(4)}
    found = failed(marked(0), marked(1, "i2")) if found is None else found
    return probation(found, seen, now, lived_s=lived_s, failover_s=10.0, patience_s=30.0)


PLAN = TakePlan(
    leases=tuple(lease(number) for number in range(4)), reason=TakeReason.AVAILABLE, total=4
)


def taken(on_probation, held=0):
    return [int(one.lease_key[-1]) for one in on_probation.of(PLAN, held).leases]


def test_where_nobody_failed_all_is_allowed():
    assert allowed(0.0, found={}) == Probation()
    assert Probation().of(PLAN, 3) is PLAN


def test_while_it_waits_it_takes_one_lease_that_nobody_failed_at_and_steals_none():
    on_probation = allowed(5.0)
    assert not on_probation.may_steal
    assert taken(on_probation) == [2]
    assert taken(on_probation, held=1) == []


def test_after_its_wait_it_takes_one_lease_of_any_kind():
    on_probation = allowed(20.0)
    assert on_probation.may_steal
    assert taken(on_probation) == [0]
    assert taken(on_probation, held=1) == []


@pytest.mark.parametrize("seen_at", [70.0, NEVER])
def test_what_nobody_else_takes_it_takes_all_of(seen_at):
    """All workers of the fleet may have failed."""
    assert taken(allowed(30.0, seen_at=seen_at)) == [0, 1, 2, 3]
    many = failed(*(marked(number, f"i{number}") for number in range(4)))
    assert taken(allowed(31.0, seen_at=seen_at, found=many)) == [0, 1, 2, 3]
    # Others may not have looked since.
    assert taken(allowed(29.0, seen_at=seen_at, found=many)) == []
    assert replace(allowed(5.0, found=many), neglected=frozenset()) == allowed(5.0, found=many)
