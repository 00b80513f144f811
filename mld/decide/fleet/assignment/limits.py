"""The part of the configuration that matters for assigning leases."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.config.config import Config

#: Metrics older than so many periods of the leader's own reports are of no use.
#: Source: LeaseAssignmentManager (3.5.1).
REPORTS_MISSED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentLimits:
    """What the leader keeps to.

    Attributes:
        failover_s: > 0; a counter unchanged for longer than this means expired.
        hand_off_timeout_s: >= 0; how long an old owner may finish. The leader waits for it, and
            ``failover_s`` more, before it finishes a hand-off itself.
        is_graceful: planned moves are hand-offs; False = the old owner simply loses the lease.
        max_leases: upper bound of unfinished leases of a worker, >= 1.
        max_throughput_kbps: a worker above it gets no more leases.
        by_count: leases are only counted (``LEASE_COUNT_BASED``): neither throughput nor
            utilization matters.
        threshold: share of the mean by which a worker's utilization may differ, 0.1 = 10 %.
        dampening: share of an imbalance of utilization that one balance moves, 0.6 = 60 %.
        allows_overshoot: where every lease is more than what is to be moved, move the smallest.
        ema_alpha: weight of the newest sample of a worker's metric, 0..1.
        balance_interval_s: > 0; distance of two balances of the same workers.
        metrics_expiry_s: a worker whose metrics are older is not there.
        metrics_stale_s: metrics older than this are to be deleted.
    """

    failover_s: float = 10.0
    hand_off_timeout_s: float = 30.0
    is_graceful: bool = True
    max_leases: int = 2**31 - 1
    max_throughput_kbps: float = math.inf
    by_count: bool = False
    threshold: float = 0.1
    dampening: float = 0.6
    allows_overshoot: bool = True
    ema_alpha: float = 0.5
    balance_interval_s: float = 60.0
    metrics_expiry_s: float = 60.0
    metrics_stale_s: float = 86_400.0

    @classmethod
    def of(cls, config: Config) -> AssignmentLimits:
        """What the leader's configuration says."""
        leases, assignment = config.leases, config.assignment
        return cls(
            failover_s=leases.failover_s,
            hand_off_timeout_s=leases.hand_off_timeout_s,
            is_graceful=assignment.is_graceful,
            max_leases=leases.max_leases_for_worker,
            max_throughput_kbps=assignment.max_throughput_kbps,
            by_count=assignment.by_count,
            threshold=assignment.threshold,
            dampening=assignment.dampening,
            allows_overshoot=assignment.allows_overshoot,
            ema_alpha=assignment.ema_alpha,
            balance_interval_s=assignment.balance_s,
            metrics_expiry_s=REPORTS_MISSED * config.fleet.report_s,
            metrics_stale_s=assignment.metrics_stale_s,
        )

    def has_room(self, count: int, kbps: float) -> bool:
        """True for a worker that may have one lease more.

        Args:
            count: its unfinished leases.

        Source: WorkerMetricStats.willAnyMetricGoAboveAverageUtilizationOrOperatingRange's caller
        and VarianceBasedLeaseAssignmentDecider.initialize (3.5.1): what it has, not what it will.
        """
        return count < self.max_leases and kbps <= self.max_throughput_kbps
