"""Which leases are taken: the rules of Java's 2.x taker, with its worked examples."""

import random
from dataclasses import replace

import pytest

from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.rules.taking import NEVER, Sighting, TakeLimits, TakeReason, look, plan_taking
from tests.fakes.lease_world import lease

F = 10.0
NOW = 1000.0


def limits(max_leases=2**31 - 1, max_steal=1, prefer_very_old=True):
    return TakeLimits(
        failover_s=F, max_leases=max_leases, max_steal=max_steal, prefer_very_old=prefer_very_old
    )


def rows(**owned):
    """``rows(bar=2, free=3)``: two leases of bar, three of nobody."""
    made = []
    for owner, count in owned.items():
        for _ in range(count):
            name = None if owner == "free" else owner
            made.append(lease(len(made), lease_owner=name, lease_counter=5))
    return made


def plan(leases, *, seen=None, held=(), limit=None, me="me", seed=0, now=NOW):
    known = look({} if seen is None else seen, leases, now)
    return plan_taking(leases, known, now, me, held, limit or limits(), random.Random(seed))


def owners_of(outcome):
    return [row.lease_owner for row in outcome.leases]


# -- what is seen ---------------------------------------------------------------------------------


def test_a_new_row_without_owner_counts_as_never_moved_and_one_with_an_owner_as_just_seen():
    seen = look({}, rows(free=1, bar=1), NOW)
    assert [sighting.seen_at for sighting in seen.values()] == [NEVER, NOW]


def test_the_time_of_the_first_sight_of_a_counter_is_kept():
    (row,) = rows(bar=1)
    seen = look({row.lease_key: Sighting(5, 900.0)}, [row], NOW)
    assert seen == {row.lease_key: Sighting(5, 900.0)}


def test_another_counter_is_a_new_sight_even_without_an_owner():
    (row,) = rows(free=1)
    seen = look({row.lease_key: Sighting(4, 900.0)}, [row], NOW)
    assert seen == {row.lease_key: Sighting(5, NOW)}


def test_a_row_that_vanished_is_forgotten():
    assert look({"gone": Sighting(1, 1.0)}, [], NOW) == {}


# -- expired, free, very old ----------------------------------------------------------------------


def test_an_owned_lease_is_not_taken_at_first_sight():
    assert plan(rows(bar=1)).leases == ()


@pytest.mark.parametrize(("age", "taken"), [(F, 0), (F + 0.001, 1)])
def test_a_counter_that_did_not_move_for_longer_than_the_failover_time_has_expired(age, taken):
    (row,) = rows(bar=1)
    outcome = plan([row], seen={row.lease_key: Sighting(5, NOW - age)})
    assert len(outcome.leases) == taken


def test_a_counter_that_moved_between_scans_keeps_its_owner_however_long_they_are_apart():
    (row,) = rows(bar=1)
    outcome = plan([row], seen={row.lease_key: Sighting(4, NOW - 3 * F)})
    assert outcome.leases == ()


def test_an_own_lease_that_was_not_renewed_is_taken_again():
    (row,) = rows(me=1)
    outcome = plan([row], seen={row.lease_key: Sighting(5, NOW - F - 1)})
    assert outcome.leases == (row,)


@pytest.mark.parametrize(
    ("seen_at", "reason"),
    [
        (NOW - 3 * F, TakeReason.AVAILABLE),
        (NOW - 3 * F - 0.001, TakeReason.VERY_OLD),
    ],
)
def test_very_old_is_strictly_more_than_three_failover_times(seen_at, reason):
    (row,) = rows(bar=1)
    outcome = plan([row], seen={row.lease_key: Sighting(5, seen_at)})
    assert outcome.reason is reason
    assert outcome.leases == (row,)


def test_new_free_leases_are_all_taken_beyond_the_target_when_priority_is_on():
    outcome = plan(rows(free=3, bar=1))
    assert (outcome.target, len(outcome.leases), outcome.very_old) == (2, 3, 3)
    assert outcome.reason is TakeReason.UNOWNED


def test_new_free_leases_are_taken_up_to_the_target_when_priority_is_off():
    outcome = plan(rows(free=3, bar=1), limit=limits(prefer_very_old=False))
    assert (outcome.target, len(outcome.leases)) == (2, 2)
    assert outcome.reason is TakeReason.AVAILABLE


