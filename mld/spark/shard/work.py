"""A shard's batches between the buffer and the engine: what runs, what is durable, what is next.

The engine cuts all shards together: this asks for the cut, and another thread makes it, at the
moment of any shard.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.spark.model import ShardBatch
from kcl_mld.spark.shard.batcher import ShardBuffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kcl_mld.spark.jobs.cut_schedule import Offer
    from kcl_mld.spark.jobs.engine import Engine
    from kcl_mld.spark.model import Position, Row, ShardKey
    from kcl_mld.spark.shard.batcher import Cut, FlushReason, Limits
    from kcl_mld.spark.shard.resume import Resume

#: Batches of a shard in the engine: one runs, one waits.
_MOST_AT_ONCE = 2
#: What a record takes in memory beside its payload, in bytes: measured, 64-bit CPython 3.11.
ROW_BYTES = 330
#: What is expected of a shard that has not had a delivery yet: an answer of Kinesis at its largest.
FIRST_BYTES = 10 * 2**20


class InFlight(NamedTuple):
    """A batch in the engine.

    Attributes:
        batch: its records.
        future: done when it is over.
        held_bytes: what it takes in memory.
    """

    batch: ShardBatch
    future: Future[None]
    held_bytes: int


class ShardWork:
    """The batches of one hold of a shard; a ``Source`` of the engine's schedule.

    Used by one thread; ``abandon``, the fence and what a ``Source`` has by any. Its lock is never
    held while the engine is called, which has one of its own.

    Args:
        checkpoint: that is stored; None for the sentinels.
        on_done: called, in any thread, when a batch is over, or was cut by another thread.

    Attributes:
        shard: whose.
        has_asked: True while it waits for the moment at which all shards are cut.
    """

    def __init__(
        self,
        shard: ShardKey,
        resume: Resume,
        checkpoint: Position | None,
        limits: Limits,
        engine: Engine,
        on_done: Callable[[], None],
    ) -> None:
        self.shard = shard
        self._resume = resume
        self._engine = engine
        self._on_done = on_done
        self._buffer = ShardBuffer(limits, after=resume.after, drop_through=resume.drop_through)
        self._in_flight: deque[InFlight] = deque()
        self._expected_bytes = FIRST_BYTES
        self._is_first = True
        self._is_open = True
        self._has_failed = False
        self._durable = resume.drop_through
        self._checkpointed = checkpoint
        self._lock = threading.Lock()
        self.has_asked = False
        engine.join(self)

    @property
    def is_open(self) -> bool:
        """False once the shard is lost or a batch has failed: nothing more is committed."""
        return self._is_open

    @property
    def is_idle(self) -> bool:
        """True if nothing runs, or waits to be cut."""
        return not self._in_flight and not self.has_asked

    @property
    def is_backed_up(self) -> bool:
        """True if a full batch waits for room in the engine: take no more records.

        Until its moment comes a batch lies in the buffer, beside the one that is being filled.
        """
        waiting = 1 if len(self._in_flight) < _MOST_AT_ONCE else 0
        return not self.is_idle and self._buffer.holds(waiting + 1)

    @property
    def buffered(self) -> int:
        """Records that are in no batch yet."""
        return len(self._buffer)

    @property
    def in_jobs(self) -> int:
        """Records of batches whose outcome was not collected yet."""
        with self._lock:
            return sum(len(each.batch.rows) for each in self._in_flight)

    @property
    def due_checkpoint(self) -> Position | None:
        """The newest position that is durable and delivered, if it is not checkpointed yet.

        The sink's mark may lie beyond what the daemon has delivered, and a daemon refuses
        positions that it has not delivered; everything up to the mark is durable all the same.
        """
        delivered = self._buffer.delivered
        if self._durable is None or delivered is None:
            return None
        newest = min(self._durable, delivered)
        if self._checkpointed is not None and newest <= self._checkpointed:
            return None
        return newest

    def checkpointed(self, position: Position) -> None:
        """The daemon has stored it."""
        self._checkpointed = position

    @property
    def held_bytes(self) -> int:
        """What its records take in memory; those of a batch that is over are as good as gone."""
        if not self.is_wanted():
            return 0
        with self._lock:
            buffered = self._buffer.payload_bytes + ROW_BYTES * len(self._buffer)
            return buffered + sum(
                each.held_bytes for each in self._in_flight if not each.future.done()
            )

    def has_room(self) -> bool:
        """Whether the next delivery may come; if not, ask again soon, or when it is woken."""
        return self._engine.admit(self, self._expected_bytes)

    def add(self, rows: Sequence[Row], now: float, millis_behind: int | None) -> None:
        """Take a delivery."""
        self._expected_bytes = _held_bytes(rows)
        with self._lock:
            self._buffer.add(rows, now, millis_behind)
        self.arrived()

    def arrived(self) -> None:
        """The daemon has spoken, so that no delivery is expected any more."""
        self._engine.arrived(self)

    def ask_if_due(self, now: float, reason: FlushReason) -> None:
        """Have the engine cut what is buffered, if a batch is due."""
        with self._lock:
            if not self._is_open or not self._buffer.is_due(now, reason):
                return
            self.has_asked = True
        self._engine.ask(self)

    def offer(self) -> Offer | None:
        """What a batch of this shard would hold now; None if there is nothing, or no room."""
        with self._lock:
            return self._offer()

    def cut(self, most_bytes: int) -> tuple[ShardBatch, Future[None]]:
        """Cut for a job of many shards, right after an offer; in the engine's thread.

        Args:
            most_bytes: payload, in bytes; one record may be bigger.

        Returns:
            the batch, and the future that gets its outcome.
        """
        future: Future[None] = Future()
        future.add_done_callback(self._note_end)
        with self._lock:
            batch = self._batch(self._buffer.cut_now(most_bytes))
            self._in_flight.append(InFlight(batch, future, _held_bytes(batch.rows)))
            self.has_asked = self._is_first = False
        self._on_done()
        return batch, future

    def is_wanted(self) -> bool:
        """The fence of its batches: False once the shard is lost or a batch has failed."""
        return self._is_open and not self._has_failed

    def collect(self) -> bool:
        """Take what is over, in order; True if something was.

        A failure is left for the next look if something is durable before it: that is checkpointed
        first.

        Raises:
            SparkChildError: a batch failed. From then on nothing is committed or checkpointed.
        """
        took = False
        while self._in_flight and self._in_flight[0].future.done():
            batch, future, _ = self._in_flight[0]
            error = future.exception()
            if error is not None and took and self._is_open:
                break
            with self._lock:
                self._in_flight.popleft()
            took = True
            if not self._is_open:
                continue
            if error is not None:
                self.close()
                raise error
            self._durable = batch.to
        return took

    def close(self) -> None:
        """The shard is lost or broken: nothing is committed from now on, all else is forgotten."""
        self.abandon()
        with self._lock:
            self._buffer.discard()
            self.has_asked = False

    def abandon(self) -> None:
        """The daemon or the stub has gone: nothing is committed from now on; from any thread."""
        self._is_open = False
        self._engine.abandon(self.shard, self)

    def _note_end(self, future: Future[None]) -> None:
        """In the thread of the engine: what waits behind a failed batch is not written any more."""
        if future.exception() is not None:
            self._has_failed = True
        self._on_done()

    def futures(self) -> list[Future[None]]:
        """Of the batches in the engine."""
        with self._lock:
            return [each.future for each in self._in_flight]

    def ask(self) -> bool:
        """Have what is buffered cut, due or not; False if there is nothing to cut."""
        with self._lock:
            if self._offer() is None:
                return False
            self.has_asked = True
        self._engine.ask(self)
        return True

    def wake(self) -> None:
        """Let the thread of the shard look again."""
        self._on_done()

    def _offer(self) -> Offer | None:
        if not self.is_wanted() or len(self._in_flight) >= _MOST_AT_ONCE:
            return None
        return self._buffer.offer()

    def _batch(self, cut: Cut) -> ShardBatch:
        return ShardBatch(
            shard=self.shard,
            after=cut.after,
            to=cut.to,
            rows=cut.rows,
            is_replay=self._is_first and self._resume.is_replay,
            millis_behind_latest=cut.millis_behind_latest,
        )


def _held_bytes(rows: Sequence[Row]) -> int:
    """What records take in memory."""
    return sum(len(row.data) for row in rows) + ROW_BYTES * len(rows)
