"""Fleets of 3.x whose workers and leaders die: nobody gives leases to the dead (S15)."""

from __future__ import annotations

import asyncio
import random
from enum import Enum, auto

import pytest

from tests.sim.children import Manners
from tests.sim.fleet import Fleet, judge
from tests.sim.loop import run
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim

#: Before whoever leads knew who had died, leases went to dead workers in each of these.
SEEDS = (0, 1, 100012)
_FAULTS = ("kill", "kill", "partition", "freeze", "stop", "join", "lose answers", "throttle")


def killing(seed: int) -> Plan:
    """Leaders and others die at random, among other things."""
    rng = random.Random(f"elections {seed}")
    return Plan(
        seed=seed,
        workers=rng.randint(2, 4),
        is_assigned=True,
        begins=rng.random() < 0.3,
        shards=rng.randint(2, 8),
        chaos_s=rng.uniform(60, 200),
        failover_s=rng.choice([3.0, 5.0, 10.0]),
        faults=tuple(rng.sample(_FAULTS, rng.randint(1, 4))),
        fault_every_s=rng.uniform(4, 20),
        same_ids=rng.random() < 0.3,
        clock_skew=rng.random() < 0.3,
        stale_reads=rng.random() < 0.3,
        reshard_every_s=rng.choice([None, 30.0]),
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_leader_gives_a_lease_to_a_worker_that_died(seed):
    verdict = judge(killing(seed))
    assert not verdict.violations, verdict.report()


class Loop(Enum):
    """How a newcomer ends, again and again."""

    #: kill -9 after seven seconds; the next one has another id.
    KILLED = auto()
    #: Its child fails at once, so that it ends in order with exit code 1; the next has another id.
    CHILD_FAILS = auto()
    #: kill -9 after 3.5 to 20 s; the next one has the same id.
    KILLED_FIXED_ID = auto()
    #: Its child fails at once; the next one has the same id.
    CHILD_FAILS_FIXED_ID = auto()

    @property
    def worker_id(self) -> str | None:
        return "fixed" if self.name.endswith("FIXED_ID") else None


class Looping(Fleet):
    """Beside workers that live, a newcomer fails soon after its start, again and again."""

    loop = Loop.KILLED

    async def repeat(self) -> None:
        """One life after the other, until cancelled."""
        rng = random.Random(f"loop {self.plan.seed}")
        while True:
            node = self.new_node(self.loop.worker_id)
            if self.loop in (Loop.CHILD_FAILS, Loop.CHILD_FAILS_FIXED_ID):
                node.manners = Manners(crash=1.0)
                await node.ended.wait()
            else:
                fixed = self.loop is Loop.KILLED_FIXED_ID
                await asyncio.sleep(rng.uniform(3.5, 20) if fixed else 7.0)
                await node.kill()
            self.nodes.remove(node)
            await asyncio.sleep(rng.uniform(0.5, 2))

    async def measured(self, seconds: float) -> float:
        """Share of the shard time in which nobody who holds a lease has a child that works."""
        unread = looks = 0
        began_s = self.now()
        while self.now() < began_s + seconds:
            await asyncio.sleep(0.5)
            holding = {key for one in self.alive() if one.manners is None for key in one.believes()}
            keys = self.court.unfinished()
            looks += len(keys)
            unread += sum(key not in holding for key in keys)
        return unread / looks


def looping(loop: Loop, seconds: float, *, is_assigned: bool, seed: int = 3) -> tuple[float, list]:
    """Share of the shard time that nobody read, and what was wrong."""

    async def main():
        plan = Plan(
            seed=seed, workers=2, is_assigned=is_assigned, shards=8, failover_s=10.0, chaos_s=1
        )
        fleet = Looping(plan)
        fleet.loop = loop
        if is_assigned:
            await fleet.create_3x_table()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (fleet.produce(), fleet.watch())]
            for _worker in range(2):
                fleet.new_node()
            await asyncio.sleep(120 if is_assigned else 200)
            tasks.append(group.create_task(fleet.repeat()))
            share = await fleet.measured(seconds)
            for task in tasks:
                task.cancel()
            for node in fleet.alive():
                await node.kill()
        return share, fleet.court.violations

    return run(main())


@pytest.mark.parametrize("is_assigned", [True, False], ids=["3.x", "2.x"])
@pytest.mark.parametrize("loop", Loop)
def test_a_newcomer_that_fails_again_and_again_leaves_the_shards_read(loop, *, is_assigned):
    """It had leases each time: up to half of all shard time was unread."""
    share, violations = looping(loop, 420, is_assigned=is_assigned)
    assert violations == []
    assert share < 0.05


@pytest.mark.parametrize("worker_id", [None, "fixed"], ids=["new ids", "one id"])
@pytest.mark.parametrize("is_assigned", [True, False], ids=["3.x", "2.x"])
def test_workers_that_are_stopped_soon_after_their_start_keep_nobody_waiting(
    worker_id, *, is_assigned
):
    """A rollout that is rolled back after 20 s; a pod that is restarted under its id."""

    async def main():
        plan = Plan(seed=3, workers=1, is_assigned=is_assigned, shards=6, chaos_s=1)
        fleet = Fleet(plan)
        if is_assigned:
            await fleet.create_3x_table()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in (fleet.produce(), fleet.watch())]
            first = fleet.new_node()
            await asyncio.sleep(90)
            for _life in range(4):
                node = fleet.new_node(worker_id)
                await asyncio.sleep(20)
                assert node.believes()
                node.stop()
                await node.ended.wait()
                fleet.nodes.remove(node)
                await asyncio.sleep(1)
            assert first.worker.coordinator.member.waiting() == {}
            assert not any("kclMldNewcomer" in row for row in fleet.court.rows.values())
            await first.kill()
            for task in tasks:
                task.cancel()
        return fleet.court.violations

    assert run(main()) == []