def test_a_sole_worker_takes_everything_in_its_first_cycle_with_or_without_priority():
    for priority in (True, False):
        outcome = plan(rows(free=20), limit=limits(prefer_very_old=priority))
        assert len(outcome.leases) == 20


@pytest.mark.parametrize("priority", [True, False])
def test_a_finished_parent_takes_no_room_from_the_children_that_it_waits_for(priority):
    """After a split the worker held parent and one child, and never took the other (KCL#202)."""
    parent, first, second = rows(me=2, free=1)
    parent = replace(parent, checkpoint=SHARD_END)
    limit = limits(max_leases=2, prefer_very_old=priority)
    outcome = plan([parent, first, second], limit=limit)
    assert outcome.leases == (second,)
    more = lease(3, lease_counter=5)
    held = [parent, first, replace(second, lease_owner="me"), more]
    assert plan(held, limit=limit).leases == ()


def test_with_very_old_leases_and_no_room_nothing_is_taken_and_nothing_stolen():
    outcome = plan(rows(free=1, me=2, bar=9), limit=limits(max_leases=2))
    assert outcome.leases == ()
    assert outcome.reason is TakeReason.FULL


def test_a_released_lease_that_was_known_is_only_available():
    leases = rows(free=1, me=2)
    outcome = plan(leases, seen={leases[0].lease_key: Sighting(4, NOW - 1)})
    assert (outcome.available, outcome.very_old) == (1, 0)
    assert outcome.leases == (leases[0],)


# -- target and stealing --------------------------------------------------------------------------


def test_nothing_is_stolen_when_the_others_are_at_the_target_and_one_is_missing():
    outcome = plan(rows(bar=2, baz=2, me=1))
    assert (outcome.workers, outcome.target, outcome.needed, outcome.leases) == (3, 2, 1, ())
    assert outcome.reason is TakeReason.NO_SURPLUS


def test_one_is_stolen_from_the_fullest():
    outcome = plan(rows(bar=1, baz=5))
    assert (outcome.target, owners_of(outcome)) == (2, ["baz"])
    assert outcome.reason is TakeReason.STEAL


def test_a_free_lease_is_taken_and_nothing_stolen():
    outcome = plan(rows(free=1, bar=3))
    assert owners_of(outcome) == [None]


def test_nothing_is_stolen_while_any_lease_is_available():
    leases = rows(old=1, bar=9)
    outcome = plan(
        leases,
        seen={leases[0].lease_key: Sighting(5, NOW - F - 1)},
        limit=limits(max_steal=10),
    )
    assert owners_of(outcome) == ["old"]


def test_as_many_are_stolen_as_are_needed_and_the_limit_allows():
    outcome = plan(rows(baz=12), limit=limits(max_steal=10))
    assert (outcome.workers, outcome.target, len(outcome.leases)) == (2, 6, 6)
    assert len(set(outcome.leases)) == 6


def test_a_joining_worker_steals_one_although_all_are_at_the_target():
    fleet = {f"w{number}": 5 for number in range(100)}
    outcome = plan(rows(**fleet))
    assert (outcome.workers, outcome.target, len(outcome.leases)) == (101, 5, 1)


@pytest.mark.parametrize(("mine", "stolen"), [(1, 1), (2, 0)])
def test_of_two_hundred_workers_who_need_two_steal_from_three_and_who_need_one_do_not(mine, stolen):
    fleet = {f"w{number:03d}": 3 for number in range(100)}
    fleet |= {f"x{number:03d}": 2 for number in range(99)}
    outcome = plan(rows(me=mine, **fleet))
    assert (outcome.workers, outcome.target) == (200, 3)
    assert len(outcome.leases) == stolen


def test_with_more_workers_than_leases_the_target_is_one():
    outcome = plan(rows(a=1, b=1), limit=limits(max_leases=2))
    assert (outcome.target, outcome.leases) == (1, ())


def test_the_limit_of_leases_bounds_the_target_and_the_rest_spills_over():
    outcome = plan(rows(bar=10), limit=limits(max_leases=3))
    assert (outcome.workers, outcome.target, outcome.spillover) == (2, 3, 2)


def test_leases_beyond_the_target_are_kept():
    outcome = plan(rows(me=5, a=1, b=1, c=1))
    assert (outcome.needed, outcome.leases) == (-3, ())


