"""The leader's plan, rule by rule."""

from dataclasses import replace

import pytest

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits, Fleet, Group, Participant
from kcl_mld.fleet.rules.assignment.free_workers import FreeWorkers
from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView, observe
from kcl_mld.fleet.rules.assignment.planning import MoveKind, MoveReason, _Planning
from tests.fakes.assigned_fleet import AssignedFleet, finished, row, rows

UUIDS = [
    "0e5a6d3c-8f43-4d52-9c0e-0d2a7d7e1f00",
    "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed",
    "6ecd8c99-4036-403d-bf84-cf8400f67836",
    "3f333df6-90a4-4fda-8dd3-9485d27cee36",
    "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d",
]


def owners(plan):
    return sorted(move.to for move in plan.moves)


# -- what nobody reads ----------------------------------------------------------------------------


def test_the_first_look_gives_away_only_what_has_no_owner():
    fleet = AssignedFleet([row(0, "gone"), row(1)], ["a"])
    plan = fleet.plan()
    assert [(move.lease.lease_key, move.to) for move in plan.moves] == [
        ("shardId-000000000001", "a")
    ]
    assert plan.moves[0].kind is MoveKind.ASSIGN
    assert plan.moves[0].reason is MoveReason.UNOWNED


def test_an_owned_lease_goes_when_its_counter_has_not_moved_for_longer_than_the_failover_time():
    fleet = AssignedFleet([row(0, "gone")], ["a"])
    for _ in range(11):
        assert not fleet.look().moves
    (move,) = fleet.look().moves
    assert (move.to, move.kind, move.reason) == ("a", MoveKind.ASSIGN, MoveReason.EXPIRED)


def test_idle_workers_without_metrics_share_new_leases_evenly():
    fleet = AssignedFleet(rows(free=23), UUIDS)
    fleet.look()
    assert sorted(fleet.by_worker().values()) == [4, 4, 5, 5, 5]


def test_new_leases_go_to_who_has_fewest():
    fleet = AssignedFleet(rows(b=2, c=5, free=4), ["a", "b", "c"])
    plan = fleet.look(may_balance=False)
    assert owners(plan) == ["a", "a", "a", "b"]


def test_a_worker_has_at_most_so_many_leases_as_it_may():
    fleet = AssignedFleet(rows(free=3), ["a"], limits=AssignmentLimits(max_leases=2))
    plan = fleet.look()
    assert owners(plan) == ["a", "a"]
    assert plan.figures.unassigned == 1
    assert fleet.look().figures.unassigned == 1


def test_who_can_not_renew_more_leases_gets_them_last():
    fleet = AssignedFleet(rows(free=6), ["a", "b"], most={"a": 1})
    assert owners(fleet.look()) == ["a", "b", "b", "b", "b", "b"]
    fleet.run(200)
    assert fleet.by_worker() == {"a": 1, "b": 5}  # numbers are not made even again


def test_leases_that_nobody_can_renew_in_time_are_read_nevertheless():
    fleet = AssignedFleet(rows(free=9), ["a", "b"], most={"a": 1, "b": 2})
    plan = fleet.look()
    assert plan.figures.unassigned == 0
    assert sorted(fleet.by_worker().values()) == [4, 5]


def test_a_worker_above_its_throughput_gets_nothing():
    leases = [row(0, "a", throughput_kbps=300.0), row(1, "b", throughput_kbps=400.0), row(2)]
    fleet = AssignedFleet(leases, ["a", "b"], limits=AssignmentLimits(max_throughput_kbps=299.0))
    assert fleet.look().figures.unassigned == 1
    fleet.limits = replace(fleet.limits, max_throughput_kbps=300.0)
    assert owners(fleet.look()) == ["a"]


def test_the_oldest_are_given_away_first_and_those_with_records_before_finished_ones():
    fleet = AssignedFleet([row(1, "gone"), row(2, "gone")], ["a"])
    fleet.run(3)
    fleet._write(fleet.leases[row(1).lease_key])
    fleet.leases |= {lease.lease_key: lease for lease in (finished(0), row(3))}
    fleet.now = 20
    fleet.memory = replace(fleet.memory, balanced_at=20.0)
    plan = fleet.look()
    assert [move.lease.shard_id[-1] for move in plan.moves] == ["3", "2", "0"]


