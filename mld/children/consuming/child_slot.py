"""One of several children of a shard: its process, what waits for it, and its restarts.

Parts of lines are assigned in order and sent one after the other. A child that fails is replaced
alone: what it did not confirm is read again for its next process, and the others go on meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.children.consuming.part_queue import PartQueue
from kcl_mld.children.consuming.shared_checkpoint import ChildCheckpointer
from kcl_mld.children.model.child_name import ChildName
from kcl_mld.children.model.consumer_status import ChildStatus
from kcl_mld.children.rules.lifecycle import RestartCount, ShutdownReason, restart_pause_s
from kcl_mld.children.rules.mark import MOST_WAITING
from kcl_mld.config.config import ChildConfirms
from kcl_mld.errors import ChildFailed, ChildTimedOut, EndNotCheckpointed
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.signals.model.metrics import (
    CHILD_RESTARTED,
    INITIALIZE_TIME,
    PROCESS_RECORDS_TIME,
    SHUTDOWN_TIME,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.children.consuming.child_factory import ChildFactory, Delivering
    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.consuming.shared_checkpoint import SharedCheckpoint
    from kcl_mld.children.record_processor import RecordProcessor
    from kcl_mld.children.rules.routing import Part
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.retrieval.byte_budget import BudgetShare

log = logging.getLogger("mld.children")

#: A child that owes a confirmation gets a message without records after this many seconds, while
#: others had records; the time doubles with each such message, up to the longest. kclpy's sample
#: checkpoints only when it is called.
FIRST_NUDGE_S = 1.0
LONGEST_NUDGE_S = 30.0


class ChildSlot:
    """The place of one child, which outlives its processes.

    Attributes:
        is_following: it is assigned its part of each new line. If not, its records are left out of
            the lines, and are read again for it.
        wants_records: it does not follow, and is ready for the records behind its floor.
        failure: what ends the daemon; None = nothing does.
        has_ended: it is done with the shard, which has ended.
        begun: number of the last line of which it was sent a part; 0 before the first.

    Args:
        start: where the hold begins.
        share: memory for what waits.
        on_change: called when :attr:`wants_records` or :attr:`failure` is set.
        on_answer: called after each answer, and when less waits for it.
    """

    def __init__(
        self,
        index: int,
        start: ExtendedSequenceNumber,
        context: ConsumerContext,
        factory: ChildFactory,
        shared: SharedCheckpoint,
        share: Callable[[Callable[[], None]], BudgetShare],
        on_change: Callable[[], None],
        on_answer: Callable[[], None],
    ) -> None:
        self.index = index
        self.name = ChildName(context.shard_id, index)
        self._context = context
        self._parts = context.parts
        self._clock = context.parts.runtime.clock
        self._factory = factory
        self._share = share(self.leave)
        self._on_change = on_change
        self._on_answer = on_answer
        self.checkpointer = ChildCheckpointer(shared, str(self.name), start, self._note_progress)
        self.processor: RecordProcessor | None = None
        self.is_following = True
        self.wants_records = False
        self.failure: ChildFailed | None = None
        self.begun = 0
        self.has_ended = False
        self._queue = PartQueue()
        self._delivering: Delivering = None
        self._wakeup = Wakeup()
        self._task: asyncio.Task[None] | None = None
        self._must_start = index == 0
        self._is_closing = False
        self._is_ended = False
        self._behind_ms: int | None = None
        self._busy_since = self._answered_at = self._clock.monotonic()
        self._is_passed_over = False
        self._nudge_s = FIRST_NUDGE_S
        self._wants_empty = False
        self._restarts = RestartCount()
        self.failed_at: float | None = None

    # -- what it is given --------------------------------------------------------------------------

    def assign(
        self,
        part: Part | None,
        edge: ExtendedSequenceNumber,
        line_number: int,
        behind_ms: int | None,
    ) -> None:
        """Assign its part of a line.

        Args:
            part: None = no record of the line is its own.
            edge: the last record of the line.
        """
        self._behind_ms = behind_ms
        progress = self.checkpointer.progress
        if part is None:
            progress.assign(None, edge)
            self._is_passed_over = True
            if progress.owes and self.is_idle:
                self._wakeup.wake()
            return
        if self.is_idle:
            self._share.served()
            self._busy_since = self._clock.monotonic()
        reservation = self._share.spend(len(part.line))
        if not self.is_following:  # memory is short: what waits for it was dropped just now
            reservation.release()
            return
        self._queue.append(part, line_number, progress.floor, reservation)
        progress.assign(part.largest, edge)
        self._is_passed_over = False
        self._wakeup.wake()

    def assign_nothing(self, behind_ms: int | None) -> None:
        """A batch without records, for a child that waits."""
        self._behind_ms = behind_ms
        if self.processor is not None and self.is_idle:
            self._wants_empty = True
            self._wakeup.wake()

    @property
    def floor(self) -> ExtendedSequenceNumber:
        """All of its records up to here are assigned."""
        return self.checkpointer.progress.floor

    @property
    def is_idle(self) -> bool:
        """True while it owes no answer."""
        return self._queue.is_empty

    @property
    def oldest_s(self) -> float | None:
        """See :attr:`PartQueue.oldest_s`."""
        return self._queue.oldest_s

    @property
    def is_full(self) -> bool:
        """Whether the reader is to wait for it: a part waits behind the one that it has."""
        if not self._queue or not self.is_following:
            return False
        retrieval = self._parts.config.retrieval
        return (
            len(self._queue) >= MOST_WAITING
            or self._queue.records >= retrieval.max_records
            or self._queue.size_bytes >= retrieval.max_pending_bytes
        )

    @property
    def silent_since(self) -> float:
        """Reading of ``Clock.monotonic`` since which it owes an answer; means nothing if idle."""
        return self._busy_since

    def leave(self) -> None:
        """Go on without it: what waits for it is dropped, and read again once it has answered."""
        if self._queue:
            self.is_following = False
            self._drop()
            self._on_answer()

    def drop_behind(self, line_number: int) -> None:
        """Nothing more is assigned: drop what waits of lines that no child has begun."""
        self.is_following = False
        self._drop(line_number)

    def _drop(self, behind_line: int = 0) -> None:
        if (before := self._queue.drop(behind_line)) is not None:
            self.checkpointer.progress.take_back(before)

    def _want_records(self) -> None:
        self.wants_records = True
        self._on_change()

    def follow(self) -> None:
        """It is assigned its part of new lines again."""
        self.is_following, self.wants_records = True, False
        self._queue.begin_again()

    # -- its processes -----------------------------------------------------------------------------

    def run(self, group: asyncio.TaskGroup, failed: ChildFailed | None = None) -> None:
        """Serve it in a task of the group, until :meth:`finish` or :meth:`kill`.

        Args:
            failed: why its last process is to be replaced.
        """
        self._is_closing = False
        self._task = group.create_task(self._run(group, failed), name=f"child {self.name}")

    async def _run(self, group: asyncio.TaskGroup, failed: ChildFailed | None) -> None:
        while failed is None or await self._replace(failed):
            failed = None
            try:
                if await self._ensure_process(group):
                    await self._serve()
            except ChildFailed as error:
                failed = error
            else:
                return

    async def _ensure_process(self, group: asyncio.TaskGroup) -> bool:
        """Start a process once there is a reason to; False when there will be none."""
        if self.processor is not None:
            return True
        while not (self._queue or self._must_start) and self.is_following and not self._is_closing:
            await self._wakeup.wait()
        if self._is_closing and not self._queue:
            return False
        async with self._parts.starts.place(self.checkpointer.progress.edge):
            if self._may_start():
                return await self._start(group)
        return False

    def _may_start(self) -> bool:
        context = self._context
        if context.current() is None or context.shutdown.reason is ShutdownReason.LEASE_LOST:
            return False
        # At a stop, the lines that others have begun are completed.
        return bool(self._queue) or context.shutdown.reason is None

    async def _start(self, group: asyncio.TaskGroup) -> bool:
        context = self._context
        self.processor = processor = self._factory.make(
            self.checkpointer, lambda: self._delivering, self.index
        )
        try:
            with context.metrics.timed(INITIALIZE_TIME):
                start = self.checkpointer.begin()
                await processor.initialize(group, start, context.shutdown.leaving)
        except ChildFailed as error:
            if not processor.was_hung_up and not await context.shutdown.explains(error):
                raise
            return False
        self._must_start = False
        self._answered_at = self._clock.monotonic()
        return not processor.was_hung_up

    async def _serve(self) -> None:
        """Send what waits, until nothing more will come."""
        processor = self.processor
        if processor is None:
            return
        while True:
            if self._context.current() is None:
                self._drop()
            if self._queue:
                await self._send(processor)
                continue
            if self._is_closing:
                return
            if not self.is_following and not self.wants_records:
                self._want_records()
            due_at = self._due_at(processor)
            wait_s = None if due_at is None else due_at - self._clock.monotonic()
            async with processor.unless_it_ends():
                is_called = await self._wakeup.wait(wait_s)
            if (self._wants_empty or not is_called) and self._context.current() is not None:
                await self._call_empty(processor)

    async def _send(self, processor: RecordProcessor) -> None:
        sent = self._queue.send()
        self._on_answer()
        self.begun = max(self.begun, sent.line_number)
        self.checkpointer.delivered(sent.largest)
        self._delivering = sent.smallest, sent.largest
        self._wants_empty = False
        with self._context.metrics.timed(PROCESS_RECORDS_TIME):
            await processor.process(sent.outgoing)
        self._queue.answered()
        self._delivering = None
        self._busy_since = self._answered_at = self._clock.monotonic()
        self._nudge_s = FIRST_NUDGE_S
        self._share.served()
        if self._parts.config.child.confirms is ChildConfirms.STATUS:
            self.checkpointer.confirm(sent.largest)
        self._on_answer()

    def _due_at(self, processor: RecordProcessor) -> float | None:
        """When it gets a message without records: it wants one, or owes a confirmation."""
        if self._context.current() is None:
            return None
        due = [processor.tick_due_at]
        if self.checkpointer.progress.owes and self._is_passed_over:
            due.append(self._answered_at + self._nudge_s)
        return min((one for one in due if one is not None), default=None)

    async def _call_empty(self, processor: RecordProcessor) -> None:
        self._wants_empty = False
        await processor.tick(self._behind_ms)
        self._answered_at = self._clock.monotonic()
        self._nudge_s = min(2 * self._nudge_s, LONGEST_NUDGE_S)

    def _note_progress(self) -> None:
        self._restarts = self._restarts.after_progress()
        self._nudge_s = FIRST_NUDGE_S

    # -- a process that failed ---------------------------------------------------------------------

    async def _replace(self, error: ChildFailed) -> bool:
        """End a failed process, and wait until another one may start; False when none may."""
        context, shutdown = self._context, self._context.shutdown
        self.is_following = self.wants_records = False
        self._drop()
        if not self._is_ended:
            context.last_error = str(error)
            self.failed_at = self._clock.monotonic()
            log.error("%s", error, extra=self.name.facts)
        await self._end_process(error)
        self._queue.fail()
        self._delivering = None
        self.checkpointer.progress.start_over()
        if self._is_ended:
            return False
        forgot_end = isinstance(error, EndNotCheckpointed)
        self._restarts = self._restarts.after_failure(forgot_end=forgot_end)
        pause_s = restart_pause_s(
            self._parts.config.child,
            self._restarts,
            self._parts.runtime.rng,
            forgot_end=forgot_end,
            exit_code=error.child_exit_code,
        )
        if pause_s is None:
            self.failure = error
            self._on_change()
            return False
        if not self._is_to_go_on():
            return False
        log.warning("%s: a new child starts in %.1f s", self.name, pause_s)
        await shutdown.pause(pause_s)
        if not self._is_to_go_on():
            return False
        self._parts.tally.restarts += 1
        context.metrics.add(CHILD_RESTARTED, 1)
        self._must_start = True
        self._want_records()
        return True

    def _is_to_go_on(self) -> bool:
        if self._context.shutdown.reason in {ShutdownReason.REQUESTED, ShutdownReason.LEASE_LOST}:
            log.info("%s: no new child, because the lease is being given up", self.name)
            return False
        return True

    async def _end_process(self, error: ChildFailed) -> None:
        processor = self.processor
        if processor is None:
            return
        if isinstance(error, ChildTimedOut) or processor.is_unreachable:
            processor.terminate()  # it will not notice the end of its input either
        await processor.stop()
        self.processor = None

    def status(self) -> ChildStatus:
        """A snapshot for pages."""
        processor, progress = self.processor, self.checkpointer.progress
        return ChildStatus(
            child=self.index,
            pid=None if processor is None else processor.pid,
            call_age_s=None if processor is None else processor.call_age_s,
            silent_s=None if processor is None else processor.silent_s,
            unanswered=self._queue.records,
            confirmed=str(progress.edge),
            owes=progress.owes,
            is_left_out=not self.is_following,
            restarts=self._restarts.total,
            failures=self._restarts.failures,
        )

    # -- the end -----------------------------------------------------------------------------------

    async def finish(self) -> None:
        """Send what waits, then return; a process keeps running."""
        self._is_closing = True
        self._wakeup.wake()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def listener(self) -> RecordProcessor | None:
        """Its process, if it waits for a message."""
        processor = self.processor
        return processor if processor is not None and processor.may_talk else None

    async def shutdown_requested(self) -> None:
        """Send what waits, then notify it that the worker stops; it is not replaced any more."""
        await self.finish()
        if (listener := self.listener) is None:
            return
        try:
            await listener.shutdown_requested()
        except ChildFailed as error:
            await self._replace(error)

    async def lease_lost(self) -> None:
        """Drop what waits, then notify it that the shard belongs to another worker."""
        self._drop()
        await self.finish()
        if (listener := self.listener) is not None:
            await listener.lease_lost()

    async def shard_ended(self) -> ChildFailed | None:
        """Notify it of the end of the shard, and note that it is done with it.

        Returns:
            Why it is to be replaced: what it owes has to be read again.
        """
        await self.finish()
        checkpointer, listener = self.checkpointer, self.listener
        if self.has_ended or self.wants_records or self.failure is not None:
            return None
        if listener is None:  # it was never started, or failed when it owed nothing
            self.has_ended = checkpointer.is_done = True
            return None
        if self._context.current() is None:
            return None  # it lapsed meanwhile: the next owner's child gets it
        checkpointer.end_shard()
        failure: ChildFailed | None = None
        try:
            with self._context.metrics.timed(SHUTDOWN_TIME):
                await listener.shard_ended()
        except ChildFailed as error:
            failure = error
        if not checkpointer.progress.owes:
            if failure is not None:
                log.error("%s", failure, extra=self.name.facts)
            self.has_ended = checkpointer.is_done = True
            return None
        return failure or EndNotCheckpointed(
            str(self.name),
            "shardEnded",
            "it answered without a checkpoint of its last records; call checkpoint() in shard_ended",
        )

    async def stop(self) -> None:
        """End its process in order."""
        self._drop()
        await self.finish()
        if self.processor is not None:
            await self.processor.stop()

    def terminate(self, *, by_force: bool) -> None:
        """SIGTERM, or SIGKILL, for an operator's request, unless it waits for a message.

        No other process follows.
        """
        self._is_ended = True
        if self.processor is not None and not self.processor.may_talk:
            self.processor.terminate(by_force=by_force)

    def kill(self) -> None:
        """End it now, without a message."""
        if self._task is not None:
            self._task.cancel()
        if self.processor is not None:
            self.processor.kill()
        self._queue.drop()