def test_an_empty_table_gives_nothing_to_take():
    outcome = plan([])
    assert (outcome.reason, outcome.total, outcome.target) == (TakeReason.EMPTY, 0, 0)


def test_a_victim_below_the_target_is_left_alone():
    # Two of mine are in a stale scan under another's name; the fullest then has less than a share.
    leases = rows(bar=1, baz=1, me=1)
    held = [row.lease_key for row in leases[:2]]
    assert plan(leases, held=held, limit=limits(max_steal=5)).leases == ()


def test_leases_held_by_our_own_clock_are_ours_whatever_an_outdated_scan_says():
    leases = rows(bar=2)
    key = leases[0].lease_key
    outcome = plan(leases, held={key}, seen={row.lease_key: Sighting(5, 0.0) for row in leases})
    assert outcome.mine == 1
    assert outcome.leases == (leases[1],)


# -- finished shards ------------------------------------------------------------------------------


def ended(number, **fields):
    return lease(number, lease_counter=5, checkpoint=SHARD_END, **fields)


def finished_of(outcome):
    return sum(row.is_finished for row in outcome.leases)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("priority", [True, False])
def test_free_leases_with_records_to_read_are_taken_before_those_of_finished_shards(seed, priority):
    leases = [ended(number) for number in range(6)] + [lease(6), lease(7)]
    limit = limits(max_leases=3, prefer_very_old=priority)
    outcome = plan(leases, limit=limit, seed=seed)
    assert [row.is_finished for row in outcome.leases] == [False, False, True]


@pytest.mark.parametrize("seed", range(5))
def test_stealing_evens_out_leases_with_records_to_read_first(seed):
    leases = [lease(n, lease_owner="bar", lease_counter=5) for n in range(4)]
    leases += [ended(n, lease_owner="bar") for n in range(4, 8)]
    outcome = plan(leases, seed=seed)
    assert (outcome.reason, len(outcome.leases), finished_of(outcome)) == (TakeReason.STEAL, 1, 0)
    # Half of each, even when all may come at once.
    outcome = plan(leases, limit=limits(max_steal=10), seed=seed)
    assert (len(outcome.leases), finished_of(outcome)) == (4, 2)


@pytest.mark.parametrize("seed", range(5))
def test_a_worker_with_its_share_of_open_shards_steals_finished_ones(seed):
    leases = [lease(n, lease_owner="bar", lease_counter=5) for n in range(2)]
    leases += [ended(n, lease_owner="bar") for n in range(2, 5)]
    leases += [lease(5, lease_owner="me", lease_counter=5)]
    outcome = plan(leases, seed=seed)
    assert (outcome.reason, len(outcome.leases), finished_of(outcome)) == (TakeReason.STEAL, 1, 1)


# -- between the intervals ------------------------------------------------------------------------


def test_with_no_steal_allowed_free_leases_are_taken_all_the_same():
    assert len(plan(rows(free=2, bar=5), limit=limits(max_steal=0)).leases) == 2
    outcome = plan(rows(bar=5), limit=limits(max_steal=0))
    assert (outcome.reason, outcome.leases) == (TakeReason.NO_SURPLUS, ())


# -- chance ---------------------------------------------------------------------------------------


def test_workers_shuffle_differently_so_that_they_do_not_race_for_the_same_leases():
    leases = rows(free=20)
    orders = {tuple(row.lease_key for row in plan(leases, seed=seed).leases) for seed in range(5)}
    assert len(orders) == 5


def test_stealing_workers_spread_over_equally_full_victims():
    leases = rows(a=6, b=6, c=6)
    victims = {owners_of(plan(leases, seed=seed))[0] for seed in range(30)}
    assert victims == {"a", "b", "c"}


def test_the_same_seed_gives_the_same_plan():
    assert plan(rows(free=9, a=3)) == plan(rows(free=9, a=3))


def test_no_victim_with_less_than_a_share_exists_when_something_is_needed():
    """Exhaustive small world: a plan never takes from a worker at or below its share."""
    for a in range(5):
        for b in range(5):
            for mine in range(5):
                outcome = plan(rows(a=a, b=b, me=mine), limit=limits(max_steal=9))
                for row in outcome.leases:
                    count = {"a": a, "b": b}[str(row.lease_owner)]
                    assert count >= outcome.target
                    assert row.lease_owner != "me"
                assert len(outcome.leases) <= max(0, outcome.needed)