def test_without_workers_nothing_is_planned():
    plan = AssignedFleet([row(0), finished(1)]).look()
    assert plan.moves == ()
    assert plan.figures.unassigned == 1
    assert plan.figures.workers == 0


def test_leases_of_finished_shards_get_owners_one_by_one_and_count_for_nothing():
    fleet = AssignedFleet([*rows(a=1, b=1), *(finished(n) for n in range(10, 14))], ["a", "b"])
    plan = fleet.look()
    assert owners(plan) == ["a", "a", "b", "b"]
    assert {move.kind for move in plan.moves} == {MoveKind.ASSIGN}
    fleet = AssignedFleet([*rows(a=1, b=1), *(finished(n, "a") for n in range(10, 14))], ["a", "b"])
    assert fleet.look().moves == ()


def test_a_finished_lease_that_is_not_renewed_gets_another_owner():
    fleet = AssignedFleet([finished(0, "gone")], ["a"])
    fleet.run(12)
    assert fleet.leases["shardId-000000000000"].lease_owner == "a"
    fleet = AssignedFleet([finished(0, "a")], ["a"])
    fleet._renew = lambda worker, lease: None
    fleet.run(12)
    assert fleet.moves == []


# -- who takes part -------------------------------------------------------------------------------


def test_a_worker_without_young_metrics_gets_nothing():
    fleet = AssignedFleet(rows(free=4), ["a", "b"])
    fleet.metrics["a"] = replace(fleet.metrics["a"], updated_at_s=1_000_000 - 59)
    fleet.metrics["b"] = replace(fleet.metrics["b"], updated_at_s=1_000_000 - 60)
    assert owners(fleet.look()) == ["a"] * 4


def test_stale_metrics_are_named():
    fleet = AssignedFleet(rows(free=1), ["a", "b"])
    fleet.metrics["b"] = replace(fleet.metrics["b"], updated_at_s=1_000_000 - 86_400)
    plan = fleet.look()
    assert [item.worker_id for item in plan.stale] == ["b"]


def test_a_worker_that_can_not_measure_itself_keeps_what_it_has_and_gets_nothing():
    fleet = AssignedFleet(rows(a=6, free=2), ["a", "b"])
    fleet.metrics["a"] = WorkerMetrics("a", 1_000_000, {"C": (5.0, -1.0)}, {"C": (100,)})
    plan = fleet.look()
    assert owners(plan) == ["b", "b"]
    assert plan.figures.failing == ("a",)


def test_metrics_without_an_operating_range_are_not_metrics():
    fleet = AssignedFleet(rows(free=2), ["a", "b", "c", "d"])
    fleet.metrics["a"] = WorkerMetrics("a", 1_000_000, {"C": (5.0,)}, {"C": (0,)})
    fleet.metrics["b"] = WorkerMetrics("b", 1_000_000, {"C": (5.0,)}, {"C": ()})
    fleet.metrics["c"] = WorkerMetrics("c", 1_000_000, {"C": (5.0,)}, {})
    assert owners(fleet.look()) == ["d", "d"]


def test_a_dead_worker_gets_nothing_though_its_metrics_are_young():
    fleet = AssignedFleet(rows(a=2, b=2, c=2), ["a", "b", "c"])
    fleet.run(31)
    fleet.kill("c")
    fleet.run(11)
    assert {move.to for _at, move in fleet.moves} == {"a", "b"}
    assert fleet.plan().figures.presumed_dead == ("c",)
    fleet.leases |= {lease.lease_key: lease for lease in (row(7), row(8))}
    fleet.look()
    assert fleet.by_worker() == {"a": 4, "b": 4}


def test_a_worker_that_reports_again_is_no_longer_taken_for_dead():
    fleet = AssignedFleet(rows(a=2, b=2), ["a", "b"])
    fleet.run(2)
    fleet.kill("b")
    fleet.run(12)
    assert fleet.by_worker() == {"a": 4}
    fleet.alive.add("b")
    fleet.run(20)
    assert fleet.plan().figures.presumed_dead == ()
    assert fleet.by_worker() == {"a": 2, "b": 2}


def test_a_lease_that_its_living_owner_does_not_renew_goes_to_another():
    fleet = AssignedFleet(rows(a=1, b=1), ["a", "b"])
    renew = fleet._renew
    fleet._renew = lambda worker, lease: lease.shard_id[-1] == "1" or renew(worker, lease)
    fleet.run(12)
    (at_and_move,) = fleet.moves
    assert (at_and_move[1].to, at_and_move[1].reason) == ("a", MoveReason.EXPIRED)


