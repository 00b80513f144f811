"""The life of one held lease: parents, child, batches, and one of three ends.

``decide.lifecycle`` says what follows what; this module does what each state asks for. One
consumer serves one hold of a lease (one token): a lease that is lost and gained again gets a new
one.

Source: ShardConsumer, ConsumerStates, InitializeTask, ProcessTask, ShutdownTask (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mld.decide.lifecycle import ConsumerState, Outcome, ShutdownReason, next_state, stronger
from mld.decide.restart import RestartCount, restart_pause_s
from mld.errors import (
    AwsError,
    BlockedOnParent,
    ChildFailed,
    ChildTimedOut,
    InvalidShardEnd,
    LeaseLost,
    MalformedData,
)
from mld.model.sequence import SHARD_END, Sentinel
from mld.services.checkpointer import Checkpointer
from mld.services.consumer_metrics import ConsumerMetrics
from mld.services.consumer_parts import ConsumerParts, ConsumerStatus, EndNotCheckpointed
from mld.services.record_processor import OutgoingLine, RecordProcessor
from mld.services.shard_lane import ShardLane
from mld.services.signal import Signal

if TYPE_CHECKING:
    from mld.model.lease import HeldLease
    from mld.model.shard import ChildShard
    from mld.services.polling_publisher import FetchedBatch

__all__ = ["ConsumerParts", "ConsumerStatus", "EndNotCheckpointed", "ShardConsumer"]

log = logging.getLogger(__name__)


class ShardConsumer:
    """Consumes one shard until it ends, is lost or the worker stops."""

    def __init__(self, held: HeldLease, parts: ConsumerParts) -> None:
        """Nothing happens before :meth:`run`.

        Raises:
            LeaseLost: the row of the lease has no checkpoint.
        """
        self.lease_key = held.lease.lease_key
        self.shard_id = held.lease.shard_id
        self._held = held
        self._parts = parts
        clock, metrics = parts.polling.clock, parts.polling.metrics
        self._clock = clock
        self._metrics = ConsumerMetrics(self.shard_id, clock, metrics)
        self._checkpointer = Checkpointer(
            held,
            parts.renewer,
            clock,
            parts.rng,
            metrics,
            self._note_progress,
            self.lease_lost,
        )
        self._state = ConsumerState.WAITING_ON_PARENT_SHARDS
        self._reason: ShutdownReason | None = None
        self._is_stop_requested = False
        self._stirred = Signal()
        self._group: asyncio.TaskGroup | None = None
        self._lane: ShardLane | None = None
        self._children: tuple[ChildShard, ...] = ()
        self._restarts = RestartCount()
        self._behind_ms: int | None = None
        self._last_batch_at: float | None = None
        self._blocked_by: str | None = None
        self._last_error: str | None = None

    # -- what others say -----------------------------------------------------------------------

    def request_shutdown(self) -> None:
        """The worker stops: finish the batch in hand, tell the child, release the lease."""
        self._is_stop_requested = True
        self._stop_for(ShutdownReason.REQUESTED)

    def lease_lost(self) -> None:
        """The lease belongs to another worker: finish the batch in hand, tell the child."""
        self._stop_for(ShutdownReason.LEASE_LOST)

    def parents_changed(self) -> None:
        """A parent may have finished: look again now."""
        self._stirred.wake()

    def _stop_for(self, reason: ShutdownReason) -> None:
        self._reason = stronger(self._reason, reason)
        self._stirred.wake()
        if self._lane is not None:
            self._lane.publisher.interrupt()

    def _note_progress(self) -> None:
        self._restarts = self._restarts.after_progress()

    def status(self) -> ConsumerStatus:
        """A snapshot for people."""
        last_at = self._last_batch_at
        return ConsumerStatus(
            lease_key=self.lease_key,
            shard_id=self.shard_id,
            state=self._state.value,
            reason=None if self._reason is None else self._reason.name,
            millis_behind_latest=self._behind_ms,
            last_batch_age_s=None if last_at is None else self._clock.monotonic() - last_at,
            child_pid=None if self._lane is None else self._lane.processor.pid,
            checkpoint=str(self._checkpointer.last),
            blocked_by=self._blocked_by,
            restarts=self._restarts.total,
            last_error=self._last_error,
        )

    # -- the walk ------------------------------------------------------------------------------

    async def run(self) -> ShutdownReason:
        """Live.

        Returns:
            SHARD_END: finished, the lease is kept for the cleanup; LEASE_LOST: dropped;
            REQUESTED: released.

        Raises:
            ChildFailed: the child failed, and the policy says that this ends the daemon.

        Cancellation: the child is killed; the lease is left as it is.
        """
        if self._held.lease.is_finished:
            self._state, self._reason = ConsumerState.SHUTDOWN_COMPLETE, ShutdownReason.SHARD_END
            self._parts.cleanup.enqueue(self._held.lease)
            return ShutdownReason.SHARD_END
        failure: ChildFailed | None = None
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await self._walk()
            except ChildFailed as error:
                failure = error
            finally:
                if self._lane is not None:
                    self._lane.processor.kill()
                await self._stop_fetching()
        if failure is not None:
            raise failure
        return self._reason or ShutdownReason.LEASE_LOST

    async def _walk(self) -> None:
        while self._state is not ConsumerState.SHUTDOWN_COMPLETE:
            try:
                outcome = await self._work()
            except ChildFailed as error:
                outcome = await self._after_failure(error)
            before, self._state = self._state, next_state(self._state, outcome, self._reason)
            if self._state is not before:
                log.debug("%s: %s -> %s", self.shard_id, before.value, self._state.value)
            if outcome is Outcome.RESTART and self._reason is ShutdownReason.SHARD_END:
                # The next child reads from the last checkpoint to the end once more.
                self._reason = ShutdownReason.REQUESTED if self._is_stop_requested else None

    async def _work(self) -> Outcome:
        match self._state:
            case ConsumerState.WAITING_ON_PARENT_SHARDS:
                return await self._wait_for_parents()
            case ConsumerState.INITIALIZING:
                return await self._initialize()
            case ConsumerState.PROCESSING:
                return await self._process()
            case ConsumerState.SHUTDOWN_REQUESTED:
                return await self._announce_shutdown()
            case _ if self._reason is ShutdownReason.SHARD_END:
                return await self._end_shard()
            case _:
                return await self._part()

    def _current(self) -> HeldLease | None:
        """The lease as held now; None when it is lost, and then that is the reason to stop."""
        held = self._parts.renewer.get(self.lease_key)
        if held is None or held.token != self._held.token:
            self.lease_lost()
            return None
        return held

    def _may_go_on(self) -> bool:
        return self._reason is None and self._current() is not None

    # -- WAITING_ON_PARENT_SHARDS and INITIALIZING ---------------------------------------------

    async def _wait_for_parents(self) -> Outcome:
        if self._reason is not None:
            return Outcome.AGAIN
        try:
            self._blocked_by = await self._parts.shard_end.blocking_parent(self._held.lease)
        except AwsError as error:
            log.warning("%s: cannot look at its parents: %s", self.shard_id, error)
        else:
            if self._blocked_by is None:
                return Outcome.DONE
        if self._reason is None:
            await self._stirred.wait(self._parts.config.shards.parent_poll_s)
        return Outcome.AGAIN

    async def _initialize(self) -> Outcome:
        if self._group is None or not self._may_go_on():
            return Outcome.AGAIN
        if self._checkpointer.is_unsure and not await self._find_out():
            return Outcome.RESTART
        position = self._checkpointer.last
        if position.is_shard_end:
            self._stop_for(ShutdownReason.SHARD_END)
            return Outcome.DONE
        lane = self._lane = ShardLane(self._held.lease, self._parts, self._checkpointer)
        await lane.start_fetching(self._group, position, self._latest_since_s())
        with self._metrics.timed("InitializeTask", "RecordProcessor.initialize.Time"):
            await lane.processor.initialize(position)
        return Outcome.DONE

    async def _find_out(self) -> bool:
        """After a checkpoint of unknown outcome: where the next child must begin.

        Reading from before a SHARD_END that is stored would deliver this shard's records after
        those of its children, which start as soon as they see it.
        """
        try:
            held = await self._parts.renewer.refresh(self.lease_key, self._held.token)
        except LeaseLost:
            self.lease_lost()
            return False
        except AwsError as error:
            log.warning("%s: its checkpoint is not known: %s", self.shard_id, error)
            await self._stirred.wait(self._parts.config.retrieval.task_backoff_s)
            return False
        self._checkpointer.found(held.lease.checkpoint or self._checkpointer.last)
        return True

    # -- PROCESSING ----------------------------------------------------------------------------

    async def _process(self) -> Outcome:
        if self._lane is None or not self._may_go_on():
            return Outcome.AGAIN
        publisher = self._lane.publisher
        before = publisher.delivered
        fetched = await publisher.next_batch()
        if fetched is None:
            return Outcome.AGAIN
        try:
            if self._may_go_on():
                await self._deliver(fetched)
        except MalformedData as error:
            # Never drop what cannot be read: fetch it again, for ever if need be.
            self._last_error = str(error)
            log.error("%s: a batch cannot be delivered, reading it again: %s", self.shard_id, error)  # noqa: TRY400
            publisher.rewind(before)
            await self._stirred.wait(self._parts.config.retrieval.task_backoff_s)
            return Outcome.AGAIN
        finally:
            fetched.reservation.release()
        return Outcome.DONE

    async def _deliver(self, fetched: FetchedBatch) -> None:
        """One batch to the child; the last one of the shard is the reason to stop."""
        batch = fetched.batch
        self._last_batch_at = fetched.fetched_at
        self._behind_ms = batch.millis_behind_latest
        with self._metrics.process_task(batch.millis_behind_latest):
            if not batch.is_empty or (
                self._parts.config.retrieval.call_even_if_empty and not batch.is_shard_end
            ):
                await self._hand_over(fetched)
        if batch.is_shard_end:
            self._children = batch.child_shards
            self._stop_for(ShutdownReason.SHARD_END)

    async def _hand_over(self, fetched: FetchedBatch) -> None:
        current = self._current()
        lease = self._held.lease if current is None else current.lease
        has_filter = not self._parts.config.shards.skip_sync_if_leases_exist
        delivery = await self._parts.lines.write(
            fetched, self._checkpointer.last, lease.hash_range if has_filter else None
        )
        for problem in delivery.problems:
            log.error("%s: %s", self.shard_id, problem)
        if self._current() is None:
            return  # it lapsed while other shards were converted, or this process was frozen
        self._metrics.delivered(delivery.records, delivery.data_bytes)
        self._checkpointer.delivered(delivery.largest)
        line = delivery.take_line()
        if line is None or self._lane is None:
            return
        outgoing = OutgoingLine(line, fetched.reservation.release)
        del line
        with self._metrics.timed(
            "ProcessTask", "RecordProcessor.processRecords.Time", of_shard=True
        ):
            await self._lane.processor.process(outgoing)

    # -- the three ends ------------------------------------------------------------------------

    async def _announce_shutdown(self) -> Outcome:
        await self._stop_fetching()
        if (processor := self._listener()) is not None:
            await processor.shutdown_requested()
        return Outcome.DONE

    async def _part(self) -> Outcome:
        """Lease lost or stop: say leaseLost, end the child, then let go of the lease."""
        await self._stop_fetching()
        failure: ChildFailed | None = None
        if (processor := self._listener()) is not None:
            try:
                with self._metrics.timed("ShutdownTask", "RecordProcessor.shutdown.Time"):
                    await processor.lease_lost()
            except ChildFailed as error:
                failure = error
        await self._end_child()
        await self._let_go()
        if failure is not None:
            raise failure
        return Outcome.DONE

    async def _let_go(self) -> None:
        renewer, token = self._parts.renewer, self._held.token
        try:
            if self._reason is ShutdownReason.REQUESTED:
                await renewer.release(self.lease_key, token)
            else:
                await renewer.drop(self.lease_key, token)
        except AwsError as error:
            log.warning("%s: the lease is left to expire: %s", self.lease_key, error)

    async def _end_shard(self) -> Outcome:
        """Children's leases, shardEnded, its checkpoint, and the cleanup queue."""
        await self._stop_fetching()
        held = self._current()
        if held is None:
            return Outcome.AGAIN
        try:
            await self._parts.shard_end.create_child_leases(held.lease, self._children)
        except InvalidShardEnd as error:
            log.error("%s: giving the lease up at the shard's end: %s", self.shard_id, error)  # noqa: TRY400
            self.lease_lost()
            return Outcome.AGAIN
        except (BlockedOnParent, AwsError) as error:
            return await self._repeat_end(error)
        if not self._checkpointer.has_ended:
            if self._current() is None:
                return Outcome.AGAIN  # it lapsed meanwhile: the next owner's child is told
            await self._tell_end()
        await self._end_child()
        if not self._checkpointer.has_ended:
            return Outcome.AGAIN  # the lease was lost in between
        self._parts.cleanup.enqueue(replace(held.lease, checkpoint=SHARD_END))
        return Outcome.DONE

    async def _repeat_end(self, error: Exception) -> Outcome:
        """Wait, unless the worker stops: then the next owner reads the end again."""
        self._last_error = str(error)
        log.warning("%s: the shard's end must wait: %s", self.shard_id, error)
        if self._is_stop_requested and self._reason is ShutdownReason.SHARD_END:
            self._reason = ShutdownReason.REQUESTED
            await self._announce_shutdown()
            return Outcome.AGAIN
        await self._stirred.wait(self._parts.config.retrieval.task_backoff_s)
        return Outcome.AGAIN

    async def _tell_end(self) -> None:
        if self._lane is None:
            raise RuntimeError("a shard cannot end without a child")
        self._checkpointer.end_shard(tuple(child.shard_id for child in self._children))
        with self._metrics.timed("ShutdownTask", "RecordProcessor.shutdown.Time"):
            await self._lane.processor.shard_ended()
        if not self._checkpointer.has_ended and self._reason is ShutdownReason.SHARD_END:
            raise EndNotCheckpointed(
                self.shard_id,
                "shardEnded",
                "it answered without a successful checkpoint; call checkpoint() in shard_ended",
            )

    # -- child and fetching --------------------------------------------------------------------

    async def _after_failure(self, error: ChildFailed) -> Outcome:
        """Give the shard another child, or let the failure end the daemon."""
        self._last_error = str(error)
        await self._stop_fetching()
        if self._lane is not None:
            # Said now, because seeing it off may take a while.
            log.error("%s", error, extra={"shard_id": self.shard_id})
            if isinstance(error, ChildTimedOut) or self._lane.processor.is_unreachable:
                self._lane.processor.terminate()  # it will not notice the end of its input either
        await self._end_child()
        forgot_end = isinstance(error, EndNotCheckpointed)
        # A child that tried is not to blame: it gets as many more chances as the table needs.
        to_blame = forgot_end and not self._checkpointer.was_hindered_at_end
        self._restarts = self._restarts.after_failure(forgot_end=to_blame)
        child = self._parts.config.child
        pause_s = restart_pause_s(child, self._restarts, self._parts.rng, forgot_end=forgot_end)
        if pause_s is None:
            raise error
        if self._reason in {ShutdownReason.REQUESTED, ShutdownReason.LEASE_LOST}:
            log.info("%s: the shard is given up anyway", self.shard_id)
            return Outcome.AGAIN
        if self._checkpointer.has_ended:
            # It failed only after its last checkpoint: there is nothing left to read.
            log.info("%s: the shard is finished nevertheless", self.shard_id)
            return Outcome.AGAIN
        log.warning("%s: a new child starts in %.1f s", self.shard_id, pause_s)
        await self._stirred.wait(pause_s)
        self._checkpointer.start_over()
        return Outcome.RESTART

    def _listener(self) -> RecordProcessor | None:
        """The child, if it waits for a message."""
        if self._lane is None or not self._lane.processor.may_talk:
            return None
        return self._lane.processor

    async def _end_child(self) -> None:
        if self._lane is not None:
            await self._lane.processor.stop()
            self._lane = None

    async def _stop_fetching(self) -> None:
        if self._lane is not None:
            await self._lane.stop_fetching()
            self._remember_latest(self._lane.publisher.latest_since_s)

    def _latest_since_s(self) -> float | None:
        """Where an earlier child or holding began at LATEST, unless others had the lease since."""
        switches, since_s = self._parts.latest_starts.get(self.lease_key, (None, None))
        is_same_reader = switches == self._held.lease.owner_switches_since_checkpoint
        return since_s if is_same_reader else None

    def _remember_latest(self, since_s: float | None) -> None:
        if self._checkpointer.last.sentinel is not Sentinel.LATEST:
            self._parts.latest_starts.pop(self.lease_key, None)
        elif since_s is not None:
            switches = self._held.lease.owner_switches_since_checkpoint
            self._parts.latest_starts[self.lease_key] = (switches, since_s)
