"""Whatever the tables show, a plan keeps to its rules."""

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings, strategies as st

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView
from kcl_mld.fleet.rules.assignment.planning import MoveKind, MoveReason, plan_assignment
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON
from tests.fakes.assigned_fleet import row

WORKERS = ["a-1", "a-2", "b-1", "b-2", "c-1"]
OWNERS = st.sampled_from([*WORKERS, "stranger", None])
PERCENT = st.floats(0, 100) | st.just(-1.0)
LEASES = st.lists(
    st.tuples(
        OWNERS,
        st.sampled_from([*WORKERS, "stranger", None, None, None, None, None]),
        st.sampled_from([TRIM_HORIZON, TRIM_HORIZON, TRIM_HORIZON, SHARD_END]),
        st.none() | st.floats(0, 5000),
        st.booleans(),
    ),
    max_size=25,
)
METRICS = st.lists(
    st.tuples(
        st.sampled_from(WORKERS),
        st.integers(0, 100),
        st.lists(PERCENT, max_size=4),
        st.sampled_from([(100,), (80,), (0,), ()]),
    ),
    max_size=8,
)
LIMITS = st.builds(
    AssignmentLimits,
    max_leases=st.sampled_from([1, 3, 2**31 - 1]),
    max_throughput_kbps=st.sampled_from([100.0, float("inf")]),
    is_graceful=st.booleans(),
    by_count=st.booleans(),
    dampening=st.sampled_from([0.2, 0.6, 1.0]),
    allows_overshoot=st.booleans(),
)


@settings(deadline=None, max_examples=300)
@given(leases=LEASES, metrics=METRICS, limits=LIMITS, wait=st.integers(1, 60), seed=st.integers())
def test_plans_keep_to_their_rules(leases, metrics, limits, wait, seed):
    rng = random.Random(seed)
    before = [
        row(number, owner, checkpoint_owner=old, checkpoint=position, throughput_kbps=kbps)
        for number, (owner, old, position, kbps, _moves) in enumerate(leases)
    ]
    after = [
        replace(lease, lease_counter=lease.lease_counter + moves)
        for lease, (*_rest, moves) in zip(before, leases, strict=True)
    ]
    items = tuple(
        WorkerMetrics(worker, 1000 - age, {"C": tuple(samples)} if samples else {}, {"C": opr})
        for worker, age, samples, opr in metrics
    )
    memory = FleetMemory()
    for now, rows in ((0.0, before), (float(wait), after)):
        view = FleetView(
            leases=tuple(rows), metrics=items, leader="a-1", now=now, epoch_s=1000.0 + now
        )
        plan = plan_assignment(view, memory, limits, rng)
        check(plan, rows, limits, items, now)
        memory = plan.memory


def check(plan, rows, limits, items, now):
    moves = {move.lease.lease_key: move for move in plan.moves}
    assert len(moves) == len(plan.moves)
    young = {item.worker_id for item in items if 1000 + now - item.updated_at_s <= 60}
    expired = {lease.lease_key for lease in rows if plan.memory.is_expired(lease, now, limits)}
    for move in plan.moves:
        lease = move.lease
        assert move.to in young or move.to == "a-1"  # the leader lives, whatever its metrics say
        assert move.to not in plan.figures.failing
        assert (move.to, None) != (lease.lease_owner, lease.checkpoint_owner)
        is_unread = (
            lease.actual_owner is None
            or lease.lease_key in expired
            or plan.memory.is_overdue(lease, now)
        )
        if lease.checkpoint_owner is not None:
            assert is_unread
        if is_unread:
            assert move.kind is MoveKind.ASSIGN
        else:
            assert not lease.is_finished
            assert move.reason in {MoveReason.LOAD, MoveReason.COUNT, MoveReason.GROUP}
            assert (move.kind is MoveKind.HAND_OFF) == limits.is_graceful
    # Nobody gets more than it may, except what it was to have anyway. An expired lease that nobody
    # else got counts: its owner may come back to it.
    has = Counter(
        moves[lease.lease_key].to if lease.lease_key in moves else lease.lease_owner
        for lease in rows
        if not lease.is_finished
    )
    heirs = Counter(move.to for move in plan.moves if move.lease.lease_owner == move.to)
    taken = Counter(move.to for move in plan.moves if not move.lease.is_finished)
    for worker in taken:
        if taken[worker] > heirs[worker]:
            held = Counter(lease.lease_owner for lease in rows if not lease.is_finished)[worker]
            assert has[worker] <= max(limits.max_leases, held)
