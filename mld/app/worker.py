"""A worker that is ready to run, and what others may ask of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.decide.leases.lease_report import left_free, told_free
from mld.decide.readiness import (
    TABLE_SILENT_INTERVALS,
    Readiness,
    WorkerSnapshot,
    readiness,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config.config import Config
    from mld.ports.clock import Clock
    from mld.services.cloudwatch_metrics import CloudWatchMetrics
    from mld.services.conditions import Conditions
    from mld.services.fleet.lease_coordinator import LeaseCoordinator
    from mld.services.scheduler import Scheduler
    from mld.services.streams.stream_context import WorkerStreams
    from mld.services.watchdog import LoopWatchdog


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to run.

    Attributes:
        coordinator: what it holds.
        metrics: close it after the scheduler has ended; None without CloudWatch.
        dropped_messages: log messages since the start that nobody took or that could not be written.
    """

    config: Config
    scheduler: Scheduler
    coordinator: LeaseCoordinator
    watchdog: LoopWatchdog
    metrics: CloudWatchMetrics | None
    conditions: Conditions
    clock: Clock
    streams: WorkerStreams
    dropped_messages: Callable[[], int]

    def snapshot(self) -> WorkerSnapshot:
        """This worker as it is now, for who judges it."""
        scan = self.coordinator.store.last_scan
        return WorkerSnapshot(
            state=self.scheduler.state,
            conditions=self.conditions.current(),
            shards=tuple(one.status() for one in self.scheduler.consumers()),
            scan_age_s=None if scan is None else self.clock.monotonic() - scan.finished_at,
            scan_interval_s=self.config.leases.taker_interval_s,
            left_free=self._why_free(self.left_free()),
        )

    def readiness(self, max_age_s: float | None = None) -> Readiness:
        """What ``/readyz`` answers; see :func:`mld.decide.readiness.readiness`."""
        return readiness(self.snapshot(), max_age_s)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """(lease key, why) of the rows that the last scan of the lease table could not read."""
        scan = self.coordinator.store.last_scan
        return () if scan is None else scan.broken

    def left_free(self) -> tuple[str, ...]:
        """Keys of leases that get no owner, because no worker may hold more.

        Of the last scan of the lease table; none where that is long ago: of a fleet of 3.x the
        leader scans it all the time.
        """
        scan, leases = self.coordinator.store.last_scan, self.config.leases
        oldest_s = TABLE_SILENT_INTERVALS * leases.taker_interval_s
        if scan is None or self.clock.monotonic() - scan.finished_at > oldest_s:
            return ()
        return left_free(scan.leases, leases.max_leases_for_worker, [self.config.worker_id])

    def _why_free(self, keys: tuple[str, ...]) -> str:
        return told_free(len(keys), self.config.leases.max_leases_for_worker) if keys else ""

    def _waiting_workers(self) -> list[dict[str, Any]]:
        """Newcomers that get no leases yet; only the leader knows them."""
        waiting = self.coordinator.member.waiting()
        return [{"worker_id": one, "wait_s": wait_s} for one, wait_s in waiting.items()]

    def status(self) -> dict[str, Any]:
        """What ``/leases`` shows: this worker, and per held lease its state, lag and age."""
        consumers = {one.lease_key: one.status() for one in self.scheduler.consumers()}
        return {
            "worker_id": self.config.worker_id,
            "application": self.config.application_name,
            **self.streams.shown(),
            "state": self.scheduler.state,
            "log_messages_dropped": self.dropped_messages(),
            "unreadable": [{"lease_key": key, "why": why} for key, why in self.unreadable()],
            "left_free": list(self.left_free()),
            "waiting_workers": self._waiting_workers(),
            "leases": [
                {
                    "lease_key": held.lease.lease_key,
                    "stream": held.lease.stream_identifier or self.config.stream.name,
                    "shard_id": held.lease.shard_id,
                    "checkpoint": str(held.lease.checkpoint),
                    "counter": held.lease.lease_counter,
                    **(
                        consumers[held.lease.lease_key].as_dict()
                        if held.lease.lease_key in consumers
                        else {"state": "FINISHED" if held.lease.is_finished else "STARTING"}
                    ),
                }
                for held in self.coordinator.renewer.held()
            ],
        }
