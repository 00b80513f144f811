"""The three ends of a hold: the shard has ended, the lease is lost, or the worker stops.

Each stops the fetching, tells the child, sees it off, and settles what becomes of the lease.

Source: ShutdownTask, ShutdownNotificationTask (KCL 3.5.1).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from mld.decide.lifecycle import Outcome, ShutdownReason
from mld.errors import AwsError, BlockedOnParent, ChildFailed, InvalidShardEnd
from mld.model.sequence import SHARD_END
from mld.services.consumer_parts import EndNotCheckpointed

if TYPE_CHECKING:
    from mld.model.shard import ChildShard
    from mld.services.shard_hold import ShardHold

log = logging.getLogger(__name__)


class ShardClosing:
    """Ends one hold."""

    def __init__(self, hold: ShardHold) -> None:
        """Nothing happens yet."""
        self._hold = hold
        #: Of a shard that has ended, as its last answer named them.
        self.children: tuple[ChildShard, ...] = ()

    async def announce(self) -> Outcome:
        """The worker stops: the child may checkpoint a last time."""
        await self._hold.stop_fetching()
        if (processor := self._hold.listener()) is not None:
            await processor.shutdown_requested()
        return Outcome.DONE

    async def part(self) -> Outcome:
        """Lease lost or stop: say leaseLost, end the child, then let go of the lease."""
        hold = self._hold
        await hold.stop_fetching()
        failure: ChildFailed | None = None
        if (processor := hold.listener()) is not None:
            try:
                with hold.metrics.timed("ShutdownTask", "RecordProcessor.shutdown.Time"):
                    await processor.lease_lost()
            except ChildFailed as error:
                failure = error
        await hold.end_child()
        await self._let_go()
        if failure is not None:
            raise failure
        return Outcome.DONE

    async def _let_go(self) -> None:
        hold = self._hold
        renewer, token = hold.parts.renewer, hold.held.token
        try:
            if hold.reason is ShutdownReason.REQUESTED:
                await renewer.release(hold.lease_key, token)
            else:
                await renewer.drop(hold.lease_key, token)
        except AwsError as error:
            log.warning("%s: the lease is left to expire: %s", hold.lease_key, error)

    async def end_shard(self) -> Outcome:
        """Children's leases, shardEnded, its checkpoint, and the cleanup queue."""
        hold = self._hold
        await hold.stop_fetching()
        held = hold.current()
        if held is None:
            return Outcome.AGAIN
        try:
            await hold.parts.shard_end.create_child_leases(held.lease, self.children)
        except InvalidShardEnd as error:
            log.error("%s: giving the lease up at the shard's end: %s", hold.shard_id, error)  # noqa: TRY400
            hold.lease_lost()
            return Outcome.AGAIN
        except (BlockedOnParent, AwsError) as error:
            return await self._repeat_end(error)
        if not hold.checkpointer.has_ended:
            if hold.current() is None:
                return Outcome.AGAIN  # it lapsed meanwhile: the next owner's child is told
            await self._tell_end()
        await hold.end_child()
        if not hold.checkpointer.has_ended:
            return Outcome.AGAIN  # the lease was lost in between
        hold.parts.cleanup.enqueue(replace(held.lease, checkpoint=SHARD_END))
        return Outcome.DONE

    async def _repeat_end(self, error: Exception) -> Outcome:
        """Wait, unless the worker stops: then the next owner reads the end again."""
        hold = self._hold
        hold.last_error = str(error)
        log.warning("%s: the shard's end must wait: %s", hold.shard_id, error)
        if hold.is_stop_requested and hold.reason is ShutdownReason.SHARD_END:
            hold.reason = ShutdownReason.REQUESTED
            await self.announce()
            return Outcome.AGAIN
        await hold.stirred.wait(hold.parts.config.retrieval.task_backoff_s)
        return Outcome.AGAIN

    async def _tell_end(self) -> None:
        hold = self._hold
        if hold.lane is None:
            raise RuntimeError("a shard cannot end without a child")
        hold.checkpointer.end_shard(tuple(child.shard_id for child in self.children))
        with hold.metrics.timed("ShutdownTask", "RecordProcessor.shutdown.Time"):
            await hold.lane.processor.shard_ended()
        if not hold.checkpointer.has_ended and hold.reason is ShutdownReason.SHARD_END:
            raise EndNotCheckpointed(
                hold.shard_id,
                "shardEnded",
                "it answered without a successful checkpoint; call checkpoint() in shard_ended",
            )
