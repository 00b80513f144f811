"""When a lock may be taken, and how long it is believed."""

import pytest

from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules import leader_lock
from kcl_mld.fleet.rules.leader_lock import LockEvent, LockMove, LockSighting, Phase

LOCK = LockItem("other", 10.0, "v1")


def test_a_lock_is_taken_when_one_version_was_seen_for_longer_than_is_stored():
    seen = leader_lock.sight(None, LOCK, 100.0)
    assert leader_lock.follow(LOCK, seen, 110.0, ()) is LockMove.WAIT
    seen = leader_lock.sight(seen, LOCK, 110.1)
    assert leader_lock.follow(LOCK, seen, 110.1, ()) is LockMove.REPLACE


def test_a_heartbeat_starts_the_time_again():
    seen = leader_lock.sight(None, LOCK, 100.0)
    lock = LockItem("other", 10.0, "v2")
    seen = leader_lock.sight(seen, lock, 109.0)
    assert leader_lock.follow(lock, seen, 118.9, ()) is LockMove.WAIT
    assert leader_lock.follow(lock, seen, 119.1, ()) is LockMove.REPLACE


@pytest.mark.parametrize(
    ("lock", "own", "move"),
    [
        (None, (), LockMove.CREATE),
        (LockItem("other", 10.0, "v1", is_released=True), (), LockMove.REPLACE),
        (LOCK, ("v1",), LockMove.REPLACE),
        (LOCK, ("v0",), LockMove.WAIT),
    ],
)
def test_what_is_free_or_ours_is_taken_at_once(lock, own, move):
    assert leader_lock.follow(lock, leader_lock.sight(None, lock, 5.0), 5.0, own) is move


def test_the_time_of_another_worker_counts_not_ours():
    lock = LockItem("java", 120.0, "v1")
    seen = leader_lock.sight(None, lock, 0.0)
    assert leader_lock.follow(lock, seen, 119.0, ()) is LockMove.WAIT
    assert leader_lock.look_pause_s(seen, 0.0, 4.0) == 15.0
    assert leader_lock.look_pause_s(seen, 110.0, 4.0) == pytest.approx(10.001)
    assert leader_lock.look_pause_s(seen, 121.0, 4.0) == 15.0
    assert leader_lock.look_pause_s(None, 0.0, 4.0) == 4.0
    assert leader_lock.look_pause_s(LockSighting("1", 0.0, 7200.0), 0.0, 4.0) == 30.0


def test_who_hears_of_assignments_looks_at_the_lock_once_in_its_time():
    assert leader_lock.follow_pause_s(4.0, 10.0) == 8.0
    assert leader_lock.follow_pause_s(0.5, 10.0) == 1.0
    assert leader_lock.follow_pause_s(24.0, 60.0) == 8.0
    assert leader_lock.follow_pause_s(4.0, 2.0) == 1.6


@pytest.mark.parametrize(("age_s", "found"), [(0.0, False), (5.9, False), (6.0, True)])
def test_a_lock_that_was_not_renewed_when_it_was_due_is_suspect(age_s, found):
    assert leader_lock.is_suspect(LockSighting("1", 100.0, 108.0), 100.0 + age_s, 4.0) is found
    assert not leader_lock.is_suspect(None, 100.0 + age_s, 4.0)


def test_belief_ends_before_anybody_may_take_the_lock():
    assert leader_lock.believed_until(100.0, 10.0) == pytest.approx(109.8)


def test_phases_follow_the_table_and_the_table_is_drawn():
    assert leader_lock.next_phase(Phase.FOLLOWS, LockEvent.GRANTED) is Phase.LEADS
    with pytest.raises(ValueError, match="cannot happen"):
        leader_lock.next_phase(Phase.RESTS, LockEvent.RENEWED)
    drawn = leader_lock.mermaid()
    for phase, row in leader_lock.TRANSITIONS.items():
        for event, following in row.items():
            arrow = f"{phase.value} --> {following.value}: {event.value}\n"
            assert (arrow in drawn) is (following is not phase or event is LockEvent.RENEWED)


def test_a_few_followers_watch_the_leases_and_who_is_new_does_so_too():
    fleet = [WorkerMetrics(name, 1000) for name in "edcba"]
    standbys = [one for one in "abcdef" if leader_lock.is_standby(one, fleet, 1000.0)]
    assert standbys == ["a", "b", "c", "f"]
    old = [WorkerMetrics("a", 900), *fleet[:2]]
    assert leader_lock.is_standby("d", old, 1000.0)
