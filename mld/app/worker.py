"""A worker that is ready to run, and its status."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kcl_mld import __version__
from kcl_mld.leases.rules.deleted_row import creating_command
from kcl_mld.leases.rules.lease_report import left_free, told_free
from kcl_mld.observe.rules.metric_readings import (
    WorkerFacts,
    observed,
    stream_and_shard,
    total_bytes,
)
from kcl_mld.observe.rules.readiness import (
    TABLE_SILENT_INTERVALS,
    Readiness,
    WorkerSnapshot,
    readiness,
)

if TYPE_CHECKING:
    from kcl_mld.app.ports import Ports
    from kcl_mld.app.scheduler import Scheduler, StopOutcome
    from kcl_mld.app.worker_streams import WorkerStreams
    from kcl_mld.children.model.consumer_status import ConsumerStatus
    from kcl_mld.config.config import Config
    from kcl_mld.fleet.lease_coordinator import LeaseCoordinator
    from kcl_mld.observe.cloudwatch_metrics import CloudWatchMetrics
    from kcl_mld.observe.metric_store import MetricPush, MetricStore
    from kcl_mld.observe.summary_log import SummaryLog
    from kcl_mld.signals.model.conditions import Conditions
    from kcl_mld.signals.model.metric_values import FamilyValues
    from kcl_mld.signals.watchdog import LoopWatchdog


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to run.

    Attributes:
        coordinator: its leases.
        cloudwatch: None with ``metricsLevel=NONE``.
        store: metrics for Prometheus and OTLP; None if neither is used.
        push: None without ``otlpMetrics``.
    """

    config: Config
    scheduler: Scheduler
    coordinator: LeaseCoordinator
    watchdog: LoopWatchdog
    cloudwatch: CloudWatchMetrics | None
    store: MetricStore | None
    push: MetricPush | None
    summary_log: SummaryLog
    conditions: Conditions
    streams: WorkerStreams
    ports: Ports

    async def run(self) -> StopOutcome:
        """Run the scheduler, and what reports on this worker, until stopped.

        Raises:
            MldError: as :meth:`~kcl_mld.app.scheduler.Scheduler.run`.
        """
        push = self.push
        return await self.scheduler.run(
            ("summary", partial(self.summary_log.run, self.snapshot)),
            *((("otlp", partial(push.run, self.readings)),) if push else ()),
        )

    def snapshot(self) -> WorkerSnapshot:
        """This worker as it is now, for health checks."""
        scan = self.coordinator.store.last_scan
        return WorkerSnapshot(
            state=self.scheduler.state,
            conditions=self.conditions.current(),
            shards=tuple(one.status() for one in self.scheduler.consumers()),
            scan_age_s=None if scan is None else self.ports.clock.monotonic() - scan.finished_at,
            scan_interval_s=self.config.leases.taker_interval_s,
            left_free=self._why_free(self.left_free()),
            max_age_s=self.config.metrics.max_age_s,
        )

    def readiness(self, max_age_s: float | None = None) -> Readiness:
        """What ``/readyz`` answers; see :func:`kcl_mld.observe.rules.readiness.readiness`.

        Args:
            max_age_s: None = the configured value.
        """
        return readiness(self.snapshot(), max_age_s)

    def readings(self) -> list[FamilyValues]:
        """All metrics now; without counted ones if metrics are not kept."""
        snapshot, by_shard = self.snapshot(), self.config.metrics.by_shard
        facts = WorkerFacts(
            snapshot=snapshot,
            about={
                "application": self.config.application_name,
                "worker_id": self.config.worker_id,
                "version": __version__,
            },
            unreadable=len(self.unreadable()),
            left_free=len(self.left_free()),
            child_timeout_s=self.config.child.answer_timeout_s,
            clock_ahead_s=self.ports.clock.ahead_s(),
            dropped_messages=self.ports.dropped_messages(),
            resident_bytes=self.ports.resident_bytes,
        )
        held = {stream_and_shard(one) for one in snapshot.shards}
        counted = [] if self.store is None else self.store.readings(held)
        return [*observed(facts, by_shard=by_shard), *counted]

    async def close_metrics(self, timeout_s: float) -> None:
        """Send the remaining metrics, after the scheduler has ended.

        Args:
            timeout_s: for each service; metrics that can't be sent within it are lost.
        """
        if self.cloudwatch is not None:
            await self.cloudwatch.close(timeout_s)
        if self.push is not None:
            await self.push.close(self.readings, timeout_s)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """(lease key, reason) of the rows that the last scan of the lease table could not read."""
        scan = self.coordinator.store.last_scan
        return () if scan is None else scan.broken

    def left_free(self) -> tuple[str, ...]:
        """Keys of leases that get no owner, because no worker may hold more.

        By the last scan of the lease table; none if that is too old. In a 3.x fleet, only the
        leader scans regularly.
        """
        scan, leases = self.coordinator.store.last_scan, self.config.leases
        oldest_s = TABLE_SILENT_INTERVALS * leases.taker_interval_s
        if scan is None or self.ports.clock.monotonic() - scan.finished_at > oldest_s:
            return ()
        return left_free(scan.leases, leases.max_leases_for_worker, [self.config.worker_id])

    def _why_free(self, keys: tuple[str, ...]) -> str:
        return told_free(len(keys), self.config.leases.max_leases_for_worker) if keys else ""

    def _clock_ahead_s(self) -> float | None:
        ahead_s = self.ports.clock.ahead_s()
        return None if ahead_s is None else round(ahead_s, 1)

    def _waiting_workers(self) -> list[dict[str, Any]]:
        """Newcomers that get no leases yet; known to the leader only."""
        waiting = self.coordinator.member.waiting()
        return [{"worker_id": one, "wait_s": wait_s} for one, wait_s in waiting.items()]

    def _deleted_rows(self) -> list[dict[str, Any]]:
        """Leases whose rows were deleted while this worker held them, until it holds them again."""
        return [
            {
                "lease_key": lease.lease_key,
                "checkpoint": str(lease.checkpoint),
                "command": creating_command(lease),
            }
            for lease in self.coordinator.renewer.deleted
        ]

    def _shown(self, shard: ConsumerStatus) -> dict[str, Any]:
        return {
            **shard.as_dict(),
            "child_resident_bytes": total_bytes(self.ports.resident_bytes, shard.pids),
        }

    def status(self) -> dict[str, Any]:
        """What ``/leases`` shows: this worker, and per held lease its state, lag and age."""
        snapshot = self.snapshot()
        consumers = {
            one.lease_key: status
            for one, status in zip(self.scheduler.consumers(), snapshot.shards, strict=True)
        }
        return {
            "worker_id": self.config.worker_id,
            "application": self.config.application_name,
            **self.streams.shown(),
            "state": self.scheduler.state,
            "reasons": readiness(snapshot).as_dict()["reasons"],
            "clock_ahead_s": self._clock_ahead_s(),
            "log_messages_dropped": self.ports.dropped_messages(),
            "unreadable": [{"lease_key": key, "why": why} for key, why in self.unreadable()],
            "left_free": list(self.left_free()),
            "waiting_workers": self._waiting_workers(),
            "deleted_rows": self._deleted_rows(),
            "leases": [
                {
                    "lease_key": held.lease.lease_key,
                    "stream": held.lease.stream_identifier or self.config.stream.name,
                    "shard_id": held.lease.shard_id,
                    "checkpoint": str(held.lease.checkpoint),
                    "counter": held.lease.lease_counter,
                    **(
                        self._shown(consumers[held.lease.lease_key])
                        if held.lease.lease_key in consumers
                        else {"state": "FINISHED" if held.lease.is_finished else "STARTING"}
                    ),
                }
                for held in self.coordinator.renewer.held()
            ],
        }
