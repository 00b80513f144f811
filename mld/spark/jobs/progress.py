"""What the engine has done: a line of the log after the first job, then every ten seconds at most."""

from __future__ import annotations

import logging
import statistics
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.spark.model import ShardBatch

_log = logging.getLogger(__name__)
_EVERY_S = 10.0


class Progress:
    """Counts what was committed since the last line. Safe to call from any thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        #: The first job's end is a line of its own: a stream may have no second one for hours.
        self._next_line_at = self._since
        self._latencies: list[float] = []
        self._records = 0
        self._jobs = 0
        self._writing_s = self._committing_s = 0.0
        self._shards: set[str] = set()

    def committed(self, batch: ShardBatch, latency_s: float) -> None:
        """A batch is durable.

        Args:
            batch: which.
            latency_s: time since it was handed to the engine, in s.
        """
        with self._lock:
            self._latencies.append(latency_s)
            self._records += len(batch.rows)
            self._shards.add(batch.shard.shard_id)

    def spent(self, writing_s: float, committing_s: float) -> None:
        """What a job took: from the call of the function until its files are there, and after."""
        with self._lock:
            self._writing_s += writing_s
            self._committing_s += committing_s

    def job_ended(self) -> None:
        """A Spark job is over: time for a line, perhaps."""
        with self._lock:
            self._jobs += 1
            now = self._clock()
            if now < self._next_line_at or not self._latencies:
                return
            elapsed = max(now - self._since, 0.001)
            line = (
                f"{len(self._latencies)} batches of {len(self._shards)} shards in {self._jobs} "
                f"jobs, {self._records} records, {self._records / elapsed:.0f} records/s, "
                f"commit p50 {statistics.median(self._latencies):.2f} s, "
                f"{self._writing_s:.1f} of {elapsed:.1f} s in Spark, "
                f"{self._committing_s:.1f} s in commits"
            )
            self._writing_s = self._committing_s = 0.0
            self._since = now
            self._next_line_at = now + _EVERY_S
            self._latencies.clear()
            self._shards.clear()
            self._records = self._jobs = 0
        _log.info("%s", line)