def test_an_expired_lease_does_not_come_back_to_its_owner_to_make_numbers_level():
    """It once did, so nobody read it for another failover time."""
    fleet = AssignedFleet(rows(b=3, a=3), ["a", "b"])
    renew = fleet._renew
    fleet._renew = lambda worker, lease: worker == "b" or renew(worker, lease)
    fleet.run(11)
    # It has reported since it was found silent, so it takes part.
    fleet.now += 1
    fleet._report("b")
    fleet.now -= 1
    fleet.memory = replace(fleet.memory.unbalanced(), balanced_at=None)
    moves = [move for move in fleet.look().moves if move.reason is MoveReason.EXPIRED]
    assert [move.to for move in moves] == ["a"] * 3


def test_a_lease_stays_with_an_owner_that_does_not_renew_it_if_there_is_nobody_else():
    fleet = AssignedFleet(rows(a=2), ["a"])
    fleet._renew = lambda worker, lease: None
    fleet.run(40)
    assert fleet.moves == []
    assert fleet.plan().figures.expired == 2


def test_a_lease_that_its_owner_may_come_back_to_takes_its_room():
    """Such a worker once got another lease, and held more than it may when it came back."""
    fleet = AssignedFleet(rows(a=1), ["a"], limits=AssignmentLimits(max_leases=1))
    fleet._renew = lambda worker, lease: None
    fleet.run(12)
    fleet.leases |= {lease.lease_key: lease for lease in (row(7),)}
    plan = fleet.plan()
    assert (plan.moves, plan.figures.unassigned) == ((), 1)
    fleet.join("b")
    assert owners(fleet.plan()) == ["b"]


def test_the_room_is_free_again_when_another_one_got_the_lease():
    group = Group("", workers=2)
    expired, new, newer = row(0, "a"), row(1), row(2)
    workers = [Participant("a", group, 0.0), Participant("b", group, 1.0)]
    fleet = Fleet(workers, (expired, new, newer), {}, by_count=True)
    free = FreeWorkers(fleet, AssignmentLimits(max_leases=1), {"a": 1})
    assert free.assign(expired, "a") is workers[1]
    assert free.assign(new, None) is workers[0]
    assert free.assign(newer, None) is None


def test_finished_leases_go_on_after_one_stayed_with_its_owner():
    """The plan once failed: it looked for the worker by what it had before."""
    fleet = AssignedFleet([finished(0, "a"), finished(1, "gone")], ["a"])
    fleet._renew = lambda worker, lease: None
    fleet.run(12)
    ((_at, move),) = fleet.moves
    assert (move.lease.lease_key, move.to) == ("shardId-000000000001", "a")


def test_nobody_gets_a_lease_where_all_have_died():
    """One of them would not read it, and once it reports it gets it."""
    fleet = AssignedFleet(rows(b=1, c=1), ["b", "c"])
    fleet.kill("b", "c")
    fleet.run(12)
    fleet.leases |= {lease.lease_key: lease for lease in (row(7),)}
    assert fleet.plan().moves == ()
    fleet.join("c")
    assert len(fleet.plan().moves) >= 1


def test_a_leader_that_stood_still_for_an_hour_gets_leases_before_it_has_reported():
    """Leases of a split were assigned after 27 s."""
    fleet = AssignedFleet(rows(free=1), ["a"])
    fleet.look()
    fleet.now += 3600
    fleet._reported["a"] = fleet.now
    fleet.leases |= {lease.lease_key: lease for lease in (row(7), row(8))}
    assert owners(fleet.look()) == ["a", "a"]


# -- newcomers ------------------------------------------------------------------------------------


def crashing(seconds, lives_s=7, **more):
    """A worker lives for some seconds, and another one begins; shard seconds that nobody read."""
    fleet = AssignedFleet(rows(a=4, b=4), ["a", "b"], **more)
    fleet.run(120)
    unread = 0
    for second in range(seconds):
        if second % lives_s == 0:
            fleet.kill(f"x{second // lives_s - 1}")
            fleet.join(f"x{second // lives_s}")
        fleet.look()
        unread += sum(lease.actual_owner not in fleet.alive for lease in fleet.leases.values())
    return fleet, unread


def test_newcomers_that_die_soon_after_they_began_make_later_ones_wait():
    fleet, unread = crashing(420)
    assert unread / 420 / 8 < 0.05
    figures = fleet.plan().figures
    assert "x59" in figures.waiting
    assert figures.wait_s >= 20


