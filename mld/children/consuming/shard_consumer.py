"""The life of one held lease: parents, child, batches, and one of three ends.

``kcl_mld.children.rules.lifecycle`` defines the transitions; this module does the work of each state.
One consumer serves one hold of a lease (one token): a lease that is lost and gained again gets a
new one.

Source: ShardConsumer, ConsumerStates, InitializeTask (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.children.consuming.batch_feed import BatchFeed
from kcl_mld.children.consuming.consumer_context import ConsumerContext
from kcl_mld.children.consuming.containment import Containment
from kcl_mld.children.consuming.shard_closing import ShardClosing
from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.children.rules.lifecycle import (
    ConsumerState,
    RestartCount,
    ShutdownReason,
    TaskOutcome,
    next_state,
    restart_pause_s,
)
from kcl_mld.children.rules.loss import sentence
from kcl_mld.errors import (
    AwsError,
    ChildFailed,
    ChildTimedOut,
    EndNotCheckpointed,
    LeaseLost,
)
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.signals.log_facts import logging_with
from kcl_mld.signals.model.metrics import CHILD_RESTARTED, INITIALIZE_TIME

if TYPE_CHECKING:
    from kcl_mld.children.consuming.consumer_parts import ConsumerParts
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.lease import HeldLease
    from kcl_mld.leases.model.lease_request import LeaseRequest

log = logging.getLogger("mld.children")

#: Shorter pauses before a new child, in seconds, are not worth a number in the log.
SHOWN_PAUSE_S = 0.05


class ShardConsumer:
    """Consumes one shard until it ends, is lost or the worker stops."""

    def __init__(self, held: HeldLease, parts: ConsumerParts) -> None:
        """Create a consumer; nothing happens before :meth:`run`.

        Raises:
            LeaseLost: the row of the lease has no checkpoint, or this worker does not read its
                stream.
        """
        self.lease_key = held.lease.lease_key
        self.shard_id = held.lease.shard_id
        self._context = ConsumerContext(held, parts, self._end_waits, self._note_progress)
        self.stream_name = self._context.stream_context.stream.name
        self._containment = self._new_containment(parts)
        self._feed = BatchFeed(self._context, self._containment)
        self._closing = ShardClosing(self._context, self._feed)
        self._parts = parts
        self._clock = parts.runtime.clock
        self._began_at = self._clock.monotonic()
        self._parents_wakeup = Wakeup()
        self._restarts = RestartCount()
        self._child_failed_at: float | None = None
        self._state = ConsumerState.WAITING_ON_PARENT_SHARDS
        self._group: asyncio.TaskGroup | None = None
        self._hand_over_requested = asyncio.Event()
        self._steered = asyncio.Event()
        self._request: LeaseRequest | None = None
        self._is_child_ended = False
        self._blocked_by: str | None = None
        self._waits_to_start = False

    def _new_containment(self, parts: ConsumerParts) -> Containment | None:
        config = parts.config.contain
        if config is None or parts.letters is None:
            return None
        return Containment(self._context, config, parts.letters)

    # -- what others say -----------------------------------------------------------------------

    def request_shutdown(self) -> None:
        """The worker stops: finish the current batch, notify the child, release the lease."""
        self._context.shutdown.stop()

    def request_hand_over(self) -> None:
        """A leader gave the lease to another worker: as :meth:`request_shutdown`, in bounded time.

        A repeated call changes nothing.
        """
        self._hand_over_requested.set()

    def request_steer(self, request: LeaseRequest) -> None:
        """An operator's request to the holder.

        As :meth:`request_shutdown`, then the row is changed.

        A repeated call changes nothing.
        """
        if self._request is None:
            self._request = request
            self._steered.set()

    def lease_lost(self) -> None:
        """The lease belongs to another worker: finish the current batch, notify the child."""
        self._context.shutdown.lease_lost()

    def parents_changed(self) -> None:
        """A parent may have finished: check again now."""
        self._parents_wakeup.wake()

    def _end_waits(self) -> None:
        """End waits for parents or data, because there is a reason to stop."""
        self._parents_wakeup.wake()
        self._feed.stopping()

    def _note_progress(self) -> None:
        self._restarts = self._restarts.after_progress()

    def status(self) -> ConsumerStatus:
        """A snapshot for pages and checks."""
        context = self._context
        now = self._clock.monotonic()
        processor, failure = self._feed.processor, self._feed.failure

        group = self._feed.children
        children = () if group is None else group.status()
        failed_at = self._child_failed_at if group is None else group.failed_at

        def age_s(at: float | None) -> float | None:
            return None if at is None else now - at

        return ConsumerStatus(
            lease_key=self.lease_key,
            stream=self.stream_name,
            shard_id=self.shard_id,
            state=self._state.value,
            reason=None if context.shutdown.reason is None else context.shutdown.reason.name,
            held_s=now - self._began_at,
            millis_behind_latest=self._feed.behind_ms,
            processing_lag_s=self._feed.processing_lag_s(),
            reading_lag_s=self._feed.reading_lag_s(),
            records=self._feed.records,
            last_batch_age_s=age_s(self._feed.last_batch_at),
            last_processed_age_s=age_s(self._feed.last_processed_at),
            reading_fails_s=age_s(self._feed.failing_since),
            reading_error=None if failure is None else failure.error,
            reading_todo=None if failure is None else failure.todo or None,
            child_pid=None if processor is None else processor.pid,
            call_age_s=None if processor is None else processor.call_age_s,
            child_silent_s=None if processor is None else processor.silent_s,
            silence_cause=None if processor is None else processor.silence_cause,
            child_exceptions=self._feed.factory.exceptions,
            child_exception_age_s=age_s(self._feed.factory.exception_at),
            checkpoint=str(context.checkpointer.last),
            blocked_by=self._blocked_by,
            waits_to_start=self._waits_to_start,
            restarts=self._restarts.total + sum(child.restarts for child in children),
            child_failures=max(
                (child.failures for child in children), default=self._restarts.failures
            )
            + (0 if self._containment is None else self._containment.attempts),
            child_failure_age_s=age_s(failed_at),
            last_error=context.last_error,
            checkpoint_age_s=self._feed.losses.checkpoint_age_s(),
            loss=None if (loss := self._feed.losses.loss) is None else sentence(loss),
            retention_s=context.stream_context.existence.retention_s,
            held_because=None if self._containment is None else self._containment.held,
            children=children,
            unconfirmed_s=None if group is None else group.unconfirmed_s,
        )

    # -- the walk ------------------------------------------------------------------------------

    async def run(self) -> ShutdownReason:
        """Run until the shard ends, the lease is lost or the worker stops.

        Returns:
            SHARD_END: finished, the lease is kept for the cleanup; LEASE_LOST: dropped; REQUESTED:
            released.

        Raises:
            ChildFailed: the child failed, and the policy says that this ends the daemon.

        Cancellation: the child is killed; the lease is left as it is.
        """
        context = self._context
        if context.held.lease.is_finished:
            self._state = ConsumerState.SHUTDOWN_COMPLETE
            context.shutdown.shard_ended()
            self._parts.cleanup.enqueue(context.held.lease)
            return ShutdownReason.SHARD_END
        notes = self._feed.losses.notes
        self._parts.notes.add(self.lease_key, notes)
        try:
            with logging_with(**context.log_facts):
                failure = await self._live()
        finally:
            self._parts.notes.remove(self.lease_key, notes)
        if failure is not None:
            raise failure
        return context.shutdown.reason or ShutdownReason.LEASE_LOST

    async def _live(self) -> ChildFailed | None:
        """Run the states to the end; returns the failure that ended it, if one did."""
        failure: ChildFailed | None = None
        async with asyncio.TaskGroup() as group:
            self._group = group
            handing_over = group.create_task(self._hand_over())
            steering = group.create_task(self._steer())
            try:
                await self._walk()
            except ChildFailed as error:
                failure = error
            finally:
                handing_over.cancel()
                steering.cancel()
                if self._feed.processor is not None:
                    self._feed.processor.kill()
                await self._feed.stop_fetching()
        return failure

    async def _hand_over(self) -> None:
        """After a request: let the child finish, but pass the lease on in time in any case.

        Source: LeaseGracefulShutdownHandler (KCL 3.5.1), which checks every 2 s.
        """
        await self._hand_over_requested.wait()
        context = self._context
        context.shutdown.hand_over()
        timeout_s = self._parts.config.leases.hand_off_timeout_s
        await asyncio.sleep(timeout_s)
        if context.checkpointer.has_ended:
            return  # no lease is left to hand over
        text = "%s: its child did not finish in %.0f s, so the lease is handed over without it"
        log.warning(text, self.shard_id, timeout_s)
        await self._closing.pass_lease_on(in_time=False)
        context.shutdown.lease_lost()

    async def _steer(self) -> None:
        """After an operator's request: let the child finish as at a stop.

        End it if it takes too long.
        """
        await self._steered.wait()
        context, config, request = self._context, self._parts.config, self._request
        if request is None:
            return
        log.info("%s: %s was requested by %s", self.shard_id, request.verb, request.by)
        context.shutdown.steer(request)
        timeout_s = config.leases.hand_off_timeout_s
        await asyncio.sleep(timeout_s)
        processor = self._feed.processor
        # At the end of a shard, or when the lease is lost, there is nothing left to do for the
        # request.
        if processor is not None and context.shutdown.reason is ShutdownReason.REQUESTED:
            text = "%s: its child did not finish in %.0f s, so it is ended for the %s"
            log.warning(text, self.shard_id, timeout_s, request.verb)
            self._is_child_ended = True
            processor.terminate()
            await asyncio.sleep(config.child.term_grace_s)
            processor.terminate(by_force=True)

    async def _end_of_child(self, error: ChildFailed) -> TaskOutcome:
        """What follows a child's end: it failed, or was ended for an operator's request.

        Raises:
            ChildFailed: one of several failed, which replace their own processes, for good.
        """
        if (children := self._feed.children) is not None:
            if self._context.shutdown.reason is None:
                await self._closing.dismiss_siblings(children)
            raise error
        if not self._is_child_ended:
            return await self._after_failure(error)
        log.info("%s", error)
        await self._feed.stop_fetching()
        await self._feed.end_child()
        return TaskOutcome.AGAIN

    async def _walk(self) -> None:
        context = self._context
        while self._state is not ConsumerState.SHUTDOWN_COMPLETE:
            try:
                outcome = await self._work()
            except ChildFailed as error:
                outcome = await self._end_of_child(error)
            before, self._state = (
                self._state,
                next_state(self._state, outcome, context.shutdown.reason),
            )
            if self._state is not before:
                log.debug("%s: %s -> %s", self.shard_id, before.value, self._state.value)
            if outcome is TaskOutcome.RESTART:
                # The next child reads again from the last checkpoint to the end.
                context.shutdown.withdraw_shard_end()

    async def _work(self) -> TaskOutcome:
        match self._state:
            case ConsumerState.WAITING_ON_PARENT_SHARDS:
                return await self._wait_for_parents()
            case ConsumerState.INITIALIZING:
                return await self._initialize()
            case ConsumerState.PROCESSING:
                return await self._feed.process()
            case ConsumerState.SHUTDOWN_REQUESTED:
                return await self._closing.notify_shutdown()
            case _ if self._context.shutdown.reason is ShutdownReason.SHARD_END:
                return await self._closing.end_shard()
            case _:
                return await self._closing.hand_back_lease()

    # -- WAITING_ON_PARENT_SHARDS and INITIALIZING ---------------------------------------------

    async def _wait_for_parents(self) -> TaskOutcome:
        context = self._context
        if context.shutdown.reason is not None:
            return TaskOutcome.AGAIN
        try:
            self._blocked_by = await self._parts.shard_end.blocking_parent(context.held.lease)
        except AwsError as error:
            log.warning(
                "%s: cannot read the leases of its parents, trying again: %s", self.shard_id, error
            )
        else:
            if self._blocked_by is None:
                return TaskOutcome.DONE
        if context.shutdown.reason is None:
            await self._parents_wakeup.wait(self._parts.config.shards.parent_poll_s)
        return TaskOutcome.AGAIN

    async def _initialize(self) -> TaskOutcome:
        if not self._context.may_go_on():
            return TaskOutcome.AGAIN
        self._waits_to_start = True
        try:
            async with self._parts.starts.place(self._context.checkpointer.last):
                self._waits_to_start = False
                return await self._start_child()
        finally:
            self._waits_to_start = False

    async def _start_child(self) -> TaskOutcome:
        context, group = self._context, self._group
        if group is None or not context.may_go_on():
            return TaskOutcome.AGAIN
        if context.checkpointer.is_unsure and not await self._find_out():
            return TaskOutcome.RESTART
        position = context.checkpointer.last
        if position.is_shard_end:
            context.shutdown.shard_ended()
            return TaskOutcome.DONE
        held = context.current()
        if held is None:
            return TaskOutcome.AGAIN
        if context.children > 1:
            await self._feed.start_children(group, position)
            return TaskOutcome.DONE
        return await self._start_only_child(group, position)

    async def _start_only_child(
        self, group: asyncio.TaskGroup, position: ExtendedSequenceNumber
    ) -> TaskOutcome:
        context = self._context
        processor = await self._feed.start(group, position)
        is_ended = False
        with context.metrics.timed(INITIALIZE_TIME):
            try:
                leaving = context.shutdown.leaving
                await processor.initialize(group, position, leaving)
            except ChildFailed as error:
                is_ended = processor.was_hung_up or await context.shutdown.explains(error)
                if not is_ended:
                    raise
        # A child that answered just as its input was closed gets no more messages.
        if is_ended or processor.was_hung_up:
            return await self._leave_early()
        return TaskOutcome.DONE

    async def _leave_early(self) -> TaskOutcome:
        """The shard is given up while its child still waits for something else."""
        log.info("%s: the shard is being given up, so its waiting child is ended", self.shard_id)
        await self._feed.stop_fetching()
        await self._feed.end_child()
        return TaskOutcome.AGAIN

    async def _find_out(self) -> bool:
        """After a write of unknown outcome: find where the next child must begin.

        What it intended.

        Reading from before a SHARD_END that is stored would deliver this shard's records after
        those of its children, which start as soon as they see it.
        """
        context = self._context
        try:
            held = await self._parts.renewer.refresh(self.lease_key, context.held.token)
        except LeaseLost:
            context.shutdown.lease_lost()
            return False
        except AwsError as error:
            log.warning("%s: cannot read its checkpoint, trying again: %s", self.shard_id, error)
            await context.shutdown.pause(self._parts.config.retrieval.task_backoff_s)
            return False
        context.checkpointer.found(held.lease.checkpoint or context.checkpointer.last)
        return True

    # -- a child that failed ---------------------------------------------------------------------

    async def _after_failure(self, error: ChildFailed) -> TaskOutcome:
        """Give the shard another child, or let the failure end the daemon."""
        context = self._context
        context.last_error = str(error)
        self._child_failed_at = self._clock.monotonic()
        self._feed.child_failed()
        await self._feed.stop_fetching()
        # Logged only here, and now, because ending the child may take a while.
        log.error("%s", error, extra={"shard_id": self.shard_id})
        processor = self._feed.child
        if processor is not None and (isinstance(error, ChildTimedOut) or processor.is_unreachable):
            processor.terminate()  # it will not notice the end of its input either
        await self._feed.end_child()
        if (contained := await self._contain(error)) is not None:
            return contained
        forgot_end = isinstance(error, EndNotCheckpointed)
        # A child that tried is not at fault: it gets as many more chances as the table needs.
        to_blame = forgot_end and not context.checkpointer.end_checkpoint_failed
        self._restarts = self._restarts.after_failure(forgot_end=to_blame)
        child = self._parts.config.child
        pause_s = restart_pause_s(
            child,
            self._restarts,
            self._parts.runtime.rng,
            forgot_end=forgot_end,
            exit_code=error.child_exit_code,
        )
        if pause_s is None:
            raise error
        if context.shutdown.reason in {ShutdownReason.REQUESTED, ShutdownReason.LEASE_LOST}:
            log.info("%s: no new child, because the lease is being given up", self.shard_id)
            return TaskOutcome.AGAIN
        if context.checkpointer.has_ended:
            # It failed only after its last checkpoint: there is nothing left to read.
            log.info(
                "%s: no new child, because the end of the shard is checkpointed", self.shard_id
            )
            return TaskOutcome.AGAIN
        return await self._restart(pause_s)

    async def _restart(self, pause_s: float) -> TaskOutcome:
        context = self._context
        when = f"in {pause_s:.1f} s" if pause_s >= SHOWN_PAUSE_S else "now"
        log.warning("%s: a new child starts %s", self.shard_id, when)
        await context.shutdown.pause(pause_s)
        context.checkpointer.start_over()
        self._parts.tally.restarts += 1
        context.metrics.add(CHILD_RESTARTED, 1)
        return TaskOutcome.RESTART

    async def _contain(self, error: ChildFailed) -> TaskOutcome | None:
        """What follows if records caused the failure; None = none did."""
        failed, containment = self._feed.take_failed(), self._containment
        if failed is None or containment is None or (judged := containment.judge(failed)) is None:
            return None
        # A supervisor that stops a whole control group ends the children at the same moment.
        if await self._context.shutdown.explains(error, (signal.SIGINT, signal.SIGTERM)):
            return TaskOutcome.AGAIN
        self._restarts = replace(self._restarts, total=self._restarts.total + 1)
        pause_s = await containment.settle(failed, judged)
        return TaskOutcome.AGAIN if pause_s is None else await self._restart(pause_s)
