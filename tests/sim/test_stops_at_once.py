"""All workers of a fleet stop at once, or soon after each other: no lease keeps an owner that is gone."""

from __future__ import annotations

import asyncio
import random

import pytest

from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan
from tests.sim.rows import text_of

pytestmark = pytest.mark.sim

#: Each way of a call at a slow table.
SLOW = {"latency_s": (0.25, 1.0)}


def owned(fleet: Fleet) -> dict[str, tuple[str | None, str | None]]:
    """Lease key -> its owner and the worker that hands it over, of rows that name one."""
    rows = {
        key: (text_of(item, "leaseOwner"), text_of(item, "checkpointOwner"))
        for key, item in fleet.court.rows.items()
    }
    return {key: owners for key, owners in rows.items() if owners != (None, None)}


async def stopped(plan: Plan, within_s: float) -> Fleet:
    """A fleet after all its workers were asked to stop, each at a random moment of some seconds."""
    fleet = Fleet(plan)
    rng = random.Random(f"stops {plan.seed}")
    if plan.is_assigned:
        await fleet.create_3x_table()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one) for one in (fleet.produce(), fleet.watch())]
        for _worker in range(plan.workers):
            fleet.new_node()
        await asyncio.sleep(100 + rng.uniform(0, 10))
        assert len(owned(fleet)) == plan.shards
        for node in fleet.nodes:
            asyncio.get_running_loop().call_later(rng.uniform(0, within_s), node.stop)
        for node in fleet.nodes:
            await node.ended.wait()
        fleet.producing = False
        for task in tasks:
            task.cancel()
    await asyncio.sleep(10)  # requests that were on their way
    return fleet


@pytest.mark.parametrize("weather", [{}, SLOW], ids=["prompt", "slow"])
@pytest.mark.parametrize(
    ("is_assigned", "workers", "seeds"),
    [(True, 2, 12), (True, 10, 3), (False, 2, 3), (False, 10, 2)],
    ids=["3.x, 2 workers", "3.x, 10 workers", "2.x, 2 workers", "2.x, 10 workers"],
)
def test_no_lease_keeps_an_owner_when_all_workers_stop(*, is_assigned, workers, seeds, weather):
    """In each of the runs of 3.x most leases kept one."""
    for seed in range(seeds):
        plan = Plan(
            seed=seed,
            workers=workers,
            shards=8 if workers == 2 else 20,
            is_assigned=is_assigned,
            failover_s=10.0,
            chaos_s=1,
            weather=weather,
        )
        fleet = run(stopped(plan, within_s=0.0 if seed % 2 else 5.0))
        assert fleet.court.violations == []
        assert owned(fleet) == {}, f"seed {seed}"
