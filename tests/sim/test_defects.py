"""Defects that a seed found once, as small worlds of their own: plans change, these stay."""

import pytest

from tests.sim.children import Manners
from tests.sim.fleet import judge
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim


def test_a_child_cannot_checkpoint_beyond_the_end_of_its_shard():
    """10^60 was stored at shardEnded; no iterator could start there ever after."""
    for seed in range(6):
        plan = Plan(
            seed=seed,
            workers=2,
            shards=2,
            chaos_s=60,
            reshard_every_s=8.0,
            manners=Manners(checkpoints="cheeky", crash=0.05),
        )
        verdict = judge(plan)
        assert not verdict.violations, verdict.report()


def test_a_child_that_forgets_the_last_checkpoint_does_not_block_its_children_for_ever():
    plan = Plan(
        seed=3,
        workers=2,
        shards=2,
        chaos_s=60,
        reshard_every_s=10.0,
        manners=Manners(forgets_end=1.0, checkpoints="late"),
        restart_children=True,
    )
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()


@pytest.mark.parametrize(("workers", "peers"), [(0, 1), (1, 1), (1, 2)])
def test_a_row_that_an_operator_deleted_comes_back_whoever_leads(workers, peers):
    """Nobody filled the hole while a scripted Java-like worker was the one elected."""
    for seed in range(3):
        plan = Plan(
            seed=seed,
            workers=workers,
            peers=peers,
            shards=4,
            failover_s=2.0,
            faults=("drop lease",),
            fault_every_s=6.0,
            chaos_s=60,
        )
        verdict = judge(plan)
        assert not verdict.violations, verdict.report()
        assert verdict.counts["create"] > plan.shards
