"""How far behind shards are by the metrics of their owners, without a question to anybody.

A worker of kcl-mld in a 3.x fleet reports the worst of its shards every 30 s. No other shard that it
reads is further behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.fleet.rules.client_version import ALIVE_S
from kcl_mld.kernel.model.text import lasted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
    from kcl_mld.observe.rules.watching import ExplainRules

#: Number of workers that a sentence names.
_NAMED = 3


def report_of(snapshot: FleetSnapshot, worker: str | None) -> WorkerMetrics | None:
    """A worker's newest metrics, if they are recent and have the lag of its worst shard."""
    found = [
        one
        for one in (() if snapshot.items is None else snapshot.items.metrics)
        if one.worker_id == worker
        and one.worst_lag is not None
        and snapshot.wall_s - one.updated_at_s <= ALIVE_S
    ]
    return max(found, key=lambda one: one.updated_at_s, default=None)


def reported_lags(snapshots: Iterable[FleetSnapshot], lease: Lease) -> dict[float, float]:
    """Lag of a shard that is its owner's worst, by the epoch seconds of the reports."""
    reports = (report_of(one, lease.actual_owner) for one in snapshots)
    return {
        float(one.updated_at_s): float(one.worst_lag.seconds)
        for one in reports
        if one is not None
        and one.worst_lag is not None
        and one.worst_lag.lease_key == lease.lease_key
    }


def bound_text(snapshot: FleetSnapshot, lease: Lease, least_s: float) -> str:
    """That a shard may be behind, as its owner's worst one is; "" = not by more than ``least_s``."""
    report = report_of(snapshot, lease.actual_owner)
    worst = None if report is None else report.worst_lag
    if report is None or worst is None or worst.seconds <= least_s:
        return ""
    age_s = max(0.0, snapshot.wall_s - report.updated_at_s)
    return (
        f"it is at most {lasted(worst.seconds)} behind, as the worst shard of its owner was "
        f"{lasted(age_s)} ago ({worst.lease_key})"
    )


def lag_facts(snapshots: Sequence[FleetSnapshot], rules: ExplainRules) -> Iterator[str]:
    """A sentence on owners whose shards' lag is in no table, if nobody was asked for it."""
    last = snapshots[-1]
    if last.tips:
        return
    asked = {page.worker for page in last.pages}
    owners = {
        lease.actual_owner
        for lease in last.leases.values()
        if lease.actual_owner is not None and not lease.is_finished
    }
    # This version names its process in each report, also before it has a lag to report.
    metrics = () if last.items is None else last.items.metrics
    reporting = {one.worker_id for one in metrics if one.instance is not None}
    silent = sorted(owners - asked - reporting)
    if silent:
        named = ", ".join(silent[:_NAMED])
        more = len(silent) - _NAMED
        shown = f"{named} and {more} more" if more > 0 else named
        asks = "asks Kinesis" if rules.traits.most_readers is None else "asks the workers"
        yield f"The table has no lag of {shown}: {rules.asking} {asks} for it"
