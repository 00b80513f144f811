"""Puts together what it takes to be one of a 3.x fleet."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.fleet.assignment.limits import AssignmentLimits
from mld.decide.fleet.leader_lock import LockTiming
from mld.model.fleet.worker_metrics import metrics_in
from mld.services.fleet.deputy import Deputy
from mld.services.fleet.fleet_member import FleetParts
from mld.services.fleet.flip_watch import FlipWatch
from mld.services.fleet.index_keeper import IndexKeeper
from mld.services.fleet.leader_lock import LeaderLock
from mld.services.fleet.lease_assigner import FleetItems, LeaseAssigner
from mld.services.fleet.lock_store import LockStore
from mld.services.fleet.table_migrator import TableMigrator
from mld.services.fleet.worker_metrics_reporter import WorkerMetricsReporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config.config import Config
    from mld.model.fleet.worker_metrics import WorkerMetrics
    from mld.model.leases.lease import Lease
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import Clock
    from mld.services.conditions import Conditions
    from mld.services.fleet.coordinator_state import CoordinatorStateStore
    from mld.services.fleet.fleet_state import FleetState
    from mld.services.fleet.leadership import Leadership
    from mld.services.fleet.worker_metrics_reporter import FindLoad, ReadMetrics
    from mld.services.leases.lease_renewer import LeaseRenewer
    from mld.services.leases.lease_scan import TableScan
    from mld.services.leases.lease_store import LeaseStore
    from mld.services.runtime import Runtime

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNeeds:
    """What the parts are made of.

    Attributes:
        items: of the fleet, beside its leases.
        elected: who leads where leases are taken.
        expect: told the key of each lease that this worker, as the leader, gave itself.
        is_read: which leases count.
        find_load: finds what measures this worker's load; None = nothing does.
        conditions: for ``/readyz``.
    """

    dynamodb: DynamoDb
    config: Config
    runtime: Runtime
    store: LeaseStore
    renewer: LeaseRenewer
    items: CoordinatorStateStore
    state: FleetState
    elected: Leadership
    expect: Callable[[str], None]
    is_read: Callable[[Lease], bool]
    find_load: FindLoad | None
    conditions: Conditions


def fleet_parts(needs: FleetNeeds) -> FleetParts:
    """All parts; none does anything before the fleet's generation asks for it."""
    config, runtime = needs.config, needs.runtime
    store, items, state = needs.store, needs.items, needs.state
    duty = LeaseAssigner(
        store,
        needs.renewer,
        fleet_items(items, runtime.clock, needs.conditions),
        AssignmentLimits.of(config),
        config.worker_id,
        runtime,
        needs.expect,
        needs.is_read,
    )

    async def confirm_place() -> None:
        if not items.layout.is_single_table:
            await state.look()

    def scanned() -> TableScan | None:
        return store.last_scan if items.layout.lock == items.layout.leases else None

    reporter = WorkerMetricsReporter(
        items,
        config.fleet,
        config.worker_id,
        runtime,
        needs.find_load,
        metrics_reader(store, items, runtime.clock, config.fleet.report_s),
        needs.conditions,
        duty.wake,
        failover_s=config.leases.failover_s,
        lapses=needs.renewer.lapses,
    )
    lock = LeaderLock(
        LockStore(needs.dynamodb),
        lambda: items.layout.lock,
        config.worker_id,
        LockTiming(config.fleet.lock_duration_s, config.fleet.lock_heartbeat_s),
        runtime,
        on_gain=duty.lead,
        on_loss=needs.renewer.lapses.wake,
        confirm_place=confirm_place,
        scanned=scanned,
        conditions=needs.conditions,
    )
    deputy = Deputy(store, items, lock, duty, config.worker_id, config.fleet, runtime)
    migrator = TableMigrator(state, items, store, lock, config.fleet, config.worker_id, runtime)
    return FleetParts(
        lock=lock,
        duty=duty,
        reporter=reporter,
        flip=FlipWatch(state, items, store, needs.elected.is_leader, runtime.clock),
        index=IndexKeeper(store, lock, needs.elected, state),
        loops=(deputy.run, migrator.run),
    )


def metrics_reader(
    store: LeaseStore, items: CoordinatorStateStore, clock: Clock, recent_s: float
) -> ReadMetrics:
    """The metrics of all workers, for whoever needs them now and then.

    Args:
        store: the lease table.
        items: of the fleet.
        clock: of the scans.
        recent_s: a scan that was made for another purpose serves while it is not older.
    """

    async def read() -> tuple[WorkerMetrics, ...]:
        scan = store.last_scan
        if scan is None or clock.monotonic() - scan.started_at > recent_s:
            scan = await store.scan()
        stored, _broken = await _stored(items, scan)
        return tuple(stored.values())

    return read


def fleet_items(items: CoordinatorStateStore, clock: Clock, conditions: Conditions) -> FleetItems:
    """The metrics of all workers, as the assigner reads them.

    Args:
        items: of the fleet.
        clock: the one of the assigner.
        conditions: for ``/readyz``.
    """
    # A wall clock that is set anew must not make what was noted before young or old.
    ahead_s = clock.wall() - clock.monotonic()

    def now_s() -> float:
        return clock.monotonic() + ahead_s

    unreadable: set[tuple[str, str]] = set()

    async def read(scan: TableScan) -> tuple[WorkerMetrics, ...]:
        stored, broken = await _stored(items, scan)
        for worker, why in sorted(set(broken) - unreadable):
            text = "The metrics of worker %s can't be read, so it is given no leases: %s"
            log.warning(text, worker, why)
        unreadable.clear()
        unreadable.update(broken)
        return tuple(stored.values())

    def in_scan(scan: TableScan) -> tuple[WorkerMetrics, ...] | None:
        if not items.layout.is_single_table:
            return None
        return metrics_in(scan.foreign.values(), items.layout.leases.key_name)[0]

    async def delete(metrics: WorkerMetrics) -> None:
        for place in items.layout.metrics_reads:
            await items.delete_metrics(place, metrics)

    return FleetItems(read, in_scan, delete, now_s, conditions)


async def _stored(
    items: CoordinatorStateStore, scan: TableScan
) -> tuple[dict[str, WorkerMetrics], tuple[tuple[str, str], ...]]:
    """Worker id -> its metrics, the newer of two items; and (worker id, why) of the unreadable."""
    found, broken = metrics_in(scan.foreign.values(), items.layout.leases.key_name)
    stored = {one.worker_id: one for one in found}
    if not items.layout.is_single_table:
        legacy = await items.legacy_metrics()
        broken += legacy.broken
        for one in legacy.metrics:
            other = stored.get(one.worker_id)
            if other is None or other.updated_at_s < one.updated_at_s:
                stored[one.worker_id] = one
    return stored, broken
