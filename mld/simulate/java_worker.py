"""A Java worker of a 3.x fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from mld.simulate.assigned_worker import AssignedWorker
from mld.simulate.java_assignment import JavaMove, LeaderMemory, plan
from mld.simulate.profile import METRICS_EXPIRY_S

if TYPE_CHECKING:
    from collections.abc import Sequence


class JavaWorker(AssignedWorker):
    """Looks at fixed rates, and leads as Java does."""

    def start(self) -> None:
        """Begin all loops; the first discovery finds that the worker is not ready yet."""
        self._memory = LeaderMemory()
        super().start()

    def discover(self) -> None:
        """Ask the index after each period."""
        self.later(self.fleet.profile.discovery_s, self._discover)

    def gain_lead(self) -> None:
        """Begin without memory."""
        self._memory = LeaderMemory()

    def plan(self, now: float) -> Sequence[JavaMove]:
        """See :mod:`mld.simulate.java_assignment`; workers come in the order of a scan."""
        leases = self.fleet.table.scan(now)
        reporting = [
            worker.id
            for worker in self.with_metrics()
            if now - worker.reported_at(now) <= METRICS_EXPIRY_S
        ]
        workers = sorted(reporting, key=lambda worker: crc32(worker.encode()))
        scenario = self.fleet.scenario
        return plan(
            leases,
            workers,
            now,
            self._memory,
            scenario.failover_s,
            scenario.max_leases,
            self.fleet.rng,
        )

    def _discover(self) -> None:
        table = self.fleet.table
        keys = table.keys_of(self.id)
        table.bill.query(len(keys))
        for key in keys:
            if key not in self.held:
                table.bill.get()
                if table.rows[key].checkpoint_owner is None:
                    self.hold(key)
        self.discover()
