"""What is said of renewals: a line of the log, metrics, and whether the worker is ready.

However many leases and rounds there are, trouble costs one line of the log in Java's period.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.leases.renewal import most_renewable
from mld.model.metrics import CURRENT_LEASES, LOST_LEASES, RENEW_ALL, RENEW_LEASE, SLOW_ROUNDS

if TYPE_CHECKING:
    from mld.errors import AwsError
    from mld.model.config.config import LeaseConfig
    from mld.ports.metrics import Metrics
    from mld.ports.runtime import Clock
    from mld.services.conditions import FailingCondition
    from mld.services.leases.held_leases import HeldLeases

log = logging.getLogger(__name__)

#: Weight of one answer in the mean of their times.
ANSWER_WEIGHT = 0.1


@dataclass(frozen=True, slots=True)
class RenewalRound:
    """What one round did; ``str()`` gives the figures for the log.

    Attributes:
        renewed: leases whose counter moved.
        lost: leases that turned out not to be ours any more, since the round before.
        unsure: leases that could not be renewed; held ones are believed until their time is up.
    """

    renewed: int
    lost: int
    unsure: int
    took_s: float

    def __str__(self) -> str:
        return (
            f"renewed: {self.renewed}, lost: {self.lost}, not renewed: {self.unsure}, "
            f"time: {self.took_s:.2f} s"
        )


class RenewalReport:
    """Counts and times renewals, and reports each round."""

    def __init__(
        self,
        config: LeaseConfig,
        held: HeldLeases,
        clock: Clock,
        metrics: Metrics,
        failing: FailingCondition | None,
    ) -> None:
        """Report nothing yet; ``failing`` is what readiness and the log say of failing renewals."""
        self._config = config
        self._held = held
        self._clock = clock
        self._metrics = metrics
        self._failing = failing
        self._reported_lost = 0
        self._last_failure = ""
        self._last_error: AwsError | None = None
        self._warned_at: float | None = None
        self._answer_s: float | None = None  # the mean of late

    def most_renewable(self) -> int | None:
        """How many leases this worker can renew in time; None while no renewal was answered."""
        return None if not self._answer_s else most_renewable(self._config, self._answer_s)

    def tried(self, took_s: float, *, is_answered: bool) -> None:
        """One try to renew a lease; ``is_answered`` also if another worker has it."""
        if is_answered:
            before_s = took_s if self._answer_s is None else self._answer_s
            self._answer_s = before_s + ANSWER_WEIGHT * (took_s - before_s)
        self._metrics.call(RENEW_LEASE, took_s, succeeded=is_answered)

    def failed(self, lease_key: str, error: AwsError) -> None:
        """A lease could not be renewed; the next round that leaves some so names the last one."""
        log.debug("Could not renew lease %s: %s", lease_key, error)
        self._last_failure, self._last_error = f"{lease_key}: {error}", error

    def finished(self, renewed: int, unsure: int, took_s: float) -> RenewalRound:
        """A round has ended, or there was nothing to renew."""
        lost, self._reported_lost = self._held.lost - self._reported_lost, self._held.lost
        outcome = RenewalRound(renewed, lost, unsure, took_s)
        self._report_failing(unsure)
        is_slow = took_s > self._config.failover_s / 2
        if is_slow:
            self._metrics.add(SLOW_ROUNDS, 1)
        if unsure and self._may_warn():
            text = "Could not renew %d leases (%s); the last one: %s"
            log.warning(text, unsure, outcome, self._last_failure)
        elif is_slow and self._may_warn():
            text = "Renewing leases took more than half of failoverTimeMillis: %s%s"
            log.warning(text, outcome, self._bound())
        self._metrics.add(LOST_LEASES, lost)
        self._metrics.add(CURRENT_LEASES, len(self._held))
        self._metrics.call(RENEW_ALL, took_s, succeeded=unsure == 0)
        return outcome

    def _bound(self) -> str:
        """What bounds this worker, for the log; empty while no renewal was answered."""
        if not self._answer_s:
            return ""
        return (
            f"; with answers after {self._answer_s:.3f} s and maxLeaseRenewalThreads = "
            f"{self._config.renewal_threads} this worker can renew about {self.most_renewable()} "
            f"leases in time, and holds {len(self._held)}"
        )

    def _report_failing(self, unsure: int) -> None:
        if self._failing is None:
            return
        if not unsure:
            self._failing.resolved()
            return
        leases, them = ("1 lease", "it") if unsure == 1 else (f"{unsure} leases", "them")
        what = f"{leases} of table {self._config.table_name} can't be renewed"
        self._failing.failed(f"{what}, so another worker gets {them}", self._last_error)

    def _may_warn(self) -> bool:
        """Once in Java's period, however many rounds there are in it."""
        now, warned_at = self._clock.monotonic(), self._warned_at
        if warned_at is not None and now - warned_at < self._config.renewal_interval_s:
            return False
        self._warned_at = now
        return True
