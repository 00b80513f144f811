"""The metrics of one shard's tasks, with Java's names."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from mld.ports.metrics import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics

_PROCESS = "ProcessTask"


class ConsumerMetrics:
    """One per consumer."""

    def __init__(self, shard_id: str, clock: Clock, metrics: Metrics) -> None:
        """Report about a shard to a sink."""
        self._shard_id = shard_id
        self._clock = clock
        self._metrics = metrics

    @contextmanager
    def timed(self, operation: str, name: str, *, of_shard: bool = False) -> Iterator[None]:
        """Report how long the block took, also when it fails."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self._metrics.add(
                operation,
                name,
                (self._clock.monotonic() - began) * 1000,
                unit=Unit.MILLISECONDS,
                shard_id=self._shard_id if of_shard else None,
            )

    @contextmanager
    def process_task(self, behind_ms: int | None) -> Iterator[None]:
        """Report success and length of a ProcessTask, and how far behind the shard is."""
        shard, metrics = self._shard_id, self._metrics
        if behind_ms is not None:
            metrics.add(
                _PROCESS, "MillisBehindLatest", behind_ms, unit=Unit.MILLISECONDS, shard_id=shard
            )
            metrics.add(
                "ApplicationTracker", "MillisBehindLatest", behind_ms, unit=Unit.MILLISECONDS
            )
        self.delivered(0, 0)
        succeeded = False
        try:
            with self.timed(_PROCESS, "Time", of_shard=True):
                yield
            succeeded = True
        finally:
            metrics.add(_PROCESS, "Success", succeeded, shard_id=shard)

    def delivered(self, records: int, data_bytes: int) -> None:
        """Report a batch; every task reports zeros first, as in Java."""
        shard = self._shard_id
        self._metrics.add(_PROCESS, "RecordsProcessed", records, shard_id=shard)
        self._metrics.add(
            _PROCESS, "DataBytesProcessed", data_bytes, unit=Unit.BYTES, shard_id=shard
        )

    def exception_caught(self) -> None:
        """Report an exception of the processor with which the child went on."""
        self._metrics.add(_PROCESS, "ProcessorExceptions", 1, shard_id=self._shard_id)

    def stayed_framed(self, records: int) -> None:
        """Report records whose frame could not be taken off; nothing while there is none."""
        if records:
            self._metrics.add(_PROCESS, "SchemaFailures", records, shard_id=self._shard_id)

    def missing(self, unreadable: int, outside: int) -> None:
        """Report user records of aggregates that are not delivered; nothing of what is zero."""
        for name, count in (
            ("UnreadableUserRecords", unreadable),
            ("UserRecordsOutsideShard", outside),
        ):
            if count:
                self._metrics.add(_PROCESS, name, count, shard_id=self._shard_id)
