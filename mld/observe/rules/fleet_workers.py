"""The workers of a fleet, as its rows and their own metrics show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_metrics import FAILED_SAMPLE
from kcl_mld.fleet.rules.client_version import ALIVE_S
from kcl_mld.observe.model.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.model.verdict import Conclusion, Explanation

#: Short name of the CPU among the samples of a worker.
_CPU = "C"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """One worker, by its id.

    Attributes:
        worker: as ``leaseOwner`` has it.
        leases: unfinished ones that it owns; a hand-off counts for the old owner.
        silent: of them, those that it does not renew.
        lives: it was seen to renew a lease, or, owning none, has written metrics within a minute;
            False = it does not; None = not known, as by one snapshot.
        leads: it owns the leader lock.
        group: of 3.x workers of kcl-mld that have one.
        cpu_percent: its newest sample; None = it reports none.
        throughput_kbps: KiB/s of its leases together; None = no lease has it.
        metrics_age_s: seconds since it wrote its metrics; None = it writes none.
    """

    worker: str
    leases: int = 0
    silent: int = 0
    lives: bool | None = None
    leads: bool = False
    group: str | None = None
    cpu_percent: float | None = None
    throughput_kbps: float | None = None
    metrics_age_s: float | None = None


def fleet_workers(snapshot: FleetSnapshot, explained: Explanation) -> tuple[WorkerState, ...]:
    """All that own a lease, write metrics or lead; the silent first, then by their names.

    Args:
        explained: what it and those before it show.
    """
    metrics: dict[str, WorkerMetrics] = {}
    leader = None
    if snapshot.items is not None:
        for one in snapshot.items.metrics:
            before = metrics.get(one.worker_id)
            if before is None or before.updated_at_s < one.updated_at_s:
                metrics[one.worker_id] = one
        leader = snapshot.items.leader
    owned: dict[str, list[Conclusion]] = {}
    for shard in explained.shards:
        if shard.lease is not None and shard.lease.actual_owner and not shard.lease.is_finished:
            owned.setdefault(shard.lease.actual_owner, []).append(shard)
    names = {*owned, *metrics, *([leader] if leader else [])}
    found = [
        _worker(name, owned.get(name, []), metrics.get(name), snapshot.wall_s, leads=name == leader)
        for name in names
    ]
    return tuple(sorted(found, key=lambda one: (one.lives is not False, one.worker)))


def _worker(
    name: str,
    owned: list[Conclusion],
    metrics: WorkerMetrics | None,
    now_s: float,
    *,
    leads: bool,
) -> WorkerState:
    age_s = None if metrics is None else max(0.0, now_s - metrics.updated_at_s)
    silent = sum(one.verdict is Verdict.OWNER_SILENT for one in owned)
    if any(one.lives for one in owned):
        lives: bool | None = True
    elif owned:
        lives = False if silent == len(owned) else None
    else:
        lives = None if age_s is None else age_s <= ALIVE_S
    return WorkerState(
        worker=name,
        leases=len(owned),
        silent=silent,
        lives=lives,
        leads=leads,
        group=None if metrics is None else metrics.group,
        cpu_percent=None if metrics is None else _cpu(metrics),
        throughput_kbps=throughput_kbps(owned),
        metrics_age_s=age_s,
    )


def _cpu(metrics: WorkerMetrics) -> float | None:
    samples = [one for one in metrics.samples.get(_CPU, ()) if one != FAILED_SAMPLE]
    return samples[-1] if samples else None


def throughput_kbps(shards: Iterable[Conclusion]) -> float | None:
    """KiB/s of the leases whose live owners report it; None = none does."""
    reported = [
        one.lease.throughput_kbps
        for one in shards
        if one.lives and one.lease is not None and one.lease.throughput_kbps is not None
    ]
    return sum(reported) if reported else None