def test_a_newcomer_that_lives_gets_its_share_when_its_wait_is_over():
    fleet, _unread = crashing(60)
    fleet.kill("x8")
    fleet.join("good")
    fleet.run(20)
    assert fleet.by_worker()["good"] == 0
    fleet.run(200)
    assert fleet.by_worker()["good"] >= 2


def test_after_a_quiet_while_newcomers_are_trusted_at_once_again():
    fleet, _unread = crashing(60)
    fleet.kill("x8")
    fleet.run(700)
    fleet.join("good")
    fleet.look()
    assert fleet.plan().figures.wait_s == 0
    assert fleet.by_worker()["good"] >= 2


def test_newcomers_get_what_those_who_lived_for_longer_have_no_room_for():
    fleet, _unread = crashing(60, limits=AssignmentLimits(max_leases=4))
    fleet.leases |= {lease.lease_key: lease for lease in (row(8),)}
    plan = fleet.plan()
    assert owners(plan)[0].startswith("x")
    assert plan.figures.waiting == ()


def test_a_newcomer_that_fails_in_order_makes_later_ones_wait_too():
    fleet = AssignedFleet(rows(a=4, b=4), ["a", "b"])
    fleet.run(60)
    for name in ("x1", "x2"):
        fleet.join(name)
        fleet.run(5)
        fleet.fail(name)
    fleet.join("y")
    plan = fleet.look()
    assert (plan.figures.waiting, plan.figures.wait_s) == (("y",), 20.0)
    assert plan.forgotten == ()
    fleet.run(60)
    assert fleet.by_worker()["y"] == 2
    fleet.run(600)
    assert fleet.plan().forgotten == tuple(fleet.failed)


def test_one_that_is_stopped_soon_after_its_start_makes_nobody_wait():
    fleet = AssignedFleet(rows(a=4, b=4), ["a", "b"])
    fleet.run(60)
    for name in ("x1", "x2"):
        fleet.join(name)
        fleet.run(5)
        fleet.leave(name)
    fleet.join("y")
    fleet.run(10)
    assert fleet.by_worker()["y"] == 2


def test_a_lease_at_which_all_fail_is_named_and_nobody_waits():
    fleet = AssignedFleet(rows(a=2, b=2, c=2, d=2), ["a", "b", "c", "d"])
    fleet.run(60)
    for old, new in (("d", "x1"), ("x1", "x2"), ("x2", "y")):
        fleet.fail(old, lived_s=60 if old == "d" else 5, lease="shardId-000000000007")
        fleet.join(new)
        fleet.run(5)
    plan = fleet.plan()
    assert plan.figures.poisoned == fleet.failed[-1]
    assert (plan.figures.waiting, plan.figures.wait_s) == ((), 0.0)
    assert fleet.by_worker()["y"] == 2


def test_what_a_failing_worker_goes_on_with_under_its_old_id_is_handed_to_others():
    """It may not fail again at the same shards, each time until its leases expire."""
    fleet = AssignedFleet(rows(a=4, x=4), ["a", "x"])
    fleet.run(60)
    fleet.fail("x")
    # It goes on with what names it.
    for key in ("shardId-000000000004", "shardId-000000000005"):
        fleet.leases[key] = row(int(key[-1]), "x")
    fleet.join("x")
    plan = fleet.look()
    moved = {move.lease.lease_key: (move.kind, move.reason, move.to) for move in plan.moves}
    assert plan.figures.waiting == ("x",)
    for key in ("shardId-000000000004", "shardId-000000000005"):
        assert moved[key] == (MoveKind.HAND_OFF, MoveReason.RETURNED, "a")
    fleet.run(3)
    assert fleet.by_worker() == {"a": 8, "x": 0}
    fleet.run(60)
    assert fleet.by_worker() == {"a": 4, "x": 4}


def test_what_others_have_no_room_for_stays_with_a_failing_worker():
    limits = AssignmentLimits(max_leases=2)
    fleet = AssignedFleet(rows(a=2, x=2), ["a", "x"], limits=limits)
    fleet.run(60)
    fleet.fail("x")
    for number in (2, 3):
        fleet.leases[f"shardId-00000000000{number}"] = row(number, "x")
    fleet.join("x")
    fleet.run(3)
    assert fleet.by_worker() == {"a": 2, "x": 2}


