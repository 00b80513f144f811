"""A worker that stops names who goes on."""

import pytest

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.leaving import notice_s, plan_leaving
from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView
from kcl_mld.fleet.rules.worker_sightings import Stamp, WorkerSightings
from kcl_mld.kernel.model.sequence import SHARD_END
from tests.fakes.lease_world import lease

LIMITS = AssignmentLimits()


def plan(leases, workers, limits=LIMITS, memory=None, honoring=()):
    view = FleetView(
        leases=tuple(leases),
        metrics=tuple(
            WorkerMetrics(worker, 1000, honors_pause=worker in honoring) for worker in workers
        ),
        leader="me",
        now=50.0,
        epoch_s=1010.0,
    )
    pairs = plan_leaving(view, memory or FleetMemory(), "me", limits)
    return [(int(one.shard_id[-3:]), worker) for one, worker in pairs]


def test_leases_are_spread_over_the_others_by_their_number():
    leases = [
        *(lease(number, lease_owner="me") for number in range(4)),
        lease(4, lease_owner="a"),
        lease(5, lease_owner="a"),
        lease(6, lease_owner="b", checkpoint_owner="me"),
    ]
    takers = [worker for _, worker in plan(leases, ["a", "b", "me"])]
    assert sorted(takers) == ["a", "a", "b", "b"]


def test_what_others_have_or_nobody_needs_stays():
    leases = [
        lease(0, lease_owner="me", checkpoint=SHARD_END),
        lease(1, lease_owner="b", checkpoint_owner="me"),
        lease(2, lease_owner="me", checkpoint_owner="b"),
        lease(3),
        lease(4, lease_owner="me"),
    ]
    assert plan(leases, ["b"]) == [(4, "b")]


def test_a_paused_lease_goes_to_who_honors_that_or_to_nobody():
    leases = [
        lease(0, lease_owner="me", paused_until_s=1011.0),
        lease(1, lease_owner="me", paused_until_s=1010.0),
        lease(2, lease_owner="b"),
    ]
    assert plan(leases, ["java"]) == [(1, "java")]
    assert plan(leases, ["b", "java"], honoring=["b"]) == [(0, "b"), (1, "java")]


def test_leases_that_wait_for_their_parents_are_released():
    parent = lease(0, lease_owner="b")
    waiting = lease(1, lease_owner="me", parent_shard_ids=(parent.shard_id,))
    assert plan([parent, waiting, lease(2, lease_owner="me")], ["b"]) == [(2, "b")]


def test_the_last_worker_names_nobody():
    assert plan([lease(0, lease_owner="me")], ["me"]) == []


def test_who_is_full_or_in_doubt_gets_nothing():
    leases = [lease(number, lease_owner="me") for number in range(3)]
    limits = AssignmentLimits(max_leases=1)
    dead = Stamp(1000, 0.0, has_moved=True, died_at=1.0)
    memory = FleetMemory(workers=WorkerSightings({"dead": dead}))
    assert plan(leases, ["a", "dead"], limits, memory) == [(0, "a")]


@pytest.mark.parametrize(
    ("failover_s", "grace_s", "notice"),
    [(10, 30, 8.5), (4, 20, 3.7), (60, 30, 8.5), (10, 6, 2), (10, 0, 0)],
)
def test_the_notice_is_as_long_as_others_need_to_see_it(failover_s, grace_s, notice):
    assert notice_s(failover_s, grace_s) == pytest.approx(notice)
