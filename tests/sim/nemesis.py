"""Everything that goes wrong, drawn from one seed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from tests.sim.gate import Weather
from tests.sim.java3_peer import Java3Peer
from tests.sim.java_peer import JavaPeer

if TYPE_CHECKING:
    from tests.sim.fleet import Fleet

#: Workers of ours at most at a time.
MOST_WORKERS = 5
#: Weather attribute and range of every fault that is a matter of probability.
_ODDS = {
    "lose requests": ("lost_before", 0.05, 0.5),
    "lose answers": ("lost_after", 0.05, 0.5),
    "throttle": ("throttled", 0.05, 0.7),
    "break": ("broken", 0.05, 0.5),
    "expire": ("expired", 0.05, 0.5),
    "slow": ("slow_probability", 0.05, 0.5),
}


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
        while fleet.now() < end_s and not fleet.court.violations:
            pause_s = rng.expovariate(1 / plan.fault_every_s)
            await asyncio.sleep(min(pause_s, end_s - fleet.now()))
            if plan.faults and fleet.now() < end_s:
                await self._strike(rng.choice(plan.faults))
        self._over = True
        for member in [*fleet.nodes, *fleet.members]:
            member.gate.weather = Weather()
            member.thaw()

    def _begin(self, name: str, coroutine: Any) -> None:
        assert self._group is not None
        self._tasks.append(self._group.create_task(coroutine, name=name))

    async def _strike(self, fault: str) -> None:
        fleet, rng = self._fleet, self._rng
        if fault == "drop lease":
            if not fleet.lost and rng.random() < 0.3:
                fleet.drop_lease(rng)
            return
        if fault == "join":
            if len(fleet.alive()) < MOST_WORKERS and not fleet.lost:
                self._begin("place", fleet.supervise())
            return
        if fault == "kill child":
            if running := [child for node in fleet.alive() for child in node.children.running()]:
                rng.choice(running).kill()
            return
        members: list[Any] = [node for node in fleet.alive() if node.worker is not None]
        members += [peer for peer in fleet.members if peer.alive]
        if members:
            await self._strike_one(rng.choice(members), fault)

    async def _strike_one(self, member: Any, fault: str) -> None:
        fleet, rng = self._fleet, self._rng
        is_ours = not isinstance(member, JavaPeer)
        if fault == "kill":
            if is_ours:
                await member.kill()
            else:
                await member.kill()
                await asyncio.sleep(rng.uniform(0, 5))
                if isinstance(member, Java3Peer):
                    fleet.new_peer(is_legacy=member.is_legacy, flips_to=member.flips_to)
                else:
                    fleet.new_peer()
        elif fault == "stop":
            if is_ours:
                member.stop()
        elif fault == "step clock":
            if is_ours:
                member.clock.skew_s += rng.uniform(-3600, 3600)
                fleet.trace.add(member.worker_id, "CLOCK STEP")
        else:
            self._begin("spell", self._spell(member, fault))

    async def _spell(self, member: Any, fault: str) -> None:
        """One fault that lasts a while."""
        if self._over or not member.alive:
            return  # killed at the moment at which it was to happen
        rng, trace = self._rng, self._fleet.trace
        failover_s = self._fleet.plan.failover_s
        lasts_s = rng.choice([rng.uniform(0.1, 2), rng.uniform(1, 3 * failover_s)])
        what = self._worsen(member, fault)
        trace.add(member.worker_id, f"{what.upper()} for {lasts_s:.1f} s")
        began_s = self._fleet.now()
        await asyncio.sleep(lasts_s)
        if fault == "partition":
            self._fleet.court.cut_off_s[member.worker_id] = (began_s, self._fleet.now())
        if not self._over:
            _mend(member, fault)
            trace.add(member.worker_id, f"{fault} is over")

    def _worsen(self, member: Any, fault: str) -> str:
        """Begin a fault; what it is, for people."""
        rng, gate = self._rng, member.gate
        if fault == "freeze":
            member.freeze()
        elif fault == "partition":
            services = rng.choice([("dynamodb",), ("kinesis",), ("dynamodb", "kinesis")])
            gate.weather.partitioned.update(services)
            return f"partition {'+'.join(services)}"
        else:
            name, least, most = _ODDS[fault]
            setattr(gate.weather, name, rng.uniform(least, most))
            gate.weather.slow_s = rng.uniform(0.5, 5)
        return fault


def _mend(member: Any, fault: str) -> None:
    if fault == "freeze":
        member.thaw()
    elif fault == "partition":
        member.gate.weather.partitioned.clear()
    else:
        setattr(member.gate.weather, _ODDS[fault][0], 0.0)
