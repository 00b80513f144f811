"""A host is suspended for minutes, and time passes for all: nothing has two owners or leaders after it."""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim

FAILOVER_S = 10.0


async def suspended(plan: Plan, suspended_s: float) -> Fleet:
    """A fleet of two, of which the one that leads is suspended, and goes on."""
    fleet = Fleet(plan)
    if plan.is_assigned:
        await fleet.create_3x_table()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in (fleet.produce(), fleet.watch())]
        nodes = [fleet.new_node() for _worker in range(2)]
        await asyncio.sleep(100)
        assert [len(node.believes()) for node in nodes] == [2, 2]
        sleeper, other = sorted(nodes, key=lambda node: not node.leads())
        sleeper.freeze()
        await asyncio.sleep(suspended_s)
        assert len(other.believes()) == plan.shards
        assert sleeper.believes() == ()
        if plan.is_assigned:
            assert [node.leads() for node in (sleeper, other)] == [False, True]
        sleeper.thaw()
        for _look in range(600):
            await asyncio.sleep(0.1)
            if plan.is_assigned:  # in a fleet of 2.x each steals from the other
                assert set(sleeper.believes()).isdisjoint(other.believes())
                assert not (sleeper.leads() and other.leads())
        assert len(sleeper.believes()) + len(other.believes()) == plan.shards
        for node in nodes:
            node.stop()
        for node in nodes:
            await node.ended.wait()
        fleet.producing = False
        for task in tasks:
            task.cancel()
    return fleet


@pytest.mark.parametrize("suspended_s", [6 * FAILOVER_S, 600.0])
@pytest.mark.parametrize("is_assigned", [True, False], ids=["3.x", "2.x"])
def test_a_host_that_was_suspended_holds_nothing_that_others_have(*, is_assigned, suspended_s):
    for seed in range(2):
        plan = Plan(
            seed=seed,
            workers=2,
            shards=4,
            is_assigned=is_assigned,
            failover_s=FAILOVER_S,
            chaos_s=1,
        )
        assert run(suspended(plan, suspended_s)).court.violations == []
