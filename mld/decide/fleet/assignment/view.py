"""What the leader sees when it looks at the fleet once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.fleet.worker_metrics import WorkerMetrics
    from mld.model.leases.lease import Lease


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One look at the tables.

    Attributes:
        leases: every row of one scan, finished ones included, sorted by key.
        metrics: the newest item of worker metrics of each worker, as stored; None = they were not
            read.
        leader: worker id of who looks; it knows that it lives.
        now: reading of ``Clock.monotonic`` after the scan.
        epoch_s: wall clock at the same moment, seconds since 1970; workers stamp their metrics
            with theirs.
    """

    leases: tuple[Lease, ...]
    metrics: tuple[WorkerMetrics, ...] | None
    leader: str
    now: float
    epoch_s: float
