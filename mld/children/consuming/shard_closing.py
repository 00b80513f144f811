"""The three ways to end a hold, and what happens to its lease.

Source: ShutdownTask, ShutdownNotificationTask (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.children.rules.lifecycle import ShutdownReason, TaskOutcome
from kcl_mld.errors import (
    AwsError,
    BlockedOnParent,
    ChildFailed,
    EndNotCheckpointed,
    InvalidShardEnd,
)
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.signals.model.metrics import PASSED_RESET, SHUTDOWN_TIME

if TYPE_CHECKING:
    from kcl_mld.children.consuming.batch_feed import BatchFeed
    from kcl_mld.children.consuming.child_group import ChildGroup
    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.leases.model.lease import Lease

log = logging.getLogger("mld.children")

#: Seconds between two log lines about a shard that can't be finished, unless the reason changes.
REPEAT_S = 60.0


class ShardClosing:
    """The three ways to end a hold: the shard has ended, the lease is lost, or the worker stops.

    Each stops the fetching, notifies the child, ends it, and settles the lease.
    """

    def __init__(self, context: ConsumerContext, feed: BatchFeed) -> None:
        self._context = context
        self._feed = feed
        self._logged = ("", 0.0)

    async def notify_shutdown(self) -> TaskOutcome:
        """The lease is given up: the child may make a last checkpoint.

        A waiting next owner gets the lease after the child's answer, before the child has ended: a
        child that has answered does nothing more for this shard.
        """
        await self._feed.stop_fetching()
        if (processor := self._feed.listener) is not None:
            await processor.shutdown_requested()
        if self._context.shutdown.is_handing_over:
            await self.pass_lease_on()
        return TaskOutcome.DONE

    async def dismiss_siblings(self, children: ChildGroup) -> None:
        """One of several children failed, which ends the daemon: the others end as at its stop."""
        context = self._context
        context.shutdown.stop()
        await self._feed.stop_fetching()
        with suppress(TimeoutError):
            async with asyncio.timeout(context.parts.config.shutdown_grace_s):
                with suppress(ChildFailed):
                    await children.shutdown_requested()
                await self._feed.end_child()

    async def hand_back_lease(self) -> TaskOutcome:
        """Lease lost or stop: send leaseLost, end the child, then release the lease."""
        context = self._context
        await self._feed.stop_fetching()
        failure: ChildFailed | None = None
        if (processor := self._feed.listener) is not None:
            try:
                with context.metrics.timed(SHUTDOWN_TIME):
                    await processor.lease_lost()
            except ChildFailed as error:
                failure = error
        await self._feed.end_child()
        await self._give_up_lease()
        if failure is not None:
            raise failure
        return TaskOutcome.DONE

    async def _give_up_lease(self) -> None:
        context = self._context
        request = context.shutdown.request
        if context.shutdown.reason is not ShutdownReason.REQUESTED:
            await context.parts.renewer.drop(context.lease_key, context.held.token)
        elif request is None or context.shutdown.is_handing_over:
            await self.pass_lease_on()
        else:
            now_s = context.parts.runtime.clock.corrected()
            is_done = await context.parts.renewer.carry_out(
                context.lease_key, context.held.token, request, now_s
            )
            position = request.position
            if is_done and position is not None and position > context.checkpointer.last:
                context.metrics.add(PASSED_RESET, 1)

    async def pass_lease_on(self, *, in_time: bool = True) -> None:
        """Release the lease in the table, to its next owner if there is one; may be called again.

        Args:
            in_time: whether the child has finished.
        """
        context = self._context
        try:
            await context.parts.renewer.release(context.lease_key, context.held.token)
        except AwsError as error:
            log.warning(
                "%s: cannot release the lease, it will expire: %s", context.lease_key, error
            )
            in_time = False
        if context.shutdown.is_handing_over:
            context.metrics.handed_off(in_time=in_time)

    async def end_shard(self) -> TaskOutcome:
        """Create the child shards' leases, send shardEnded, check the checkpoint, queue the cleanup."""
        context = self._context
        await self._feed.stop_fetching()
        held = context.current()
        if held is None:
            return TaskOutcome.AGAIN
        try:
            await self._create_child_leases(held.lease)
        except InvalidShardEnd as error:
            text = "%s: giving up the lease at the end of the shard: %s"
            log.error(text, context.shard_id, error)  # noqa: TRY400
            context.shutdown.lease_lost()
            return TaskOutcome.AGAIN
        except (BlockedOnParent, AwsError) as error:
            return await self._repeat_end(error)
        if (outcome := await self._notify_end()) is not None:
            return outcome
        await self._feed.end_child()
        if not context.checkpointer.has_ended:
            return TaskOutcome.AGAIN  # the lease was lost in between
        context.parts.cleanup.enqueue(replace(held.lease, checkpoint=SHARD_END))
        return TaskOutcome.DONE

    async def _create_child_leases(self, lease: Lease) -> None:
        """Create the leases of the child shards; errors are those of ``ShardEnd``."""
        context, feed = self._context, self._feed
        if not feed.has_vanished:
            rolls_over = context.stream_context.stream.traits.rolls_over
            await context.parts.shard_end.create_child_leases(
                lease, feed.child_shards, rolls_over=rolls_over
            )
            return
        heirs = context.stream_context.existence.heirs(lease)
        await context.parts.shard_end.create_heirs(lease, heirs)
        feed.child_shards = tuple(one for one in heirs if lease.shard_id in one.parent_shard_ids)

    async def _repeat_end(self, error: Exception) -> TaskOutcome:
        """Wait and retry, unless the worker stops: then the next owner reads the end again."""
        context = self._context
        context.last_error = why = str(error)
        if isinstance(error, BlockedOnParent):
            context.stream_context.syncer.expect(error.parent_key)
        now, (logged, logged_at) = context.parts.runtime.clock.monotonic(), self._logged
        if why != logged or now - logged_at >= REPEAT_S:
            self._logged = (why, now)
            log.warning("%s: cannot finish the shard yet, trying again: %s", context.shard_id, why)
        if context.shutdown.may_leave_shard_end:
            context.shutdown.withdraw_shard_end()
            await self.notify_shutdown()
            return TaskOutcome.AGAIN
        await self._feed.pause(context.parts.config.retrieval.task_backoff_s)
        return TaskOutcome.AGAIN

    async def _notify_end(self) -> TaskOutcome | None:
        """Send shardEnded; None once the checkpoint is stored, or the lease is lost."""
        context, children = self._context, self._feed.children
        if context.checkpointer.has_ended:
            return None
        if context.current() is None:
            return TaskOutcome.AGAIN  # it lapsed meanwhile: the next owner's child gets it
        if children is not None:
            return await self._end_children(children)
        await self._end_child_shard()
        return None

    async def _end_child_shard(self) -> None:
        context = self._context
        processor = self._feed.child
        if processor is None:
            raise RuntimeError("a shard cannot end without a child")
        context.checkpointer.end_shard(tuple(child.shard_id for child in self._feed.child_shards))
        with context.metrics.timed(SHUTDOWN_TIME):
            await processor.shard_ended()
        if (
            not context.checkpointer.has_ended
            and context.shutdown.reason is ShutdownReason.SHARD_END
        ):
            raise EndNotCheckpointed(
                context.shard_id,
                "shardEnded",
                "it answered without a successful checkpoint; call checkpoint() in shard_ended",
            )

    async def _end_children(self, children: ChildGroup) -> TaskOutcome | None:
        """As for one child, which need not checkpoint if it owes nothing; None once it is stored.

        The end is stored with the confirmation of the last of them, or here if that failed or if
        none had to confirm anything.
        """
        context = self._context
        shared = children.shared
        shared.child_shard_ids = tuple(child.shard_id for child in self._feed.child_shards)
        is_complete = await children.shard_ended()
        if not context.checkpointer.has_ended and context.current() is None:
            return TaskOutcome.AGAIN
        if not is_complete:
            return TaskOutcome.RESTART
        while not context.checkpointer.has_ended:
            error = await shared.settle()
            if error is None or context.shutdown.reason is not ShutdownReason.SHARD_END:
                break
            if context.shutdown.may_leave_shard_end:
                context.shutdown.withdraw_shard_end()
                return TaskOutcome.AGAIN
            context.last_error = f"the end of the shard is not stored: {error}"
            await self._feed.pause(context.parts.config.retrieval.task_backoff_s)
        return None
