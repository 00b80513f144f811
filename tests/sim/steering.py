"""Operators who change the leases of a fleet, by the code of the commands."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import AwsError, MalformedData
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.lease_request import LeaseRequest, SteerVerb
from kcl_mld.observe.fleet_reader import fleet_items
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot, StreamSnapshot
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.lease_steering import LeaseSteering
from kcl_mld.ops.rules.lineage import missing_rows, plan_lineage
from kcl_mld.ops.rules.steering import SteerWay, plan_step
from kcl_mld.streams.model.shard import HashRange, Shard
from tests.fakes.clock import CountingIds
from tests.fakes.dynamodb import FakeDynamoDb
from tests.sim.court import OPERATOR
from tests.sim.gate import Gate
from tests.sim.node import TABLE
from tests.sim.ports import SimClock, ThroughGate
from tests.sim.rows import short

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.ops.rules.steering import SteerStep
    from tests.sim.fleet import Fleet
    from tests.sim.stream import SimStream

#: Pauses, requests and commands are over by then.
LASTS_S = 30.0
#: Of all commands: somebody presses Ctrl-C or loses his terminal, an error ends it, or it is killed
#: and leaves its request behind.
_INTERRUPTED, _FAILED, _KILLED = 0.1, 0.1, 0.1
_VERBS = [
    *[SteerVerb.RESET] * 4,
    *[SteerVerb.RELEASE] * 2,
    SteerVerb.PAUSE,
    SteerVerb.RESUME,
    SteerVerb.DELETE,
]
#: Of all commands: all workers are stopped, and shards that were read to their end are read again.
_LINEAGES = 0.15
#: Workers that stop have ended by then.
_STOPS_S = 40.0


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
        self._dynamodb = dynamodb
        self._store = LeaseStore(dynamodb, leases, self._clock, self._rng)

    async def run(self, end_s: float) -> None:
        """Steer until then, and return when nothing is left of it."""
        fleet = self.fleet
        while fleet.now() < end_s:
            await asyncio.sleep(self._rng.expovariate(1 / 8))
            if TABLE not in fleet.dynamodb.tables:
                continue
            try:
                if self._rng.random() < _LINEAGES:
                    await self._lineage()
                else:
                    await self._once()
            except AwsError:
                fleet.court.counts["steer failed"] += 1
        await asyncio.sleep(LASTS_S + 5)

    async def _look(self) -> FleetSnapshot:
        scan = await self._store.scan()
        items = None
        if self.fleet.plan.is_assigned:
            with suppress(MalformedData, AwsError):
                items = await fleet_items(
                    self._dynamodb, Layout.named(TABLE), CountingIds(OPERATOR), self._rng
                )
        rows = {lease.lease_key: lease for lease in scan.leases}
        return FleetSnapshot(
            began_at=scan.started_at,
            at=scan.finished_at,
            wall_s=self._clock.wall(),
            leases=rows,
            items=items,
            streams=tuple(map(self._listed, self.fleet.stream.generations)),
        )

    def _listed(self, stream: SimStream) -> StreamSnapshot:
        """A stream as Kinesis lists it."""
        identifier = stream.prefix.removesuffix(":") or None
        if stream.is_deleted:
            is_listed = stream.name in self.fleet.listed
            return StreamSnapshot(
                name=stream.name, identifier=identifier, is_listed=is_listed, gone="it was deleted"
            )
        shards = []
        for one in stream.shards.values():
            parents = [parent.removeprefix(stream.prefix) for parent in one.parents]
            shards.append(
                Shard(
                    one.shard_id.removeprefix(stream.prefix),
                    HashRange(one.start_key, one.end_key),
                    "0",
                    None,
                    *parents,
                )
            )
        return StreamSnapshot(name=stream.name, identifier=identifier, shards=tuple(shards))

    async def _once(self) -> None:
        fleet, rng = self.fleet, self._rng
        first = await self._look()
        await asyncio.sleep(fleet.leases.failover_s)
        watch = Snapshots((first, await self._look()))
        verb = rng.choice(_VERBS)
        rows = [
            one
            for key, one in sorted(watch.last.leases.items())
            if fleet.stream.find(key) is not None
            and (verb is SteerVerb.DELETE or not one.is_finished)
        ]
        if not rows:
            return
        lease = rng.choice(rows)
        position = self._position(lease) if verb is SteerVerb.RESET else None
        step = plan_step(watch, lease, verb, fleet.leases.failover_s, position)
        fleet.court.counts[f"steer {verb} {step.way}"] += 1
        if step.way not in (SteerWay.WRITE, SteerWay.ASK):
            return
        until_s = self._clock.wall() + rng.uniform(1, LASTS_S) if verb is SteerVerb.PAUSE else None
        request = self._request(step, f"{self.number}-{rng.random()}", verb, until_s)
        fleet.trace.add("", f"{verb.upper()} {short(lease.lease_key)} {step.way} {position or ''}")
        why = await self._carry_out(step, request)
        fleet.court.counts[f"steer {verb} {'done' if why is None else 'not done'}"] += 1

    async def _carry_out(self, step: SteerStep, request: LeaseRequest) -> str | None:
        """Run one command, which may end early; what it takes back is not done afterwards."""
        steering, counts = self._new_steering(), self.fleet.court.counts
        chance, ends_s = self._rng.random(), self._rng.uniform(0, LASTS_S / 6)
        outcome: list[str | None] = []

        async def work() -> None:
            try:
                outcome.append(await steering.carry_out(step, request, LASTS_S))
            except AwsError:
                counts["steer failed"] += 1

        async with asyncio.TaskGroup() as group:
            working = group.create_task(work())
            if chance < _INTERRUPTED + _FAILED + _KILLED:
                await asyncio.sleep(ends_s)
                if chance < _INTERRUPTED:
                    counts["steer interrupted"] += not working.done()
                    steering.interrupt()
                elif chance < _INTERRUPTED + _FAILED:
                    counts["steer ended"] += working.cancel()
                else:
                    steering.interrupt()  # so that it takes nothing back
                    counts["steer killed"] += working.cancel()
        why = outcome[0] if outcome else "it ended before"
        if why is not None and not steering.asked:
            self.fleet.judges.table.requests.withdrawn(request.request_id)
        return why

    def _new_steering(self) -> LeaseSteering:
        return LeaseSteering(self._dynamodb, self._store, self._clock)

    async def _lineage(self) -> None:
        """Reset a shard that was read to its end, and all that follow it, while nobody works."""
        fleet, rng = self.fleet, self._rng
        if any(member.alive for member in fleet.members):
            return  # others can't be stopped here
        if not self._roots(Snapshots((await self._look(),))):
            return
        fleet.open.clear()
        try:
            nodes = fleet.alive()
            for node in nodes:
                node.stop()
            async with asyncio.timeout(_STOPS_S):
                await asyncio.gather(*(node.ended.wait() for node in nodes))
            fleet.judges.fleet.all_ended()
            first = await self._look()
            await asyncio.sleep(fleet.leases.failover_s)
            watch = Snapshots((first, await self._look()))
            if not (found := self._roots(watch)):
                return
            lease = rng.choice(found)
            roots = {lease.lease_key: self._position(lease)}
            steps = plan_lineage(watch, roots, fleet.leases.failover_s)
            way = min(step.way for step in steps)  # refused before together
            fleet.court.counts[f"steer lineage {way}"] += 1
            if way is SteerWay.REFUSED:
                return
            token = f"{self.number}-{rng.random()}"
            pairs = [(step, self._request(step, token, SteerVerb.RESET)) for step in steps]
            told = " ".join(f"{short(step.lease.lease_key)} {step.position}" for step in steps)
            fleet.trace.add("", f"RESET TOGETHER {told}")
            why = await self._new_steering().carry_out_together(pairs, watch.last.leases, token)
            fleet.court.counts[f"steer lineage {'done' if why is None else 'not done'}"] += 1
        finally:
            fleet.open.set()

    def _roots(self, watch: Snapshots) -> list[Lease]:
        """Shards that were read to their end, or have no row."""
        finished = {key: row for key, row in watch.last.leases.items() if row.is_finished}
        rows = {**missing_rows(watch), **finished}
        return [rows[key] for key in sorted(rows) if self.fleet.stream.deleted_s(key) is None]

    def _request(
        self, step: SteerStep, request_id: str, verb: SteerVerb, until_s: float | None = None
    ) -> LeaseRequest:
        position = step.position
        return LeaseRequest(
            request_id=request_id,
            verb=str(verb),
            holder=str(step.lease.lease_owner) if step.way is SteerWay.ASK else "",
            expires_s=self._clock.wall() + LASTS_S,
            sequence_number=None if position is None else position.sequence_number,
            sub_sequence_number=0 if position is None else position.sub_sequence_number,
            until_s=until_s,
        )

    def _position(self, lease: Lease) -> ExtendedSequenceNumber:
        truth = self.fleet.stream.find(lease.lease_key)
        if truth is None or not truth.places or self._rng.random() < 0.2:
            return TRIM_HORIZON
        number, sub = self._rng.choice(truth.places)
        return ExtendedSequenceNumber(str(number), sub)
