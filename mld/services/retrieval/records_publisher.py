"""Getting one shard's records: what the consumer needs, whichever way they come.

Polling is one way; records that are pushed are another. A consumer is given a factory, so that
each stream can have its own way.

Source: RecordsPublisher, PrefetchRecordsPublisher (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from mld.decide.retrieval.polling import LATEST_MARGIN_S, ReadPosition, begun_earlier

if TYPE_CHECKING:
    from mld.model.retrieval.record import Batch
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.services.retrieval.byte_budget import ByteBudget, Reservation
    from mld.services.retrieval.fetch_report import CallReport

log = logging.getLogger(__name__)
#: From this size on an envelope is read away from the loop.
OFFLOAD_BYTES = 1_048_576
#: While an answer or an event is being read it exists in pieces and as a whole.
READING_FACTOR = 2
#: Pause of a shard whose stream is gone.
ABSENT_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A batch on its way to the consumer.

    Attributes:
        batch: the answer, or what was pushed.
        reservation: its bytes; the consumer releases them when the line is written.
        fetched_at: reading of the monotonic clock when it came.
    """

    batch: Batch
    reservation: Reservation
    fetched_at: float


@dataclass(frozen=True, slots=True)
class Queued:
    """A batch that was not handed out yet, and the iterator that got it.

    None: it was pushed, or the shard is gone.
    """

    fetched: FetchedBatch
    iterator: str | None = None


class RecordsPublisher(ABC):
    """One shard's batches, in order, without holes.

    The consumer calls :meth:`start` once, runs :meth:`run` in a task of its own, takes batches with
    :meth:`next_batch`, cancels the task, and calls :meth:`close`. How the batches come is the
    subclass's: asked for or pushed. It appends to the queue, and stops when it may not read ahead.
    """

    def __init__(
        self,
        shard_id: str,
        budget: ByteBudget,
        report: CallReport,
        drop_read_ahead: Callable[[], None],
    ) -> None:
        """Nothing comes before :meth:`start`.

        Args:
            drop_read_ahead: see :meth:`ByteBudget.share`.
        """
        self._shard_id = shard_id
        self._budget = budget
        self._report = report
        self._position: ReadPosition | None = None
        self._delivered: ReadPosition | None = None
        self._queue: deque[Queued] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._is_wanted = False
        self._is_interrupted = False
        self._may_read_ahead = True
        self._rewinds = 0
        self._step_back_s = LATEST_MARGIN_S
        self._has_ended = False
        self._share = budget.share(is_awaited=self._is_awaited, drop_read_ahead=drop_read_ahead)

    # -- for the consumer ----------------------------------------------------------------------

    async def start(
        self, position: ExtendedSequenceNumber, latest_since_s: float | None = None
    ) -> None:
        """Begin at a checkpoint; the first call is made at once by ``run``.

        Args:
            latest_since_s: when reading at LATEST had begun before (epoch seconds); None = now.
        """
        self._position = self._delivered = ReadPosition(position, latest_since_s=latest_since_s)
        self._taken.set()

    async def next_batch(self) -> FetchedBatch | None:
        """The next batch, waiting for it; the last one says that the shard ended.

        Returns:
            None when :meth:`interrupt` was called while waiting.

        Cancellation: nothing is lost, the next call gets the same batch.
        """
        self._is_wanted = self._may_read_ahead = True
        self._taken.set()
        self._is_interrupted = False
        if not self._queue:
            self._budget.look_again()
        try:
            while not self._queue:
                if self._is_interrupted:
                    return None
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._is_wanted = False
            self._share.served()
        fetched = self._queue.popleft().fetched
        self._taken.set()
        if self._delivered is not None:
            self._delivered = self._behind(self._delivered, fetched.batch)
        return fetched

    def interrupt(self) -> None:
        """Let a waiting :meth:`next_batch` return."""
        self._is_interrupted = True
        self._arrived.set()

    def rewind(self, to: ReadPosition) -> None:
        """Get again what came after a position; what is queued or on its way is dropped."""
        self._drop_queue()
        # The place may be from before reading at LATEST began.
        self._position = self._delivered = replace(to, latest_since_s=self.latest_since_s)
        self._has_ended = False
        self._rewinds += 1
        self._restart()
        self._taken.set()

    @property
    def delivered(self) -> ReadPosition:
        """How far batches were handed out; a place for :meth:`rewind`.

        Raises:
            RuntimeError: it was not started.
        """
        if self._delivered is None:
            raise RuntimeError("the publisher was not started")
        return self._delivered

    @property
    def latest_since_s(self) -> float | None:
        """Epoch seconds at which reading at LATEST began; None if it did not."""
        return None if self._delivered is None else self._delivered.latest_since_s

    @property
    def failing_since(self) -> float | None:
        """Reading of the monotonic clock at the first failed call in a row; None while all is well."""
        return self._report.failing_since

    @property
    def waiting(self) -> tuple[FetchedBatch, ...]:
        """The batches that were not handed out yet, in order."""
        return tuple(queued.fetched for queued in self._queue)

    async def close(self) -> None:
        """Give the memory of undelivered batches back; ``run`` must have been cancelled."""
        self._drop_queue()

    # -- for subclasses ------------------------------------------------------------------------

    @abstractmethod
    async def run(self) -> None:
        """Get records until cancelled; no failing call ends it.

        After the end of the shard it only waits for a :meth:`rewind`.
        """

    @abstractmethod
    def _restart(self) -> None:
        """What is on its way is not wanted any more: begin anew at the position."""

    def _behind(self, position: ReadPosition, batch: Batch) -> ReadPosition:
        """The place that follows a batch: behind its last record, if it has any."""
        last = batch.last_sequence_number
        return position if last is None else replace(position, last_received=last)

    def _queue_up(self, queued: Queued) -> None:
        """Have a batch ready."""
        batch = queued.fetched.batch
        if self._is_wanted:
            self._share.served()  # it is as good as taken
        self._queue.append(queued)
        self._has_ended = batch.is_shard_end
        if self._position is not None:
            self._position = self._behind(self._position, batch)
        self._arrived.set()

    def _began_at_latest(self, since_s: float) -> None:
        """From now on LATEST means this time."""
        if self._position is not None and self._delivered is not None:
            self._position = replace(self._position, latest_since_s=since_s)
            self._delivered = replace(self._delivered, latest_since_s=since_s)

    def _position_refused(self) -> None:
        """The service refused where to begin: begin earlier if that was a time of ours."""
        earlier = (
            None if self._position is None else begun_earlier(self._position, self._step_back_s)
        )
        if earlier is None or earlier.latest_since_s is None:
            return
        log.warning(
            "%s: AWS refuses the time at which reading at LATEST began: the clock of this machine is"
            " ahead. Reading begins %.0f s earlier",
            self._shard_id,
            self._step_back_s,
        )
        self._step_back_s *= 2
        self._began_at_latest(earlier.latest_since_s)

    def _is_awaited(self) -> bool:
        """True while the consumer has nothing and waits."""
        return self._is_wanted and not self._queue

    def _drop_queue(self) -> None:
        while self._queue:
            self._queue.popleft().fetched.reservation.release()

    def _stored_number(self) -> str | None:
        """Sequence number of the checkpoint at which reading began, if it is one."""
        if self._position is None:
            return None
        checkpoint = self._position.checkpoint
        return checkpoint.sequence_number if checkpoint.sentinel is None else None


#: Shard id -> its publisher, not started. One per stream.
PublisherFactory: TypeAlias = Callable[[str], RecordsPublisher]
