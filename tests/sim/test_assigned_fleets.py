"""Fleets of 3.x: a leader assigns the leases."""

import pytest

from tests.sim.fleet import judge
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("seed", [0, 2])
def test_scripted_java_workers_are_a_fleet_by_themselves(seed):
    """Else they prove nothing about ours; their leaders die, and others lead after the lock's time."""
    plan = Plan(
        seed=seed,
        workers=0,
        peers=3,
        is_assigned=True,
        shards=4,
        chaos_s=200,
        faults=("kill",) if seed else (),
        fault_every_s=30.0,
        reshard_every_s=40.0,
    )
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()
    assert verdict.counts["leader"] >= (2 if seed else 1)


@pytest.mark.parametrize("layout", ["lease", "coordinator"])
def test_a_fleet_that_flips_to_3x_is_joined_whatever_its_layout(layout):
    """A worker that started into a flipped fleet once died of an ExceptionGroup."""
    plan = Plan(
        seed=9, workers=3, shards=4, chaos_s=150, flip_at_s=30, flip_table=layout, faults=("join",)
    )
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()
    assert verdict.counts["leader"] == 1
    assert verdict.counts["hand-off"] > 0


@pytest.mark.parametrize("peers", [0, 1])
def test_planned_moves_process_nothing_twice(peers):
    """Workers come and go in order, children checkpoint when they are asked to finish."""
    for seed in range(2):
        plan = Plan(
            seed=seed,
            workers=2,
            peers=peers,
            is_assigned=True,
            shards=6,
            chaos_s=150,
            faults=("join", "stop"),
            fault_every_s=25.0,
        )
        verdict = judge(plan)
        assert not verdict.violations, verdict.report()
        assert verdict.counts["hand-off"] > 0
        assert verdict.duplicates == 0
