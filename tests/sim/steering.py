"""Operators who reset, pause, resume and release leases of a fleet, by the code of the commands."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.decide.fleet.watching import Snapshots
from mld.decide.leases.steering import SteerWay, plan_step
from mld.errors import AwsError
from mld.model.fleet.fleet_snapshot import FleetSnapshot
from mld.model.leases.lease_request import LeaseRequest, SteerVerb
from mld.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from mld.services.leases.lease_steering import LeaseSteering
from mld.services.leases.lease_store import LeaseStore
from tests.fakes.dynamodb import FakeDynamoDb
from tests.sim.court import OPERATOR
from tests.sim.gate import Gate
from tests.sim.node import TABLE
from tests.sim.ports import SimClock, ThroughGate
from tests.sim.rows import short

if TYPE_CHECKING:
    from mld.model.leases.lease import Lease
    from tests.sim.fleet import Fleet

#: Pauses, requests and commands are over by then.
LASTS_S = 30.0
#: A command that is ended leaves its request behind.
_ENDED = 0.2
_VERBS = [SteerVerb.RESET] * 4 + [SteerVerb.RELEASE] * 2 + [SteerVerb.PAUSE, SteerVerb.RESUME]


@dataclass
class Steering:
    """One operator of a run.

    Attributes:
        number: of the operator.
    """

    fleet: Fleet
    number: int

    def __post_init__(self) -> None:
        fleet = self.fleet
        self._rng = random.Random(f"steering {self.number} {fleet.plan.seed}")
        gate = Gate(self._rng)
        gate.weather.lost_before = gate.weather.lost_after = 0.02
        self._clock = SimClock(fleet.now)
        leases = fleet.leases

        def entered() -> None:
            fleet.court.actor = OPERATOR
            fleet.court.foreigners.add(OPERATOR)

        dynamodb: Any = ThroughGate(
            "dynamodb", FakeDynamoDb(fleet.dynamodb), gate, leases.request_timeout_s, entered
        )
        self._store = LeaseStore(dynamodb, leases, self._clock)
        self._steering = LeaseSteering(dynamodb, self._store, self._clock)

    async def run(self, end_s: float) -> None:
        """Steer until then, and return when nothing is left of it."""
        fleet = self.fleet
        while fleet.now() < end_s:
            await asyncio.sleep(self._rng.expovariate(1 / 8))
            if TABLE not in fleet.dynamodb.tables:
                continue
            try:
                if self._rng.random() < _ENDED:
                    async with asyncio.timeout(self._rng.uniform(0, LASTS_S)):
                        await self._once()
                else:
                    await self._once()
            except TimeoutError:
                fleet.court.counts["steer ended"] += 1
            except AwsError:
                fleet.court.counts["steer failed"] += 1
        await asyncio.sleep(LASTS_S + 5)

    async def _look(self) -> FleetSnapshot:
        scan = await self._store.scan()
        rows = {lease.lease_key: lease for lease in scan.leases}
        return FleetSnapshot(
            began_at=scan.started_at,
            at=scan.finished_at,
            wall_s=self._clock.wall(),
            leases=rows,
        )

    async def _once(self) -> None:
        fleet, rng = self.fleet, self._rng
        first = await self._look()
        await asyncio.sleep(fleet.leases.failover_s)
        watch = Snapshots((first, await self._look()))
        rows = [
            one
            for key, one in sorted(watch.last.leases.items())
            if not one.is_finished and fleet.stream.find(key) is not None
        ]
        if not rows:
            return
        lease, verb = rng.choice(rows), rng.choice(_VERBS)
        position = self._position(lease) if verb is SteerVerb.RESET else None
        step = plan_step(watch, lease, verb, fleet.leases.failover_s, position)
        fleet.court.counts[f"steer {verb} {step.way}"] += 1
        if step.way not in (SteerWay.WRITE, SteerWay.ASK):
            return
        now_s = self._clock.wall()
        request = LeaseRequest(
            request_id=f"{self.number}-{rng.random()}",
            verb=str(verb),
            holder=str(lease.lease_owner) if step.way is SteerWay.ASK else "",
            expires_s=now_s + LASTS_S,
            sequence_number=None if position is None else position.sequence_number,
            sub_sequence_number=0 if position is None else position.sub_sequence_number,
            until_s=now_s + rng.uniform(1, LASTS_S) if verb is SteerVerb.PAUSE else None,
        )
        fleet.trace.add("", f"{verb.upper()} {short(lease.lease_key)} {step.way} {position or ''}")
        why = await self._steering.carry_out(step, request, LASTS_S)
        fleet.court.counts[f"steer {verb} {'done' if why is None else 'not done'}"] += 1

    def _position(self, lease: Lease) -> ExtendedSequenceNumber:
        truth = self.fleet.stream.find(lease.lease_key)
        if truth is None or not truth.places or self._rng.random() < 0.2:
            return TRIM_HORIZON
        number, sub = self._rng.choice(truth.places)
        return ExtendedSequenceNumber(str(number), sub)
