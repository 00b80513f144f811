"""A batch that waits for its commit, and what was committed: a line of the log every ten seconds at most."""

from __future__ import annotations

import contextlib
import logging
import statistics
import threading
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from kcl_mld.spark.model import ShardBatch, ShardKey

_log = logging.getLogger("mld.spark")
_EVERY_S = 10.0


def first_records(submitted: Sequence[SubmittedBatch], most: int) -> list[SubmittedBatch]:
    """Those whose batches are so many records together; one of them is divided for that.

    Args:
        submitted: in the order in which they are taken.
        most: records, >= 1.
    """
    found = []
    for one in submitted:
        count = len(one.batch.rows)
        if count > most > 0:
            one.divide(most)
            count = most
        if count <= most:
            found.append(one)
            most -= count
    return found


@dataclass(eq=False, slots=True)
class SubmittedBatch:
    """A batch that waits for its commit.

    Attributes:
        batch: which.
        fence: False once the shard is lost, or a batch of it has failed, and from then on; may be
            asked in any thread.
        future: gets its outcome.
        submitted_at: monotonic s.
        hold: of the shard that it belongs to; None = not needed.
        rest: what follows the batch and is committed later; None = the batch is all of it.
        payload_bytes: of its records.
    """

    batch: ShardBatch
    fence: Callable[[], bool]
    future: Future[None]
    submitted_at: float
    hold: object = None
    rest: ShardBatch | None = None
    payload_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.payload_bytes = sum(len(row.data) for row in self.batch.rows)

    def is_of(self, shard: ShardKey, hold: object) -> bool:
        """True if it belongs to that hold of the shard; ``hold`` None = whichever."""
        return self.shard == shard and (hold is None or self.hold is hold)

    @property
    def shard(self) -> ShardKey:
        """Whose batch it is."""
        return self.batch.shard

    @property
    def shard_id(self) -> str:
        """Of the shard, for messages."""
        return self.batch.shard.shard_id

    def fail(self, error: BaseException) -> None:
        """Answer with a failure, unless it is answered."""
        with contextlib.suppress(InvalidStateError):  # by another thread, or long ago
            self.future.set_exception(error)

    def divide(self, count: int) -> None:
        """Leave so many records in the batch; the others are its rest.

        Args:
            count: >= 1; at least one is left over.
        """
        whole = self.batch
        rows = whole.rows[count:]
        self.batch = replace(whole, to=whole.rows[count - 1].position, rows=whole.rows[:count])
        if self.rest is not None:
            whole, rows = self.rest, rows + self.rest.rows
        self.rest = replace(whole, after=self.batch.to, rows=rows)

    def answer(self) -> None:
        """The batch stands: go on with its rest, or tell that there is none."""
        if self.rest is None:
            self.future.set_result(None)
        else:
            self.batch, self.rest = self.rest, None

    def is_wanted(self) -> bool:
        """True while it may be written; one behind its fence is answered here."""
        if self.future.done():
            return False
        if self.fence():
            return True
        self.fail(BatchFailed(f"{self.shard_id}: the shard is lost; nothing more is committed"))
        return False


class Progress:
    """Counts what was committed since the last line. Safe to call from any thread.

    Args:
        counts: what the sink has counted since this process began, by what it is.
    """

    def __init__(
        self, clock: Callable[[], float], counts: Callable[[], Mapping[str, int]] = dict
    ) -> None:
        self._clock = clock
        self._counts = counts
        self._counted: Mapping[str, int] = {}
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
            before, self._counted = self._counted, dict(self._counts())
            for what, number in self._counted.items():
                if more := number - before.get(what, 0):
                    line += f", {more} {what}"
            self._writing_s = self._committing_s = 0.0
            self._since = now
            self._next_line_at = now + _EVERY_S
            self._latencies.clear()
            self._shards.clear()
            self._records = self._jobs = 0
        _log.info("%s", line)
