"""A follower that knows which leases have expired when it begins to lead."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError
from kcl_mld.fleet.model.worker_metrics import metrics_in
from kcl_mld.fleet.rules.leader_lock import is_standby
from kcl_mld.leases.rules.discovery import Informed, is_small

if TYPE_CHECKING:
    from kcl_mld.config.fleet import FleetConfig
    from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
    from kcl_mld.fleet.leader_lock import LeaderLock
    from kcl_mld.fleet.lease_assigner import LeaseAssigner
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.fleet")

#: A follower reuses a scan of another purpose that is no older than this many pauses.
RECENT = 1.5


class StandbyLeader:
    """Scans the leases while another worker leads, so that it can lead with a memory.

    Only a worker that saw a counter stand still for the failover time knows that its lease is free. A
    leader that begins without having looked needs that time once more, so a few followers look as
    often as the leader shows that it lives; at a table that is not small only while the leader does
    not show it. There are few, whatever the size of the fleet: each knows from the table whether it
    is one.

    Args:
        lock: whether this worker leads.
        assigner: is shown each scan.
        config: section ``fleet``.
    """

    def __init__(
        self,
        store: LeaseStore,
        items: CoordinatorStateStore,
        lock: LeaderLock,
        assigner: LeaseAssigner,
        worker_id: str,
        config: FleetConfig,
        runtime: Runtime,
    ) -> None:
        self._store = store
        self._items = items
        self._lock = lock
        self._assigner = assigner
        self._worker_id = worker_id
        self._every_s = config.lock_heartbeat_s
        self._idle_s = config.report_s
        self._clock = runtime.clock
        self._rng = runtime.rng

    async def run(self) -> None:
        """Scan while following and among the first; check periodically whether that is so."""
        while True:
            pause_s = self._every_s
            if self._is_spared():
                pause_s = self._idle_s
            elif not await self._lock.is_leader():
                try:
                    scan = self._recent() or await self._store.scan()
                except AwsError as error:
                    log.debug("Could not scan the leases: %s", error)
                else:
                    self._assigner.observe(scan)
                    if not await self._is_standby(scan):
                        pause_s = self._idle_s
            await self._lock.suspected.wait(pause_s * (1 - self._rng.random() / 10))

    def _is_spared(self) -> bool:
        """While the lock shows that the leader lives, a scan is made of a small table only."""
        scan = self._store.last_scan
        is_announced = self._lock.informed is Informed.ANNOUNCED
        return (
            is_announced
            and not self._lock.is_suspect
            and scan is not None
            and not is_small(scan.items)
        )

    def _recent(self) -> TableScan | None:
        """A scan that was made for another purpose, if recent enough."""
        scan = self._store.last_scan
        recent_s = self._every_s * RECENT
        if self._lock.informed is Informed.ANNOUNCED and not self._lock.is_suspect:
            recent_s = self._lock.follow_s * RECENT
        if scan is None or self._clock.monotonic() - scan.started_at > recent_s:
            return None
        return scan

    async def _is_standby(self, scan: TableScan) -> bool:
        metrics, _ = metrics_in(scan.foreign.values(), self._items.layout.leases.key_name)
        if self._items.layout.metrics != self._items.layout.leases:
            try:
                metrics += (await self._items.legacy_metrics())[0]
            except AwsError as error:
                log.debug("Could not read the metrics of the fleet: %s", error)
                return True
        return is_standby(self._worker_id, metrics, self._clock.earliest())
