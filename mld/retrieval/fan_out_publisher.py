"""Has one shard's records pushed by enhanced fan-out, and keeps a few events ready.

``run`` subscribes again and again; it never ends because of an error, only with the shard. A
subscription lasts five minutes. The next one begins behind the last event that is kept: AT the
checkpoint until there is one, because the checkpoint may lie inside an aggregated record, and AFTER
from then on. Every event has its place in the process-wide :class:`ByteBudget` before it is let in.

Source: FanOutRecordsPublisher (KCL 3.5.1), which says AFTER as soon as a subscription is accepted.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.aws.ports import SUBSCRIPTION_SILENCE_S
from kcl_mld.errors import InvalidArgument, MldError, NotFound, UnknownOutcome
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.retrieval.fetch_report import SubscriptionReport
from kcl_mld.retrieval.model.wire import read_event
from kcl_mld.retrieval.records_publisher import (
    ABSENT_PAUSE_S,
    READING_FACTOR,
    FetchedBatch,
    Queued,
    RecordsPublisher,
)
from kcl_mld.retrieval.rules.fan_out import (
    LARGEST_EVENT_BYTES,
    MOST_EVENTS,
    expected_event_bytes,
    renewal_pause_s,
    starting_position,
)
from kcl_mld.retrieval.rules.polling import iterator_start

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kcl_mld.aws.ports import Subscription
    from kcl_mld.retrieval.byte_budget import Reservation
    from kcl_mld.retrieval.consumer_registration import ConsumerRegistration
    from kcl_mld.retrieval.model.record import Batch
    from kcl_mld.retrieval.records_publisher import PublisherParts
    from kcl_mld.retrieval.rules.polling import IteratorStart, ReadPosition
    from kcl_mld.signals.rules.remedies import FailedCall

log = logging.getLogger("mld.retrieval")


class FanOutPublisher(RecordsPublisher):
    """One shard's events, in order."""

    def __init__(
        self, shard_id: str, parts: PublisherParts, registration: ConsumerRegistration
    ) -> None:
        self._subscriptions = SubscriptionReport(shard_id, parts.runtime.clock)
        super().__init__(shard_id, parts, self._subscriptions, self._drop_read_ahead)
        self._parts = parts
        self._registration = registration
        self._subscription: Subscription | None = None
        self._accepted_at: float | None = None
        self._last_record: str | None = None
        self._consumer_arn = ""

    # -- for the consumer ----------------------------------------------------------------------

    @property
    def failing_since(self) -> float | None:
        """As of the base class; a consumer that cannot be registered fails all shards."""
        failing = super().failing_since
        return self._registration.failing_since if failing is None else failing

    @property
    def failure(self) -> FailedCall | None:
        """As of the base class, likewise."""
        return super().failure or self._registration.failure

    def _restart(self) -> None:
        if self._subscription is not None:
            self._subscription.close()

    def _behind(self, position: ReadPosition, batch: Batch) -> ReadPosition:
        """Events without records are delivered, too."""
        place = batch.next_iterator or batch.last_sequence_number
        return position if place is None else replace(position, last_received=place)

    def _drop_read_ahead(self) -> None:
        """Others need the memory, and the consumer takes nothing: subscribe again when it does.

        A subscription of which nothing is buffered stays: what the service pushes waits in the
        kernel.
        """
        self._may_read_ahead = False
        self._share.give_back()
        if self._queue:
            self._position = self._delivered
            self._has_ended = False
            self._drop_queue()
            self._rewinds += 1
            self._restart()

    # -- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Subscribe until cancelled. After the end of the shard it only waits for a rewind."""
        while True:
            await self._gate()
            if self._existence.is_gone:
                await asyncio.sleep(ABSENT_PAUSE_S)  # the watch reports it, and ends the worker
                continue
            error = await self._subscribe_once()
            await asyncio.sleep(self._pause_s(error))

    async def _gate(self) -> None:
        while not self._may_come(MOST_EVENTS):
            self._share.give_back()
            self._taken.clear()
            await self._taken.wait()

    def _pause_s(self, error: MldError | None) -> float:
        if self._has_ended:
            return 0.0
        accepted_at = self._accepted_at
        since_s = None if accepted_at is None else self._clock.monotonic() - accepted_at
        rng = self._parts.runtime.rng
        return renewal_pause_s(error, self._subscriptions.failures, since_s, rng)

    async def _subscribe_once(self) -> MldError | None:
        """One subscription from its request to its end; the error that ended it."""
        rewinds = self._rewinds
        error: MldError | None = None
        try:
            # A shard that was not found is requested again only if its stream is known to be the
            # same.
            if self._not_found is None:
                await self._receive(rewinds)
        except NotFound as not_found:
            self._not_found = error = not_found
        except MldError as failed:
            error = failed
            if self._rewinds == rewinds:
                self._subscriptions.failed(failed)
                if isinstance(failed, InvalidArgument):
                    self._position_refused()
                    self._existence.check_shard(self._shard_id, self._last_known())
        except Exception as unforeseen:
            self._subscriptions.count_failure(unforeseen)
            log.exception(
                "%s: unexpected error while subscribed; reading continues", self._shard_id
            )
            error = UnknownOutcome("SubscribeToShard", type(unforeseen).__name__)
        finally:
            self._share.give_back()
        if self._not_found is not None:
            error = self._not_found
            if await self._end_if_trimmed(self._not_found, rewinds):
                self._registration.not_found(self._consumer_arn)
        return error

    def _last_known(self) -> str | None:
        """Sequence number of the last known record of this shard."""
        return self._last_record or self._stored_number()

    # -- one subscription ----------------------------------------------------------------------

    async def _receive(self, rewinds: int) -> None:
        start = await self._where_to_begin()
        if self._rewinds != rewinds:
            return
        async with _within_silence():
            subscription = await self._parts.kinesis.subscribe_to_shard(
                ConsumerARN=self._consumer_arn,
                ShardId=self._shard_id,
                StartingPosition=starting_position(start),
            )
        self._accepted_at = self._clock.monotonic()
        self._is_confirmed = not start.fits_any_stream
        self._registration.accepted()
        self._subscription = subscription
        any_came = False
        try:
            while self._rewinds == rewinds and not self._has_ended:
                await self._gate()
                if self._rewinds != rewinds:
                    return
                if not await self._receive_one(subscription, rewinds, any_came=any_came):
                    return
                any_came = True
        finally:
            self._subscription = None
            subscription.close()

    async def _where_to_begin(self) -> IteratorStart:
        """Waits for the consumer.

        At LATEST the first subscription may have to wait for it, or be refused: what comes
        meanwhile is read by the time at which it was to begin.
        """
        registration, position = self._registration, self._position
        if position is None:
            raise RuntimeError("the publisher was not started")
        is_known = registration.is_known
        if position.checkpoint.sentinel is Sentinel.LATEST and position.latest_since_s is None:
            self._began_at_latest(self._clock.corrected())
        self._consumer_arn = await registration.arn()
        since = position if is_known else self._position or position
        return iterator_start(since, self._parts.initial_timestamp_s, self._parts.stream.traits)

    async def _receive_one(
        self, subscription: Subscription, rewinds: int, *, any_came: bool
    ) -> bool:
        """The next event; False at the end of the subscription.

        Raises:
            UnknownOutcome: it ended before any came, which the service never does on purpose.
        """
        await self._share.refill(READING_FACTOR * (self._expected_bytes or LARGEST_EVENT_BYTES))
        if self._rewinds != rewinds:
            return False
        async with _within_silence():
            body = await subscription.next_event()
        if self._rewinds != rewinds:
            return False
        if body is None:
            if not any_came:
                raise UnknownOutcome("SubscribeToShard", "Ended", "accepted, but no event came")
            return False
        reservation: Reservation | None = self._share.spend(max(1, len(body)))
        try:
            batch = await self._read(body, read_event)
            if not self._is_confirmed:
                # Of the stream that it was? Every event says where to go on, an empty one too.
                if not await self._existence.confirm():
                    return False
                self._is_confirmed = True
            if self._rewinds == rewinds and reservation is not None:
                self._enqueue(batch, reservation)
                reservation = None
        finally:
            if reservation is not None:
                reservation.release()
        return True

    def _enqueue(self, batch: Batch, reservation: Reservation) -> None:
        self._subscriptions.succeeded()
        self._expected_bytes = expected_event_bytes(batch.size_bytes, batch.millis_behind_latest)
        self._last_record = batch.last_sequence_number or self._last_record
        self._queue_up(Queued(FetchedBatch(batch, reservation, self._clock.monotonic())))


@asynccontextmanager
async def _within_silence() -> AsyncIterator[None]:
    """Longer waiting is a failure."""
    try:
        async with asyncio.timeout(SUBSCRIPTION_SILENCE_S):
            yield
    except TimeoutError:
        why = f"nothing came for {SUBSCRIPTION_SILENCE_S:.0f} s"
        raise UnknownOutcome("SubscribeToShard", "Silence", why) from None
