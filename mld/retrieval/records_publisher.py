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

from kcl_mld.errors import MldError, ResourceMissing
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber, Sentinel
from kcl_mld.retrieval.model.record import vanished
from kcl_mld.retrieval.model.wire import first_sequence_number, read_batch
from kcl_mld.retrieval.rules.polling import (
    LATEST_MARGIN_S,
    SMALLEST_ANSWER_BYTES,
    IteratorType,
    ReadPosition,
    begun_earlier,
    may_prefetch,
)

if TYPE_CHECKING:
    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.config import RetrievalConfig
    from kcl_mld.config.stream import Stream
    from kcl_mld.errors import NotFound
    from kcl_mld.retrieval.byte_budget import BudgetShare, ByteBudget, Reservation
    from kcl_mld.retrieval.fetch_report import FetchReport, SubscriptionReport
    from kcl_mld.retrieval.model.record import Batch
    from kcl_mld.shards.stream_existence import StreamExistence
    from kcl_mld.signals.rules.remedies import FailedCall
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.retrieval")
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
        follows_refusal: the service refused the position before it, whose records have expired.
    """

    batch: Batch
    reservation: Reservation
    fetched_at: float
    follows_refusal: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """A batch that was not handed out yet, and the iterator that got it.

    None: it was pushed, or the shard is gone.
    """

    fetched: FetchedBatch
    iterator: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherParts:
    """What all publishers of a stream share.

    Attributes:
        existence: says whether a shard that was not found has ended, or its stream is gone.
        initial_timestamp_s: of an AT_TIMESTAMP start, else None.
    """

    kinesis: Kinesis
    stream: Stream
    existence: StreamExistence
    config: RetrievalConfig
    budget: ByteBudget
    runtime: Runtime
    initial_timestamp_s: float | None = None


class RecordsPublisher(ABC):
    """One shard's batches, in order, without holes.

    The consumer calls :meth:`start` once, runs :meth:`run` in a task of its own, takes batches with
    :meth:`next_batch`, cancels the task, and calls :meth:`close`. How the batches come is the
    subclass's: asked for or pushed. It appends to the queue, and stops when it may not read ahead.

    Args:
        drop_read_ahead: see :meth:`ByteBudget.share`.
    """

    def __init__(
        self,
        shard_id: str,
        parts: PublisherParts,
        report: FetchReport | SubscriptionReport,
        drop_read_ahead: Callable[[], None],
    ) -> None:
        self._shard_id = shard_id
        self._kinesis = parts.kinesis
        self._stream = parts.stream
        self._existence = parts.existence
        self._config = parts.config
        self._budget = parts.budget
        self._offload = parts.runtime.offload
        self._clock = parts.runtime.clock
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
        self._not_found: NotFound | None = None
        self._is_confirmed = False
        #: Size of the next batch; None = nothing is known of it.
        self._expected_bytes: int | None = None
        self._share = parts.budget.share(
            is_awaited=self._is_awaited, drop_read_ahead=drop_read_ahead
        )

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
        if position.sentinel is Sentinel.LATEST:
            self._expected_bytes = SMALLEST_ANSWER_BYTES

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

    async def oldest_number(self) -> str | None:
        """Sequence number of the oldest record of the shard; None if there is none, or not known."""
        request = self._stream.request()
        try:
            answer = await self._kinesis.get_shard_iterator(
                **request, ShardId=self._shard_id, ShardIteratorType=IteratorType.TRIM_HORIZON.value
            )
            arn = {"StreamARN": self._stream.arn} if self._stream.arn else {}
            body = await self._kinesis.get_records(
                ShardIterator=answer["ShardIterator"], Limit=1, **arn
            )
            number = first_sequence_number(read_batch(body).records)
            return None if number is None else ExtendedSequenceNumber(number).sequence_number
        except (MldError, KeyError) as error:
            log.debug("%s: its oldest record is not known: %s", self._shard_id, error)
            return None

    def share_of_child(self, drop: Callable[[], None]) -> BudgetShare:
        """A share of the memory for lines that wait for one of several children.

        Args:
            drop: called when others need the memory and the child has taken nothing for a while.
        """
        return self._budget.share(is_awaited=lambda: False, drop_read_ahead=drop)

    @property
    def latest_since_s(self) -> float | None:
        """Epoch seconds at which reading at LATEST began; None if it did not."""
        return None if self._delivered is None else self._delivered.latest_since_s

    @property
    def failing_since(self) -> float | None:
        """Reading of the monotonic clock at the first failed call in a row; None after a success."""
        return self._report.failing_since

    @property
    def failure(self) -> FailedCall | None:
        """The last failed call; None after a success."""
        return self._report.failure

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

    @abstractmethod
    def _enqueue(self, batch: Batch, reservation: Reservation) -> None:
        """Have a batch ready, and note what it says of the next one."""

    @abstractmethod
    def _last_known(self) -> str | None:
        """Sequence number of the last record that this shard is known to have had."""

    def _may_come(self, most: int) -> bool:
        """Whether another batch may come, so that at most so many wait."""
        if self._position is None or self._has_ended:
            return False
        if not self._may_read_ahead and not self._is_wanted:
            return False
        batches = [queued.fetched.batch for queued in self._queue]
        return may_prefetch(
            self._config,
            len(batches),
            sum(batch.data_bytes_at_most for batch in batches),
            sum(batch.records_at_most(self._config.max_records) for batch in batches),
            is_wanted=self._is_wanted,
            most=most,
        )

    async def _end_if_trimmed(self, error: NotFound, rewinds: int) -> bool:
        """End a shard that is past retention; while its stream is gone, only wait.

        Returns:
            True when the shard is there all the same.
        """
        try:
            is_trimmed = await self._existence.is_trimmed(self._shard_id, self._last_known())
        except ResourceMissing:
            return False
        except MldError as unknown:
            self._report.failed(unknown)
            return False
        self._not_found = None
        if self._rewinds != rewinds:
            return False
        if is_trimmed:
            log.info("%s: all of its records are past retention: %s", self._shard_id, error)
            self._enqueue(vanished(), self._share.spend(1))
        else:
            self._report.failed(error)
        return not is_trimmed

    async def _read(self, body: bytes, read: Callable[[bytes], Batch]) -> Batch:
        if len(body) < OFFLOAD_BYTES:
            return read(body)
        return await self._offload.run(read, body)

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
