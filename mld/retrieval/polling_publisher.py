"""Fetches one shard with GetRecords and keeps a few answers ready.

``run`` is the loop; it never ends because of an error, only with the shard. The consumer takes
batches with ``next_batch``. Every answer has its place in the process-wide :class:`ByteBudget`
before it is asked for.

Source: PrefetchRecordsPublisher, KinesisDataFetcher (KCL 3.5.1). Beyond Java: see
``kcl_mld.retrieval.rules.polling`` for the two holes at expired iterators; the loop stops after the
shard's end.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import MldError, NotFound, TrimmedData
from kcl_mld.retrieval.fetch_report import FetchReport
from kcl_mld.retrieval.model.wire import read_batch
from kcl_mld.retrieval.records_publisher import (
    ABSENT_PAUSE_S,
    READING_FACTOR,
    FetchedBatch,
    Queued,
    RecordsPublisher,
)
from kcl_mld.retrieval.rules.polling import (
    EXPIRED_S,
    IteratorType,
    after_expiry,
    expected_bytes,
    is_catching_up,
    iterator_start,
    pause_s,
    refused_pause_s,
)
from kcl_mld.signals.model.metrics import GET_RECORDS, GET_SHARD_ITERATOR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.retrieval.byte_budget import Reservation
    from kcl_mld.retrieval.model.record import Batch
    from kcl_mld.retrieval.records_publisher import PublisherParts

log = logging.getLogger("mld.retrieval")


class PollingPublisher(RecordsPublisher):
    """One shard's answers, in order.

    Args:
        in_time: returns when leases are renewed in time: that comes before reading.
    """

    def __init__(
        self,
        shard_id: str,
        parts: PublisherParts,
        in_time: Callable[[], Awaitable[object]],
    ) -> None:
        runtime = parts.runtime
        self._fetches = FetchReport(shard_id, runtime.clock, runtime.metrics)
        super().__init__(shard_id, parts, self._fetches, self._drop_read_ahead)
        self._parts = parts
        self._traits = parts.stream.traits
        self._in_time = in_time
        self._iterator: str | None = None
        self._success_at: float | None = None
        self._behind_s: float | None = None
        self._empty_reads = 0
        self._is_first_call = True
        self._was_refused = False  #: the position, as its records have expired
        self._refusals = 0  #: of the oldest position, or of the shard, in a row

    def _restart(self) -> None:
        self._iterator = None
        self._was_refused = False

    def _drop_read_ahead(self) -> None:
        """Others need the memory, and the consumer takes nothing: fetch again when it does.

        The iterator of the first batch fetches it again, to the record; once it has expired, the
        position replaces it. A first iterator that is being requested is kept: a later one at
        LATEST would skip records in between.
        """
        self._may_read_ahead = False
        if self._queue:
            self._iterator = self._queue[0].iterator
            self._was_refused = self._queue[0].fetched.follows_refusal
            self._position = self._delivered
            self._has_ended = False
            self._drop_queue()
        elif self._iterator is None:
            return
        self._rewinds += 1

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetch until cancelled. After the end of the shard it only waits for a rewind."""
        while True:
            await self._gate()
            if not self._is_first_call:
                await asyncio.sleep(self._pause())
                if not self._may_come(self._config.max_pending):
                    continue  # it was rewound meanwhile
            self._is_first_call = False
            if self._existence.is_gone:
                await asyncio.sleep(ABSENT_PAUSE_S)  # the watch reports it, and ends the worker
                continue
            await self._in_time()
            self._success_at = self._behind_s = None
            await self._fetch_once()

    async def _gate(self) -> None:
        while not self._may_come(self._config.max_pending):
            self._taken.clear()
            await self._taken.wait()

    def _pause(self) -> float:
        if self._refusals:
            return refused_pause_s(self._config, self._refusals)
        if is_catching_up(self._config, self._behind_s):
            self._fetches.catching_up()
        since = None if self._success_at is None else self._clock.monotonic() - self._success_at
        empty = self._empty_reads, self._traits.empty_pauses
        return pause_s(self._config, since, self._behind_s, *empty)

    # -- one call ------------------------------------------------------------------------------

    async def _fetch_once(self) -> None:
        """Make one call; any failure is logged, counted and retried after the pause."""
        rewinds = self._rewinds
        try:
            # A shard that was not found is asked for again only when it is known to be the same:
            # an iterator from the start of a new stream's shard would be good, too.
            if self._not_found is None:
                await self._ask(rewinds)
        except (NotFound, TrimmedData) as error:
            # Whether the shard is the same is asked after a rewind, too.
            if self._rewinds == rewinds or isinstance(error, NotFound):
                self._refused(error)
        except MldError as error:
            if self._fetches.failed(error) and self._rewinds == rewinds:
                if self._iterator is None:
                    self._position_refused()
                self._iterator = None
                self._existence.check_shard(self._shard_id, self._last_known())
        except Exception as unforeseen:
            self._fetches.count_failure(unforeseen)
            log.exception("%s: unexpected error while fetching; reading continues", self._shard_id)
        if self._not_found is not None:
            self._iterator = None
            await self._end_if_trimmed(self._not_found, rewinds)

    async def _ask(self, rewinds: int) -> None:
        if self._iterator is None:
            await self._new_iterator()
        if self._rewinds == rewinds and self._iterator is not None:
            await self._get_records(self._iterator, rewinds)

    def _refused(self, error: NotFound | TrimmedData) -> None:
        """The shard is not found, or its position is refused as expired."""
        self._iterator = None
        oldest = None if self._position is None else after_expiry(self._position)
        if isinstance(error, TrimmedData) and oldest is not None:
            log.info("%s: reading continues at the oldest record: %s", self._shard_id, error)
            self._position, self._was_refused = oldest, True
            return
        if self._traits.lists_late:  # and may be found late, too
            self._refusals += 1
            self._fetches.failed(error)
            self._existence.check_shard(self._shard_id, self._last_known())
            if not self._fetches.has_failed_for(EXPIRED_S):
                return
        self._not_found = NotFound(error.operation, error.code, error.message)

    def _last_known(self) -> str | None:
        """Sequence number of the last known record of this shard."""
        position = self._position
        return None if position is None else position.last_received or self._stored_number()

    async def _new_iterator(self) -> None:
        position = self._position
        if position is None:
            raise RuntimeError("the publisher was not started")
        rewinds, since_s = self._rewinds, self._clock.corrected()
        start = iterator_start(position, self._parts.initial_timestamp_s, self._traits)
        began = self._clock.monotonic()
        succeeded = False
        try:
            answer = await self._parts.kinesis.get_shard_iterator(
                **self._parts.stream.request(), ShardId=self._shard_id, **start.request()
            )
            succeeded = True
        finally:
            self._fetches.measure(GET_SHARD_ITERATOR, began, succeeded=succeeded)
        if self._rewinds != rewinds:
            return
        self._is_confirmed = not start.fits_any_stream
        self._iterator = answer.get("ShardIterator")
        if self._iterator is None:
            raise NotFound("GetShardIterator", "ResourceNotFoundException", "no iterator")
        if start.type is IteratorType.LATEST:
            self._began_at_latest(since_s)

    async def _get_records(self, iterator: str, rewinds: int) -> None:
        await self._share.refill(READING_FACTOR * self._expectation())
        if self._rewinds != rewinds:
            self._share.give_back()
            return
        reservation: Reservation | None = None
        began = self._clock.monotonic()
        succeeded = False
        try:
            try:
                body = await self._parts.kinesis.get_records(
                    ShardIterator=iterator,
                    Limit=self._config.max_records,
                    **({"StreamARN": self._parts.stream.arn} if self._parts.stream.arn else {}),
                )
                reservation = self._share.spend(max(1, len(body)))
                self._share.give_back()
                batch = await self._read(body, read_batch)
                succeeded = True
            finally:
                self._fetches.measure(GET_RECORDS, began, succeeded=succeeded)
            if await self._is_ours(batch, rewinds) and self._rewinds == rewinds:
                self._enqueue(batch, reservation)
                reservation = None
        finally:
            self._share.give_back()
            if reservation is not None:
                reservation.release()

    async def _is_ours(self, batch: Batch, rewinds: int) -> bool:
        """Whether an answer is of the stream of the start.

        Checked for the first answer with information.
        """
        if self._is_confirmed or (batch.is_empty and not batch.is_shard_end):
            return True
        is_ours = await self._existence.confirm()
        if self._rewinds == rewinds:
            self._is_confirmed = is_ours
            if not is_ours:
                self._iterator = None
        return is_ours

    def _expectation(self) -> int:
        """Bytes to reserve for the next answer."""
        return self._expected_bytes or self._budget.expected_bytes()

    def _enqueue(self, batch: Batch, reservation: Reservation) -> None:
        now = self._clock.monotonic()
        self._success_at = now
        self._fetches.succeeded()
        refused, self._was_refused, self._refusals = self._was_refused, False, 0
        behind_ms = batch.millis_behind_latest
        self._behind_s = None if behind_ms is None else behind_ms / 1000
        is_empty = batch.is_empty and not self._behind_s
        self._empty_reads = self._empty_reads + 1 if is_empty else 0
        self._budget.remember(batch.size_bytes)
        self._expected_bytes = expected_bytes(
            batch.size_bytes, self._behind_s, self._budget.expected_bytes()
        )
        iterator, self._iterator = self._iterator, batch.next_iterator
        self._queue_up(Queued(FetchedBatch(batch, reservation, now, refused), iterator))
