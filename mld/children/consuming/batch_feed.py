"""Feeds the child of a shard: one fetched batch after the other, and ticks while there is none.

The child and its fetching are started together, so that the first batch is there when the child is
ready.

Source: ProcessTask (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from kcl_mld.children.consuming.child_factory import ChildFactory, Delivering
from kcl_mld.children.consuming.child_group import ChildGroup
from kcl_mld.children.consuming.loss_watch import LossWatch
from kcl_mld.children.consuming.missing_report import MissingReport
from kcl_mld.children.record_processor import OutgoingLine
from kcl_mld.children.rules.containment import FailedLine
from kcl_mld.children.rules.lifecycle import TaskOutcome
from kcl_mld.errors import ChildFailed, MalformedData
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.retrieval.model.wire import first_arrival_s
from kcl_mld.retrieval.rules.polling import ReadPosition
from kcl_mld.signals.model.metrics import PROCESS_RECORDS_TIME
from kcl_mld.signals.rules.remedies import failed_reading

if TYPE_CHECKING:
    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.consuming.containment import Containment
    from kcl_mld.children.record_processor import RecordProcessor
    from kcl_mld.children.rules.delivery import Delivery
    from kcl_mld.children.rules.routing import Route
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.retrieval.records_publisher import FetchedBatch, RecordsPublisher
    from kcl_mld.signals.rules.remedies import FailedCall
    from kcl_mld.streams.model.shard import ChildShard

log = logging.getLogger("mld.children")


@dataclass(slots=True)
class _Pipeline:
    """A child and the fetching that feeds it: one pair per start of a shard's child."""

    publisher: RecordsPublisher
    processor: RecordProcessor | None
    fetching: asyncio.Task[None] | None = None

    async def stop_fetching(self) -> None:
        """Stop fetching and return undelivered batches; may be called again."""
        fetching, self.fetching = self.fetching, None
        if fetching is not None:
            fetching.cancel()
            await asyncio.gather(fetching, return_exceptions=True)
        await self.publisher.close()