def test_newcomers_do_not_wait_where_nobody_has_lived_for_longer():
    fleet = AssignedFleet(rows(free=2), [])
    fleet.look()
    for number in range(4):
        fleet.join(f"x{number}")
        fleet.run(5)
        fleet.kill(f"x{number}")
        fleet.run(12)
    fleet.join("next")
    fleet.run(2)
    assert fleet.by_worker() == {"next": 2}


# -- hand-offs ------------------------------------------------------------------------------------


def test_leases_of_a_living_worker_are_handed_over():
    fleet = AssignedFleet(rows(a=4), ["a", "b"])
    plan = fleet.look()
    assert [move.kind for move in plan.moves] == [MoveKind.HAND_OFF] * 2
    assert [move.reason for move in plan.moves] == [MoveReason.COUNT] * 2
    assert fleet.look().figures.in_hand_off == 2
    fleet.run(5)
    assert len(fleet.moves) == 2
    assert fleet.by_worker() == {"a": 2, "b": 2}


def test_without_hand_offs_leases_are_simply_given_to_the_other():
    fleet = AssignedFleet(rows(a=4), ["a", "b"], limits=AssignmentLimits(is_graceful=False))
    assert [move.kind for move in fleet.look().moves] == [MoveKind.ASSIGN] * 2


def test_a_lease_in_a_hand_off_stays_until_its_time_is_over_and_is_then_finished():
    fleet = AssignedFleet([row(0, "b", checkpoint_owner="a"), row(1, "a")], ["a", "b"])
    fleet._draining[row(0).lease_key] = 10_000
    fleet.run(40)
    assert fleet.moves == []
    fleet.run(2)
    ((at, move),) = fleet.moves
    assert (move.to, move.kind, move.reason) == ("b", MoveKind.ASSIGN, MoveReason.OVERDUE)
    assert at == 42


def test_the_deadline_is_of_these_two_owners():
    fleet = AssignedFleet([row(0, "b", checkpoint_owner="a")], ["a", "b", "c"])
    fleet.run(20)
    lease = fleet.leases[row(0).lease_key]
    fleet.leases[lease.lease_key] = replace(lease, lease_owner="c")
    fleet.look()
    assert fleet.memory.hand_offs[lease.lease_key].deadline == 21 + 30 + 10


def test_a_hand_off_whose_old_owner_died_ends_at_the_new_one():
    fleet = AssignedFleet(
        [row(0, "b", checkpoint_owner="gone"), *(row(n, "b") for n in (1, 2)), row(3, "c")],
        ["b", "c"],
    )
    fleet.run(1)
    fleet.memory = replace(fleet.memory, balanced_at=1.0)
    fleet.run(11)
    move = fleet.moves[-1][1]
    assert (move.to, move.reason) == ("b", MoveReason.EXPIRED)


def test_an_expired_hand_off_between_the_dead_gets_the_only_worker_even_if_it_is_the_old_owner():
    fleet = AssignedFleet([row(0, "gone", checkpoint_owner="a")], ["a"])
    fleet._renew = lambda worker, lease: None
    fleet.run(12)
    ((_at, move),) = fleet.moves
    assert (move.to, move.kind) == ("a", MoveKind.ASSIGN)
    assert fleet.leases[row(0).lease_key].checkpoint_owner is None


# -- pauses ---------------------------------------------------------------------------------------

PAUSED = {"paused_until_s": 1_000_060.0}


def with_pauses(leases, *workers, honoring=(), **how):
    fleet = AssignedFleet(leases, **how)
    fleet.honoring.update(honoring)
    fleet.join(*workers)
    return fleet


def test_a_paused_lease_goes_to_who_honors_that_however_full():
    leases = [row(0, **PAUSED), row(1, "b"), row(2, "b"), row(3, "b")]
    fleet = with_pauses(leases, "a", "b", "java", honoring=["b"])
    fleet.look(may_balance=False)
    assert fleet.leases[row(0).lease_key].lease_owner == "b"
    # Its owner died.
    fleet = with_pauses([row(0, "gone", **PAUSED)], "a", "b", honoring=["b"])
    fleet.run(12)
    assert fleet.leases[row(0).lease_key].lease_owner == "b"


