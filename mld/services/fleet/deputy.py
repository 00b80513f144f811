"""Looks at the leases while another worker leads, so as to lead with a memory.

Only who has seen a counter stand still for the failover time knows that its lease is free. A leader
that begins without having looked needs that time once more, so a few followers look as often as the
leader shows that it lives. There are few, whatever the size of the fleet: each knows from the table
whether it is one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.fleet.leader_lock import is_deputy
from mld.errors import AwsError
from mld.model.fleet.worker_metrics import metrics_in

if TYPE_CHECKING:
    from mld.model.config.fleet import FleetConfig
    from mld.services.fleet.coordinator_state import CoordinatorStateStore
    from mld.services.fleet.leadership import LeaderDuty, Leadership
    from mld.services.leases.lease_scan import TableScan
    from mld.services.leases.lease_store import LeaseStore
    from mld.services.runtime import Runtime

log = logging.getLogger(__name__)

#: A scan of another purpose serves that is no older than so many pauses.
RECENT = 1.5


class Deputy:
    """One follower's looks."""

    def __init__(
        self,
        store: LeaseStore,
        items: CoordinatorStateStore,
        lock: Leadership,
        duty: LeaderDuty,
        worker_id: str,
        config: FleetConfig,
        runtime: Runtime,
    ) -> None:
        """Look at nothing yet.

        Args:
            store: the lease table.
            items: says where metrics are.
            lock: whether this worker leads.
            duty: is shown each scan.
            worker_id: ours.
            config: section ``fleet``.
            runtime: clocks and chance.
        """
        self._store = store
        self._items = items
        self._lock = lock
        self._duty = duty
        self._worker_id = worker_id
        self._every_s = config.lock_heartbeat_s
        self._idle_s = config.report_s
        self._clock = runtime.clock
        self._rng = runtime.rng

    async def run(self) -> None:
        """Look while following and among the first; see now and then whether that is so."""
        while True:
            pause_s = self._every_s
            if not await self._lock.is_leader():
                try:
                    scan = self._recent() or await self._store.scan()
                except AwsError as error:
                    log.debug("Could not look at the leases: %s", error)
                else:
                    self._duty.observe(scan)
                    if not await self._is_one(scan):
                        pause_s = self._idle_s
            await asyncio.sleep(pause_s * (1 - self._rng.random() / 10))

    def _recent(self) -> TableScan | None:
        """A scan that was made for another purpose, if it serves."""
        scan = self._store.last_scan
        if scan is None or self._clock.monotonic() - scan.started_at > self._every_s * RECENT:
            return None
        return scan

    async def _is_one(self, scan: TableScan) -> bool:
        metrics, _ = metrics_in(scan.foreign.values(), self._items.layout.leases.key_name)
        if self._items.layout.metrics != self._items.layout.leases:
            try:
                metrics += (await self._items.legacy_metrics()).metrics
            except AwsError as error:
                log.debug("Could not read the metrics of the fleet: %s", error)
                return True
        return is_deputy(self._worker_id, metrics, self._clock.wall())