class BatchFeed:
    """Passes the batches of one hold from its publisher to its child.

    Attributes:
        child_shards: of a shard that has ended, from its last answer.
        has_vanished: the service no longer knows the shard.
        records: number of records given to the child.
        behind_ms: of the last batch; None before the first.
        last_batch_at: reading of ``Clock.monotonic`` when it was fetched; None before the first.
        last_processed_at: the same when a batch was completed: answered by the child, or empty.
    """

    def __init__(self, context: ConsumerContext, containment: Containment | None) -> None:
        self._context = context
        self._containment = containment
        self._failed: tuple[FailedLine, RecordProcessor] | None = None
        self._parts = context.parts
        self._clock = context.parts.runtime.clock
        self._pipeline: _Pipeline | None = None
        self.child_shards: tuple[ChildShard, ...] = ()
        self.has_vanished = False
        self.records = 0
        #: The children of a shard that has several; None = it has one.
        self.children: ChildGroup | None = None
        self._is_at_end = False
        #: Makes the children.
        self.factory = ChildFactory(context, contains=containment is not None)
        #: First and last position given to the child; None without records.
        self._delivering: Delivering = None
        self.behind_ms: int | None = None
        self.last_batch_at: float | None = None
        self.last_processed_at: float | None = None
        self._undecodable_since: float | None = None
        self._undecodable: FailedCall | None = None
        self._missing = MissingReport(context)
        #: Epoch seconds at which the first record of the unanswered batch arrived.
        self._unanswered_since: float | None = None
        #: Finds records that expired unread.
        self.losses = LossWatch(context)
        #: The last known ``MillisBehindLatest``, and when it was received.
        self._last_answer: tuple[int | None, float] | None = None

    @property
    def failing_since(self) -> float | None:
        """When the first of the current consecutive failures of calls or batches occurred.

        None = none.

        A reading of ``Clock.monotonic``.
        """
        pipeline = self._pipeline
        fetching = None if pipeline is None else pipeline.publisher.failing_since
        return fetching if self._undecodable_since is None else self._undecodable_since

    @property
    def failure(self) -> FailedCall | None:
        """The last failure since :attr:`failing_since`; None while nothing fails."""
        if self._undecodable is not None:
            return self._undecodable
        return None if self._pipeline is None else self._pipeline.publisher.failure

    def processing_lag_s(self) -> float | None:
        """Age of the oldest record that was fetched and not answered, None if there is none.

        By the clock of the service, because that of this machine may be wrong.
        """
        oldest = None if self.children is None else self.children.oldest_s
        if oldest is None:
            oldest = self._unanswered_since
        if oldest is None:
            oldest = self._oldest_waiting()
        if oldest is None:
            return None
        now = self._parts.service_time()
        return max(0.0, (self._clock.wall() if now is None else now) - oldest)

    def reading_lag_s(self) -> float | None:
        """How far the last batch was behind the tip, plus the time since it was received."""
        behind_ms, answered_at = self._last_answer or self._first_waiting() or (None, 0.0)
        return (
            None if behind_ms is None else behind_ms / 1000 + self._clock.monotonic() - answered_at
        )

    def child_failed(self) -> None:
        """Remember undelivered records.

        They are fetched again for the next child, perhaps in a minute.
        """
        if self._unanswered_since is None:
            self._unanswered_since = self._oldest_waiting()
        if self._last_answer is None:
            self._last_answer = self._first_waiting()

    def _waiting(self) -> tuple[FetchedBatch, ...]:
        pipeline = self._pipeline
        return () if pipeline is None else pipeline.publisher.waiting

    def _oldest_waiting(self) -> float | None:
        arrived = (first_arrival_s(one.batch.records) for one in self._waiting())
        return next((one for one in arrived if one is not None), None)

    def _first_waiting(self) -> tuple[int | None, float] | None:
        waiting = self._waiting()
        return (waiting[0].batch.millis_behind_latest, waiting[0].fetched_at) if waiting else None

    # -- the child and its fetching ------------------------------------------------------------

    @property
    def child(self) -> RecordProcessor | None:
        """The only child; None while there is none, or if there are several."""
        return None if self._pipeline is None else self._pipeline.processor

    @property
    def processor(self) -> RecordProcessor | ChildGroup | None:
        """The child, or all of several; None while there is none."""
        return self.child if self.children is None else self.children

    @property
    def listener(self) -> RecordProcessor | ChildGroup | None:
        """The child, if it waits for a message; all of several, each of which may."""
        if self.children is not None:
            return self.children
        return child if (child := self.child) is not None and child.may_talk else None

    async def start_children(
        self, group: asyncio.TaskGroup, position: ExtendedSequenceNumber
    ) -> None:
        """Fetch for several children, in tasks of the group; each starts with its first record.

        Args:
            position: where the hold begins; children that are there go on where they are.
        """
        context = self._context
        publisher = context.stream_context.publishers(context.shard_id)
        if self.children is None:
            self.children = ChildGroup(
                context.children,
                position,
                context,
                self.factory,
                publisher.share_of_child,
                self.interrupt,
            )
        position = self.children.reads_from
        self.children.began_at(position)
        self._is_at_end = False
        self._pipeline = pipeline = _Pipeline(publisher, None)
        await self._fetch(pipeline, group, position)
        self.children.run(group)

    async def start(
        self, group: asyncio.TaskGroup, position: ExtendedSequenceNumber
    ) -> RecordProcessor:
        """Fetch from a position on, in a task of the group.

        Returns the child, not yet initialized.
        """
        context = self._context
        publisher = context.stream_context.publishers(context.shard_id)
        self._delivering = None
        child = self.factory.make(context.checkpointer, lambda: self._delivering)
        self._pipeline = pipeline = _Pipeline(publisher, child)
        await self._fetch(pipeline, group, position)
        return child

    async def _fetch(
        self, pipeline: _Pipeline, group: asyncio.TaskGroup, position: ExtendedSequenceNumber
    ) -> None:
        await pipeline.publisher.start(position, self._latest_since_s())
        self.losses.begin(position)
        name = f"fetch {self._context.lease_key}"
        pipeline.fetching = group.create_task(pipeline.publisher.run(), name=name)

    def interrupt(self) -> None:
        """Wake the task that waits for a batch, because there is something else to do."""
        if self._pipeline is not None:
            self._pipeline.publisher.interrupt()

    def stopping(self) -> None:
        """Wake all that waits, because the consumer is to end."""
        self.interrupt()
        if self.children is not None:
            self.children.changed()

    async def pause(self, seconds: float) -> None:
        """Sleep before a retry; a stop or a lost lease ends it.

        Raises:
            ChildFailed: there was an idle child, and it ended meanwhile.
        """
        shutdown, child = self._context.shutdown, self.child
        if child is None:
            await shutdown.pause(seconds)
            return
        async with child.unless_it_ends():
            await shutdown.pause(seconds)

    async def stop_fetching(self) -> None:
        """Stop fetching; the child, if any, keeps running. May be called again."""
        if self._pipeline is not None:
            await self._pipeline.stop_fetching()
            self._remember_latest(self._pipeline.publisher.latest_since_s)

    async def end_child(self) -> None:
        """End the child, or all of them, in order; does nothing without one."""
        if (processor := self.processor) is not None:
            await processor.stop()
        self._pipeline = self.children = None

    def _latest_since_s(self) -> float | None:
        """Where an earlier child or holding began at LATEST, if no other worker held it since."""
        switches, since_s = self._parts.latest_starts.get(self._context.lease_key, (None, None))
        is_same_reader = switches == self._context.held.lease.owner_switches_since_checkpoint
        return since_s if is_same_reader else None

    def _remember_latest(self, since_s: float | None) -> None:
        key = self._context.lease_key
        if self._context.checkpointer.last.sentinel is not Sentinel.LATEST:
            self._parts.latest_starts.pop(key, None)
        elif since_s is not None:
            switches = self._context.held.lease.owner_switches_since_checkpoint
            self._parts.latest_starts[key] = (switches, since_s)

    # -- batches -------------------------------------------------------------------------------

    async def process(self) -> TaskOutcome:
        """Wait for one batch and deliver it, or until the child wants a tick."""
        context, pipeline = self._context, self._pipeline
        if pipeline is None or not context.may_go_on():
            return TaskOutcome.AGAIN
        if self.children is not None and not await self._prepare_reading(pipeline, self.children):
            return TaskOutcome.AGAIN
        before = pipeline.publisher.delivered
        try:
            fetched = await self._next_batch(pipeline)
        except TimeoutError:
            if context.may_go_on() and pipeline.processor is not None:
                # No metric counts an empty batch, because no record was read.
                await pipeline.processor.tick(self.behind_ms)
            return TaskOutcome.AGAIN
        if fetched is None:
            return TaskOutcome.AGAIN
        try:
            if context.may_go_on():
                await self.losses.judge(fetched, pipeline.publisher)
                await self._deliver(fetched, pipeline.processor)
                self.losses.delivered(fetched)
        except MalformedData as error:
            # Never drop what can't be read: fetch it again, without limit.
            if self._undecodable_since is None:
                self._undecodable_since = self._clock.monotonic()
            self._undecodable = failed_reading(error)
            context.last_error = str(error)
            text = "%s: a batch cannot be delivered, reading it again: %s"
            log.error(text, context.shard_id, error)  # noqa: TRY400
            pipeline.publisher.rewind(before)
            await self.pause(self._parts.config.retrieval.task_backoff_s)
            return TaskOutcome.AGAIN
        finally:
            fetched.reservation.release()
        self._undecodable_since = self._unanswered_since = self._undecodable = None
        self.last_processed_at = self._clock.monotonic()
        return TaskOutcome.DONE

    async def _prepare_reading(self, pipeline: _Pipeline, children: ChildGroup) -> bool:
        """Before a batch for several children: go back for one, end the shard, or wait for room."""
        if (to := children.moves_to()) is not None:
            log.info("%s: reading from %s on", self._context.shard_id, to)
            pipeline.publisher.rewind(ReadPosition(to))
            self.losses.begin(to)
            self._is_at_end = False
        if not self._is_at_end:
            return await children.room()
        if await children.settled():
            self._context.shutdown.shard_ended()
        return False

    async def _next_batch(self, pipeline: _Pipeline) -> FetchedBatch | None:
        """The next batch; an available one has priority over an overdue tick.

        Raises:
            TimeoutError: the child has waited long enough; no batch is lost.
            ChildFailed: the child ended meanwhile.
        """
        if pipeline.processor is None:
            return await pipeline.publisher.next_batch()
        due_at = pipeline.processor.tick_due_at
        wait_s = None if due_at is None else max(0.0, due_at - self._clock.monotonic())
        async with asyncio.timeout(wait_s), pipeline.processor.unless_it_ends():
            return await pipeline.publisher.next_batch()

    async def _deliver(self, fetched: FetchedBatch, processor: RecordProcessor | None) -> None:
        """Deliver one batch to the child; the shard's last batch is the reason to stop.

        Several children have to answer first.
        """
        batch = fetched.batch
        self.last_batch_at = fetched.fetched_at
        self.behind_ms = batch.millis_behind_latest
        self._last_answer = self.behind_ms, fetched.fetched_at
        self._unanswered_since = first_arrival_s(batch.records)
        with self._context.metrics.process_task(batch.millis_behind_latest):
            if not batch.is_empty or (
                self._parts.config.retrieval.call_even_if_empty and not batch.is_shard_end
            ):
                await self._hand_over(fetched, processor)
        if batch.is_shard_end:
            self.child_shards, self.has_vanished = batch.child_shards, batch.has_vanished
            self._is_at_end = True
            if self.children is None:
                self._context.shutdown.shard_ended()

    async def _hand_over(self, fetched: FetchedBatch, processor: RecordProcessor | None) -> None:
        context, children = self._context, self.children
        current = context.current()
        lease = context.held.lease if current is None else current.lease
        config = self._parts.config
        has_filter = not (
            config.shards.skip_sync_if_leases_exist or config.retrieval.deliver_outside_shard
        )
        route = None if children is None else children.route
        delivery = await self._parts.lines.write(
            fetched,
            context.checkpointer.last if route is None else route.behind(context.checkpointer.last),
            lease.hash_range if has_filter else None,
            route,
        )
        if children is not None and fetched.batch.is_empty:
            children.assign_nothing(self.behind_ms)
        await self._say(fetched, delivery, processor, route)
        while delivery.rest is not None and context.current() is not None:
            if children is not None:
                if not await children.room(mid_batch=True):
                    return
                delivery.rest.route = route = children.route
            delivery = await self._parts.lines.write_rest(fetched, delivery.rest)
            await self._say(fetched, delivery, processor, route)

    async def _say(
        self,
        fetched: FetchedBatch,
        delivery: Delivery,
        processor: RecordProcessor | None,
        route: Route | None,
    ) -> None:
        """Send one line to the child, or assign it to several."""
        context = self._context
        if delivery.missing:
            self._missing.report(delivery.missing)
        if self._parts.schemas is not None and delivery.failures:
            self._parts.schemas.report(context.shard_id, delivery.failures)
        if context.current() is None:
            return  # it lapsed during conversions for other shards, or this process was suspended
        context.metrics.stayed_framed(sum(one.count for one in delivery.failures.values()))
        left = 0 if delivery.rest is None else delivery.rest.size_bytes
        if self.children is not None and route is not None:
            records, data_bytes = self.children.assign(delivery, route, self.behind_ms)
            fetched.reservation.resize(left)
            self._count(records, data_bytes)
            return
        self._count(delivery.records, delivery.data_bytes)
        if processor is None:
            return
        if self._containment is not None and delivery.largest is not None:
            await self._say_contained(delivery, processor, self._containment)
            return
        context.checkpointer.delivered(delivery.largest)
        line = delivery.pop_line()
        if line is None:
            return
        if delivery.smallest is not None and delivery.largest is not None:
            self._delivering = delivery.smallest, delivery.largest
        outgoing = OutgoingLine(line, partial(fetched.reservation.resize, left))
        del line
        with context.metrics.timed(PROCESS_RECORDS_TIME):
            await processor.process(outgoing)
        self._delivering = None

    def _count(self, records: int, data_bytes: int) -> None:
        context = self._context
        context.metrics.delivered(records, data_bytes)
        self._parts.tally.records += records
        self.records += records
        self._parts.renewer.received(context.lease_key, context.held.token, data_bytes)

    async def _say_contained(
        self, delivery: Delivery, processor: RecordProcessor, containment: Containment
    ) -> None:
        """Send the lines into which containment splits one.

        Each stays in memory until it is answered.
        """
        context, line = self._context, delivery.pop_line()
        if line is None or delivery.smallest is None:
            return
        for part in containment.parts(line, delivery):
            if context.current() is None:
                return
            before = context.checkpointer.largest
            context.checkpointer.delivered(part.largest)
            self._delivering = delivery.smallest, part.largest
            began = self._clock.monotonic()
            try:
                with context.metrics.timed(PROCESS_RECORDS_TIME):
                    await processor.process(OutgoingLine(part.line, _keep))
            except ChildFailed as error:
                if context.may_go_on():
                    took_ms = int(1000 * (self._clock.monotonic() - began))
                    self._failed = FailedLine(part.line, error, before, took_ms), processor
                raise
            await containment.passed(part)
        self._delivering = None

    def take_failed(self) -> FailedLine | None:
        """The line that a child has just failed on, once; None = it failed otherwise."""
        found, self._failed = self._failed, None
        return None if found is None else replace(found[0], stderr=found[1].last_stderr)


def _keep() -> None:
    """Keep a line that was written but is still needed."""
