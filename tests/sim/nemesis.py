"""Everything that goes wrong, drawn from one seed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from tests.sim.gate import Weather
from tests.sim.java_peer import JavaPeer

if TYPE_CHECKING:
    from tests.sim.fleet import Fleet

#: Workers of ours at most at a time.
MOST_WORKERS = 5


class Nemesis:
    """Does to the fleet what the plan allows, then lets go."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rng = random.Random(f"nemesis {fleet.plan.seed}")
        self._group: asyncio.TaskGroup | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._over = False

    def start(self, group: asyncio.TaskGroup, tasks: list[asyncio.Task[Any]]) -> None:
        """Where its own tasks live; those that last are put into ``tasks``."""
        self._group, self._tasks = group, tasks

    async def chaos(self) -> None:
        """Faults until the plan's time is over; then all of them are off."""
        plan, fleet, rng = self._fleet.plan, self._fleet, self._rng
        end_s = fleet.now() + plan.chaos_s
        while fleet.now() < end_s and not fleet.judges.violations:
            pause_s = rng.expovariate(1 / plan.fault_every_s)
            await asyncio.sleep(min(pause_s, end_s - fleet.now()))
            if plan.faults and fleet.now() < end_s:
                await self._strike(rng.choice(plan.faults))
        self._over = True
        for member in [*fleet.nodes, *fleet.members]:
            member.gate.weather = Weather()
            member.gate.thaw()

    async def _strike(self, fault: str) -> None:
        fleet, rng = self._fleet, self._rng
        nodes: list[Any] = [node for node in fleet.alive() if node.worker is not None]
        nodes += [peer for peer in fleet.members if peer.alive]
        assert self._group is not None
        if fault == "join":
            if len(fleet.alive()) < MOST_WORKERS:
                self._tasks.append(self._group.create_task(fleet.supervise(), name="place"))
            return
        if fault == "drop lease":
            if rng.random() < 0.3:
                fleet.drop_lease(rng)
            return
        if not nodes:
            return
        node = rng.choice(nodes)
        if isinstance(node, JavaPeer):
            if fault == "kill" and not fleet.flipped:
                await node.kill()
                await asyncio.sleep(rng.uniform(0, 5))
                fleet.new_peer()
            elif fault not in {"kill", "stop", "step clock"}:
                self._tasks.append(self._group.create_task(self._spell(node, fault), name="spell"))
        elif fault == "kill":
            await node.kill()
        elif fault == "stop":
            node.stop()
        elif fault == "step clock":
            node.clock.skew_s += rng.uniform(-3600, 3600)
            fleet.trace.add(node.worker_id, "CLOCK STEP")
        else:
            self._tasks.append(
                self._group.create_task(self._spell(node, fault), name="spell")
            )

    async def _spell(self, node: Any, fault: str) -> None:
        """One fault that lasts a while."""
        fleet, rng, failover_s = self._fleet, self._rng, self._fleet.plan.failover_s
        lasts_s = rng.choice([rng.uniform(0.1, 2), rng.uniform(1, 3 * failover_s)])
        weather = node.gate.weather
        what = fault
        match fault:
            case "freeze":
                node.gate.freeze()
            case "partition":
                services = rng.choice([("dynamodb",), ("kinesis",), ("dynamodb", "kinesis")])
                weather.partitioned.update(services)
                what = f"partition {'+'.join(services)}"
            case "lose requests":
                weather.lost_before = rng.uniform(0.05, 0.5)
            case "lose answers":
                weather.lost_after = rng.uniform(0.05, 0.5)
            case "throttle":
                weather.throttled = rng.uniform(0.05, 0.7)
            case "expire":
                weather.expired = rng.uniform(0.05, 0.5)
            case "slow":
                weather.slow_probability = rng.uniform(0.05, 0.5)
                weather.slow_s = rng.uniform(0.5, 5)
        fleet.trace.add(node.worker_id, f"{what.upper()} for {lasts_s:.1f} s")
        await asyncio.sleep(lasts_s)
        if self._over:
            return
        weather = node.gate.weather
        match fault:
            case "freeze":
                node.gate.thaw()
            case "partition":
                weather.partitioned.clear()
            case "lose requests":
                weather.lost_before = 0.0
            case "lose answers":
                weather.lost_after = 0.0
            case "throttle":
                weather.throttled = 0.0
            case "expire":
                weather.expired = 0.0
            case "slow":
                weather.slow_probability = 0.0
        fleet.trace.add(node.worker_id, f"{fault} is over")
