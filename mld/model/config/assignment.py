"""What the file says about how a leader of a 3.x fleet shares out the leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.model.config.java_text import parse_duration
from mld.model.config.keys import DOUBLE_MAX

if TYPE_CHECKING:
    from mld.model.config.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentConfig:
    """Sharing out leases; only the leader's own counts.

    Attributes:
        is_graceful: the old owner of a lease is asked to finish first.
        by_count: leases are only counted.
        interval_s: Java's distance of two looks of the leader; here a part of ``balance_s``.
        balance_s: leases of living workers move this often for their load.
        max_throughput_kbps: a worker above it gets no more leases.
        threshold: share of the mean by which loads may differ.
        dampening: share of a difference that is moved at once.
        allows_overshoot: where every lease is more than that, move the smallest.
        ema_alpha: weight of a worker's newest sample.
        metrics_stale_s: age at which a worker's entry is deleted.
    """

    is_graceful: bool = True
    by_count: bool = False
    interval_s: float = 20.0
    balance_s: float = 60.0
    max_throughput_kbps: float = DOUBLE_MAX
    threshold: float = 0.1
    dampening: float = 0.6
    allows_overshoot: bool = True
    ema_alpha: float = 0.5
    metrics_stale_s: float = 86_400.0


def assignment_of(settings: Settings) -> AssignmentConfig:
    """The section; reports percentages that are none."""
    name = "leaseAssignmentIntervalMillis"
    if settings.value(name) is None:
        interval_ms = 2 * settings.number("failoverTimeMillis")
        settings.derive(name, interval_ms, "derived from failoverTimeMillis")
    interval_s = settings.seconds(name)
    return AssignmentConfig(
        is_graceful=settings.flag("isGracefulLeaseHandoffEnabled"),
        by_count=settings.value("leaseAssignmentStrategy") == "LEASE_COUNT_BASED",
        interval_s=interval_s,
        balance_s=interval_s * settings.number("varianceBalancingFrequency"),
        max_throughput_kbps=_decimal(settings, "maxThroughputPerHostKBps"),
        threshold=settings.number("reBalanceThresholdPercentage") / 100,
        dampening=min(1.0, _percentage(settings, "dampeningPercentage")),
        allows_overshoot=settings.flag("allowThroughputOvershoot"),
        ema_alpha=_alpha(settings),
        metrics_stale_s=_duration(settings, "staleWorkerMetricsEntryCleanupDuration"),
    )


def _decimal(settings: Settings, name: str) -> float:
    value = settings.value(name)
    assert isinstance(value, int | float), f"{name} has a number as its default"
    return float(value)


def _duration(settings: Settings, name: str) -> float:
    """Seconds; the default is in the table as it would be written."""
    value = settings.value(name)
    seconds = parse_duration(value) if isinstance(value, str) else value
    assert isinstance(seconds, int | float), f"{name} has a duration as its default"
    return float(seconds)


def _percentage(settings: Settings, name: str) -> float:
    percentage = settings.number(name)
    if percentage > 100:
        settings.warn(name, f"{percentage} % of a difference count as 100", f"write {name} = 100")
    return percentage / 100


def _alpha(settings: Settings) -> float:
    name = "workerMetricsEMAAlpha"
    alpha = _decimal(settings, name)
    if alpha > 1:
        settings.warn(name, f"{alpha} counts as 1: only the newest sample", f"write {name} = 1")
    return min(1.0, alpha)