def test_a_paused_lease_that_nobody_may_have_is_named_and_gets_an_owner_when_its_pause_is_over():
    limits = AssignmentLimits(max_leases=1)
    leases = [row(0, **PAUSED), row(1, "b"), finished(2, **PAUSED)]
    fleet = with_pauses(leases, "b", "java", honoring=["b"], limits=limits)
    plan = fleet.look()
    assert (plan.figures.paused, plan.figures.unassigned) == ((row(0).lease_key,), 1)
    assert fleet.leases[row(0).lease_key].lease_owner is None
    assert fleet.leases[row(2).lease_key].lease_owner is not None
    fleet.run(60)
    assert fleet.leases[row(0).lease_key].lease_owner == "java"


def test_a_hand_off_of_a_paused_lease_to_who_would_read_it_ends_elsewhere():
    for heir, owner in (("java", "b"), ("b", "b")):
        lease = row(0, heir, checkpoint_owner="gone", **PAUSED)
        fleet = with_pauses([lease], "b", "java", honoring=["b"])
        fleet.run(45)
        found = fleet.leases[lease.lease_key]
        assert (found.lease_owner, found.checkpoint_owner) == (owner, None)


def test_paused_leases_are_not_moved_to_make_numbers_level():
    leases = [row(number, "b", **PAUSED) for number in range(4)]
    fleet = with_pauses(leases, "a", "b", honoring=["a", "b"])
    fleet.run(30)
    assert fleet.by_worker()["b"] == 4
    fleet.run(60)
    assert fleet.by_worker() == {"a": 2, "b": 2}


def test_paused_leases_that_were_just_given_are_not_moved_on_to_who_would_read_them():
    leases = [row(number, **PAUSED) for number in range(4)]
    fleet = with_pauses(leases, "b", "java", honoring=["b"])
    fleet.run(45)
    assert "java" not in {move.to for _at_s, move in fleet.moves}
    assert fleet.by_worker()["b"] == 4


# -- balance --------------------------------------------------------------------------------------


def test_leases_of_a_worker_that_takes_no_part_stay():
    fleet = AssignedFleet(rows(stranger=9), ["a", "b"])
    fleet.alive.add("stranger")
    fleet._reported["stranger"] = 100
    fleet.run(20)
    assert fleet.moves == []


def test_a_balance_is_due_at_first_after_the_interval_and_when_others_take_part():
    fleet = AssignedFleet(rows(a=4), ["a"])
    looks = [fleet.look().figures.is_balanced for _ in range(62)]
    assert [n for n, was in enumerate(looks) if was] == [0, 60]
    fleet.join("b")
    assert fleet.look().figures.is_balanced
    assert not fleet.look().figures.is_balanced


def test_a_balance_may_be_put_off():
    fleet = AssignedFleet(rows(a=4), ["a", "b"])
    assert not fleet.look(may_balance=False).moves
    assert len(fleet.look().moves) == 2


def test_after_a_failed_write_a_balance_is_due_again():
    fleet = AssignedFleet(rows(a=4), ["a", "b"])
    fleet.memory = fleet.plan().memory.unbalanced()
    assert len(fleet.look().moves) == 2


def test_a_lease_that_just_got_an_owner_may_get_another_one_in_the_same_look():
    leases = [row(0, "a"), row(1)]
    planning = _Planning(
        FleetView(leases=tuple(leases), metrics=(), leader="a", now=0.0, epoch_s=0.0),
        FleetMemory(),
        AssignmentLimits(),
    )
    a, b = (Participant(name, Group(""), 0.0) for name in "ab")
    planning._assign(leases[1], a)
    planning._move(leases[1], b, MoveReason.COUNT)
    (move,) = planning.plan(is_balanced=True).moves
    assert (move.to, move.kind, move.reason) == ("b", MoveKind.ASSIGN, MoveReason.UNOWNED)


def test_a_lease_that_comes_back_to_its_owner_does_not_move():
    planning = _Planning(
        FleetView(leases=(row(0, "a"),), metrics=(), leader="a", now=0.0, epoch_s=0.0),
        FleetMemory(),
        AssignmentLimits(),
    )
    a, b = (Participant(name, Group(""), 0.0) for name in "ab")
    planning._move(row(0, "a"), b, MoveReason.COUNT)
    planning._move(row(0, "a"), a, MoveReason.GROUP)
    assert planning.plan(is_balanced=True).moves == ()


