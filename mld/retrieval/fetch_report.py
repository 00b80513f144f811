"""Reports on a shard's fetching: its metrics, and each failure in the log with Java's levels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import (
    ExpiredIterator,
    InUse,
    InvalidArgument,
    LimitExceeded,
    MalformedData,
    MldError,
    Throttled,
)
from kcl_mld.signals.model.metrics import CATCH_UP_ACTIVE, EXPIRED_ITERATOR
from kcl_mld.signals.rules.remedies import failed_reading

if TYPE_CHECKING:
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.model.metrics import CallMetrics
    from kcl_mld.signals.ports import Metrics
    from kcl_mld.signals.rules.remedies import FailedCall

log = logging.getLogger("mld.retrieval")

#: Failures in a row after which throttled and refused calls are an ERROR in the log (throttled ones
#: as in Java), and only one line in so many seconds is written: an outage meets every shard every
#: second.
_CALM_FAILURES = 5
_LOG_EVERY_S = 30.0


class CallReport:
    """Counts the failures of a shard's calls in a row; one per publisher."""

    def __init__(self, shard_id: str, clock: Clock) -> None:
        self._shard_id = shard_id
        self._clock = clock
        self._logged_at = 0.0
        self.failures = 0  #: in a row
        self.failing_since: float | None = None  #: monotonic; None while calls succeed
        self.failure: FailedCall | None = None  #: the last; None while calls succeed

    def succeeded(self) -> None:
        """A call succeeded: the series of failures is over."""
        self.failures = 0
        self.failing_since = self.failure = None

    def count_failure(self, error: Exception) -> None:
        """A call failed; the caller logs the reason."""
        self.failures += 1
        self.failure = failed_reading(error)
        if self.failing_since is None:
            self.failing_since = self._clock.monotonic()

    def has_failed_for(self, seconds: float) -> bool:
        """Whether all calls of that time have failed."""
        since = self.failing_since
        return since is not None and self._clock.monotonic() - since >= seconds

    def _log(self, level: int, what: str) -> None:
        now = self._clock.monotonic()
        if self.failures <= _CALM_FAILURES + 1 or now - self._logged_at >= _LOG_EVERY_S:
            log.log(level, "%s: %s", self._shard_id, what)
            self._logged_at = now


class FetchReport(CallReport):
    """The report of a shard that is polled."""

    def __init__(self, shard_id: str, clock: Clock, metrics: Metrics) -> None:
        super().__init__(shard_id, clock)
        self._metrics = metrics

    def failed(self, error: MldError) -> bool:
        """Log a failure.

        Returns:
            True when it is the iterator's fault: get a new one.
        """
        self.count_failure(error)
        count = self.failures
        match error:
            case ExpiredIterator():
                # New ones that expire at once are an outage, too.
                level = logging.INFO if count <= _CALM_FAILURES else logging.ERROR
                self._log(level, "the iterator expired, getting a new one")
                self._metrics.add(EXPIRED_ITERATOR, 1, shard_id=self._shard_id)
            case InvalidArgument():
                # Once is an old iterator; again and again it is a position that Kinesis rejects.
                level = logging.INFO if count <= _CALM_FAILURES else logging.ERROR
                self._log(level, f"{count} calls in a row refused, getting a new iterator: {error}")
            case Throttled():
                level = logging.WARNING if count <= _CALM_FAILURES else logging.ERROR
                self._log(level, f"{count} calls in a row throttled; trying again")
            case MalformedData():
                self._log(logging.WARNING, f"{error}; trying again")
            case _:
                self._log(logging.WARNING, f"cannot fetch records: {error}; trying again")
        return isinstance(error, ExpiredIterator | InvalidArgument)

    def catching_up(self) -> None:
        """The next pause is shorter because the shard is far behind."""
        self._metrics.add(CATCH_UP_ACTIVE, 1, shard_id=self._shard_id)

    def measure(self, call: CallMetrics, began: float, *, succeeded: bool) -> None:
        """Success and time of a call.

        Args:
            began: reading of the monotonic clock before it.
            succeeded: whether it had the expected result.
        """
        took_s = self._clock.monotonic() - began
        self._metrics.call(call, took_s, succeeded=succeeded, shard_id=self._shard_id)


class SubscriptionReport(CallReport):
    """The report of a shard whose records are pushed; Java has no metrics for it."""

    def failed(self, error: MldError) -> None:
        """Log why a subscription was refused or ended."""
        self.count_failure(error)
        calm = self.failures <= _CALM_FAILURES
        match error:
            case InUse():
                level = logging.INFO if calm else logging.WARNING
                self._log(level, f"another subscription has the shard: {error}; trying again")
            case Throttled() | LimitExceeded():
                level = logging.WARNING if calm else logging.ERROR
                self._log(level, f"{self.failures} calls in a row throttled: {error}; trying again")
            case InvalidArgument():
                level = logging.INFO if calm else logging.ERROR
                self._log(level, f"the position was refused: {error}; trying again")
            case _:
                self._log(logging.WARNING, f"the subscription failed: {error}; trying again")
