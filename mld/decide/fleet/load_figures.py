"""Whether a worker tells the leader the CPU that it measures.

A Java leader compares each measure among the workers that have it, and a worker without any by the
throughput of its leases, again only with others of that kind. So no lease moves between those that
report CPU and those that do not. Java measures on EC2, ECS and EKS only; a worker of ours that
measures elsewhere, beside Java workers that do not, would get what nobody reads and no more. It
keeps its figures to itself as long as one of the others has none.

Source: VarianceBasedLeaseAssignmentDecider, WorkerMetricStats (3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mld.decide.fleet.worker_sightings import WorkerSightings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mld.model.fleet.worker_metrics import WorkerMetrics

#: So long after the last sight of a worker without figures they are not reported: workers that are
#: started again one after the other are one change, not many.
QUIET_S = 300.0


@dataclass(frozen=True, slots=True)
class OtherFigures:
    """What a worker knows of the others' figures.

    Attributes:
        are_reported: it reports its own.
        without: ids of workers that have none, as of the last look, sorted.
        seen_without_at: reading of the monotonic clock when there was such a worker; None = never.
        sightings: which items have moved.
    """

    are_reported: bool = False
    without: tuple[str, ...] = ()
    seen_without_at: float | None = None
    sightings: WorkerSightings = field(default_factory=WorkerSightings)

    def seen(
        self, others: Sequence[WorkerMetrics], now: float, wall_s: float, expiry_s: float
    ) -> OtherFigures:
        """After a look.

        Args:
            others: one item of each other worker.
            now: reading of the monotonic clock.
            wall_s: epoch seconds.
            expiry_s: a worker whose item is older is not there.
        """
        sightings = self.sightings.seen(others, now)
        silent = [
            one.worker_id
            for one in others
            if not _measures(one)
            and wall_s - sightings.dated(one, now, wall_s).updated_at_s <= expiry_s
        ]
        # A first item says nothing: it was written before anything was measured.
        without = tuple(sorted(one for one in silent if sightings.stamps[one].has_moved))
        after = replace(self, without=without, sightings=sightings)
        if without:
            return replace(after, are_reported=False, seen_without_at=now)
        is_quiet = self.seen_without_at is None or now - self.seen_without_at >= QUIET_S
        return replace(after, are_reported=True) if is_quiet and not silent else after


def _measures(metrics: WorkerMetrics) -> bool:
    """One of ours says what it measures also while it keeps the figures to itself."""
    return bool(metrics.samples) or metrics.place is not None
