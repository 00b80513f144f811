"""Two living processes with one worker id in a fleet of 3.x: the younger one stands aside."""

from __future__ import annotations

import asyncio
import random

import pytest

from kcl_mld.signals.model.conditions import Reason
from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim

#: A report period of either process, the second report of the younger one, and the first looks.
FOUND_S = 30 + 15 + 10
#: Two report periods, and the period in which the younger one looks.
OVER_S = 2 * 30 + 30 + 10


def twins(seed: int) -> Fleet:
    """What became of two processes with one id beside a worker of another one."""

    async def main() -> Fleet:
        plan = Plan(seed=seed, workers=1, shards=4, is_assigned=True, failover_s=10.0, chaos_s=1)
        rng = random.Random(f"twins {seed}")
        fleet = Fleet(plan)
        await fleet.create_3x_table()
        async with asyncio.TaskGroup() as group:
            producing = group.create_task(fleet.produce())
            fleet.new_node("other")
            older = fleet.new_node("twin")
            await asyncio.sleep(60 + rng.uniform(0, 30))
            assert older.believes()
            younger = fleet.new_node("twin")
            await asyncio.sleep(FOUND_S)
            for _look in range(60):
                await asyncio.sleep(1)
                assert younger.believes() == ()
            assert not younger.leads()
            assert len(older.believes()) == 2
            assert reasons(older) == []
            assert reasons(younger) == [Reason.DOUBLED_ID]
            await going(older, rng)
            await asyncio.sleep(OVER_S)
            assert len(younger.believes()) == 2
            assert reasons(younger) == []
            fleet.producing = False
            producing.cancel()
            for node in fleet.alive():
                await node.kill()
        return fleet

    return run(main())


def reasons(node) -> list[Reason]:
    return [one.reason for one in node.worker.conditions.current()]


async def going(node, rng: random.Random) -> None:
    if rng.random() < 0.5:
        await node.kill()
    else:
        node.stop()
        await node.ended.wait()


def test_the_younger_of_two_processes_with_one_id_reads_nothing_while_the_other_lives():
    """Leases flipped every 10 s, records were processed twice, and both were ready."""
    for seed in range(3):
        twins(seed)


def test_a_restart_under_the_same_id_goes_on_at_once():
    async def main() -> None:
        plan = Plan(seed=1, workers=1, shards=4, is_assigned=True, failover_s=10.0, chaos_s=1)
        fleet = Fleet(plan)
        await fleet.create_3x_table()
        node = fleet.new_node("pod-0")
        for number in range(3):
            await asyncio.sleep(40 + 7 * number)
            assert len(node.believes()) == 4
            await node.kill()
            node = fleet.new_node("pod-0")
            await asyncio.sleep(3)
            assert len(node.believes()) == 4
            for _look in range(20):
                await asyncio.sleep(1)
                assert len(node.believes()) == 4
                assert reasons(node) == []
        await node.kill()

    run(main())
