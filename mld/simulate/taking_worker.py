"""A worker of a 2.x fleet: it looks at the table from time to time and helps itself."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mld.decide.taking import Sighting, TakeLimits, look, plan_taking
from mld.simulate.profile import JAVA_ELECTION_S
from mld.simulate.worker import SimulatedWorker

if TYPE_CHECKING:
    from mld.model.lease import Lease


class TakingWorker(SimulatedWorker):
    """Looks, takes one lease after the other, pauses."""

    def start(self) -> None:
        """Look at once."""
        scenario = self.fleet.scenario
        self._seen: dict[str, Sighting] = {}
        self._limits = TakeLimits(
            failover_s=scenario.failover_s,
            max_leases=scenario.max_leases,
            max_steal=scenario.max_steal,
            prefer_very_old=True,
        )
        self._look()

    def _look(self) -> None:
        now = self.fleet.events.now
        leases = self.fleet.table.scan(now)
        self._seen = look(self._seen, leases, now)
        plan = plan_taking(
            leases, self._seen, now, self.id, self.held.keys(), self._limits, self.fleet.rng
        )
        profile = self.fleet.profile
        at_s = 0.0
        for place, lease in enumerate(plan.leases):
            at_s = (place // profile.in_flight + 1) * profile.request_s
            self.later(at_s, partial(self._take, lease))
        self.later(at_s + profile.look_s, self._look)

    def _take(self, lease: Lease) -> None:
        now, key = self.fleet.events.now, lease.lease_key
        row = self.fleet.table.rows[key]
        loser = self.fleet.find(row.actual_owner)
        noticed_at = row.next_beat_at(now)
        if not self.fleet.table.take(lease, self.id, now):
            return
        if loser is not None and loser is not self:
            loser.lose(key, noticed_at)
        self._seen[key] = Sighting(lease.lease_counter + 1, now)
        self.hold(key)

    def count(self, until_s: float) -> None:
        """Put on the bill what a 2.x worker reads besides: the table for each election."""
        lived_s = min(until_s, self.ended_at) - self.started_at
        self.fleet.table.bill.scan(len(self.fleet.table.rows), lived_s / JAVA_ELECTION_S)
