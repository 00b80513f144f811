"""What a shard's fetching tells: its metrics, and each failure in the log with Java's levels."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.errors import (
    ExpiredIterator,
    InvalidArgument,
    MalformedData,
    MldError,
    Throttled,
)
from mld.ports.metrics import Level, Unit

if TYPE_CHECKING:
    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics

log = logging.getLogger(__name__)

#: Throttled calls in a row after which the log says ERROR, as in Java.
_CALM_THROTTLES = 5


class FetchReport:
    """One per publisher."""

    def __init__(self, shard_id: str, clock: Clock, metrics: Metrics) -> None:
        """Report about a shard."""
        self._shard_id = shard_id
        self._clock = clock
        self._metrics = metrics
        self._throttles = 0

    def succeeded(self) -> None:
        """An answer came: throttling is over."""
        self._throttles = 0

    def failed(self, error: MldError) -> bool:
        """Log a failure.

        Returns:
            True when it is the iterator's fault: get a new one.
        """
        shard = self._shard_id
        match error:
            case ExpiredIterator():
                log.info("%s: the iterator expired, getting a new one", shard)
                self._metrics.add("ProcessTask", "ExpiredIterator", 1)
                return True
            case InvalidArgument():
                log.info("%s: the iterator was refused, getting a new one: %s", shard, error)
                return True
            case Throttled():
                self._throttles += 1
                level = logging.WARNING if self._throttles <= _CALM_THROTTLES else logging.ERROR
                log.log(level, "%s: throttled %d times in a row", shard, self._throttles)
            case MalformedData():
                log.warning("%s: %s; asking again", shard, error)
            case _:
                log.warning("%s: cannot fetch records: %s; trying again", shard, error)
        return False

    def measure(self, call: str, began: float, *, succeeded: bool) -> None:
        """Success and time of a call.

        Args:
            call: ``getRecords`` or ``getShardIterator``.
            began: reading of the monotonic clock before it.
            succeeded: whether it gave what it should.
        """
        name = f"KinesisDataFetcher.{call}"
        elapsed_ms = (self._clock.monotonic() - began) * 1000
        shard, level = self._shard_id, Level.DETAILED
        self._metrics.add("ProcessTask", f"{name}.Success", succeeded, level=level, shard_id=shard)
        self._metrics.add(
            "ProcessTask",
            f"{name}.Time",
            elapsed_ms,
            unit=Unit.MILLISECONDS,
            level=level,
            shard_id=shard,
        )
