"""A shard's batches between the buffer and the engine: what runs, what is durable, what is next."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from mld.spark.model import MicroBatch, WriteIntent
from mld.spark.shard.batcher import ShardBuffer
from mld.spark.shard.resume import void_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Future

    from mld.spark.jobs.engine import Engine
    from mld.spark.model import Position, Row, ShardKey
    from mld.spark.shard.batcher import Cut, FlushReason, Limits
    from mld.spark.shard.resume import Resume

_log = logging.getLogger(__name__)
#: Batches of a shard in the engine where the sink needs no numbers: one runs, one waits.
_MOST_AT_ONCE = 2


class ShardWork:
    """The batches of one hold of a shard. Used by one thread; ``abandon`` and the fence by any.

    Args:
        shard: whose.
        resume: where to begin.
        checkpoint: that is stored; None for the sentinels.
        limits: when a batch is full.
        engine: where batches are run.
        keep_intent: stores a batch durably before it is written; None where the sink needs none.
        on_done: called, in any thread, when a batch is over.
    """

    def __init__(
        self,
        shard: ShardKey,
        resume: Resume,
        checkpoint: Position | None,
        limits: Limits,
        engine: Engine,
        keep_intent: Callable[[WriteIntent], None] | None,
        on_done: Callable[[], None],
    ) -> None:
        self._shard = shard
        self._resume = resume
        self._engine = engine
        self._keep_intent = keep_intent
        self._on_done = on_done
        self._buffer = ShardBuffer(
            limits,
            after=resume.after,
            drop_through=resume.drop_through,
            forced_to=resume.forced_to,
        )
        self._in_flight: deque[tuple[MicroBatch, Future[None]]] = deque()
        self._next_number = resume.next_number
        self._is_first = True
        self._is_open = True
        self._has_failed = False
        self._durable = resume.drop_through
        self._checkpointed = checkpoint

    @property
    def is_open(self) -> bool:
        """False once the shard is lost or a batch has failed: nothing more is committed."""
        return self._is_open

    @property
    def is_idle(self) -> bool:
        """True if nothing runs."""
        return not self._in_flight

    @property
    def is_backed_up(self) -> bool:
        """True if a full batch waits for room in the engine: take no more records."""
        return bool(self._in_flight) and self._buffer.is_full

    @property
    def buffered(self) -> int:
        """Records that are in no batch yet."""
        return len(self._buffer)

    @property
    def in_jobs(self) -> int:
        """Records of batches whose end nobody has taken yet."""
        return sum(len(batch.rows) for batch, _ in self._in_flight)

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

    def add(self, rows: Iterable[Row], now: float, millis_behind: int | None) -> None:
        """Take a delivery."""
        self._buffer.add(rows, now, millis_behind)
        if self._resume.may_void and (first := self._buffer.void_forced()) is not None:
            _log.warning("%s", void_warning(self._shard, self._resume, first))
            self._next_number += 1
            self._is_first = False

    def submit(self, now: float, reason: FlushReason) -> bool:
        """Hand the next batch to the engine if one is due and there is room; True if so."""
        room = 1 if self._keep_intent is not None else _MOST_AT_ONCE
        if not self._is_open or len(self._in_flight) >= room:
            return False
        if self._keep_intent is not None and self.due_checkpoint is not None:
            return False  # the intent of a batch is replaced only after its checkpoint
        if (cut := self._buffer.cut(now, reason)) is None:
            return False
        batch = self._batch(cut)
        if self._keep_intent is not None and not cut.is_forced:
            number = self._next_number
            self._keep_intent(WriteIntent(number, batch.after, batch.to, self._resume.app_id))
        if not self.is_open:  # the daemon's answer was that the lease is gone
            return False
        self._is_first = False
        self._next_number += 1
        future = self._engine.submit(batch, lambda: self._is_open and not self._has_failed, self)
        future.add_done_callback(self._note_end)
        self._in_flight.append((batch, future))
        return True

    def collect(self) -> bool:
        """Take what is over, in order; True if something was.

        Raises:
            SparkChildError: a batch failed. From then on nothing is committed or checkpointed.
        """
        before = len(self._in_flight)
        while self._in_flight and self._in_flight[0][1].done():
            batch, future = self._in_flight.popleft()
            if not self._is_open:
                continue
            if (error := future.exception()) is not None:
                self.close()
                raise error
            self._durable = batch.to
        return len(self._in_flight) < before

    def close(self) -> None:
        """The shard is lost or broken: nothing is committed from now on, all else is forgotten."""
        self.abandon()
        self._buffer.discard()

    def abandon(self) -> None:
        """Nobody listens any more: nothing is committed from now on; from any thread."""
        self._is_open = False
        self._engine.abandon(self._shard, self)

    def _note_end(self, future: Future[None]) -> None:
        """In the thread of the engine: what waits behind a failed batch is not written any more."""
        if future.exception() is not None:
            self._has_failed = True
        self._on_done()

    def futures(self) -> list[Future[None]]:
        """Of the batches in the engine."""
        return [future for _, future in self._in_flight]

    def _batch(self, cut: Cut) -> MicroBatch:
        numbered = self._keep_intent is not None
        return MicroBatch(
            shard=self._shard,
            after=cut.after,
            to=cut.to,
            rows=cut.rows,
            number=self._next_number if numbered else None,
            app_id=self._resume.app_id if numbered else "",
            is_replay=self._is_first and self._resume.is_replay,
            millis_behind_latest=cut.millis_behind_latest,
        )
