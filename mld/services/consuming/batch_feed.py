"""What the child of a shard is fed: one fetched batch after the other, and ticks while none comes.

Source: ProcessTask (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from mld.decide.children.lifecycle import TaskOutcome
from mld.errors import MalformedData
from mld.model.retrieval.wire import first_arrival_s
from mld.services.child.record_processor import OutgoingLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mld.decide.retrieval.delivery import Delivery, Missing
    from mld.services.consuming.child_pipeline import ChildPipeline
    from mld.services.consuming.consumer_context import ConsumerContext
    from mld.services.consuming.shard_closing import ShardClosing
    from mld.services.retrieval.records_publisher import FetchedBatch

log = logging.getLogger(__name__)

#: A shard whose producer writes such aggregates all the time says so no more often.
OUTSIDE_EVERY_S = 60.0


class BatchFeed:
    """Takes batches of one hold from its publisher to its child.

    Attributes:
        behind_ms: of the last batch; None before the first.
        last_batch_at: reading of ``Clock.monotonic`` when it was fetched; None before the first.
        last_processed_at: the same when a batch was done with: answered by the child, or empty.
    """

    def __init__(self, context: ConsumerContext, closing: ShardClosing) -> None:
        """Nothing happens before :meth:`process`.

        Args:
            context: whose child and publisher.
            closing: told of the shard's children when its last batch is delivered.
        """
        self._context = context
        self._closing = closing
        self._parts = context.parts
        self._clock = context.parts.runtime.clock
        self.behind_ms: int | None = None
        self.last_batch_at: float | None = None
        self.last_processed_at: float | None = None
        self._undecodable_since: float | None = None
        self._outside: list[Missing] = []
        self._outside_at: float | None = None
        #: Epoch seconds at which the first record of the batch that is not answered arrived.
        self._unanswered_since: float | None = None
        #: How far behind the last answer of Kinesis was that is known here, and when it came.
        self._last_answer: tuple[int | None, float] | None = None

    @property
    def failing_since(self) -> float | None:
        """When the first call or batch failed of those that failed in a row; None if all is well.

        A reading of ``Clock.monotonic``.
        """
        pipeline = self._context.pipeline
        fetching = None if pipeline is None else pipeline.publisher.failing_since
        return fetching if self._undecodable_since is None else self._undecodable_since

    def processing_lag_s(self) -> float | None:
        """Since the arrival of the oldest record that was fetched and not answered, if there is one.

        By the clock of the service: that of this machine may be wrong.
        """
        oldest = self._unanswered_since
        if oldest is None:
            oldest = self._oldest_waiting()
        if oldest is None:
            return None
        now = self._parts.service_time()
        return max(0.0, (self._clock.wall() if now is None else now) - oldest)

    def reading_lag_s(self) -> float | None:
        """How far the last batch was behind the tip of the shard, and the time since it was given."""
        behind_ms, answered_at = self._last_answer or self._first_waiting() or (None, 0.0)
        return (
            None if behind_ms is None else behind_ms / 1000 + self._clock.monotonic() - answered_at
        )

    def child_failed(self) -> None:
        """Remember what waits: it is fetched anew for the next child, perhaps in a minute."""
        if self._unanswered_since is None:
            self._unanswered_since = self._oldest_waiting()
        if self._last_answer is None:
            self._last_answer = self._first_waiting()

    def _waiting(self) -> tuple[FetchedBatch, ...]:
        pipeline = self._context.pipeline
        return () if pipeline is None else pipeline.publisher.waiting

    def _oldest_waiting(self) -> float | None:
        arrived = (first_arrival_s(one.batch.records) for one in self._waiting())
        return next((one for one in arrived if one is not None), None)

    def _first_waiting(self) -> tuple[int | None, float] | None:
        waiting = self._waiting()
        return (waiting[0].batch.millis_behind_latest, waiting[0].fetched_at) if waiting else None

    async def process(self) -> TaskOutcome:
        """Wait for one batch and deliver it, or for the moment at which the child wants a tick."""
        context = self._context
        if context.pipeline is None or not context.may_go_on():
            return TaskOutcome.AGAIN
        publisher = context.pipeline.publisher
        before = publisher.delivered
        try:
            fetched = await self._next_batch(context.pipeline)
        except TimeoutError:
            await self._tick()
            return TaskOutcome.AGAIN
        if fetched is None:
            return TaskOutcome.AGAIN
        try:
            if context.may_go_on():
                await self._deliver(fetched)
        except MalformedData as error:
            # Never drop what cannot be read: fetch it again, for ever if need be.
            if self._undecodable_since is None:
                self._undecodable_since = self._clock.monotonic()
            context.last_error = str(error)
            text = "%s: a batch cannot be delivered, reading it again: %s"
            log.error(text, context.shard_id, error)  # noqa: TRY400
            publisher.rewind(before)
            await context.pause(self._parts.config.retrieval.task_backoff_s)
            return TaskOutcome.AGAIN
        finally:
            fetched.reservation.release()
        self._undecodable_since = self._unanswered_since = None
        self.last_processed_at = self._clock.monotonic()
        return TaskOutcome.DONE

    async def _next_batch(self, pipeline: ChildPipeline) -> FetchedBatch | None:
        """The next batch; one that is there is taken even when a tick is overdue.

        Raises:
            TimeoutError: the child has waited long enough; no batch is lost.
            ChildFailed: the child ended meanwhile.
        """
        async with asyncio.timeout(self._until_tick_s()), pipeline.processor.unless_it_ends():
            return await pipeline.publisher.next_batch()

    def _until_tick_s(self) -> float | None:
        """Seconds until the child wants to be told something; None = it never does."""
        pipeline = self._context.pipeline
        due_at = None if pipeline is None else pipeline.processor.tick_due_at
        return None if due_at is None else max(0.0, due_at - self._clock.monotonic())

    async def _tick(self) -> None:
        """An empty batch; no metric counts it, because nothing was read."""
        pipeline = self._context.pipeline
        if pipeline is not None and self._context.may_go_on():
            await pipeline.processor.tick(self.behind_ms)

    async def _deliver(self, fetched: FetchedBatch) -> None:
        """One batch to the child; the last one of the shard is the reason to stop."""
        batch = fetched.batch
        self.last_batch_at = fetched.fetched_at
        self.behind_ms = batch.millis_behind_latest
        self._last_answer = self.behind_ms, fetched.fetched_at
        self._unanswered_since = first_arrival_s(batch.records)
        with self._context.metrics.process_task(batch.millis_behind_latest):
            if not batch.is_empty or (
                self._parts.config.retrieval.call_even_if_empty and not batch.is_shard_end
            ):
                await self._hand_over(fetched)
        if batch.is_shard_end:
            self._closing.children = batch.child_shards
            self._context.shutdown.shard_ended()

    async def _hand_over(self, fetched: FetchedBatch) -> None:
        context = self._context
        current = context.current()
        lease = context.held.lease if current is None else current.lease
        config = self._parts.config
        has_filter = not (
            config.shards.skip_sync_if_leases_exist or config.retrieval.deliver_outside_shard
        )
        delivery = await self._parts.lines.write(
            fetched, context.checkpointer.last, lease.hash_range if has_filter else None
        )
        await self._say(fetched, delivery)
        while delivery.rest is not None and context.current() is not None:
            delivery = await self._parts.lines.write_rest(fetched, delivery.rest)
            await self._say(fetched, delivery)

    async def _say(self, fetched: FetchedBatch, delivery: Delivery) -> None:
        """One line to the child."""
        context = self._context
        if delivery.missing:
            self._report_missing(delivery.missing)
        if self._parts.schemas is not None and delivery.failures:
            self._parts.schemas.report(context.shard_id, delivery.failures)
        if context.current() is None:
            return  # it lapsed while other shards were converted, or this process was frozen
        context.metrics.delivered(delivery.records, delivery.data_bytes)
        context.metrics.stayed_framed(sum(one.count for one in delivery.failures.values()))
        self._parts.tally.records += delivery.records
        self._parts.renewer.received(context.lease_key, context.held.token, delivery.data_bytes)
        context.checkpointer.delivered(delivery.largest)
        line = delivery.pop_line()
        if line is None or context.pipeline is None:
            return
        if delivery.smallest is not None and delivery.largest is not None:
            context.delivering = delivery.smallest, delivery.largest
        left = 0 if delivery.rest is None else delivery.rest.size_bytes
        outgoing = OutgoingLine(line, partial(fetched.reservation.resize, left))
        del line
        with context.metrics.timed(
            "ProcessTask", "RecordProcessor.processRecords.Time", of_shard=True
        ):
            await context.pipeline.processor.process(outgoing)
        context.delivering = None

    def _report_missing(self, missing: Sequence[Missing]) -> None:
        """Count and log user records that the child doesn't get."""
        unreadable = [one for one in missing if one.why is not None]
        outside = [one for one in missing if one.why is None]
        self._context.metrics.missing(_count(unreadable), _count(outside))
        shard_id = self._context.shard_id
        if unreadable:
            log.error(
                "%s: %d user records in aggregated records %s can't be read and are not delivered; "
                "those around them are (%s)",
                shard_id,
                _count(unreadable),
                _range(unreadable),
                unreadable[0].why,
            )
        self._outside += outside
        now = self._clock.monotonic()
        if self._outside and (
            self._outside_at is None or now - self._outside_at >= OUTSIDE_EVERY_S
        ):
            log.warning(
                "%s: %d user records in aggregated records %s are not delivered, because their "
                "aggregates hold keys of other shards. A KPL sends them again; for other producers "
                "set aggregatedRecordsOutsideShard = deliver",
                shard_id,
                _count(self._outside),
                _range(self._outside),
            )
            self._outside, self._outside_at = [], now


def _count(missing: Sequence[Missing]) -> int:
    return sum(one.records for one in missing)


def _range(missing: Sequence[Missing]) -> str:
    first, last = missing[0].sequence_number, missing[-1].sequence_number
    return first if first == last else f"{first} to {last}"
