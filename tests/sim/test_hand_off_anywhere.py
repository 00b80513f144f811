"""Leases are on their way to a new worker, and one of the three dies or stands still, at every call.

Six leases of two workers become two each of three: the leader hands over leases of its own and asks
the other old owner for one of its.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.sim.fleet import Fleet
from tests.sim.loop import run
from tests.sim.plan import Plan
from tests.sim.rows import text_of

pytestmark = pytest.mark.sim

PLAN = Plan(seed=4, workers=0, is_assigned=True, shards=6, failover_s=3.0, put_every_s=0.5)
#: Of the worker, from the first hand-off on; those to the new worker are over then.
CALLS = 24
#: Until the leases of a dead leader are read again, its hand-offs included.
SOON_S = 4 * PLAN.failover_s
LEADER, OLD, NEW = range(3)


class Life:
    """Three workers, the third joins; something is done to one of them while leases move."""

    def __init__(self) -> None:
        self.fleet = Fleet(PLAN)
        #: Leases on their way at the calls so far.
        self.moving: list[int] = []

    def owners(self) -> dict[str, tuple[str | None, str | None]]:
        """Who has each lease, and from whom it comes."""
        rows = self.fleet.court.rows.items()
        return {
            key: (text_of(row, "leaseOwner"), text_of(row, "checkpointOwner")) for key, row in rows
        }

    async def until(self, is_so, what, bound_s=60.0):
        """Wait for something, for a bounded time."""
        end_s = self.fleet.now() + bound_s
        while not is_so():
            assert self.fleet.now() < end_s, (
                f"{what}: {self.owners()}\n{self.fleet.trace.table(40)}"
            )
            await asyncio.sleep(0.05)

    def is_shared(self, *nodes):
        """All leases are these workers', in even numbers, and none is on its way."""
        owners = list(self.owners().values())
        counts = [owners.count((node.worker_id, None)) for node in nodes]
        return sum(counts) == PLAN.shards and max(counts) - min(counts) <= 1

    def is_read(self, *nodes):
        """All leases are these workers', and none is on its way."""
        ids = {(node.worker_id, None) for node in nodes}
        return len(self.owners()) == PLAN.shards and set(self.owners().values()) <= ids

    async def run(self, who, at_call, deed):
        fleet = self.fleet
        await fleet.create_3x_table()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fleet.produce()), group.create_task(fleet.watch())]
            nodes = [fleet.new_node()]
            await self.until(lambda: self.is_shared(*nodes), "the first has all")
            nodes.append(fleet.new_node())
            await self.until(lambda: self.is_shared(*nodes), "two share")
            before = fleet.court.counts["hand-off"]
            nodes.append(fleet.new_node())
            struck = asyncio.Event()

            def on_call(_number):
                if fleet.court.counts["hand-off"] > before:
                    owners = self.owners().values()
                    self.moving.append(sum(old is not None for _, old in owners))
                    if len(self.moving) == at_call:
                        struck.set()

            # A new owner makes none while leases are on their way to it: the others' calls count.
            for node in nodes if who == NEW else [nodes[who]]:
                node.gate.on_call = on_call
            await struck.wait()
            await deed(nodes[who])
            left = [node for node in nodes if node.alive]
            await self.until(lambda: self.is_read(*left), "those who live read all", SOON_S)
            for node in left:
                node.stop()
                await node.ended.wait()
            fleet.producing = False
            for task in tasks:
                task.cancel()


async def kill(node):
    await node.kill()


async def stop(node):
    node.stop()
    await node.ended.wait()


async def freeze(node):
    node.freeze()
    await asyncio.sleep(2.5 * PLAN.failover_s)
    node.thaw()


def life(who, at_call, deed):
    async def main():
        one = Life()
        await one.run(who, at_call, deed)
        return one

    return run(main())


@pytest.mark.parametrize("who", [LEADER, OLD, NEW], ids=["leader", "old owner", "new owner"])
@pytest.mark.parametrize(("deed", "every"), [(kill, 2), (stop, 1), (freeze, 4)])
def test_whoever_is_gone_in_the_midst_of_a_hand_off_all_leases_are_soon_read(who, deed, every):
    moving = set()
    for at_call in range(1, CALLS, every):
        one = life(who, at_call, deed)
        assert one.fleet.court.violations == [], f"at call {at_call}"
        if deed is stop:
            assert one.fleet.court.duplicates == 0, f"at call {at_call}"
        moving.add(one.moving[at_call - 1])
    assert min(moving) == 0 < max(moving), "not all of the hand-offs was seen"
