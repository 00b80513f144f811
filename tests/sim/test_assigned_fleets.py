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
