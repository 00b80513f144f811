"""A worker is stopped, killed or frozen at every single call of its life, once each."""

import asyncio

import pytest

from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan
from tests.sim.rows import text_of

pytestmark = pytest.mark.sim

PLAN = Plan(seed=2, workers=1, shards=2, failover_s=3.0, put_every_s=0.5, reshard_every_s=6.0)
#: Enough for the start, the first batches, a reshard and some renewals.
CALLS = 90
STRIDE = 9


async def life(deed, at_call):
    """One worker, something done to it at one call; the fleet afterwards."""
    fleet = Fleet(PLAN)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(fleet.produce()), group.create_task(fleet.reshard())]
        node = fleet.new_node()
        struck = asyncio.Event()

        def on_call(number):
            if number == at_call:
                struck.set()

        node.gate.on_call = on_call
        await struck.wait()
        await deed(node)
        await node.ended.wait()
        fleet.producing = False
        for task in tasks:
            task.cancel()
    await node.check_clean()
    return fleet, node


async def stop(node):
    node.stop()


async def stop_now(node):
    node.worker.scheduler.stop_now()


async def kill(node):
    await node.kill()


def owners(fleet):
    return {text_of(item, "leaseOwner") for item in fleet.court.rows.values()}


@pytest.mark.parametrize("first", range(1, STRIDE + 1))
def test_a_graceful_stop_at_any_call_releases_everything(first):
    for at_call in range(first, CALLS, STRIDE):
        fleet, node = run(life(stop, at_call))
        assert fleet.court.violations == [], f"at call {at_call}"
        assert node.outcome is not None, f"at call {at_call}: {node.error}"
        assert node.outcome.complete, f"at call {at_call}"
        assert owners(fleet) <= {None}, f"at call {at_call}"


@pytest.mark.parametrize("deed", [stop_now, kill])
def test_a_hard_stop_at_any_call_leaves_no_task_and_no_child(deed):
    for at_call in range(1, CALLS, 2):
        fleet, node = run(life(deed, at_call))
        assert fleet.court.violations == [], f"at call {at_call}"
        assert not node.running(), f"at call {at_call}"
        assert not node.children.running(), f"at call {at_call}"


async def frozen_life(at_call):
    """Two workers; one of them stands still from one call on until the other has its leases."""
    fleet = Fleet(PLAN)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(fleet.produce()),
            group.create_task(fleet.reshard()),
            group.create_task(fleet.watch()),
        ]
        struck = asyncio.Event()
        node = fleet.new_node()
        node.gate.on_call = lambda number: struck.set() if number == at_call else None
        await struck.wait()
        node.freeze()
        other = fleet.new_node()
        await asyncio.sleep(4 * PLAN.failover_s)
        node.thaw()
        await asyncio.sleep(2 * PLAN.failover_s)
        for each in (node, other):
            each.stop()
            await each.ended.wait()
        fleet.producing = False
        for task in tasks:
            task.cancel()
    return fleet


@pytest.mark.parametrize("first", [1, 2])
def test_a_freeze_at_any_call_is_noticed_before_anything_is_said(first):
    for at_call in range(first, CALLS, 2):
        fleet = run(frozen_life(at_call))
        assert fleet.court.violations == [], f"at call {at_call}"
        assert owners(fleet) <= {None}, f"at call {at_call}"