def test_figures_tell_the_spread():
    fleet = AssignedFleet([*rows(free=5), finished(9)], ["x-1", "x-2", "y-1", "y-2"])
    figures = fleet.look().figures
    assert sum(figures.by_group.values()) == 5
    assert set(figures.by_group) == {"x", "y"}
    assert sorted(figures.by_worker.values()) == [1, 1, 1, 2]
    assert (figures.leases, figures.finished, figures.unowned) == (5, 1, 5)
    assert figures.reasons == {MoveReason.UNOWNED: 6}


def test_throughput_is_averaged_over_a_minute():
    fleet = AssignedFleet([row(0, "a", throughput_kbps=100.0), row(1, "a")], ["a"])
    fleet.look()
    key = row(0).lease_key
    assert fleet.memory.throughputs == {key: 100.0}
    fleet.leases[key] = replace(fleet.leases[key], throughput_kbps=0.0)
    fleet.look(seconds=5)
    assert 90 < fleet.memory.throughputs[key] < 100
    for _ in range(11):
        fleet.look(seconds=5)
    assert fleet.memory.throughputs[key] == pytest.approx(50.0)


def test_busy_workers_are_relieved_when_the_interval_is_over_not_when_workers_join():
    fleet = AssignedFleet(rows(a=10, b=10), ["a", "b"])
    fleet.measure = lambda worker: 80.0 if worker == "a" else 20.0
    for lease in fleet.leases.values():
        fleet.leases[lease.lease_key] = replace(lease, throughput_kbps=10.0)
    fleet.run(59)
    assert fleet.moves == []
    fleet.run(2)
    assert {(move.to, move.reason) for _at, move in fleet.moves} == {("b", MoveReason.LOAD)}


def test_where_leases_are_only_counted_neither_throughput_nor_metrics_matter():
    leases = [row(number, "a", throughput_kbps=1000.0) for number in range(2)]
    leases += [row(number, "b", throughput_kbps=1.0) for number in range(2, 4)]
    fleet = AssignedFleet(leases, ["a", "b"], limits=AssignmentLimits(by_count=True))
    fleet.measure = lambda worker: 90.0 if worker == "a" else 1.0
    fleet.run(130)
    assert fleet.moves == []


def test_a_lease_of_a_group_moves_for_its_group():
    fleet = AssignedFleet(
        rows(**{"a-1": 2, "a-2": 2, "b-1": 1, "b-2": 1}), ["a-1", "a-2", "b-1", "b-2"]
    )
    assert [move.reason for move in fleet.look().moves] == [MoveReason.GROUP]


def test_workers_that_measure_the_same_place_go_by_their_leases():
    """All have the CPU of their host, so it does not tell who has more."""
    leases = [row(number, "a", throughput_kbps=10.0) for number in range(8)]
    leases += [row(number, "b", throughput_kbps=10.0) for number in range(8, 12)]

    def moves(place):
        fleet = AssignedFleet(leases, ["a", "b"])
        for worker in "ab":
            fleet.metrics[worker] = WorkerMetrics(
                worker, 1_000_000, {"C": (90.0, 90.0)}, {"C": (100,)}, place=place
            )
        return len(fleet.plan().moves)

    assert moves("host") == 2
    assert moves(None) == 0


def test_workers_say_which_group_is_theirs():
    fleet = AssignedFleet(rows(one=2, two=2, three=1, four=1), ["one", "two", "three", "four"])
    for worker, group in (("one", "x"), ("two", "x"), ("three", "y"), ("four", "y")):
        fleet.metrics[worker] = replace(fleet.metrics[worker], group=group)
    assert fleet.look().figures.by_group == {"x": 3, "y": 3}


def test_memory_forgets_what_has_gone():
    fleet = AssignedFleet([row(0, "b", checkpoint_owner="a"), row(1, "a")], ["a", "b"])
    fleet.look()
    fleet.leases.clear()
    fleet.look()
    assert fleet.memory.sightings == {}
    assert fleet.memory.hand_offs == {}
    assert isinstance(fleet.memory, FleetMemory)


def test_a_look_without_metrics_changes_nothing_that_is_known_of_workers():
    fleet = AssignedFleet(rows(a=1), ["a"])
    fleet.look()
    memory = replace(fleet.memory, former_leader="a")
    leases = tuple(fleet.leases.values())
    view = FleetView(leases=leases, metrics=None, leader="x", now=2.0, epoch_s=1_000_002.0)
    seen = observe(memory, view, fleet.limits)
    assert (seen.workers, seen.former_leader) == (memory.workers, "a")
