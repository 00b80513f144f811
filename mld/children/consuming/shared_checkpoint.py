"""Checkpoints of a shard that several children share: what each confirms, and the one that is stored.

A child's checkpoint is judged by what that child was given. It stays confirmed whatever becomes of
the write, and the lease stores the mark (:mod:`kcl_mld.children.rules.mark`). A checkpoint that moves
the mark waits for the write and gets its outcome; any other is answered at once. Where a write
failed, the next checkpoint of any child, also a repeated one, writes again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.children.rules.checkpointing import CheckpointState, position_to_store
from kcl_mld.children.rules.mark import ChildProgress, mark
from kcl_mld.errors import CheckpointRefused
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld_protocol.errors import SHUTDOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

log = logging.getLogger("mld.children")


class ChildCheckpointer:
    """Checkpoints of one of several children.

    Attributes:
        name: for the log.
        progress: what it was assigned and what of it is confirmed.
        is_done: it gets no further message: it confirmed the end of the shard, answered
            ``shardEnded`` without a record left to confirm, or has no process yet.

    Args:
        shared: of its shard.
        on_confirmed: called when it confirmed more than before.
    """

    def __init__(
        self,
        shared: SharedCheckpoint,
        name: str,
        start: ExtendedSequenceNumber,
        on_confirmed: Callable[[], None],
    ) -> None:
        self._shared = shared
        self.name = name
        self._on_confirmed = on_confirmed
        self.progress = ChildProgress.starting_at(start)
        self.is_done = True
        self._state = CheckpointState.starting_at(start)

    def begin(self) -> ExtendedSequenceNumber:
        """A process begins; the position for its ``initialize``."""
        start = self.progress.edge
        self.is_done = False
        self._state = CheckpointState.starting_at(start)
        return start

    def delivered(self, last: ExtendedSequenceNumber) -> None:
        """A part up to ``last`` is sent to the child: it may be checkpointed from now on."""
        self._state = self._state.delivered(last)

    def end_shard(self) -> None:
        """The shard ended: the last number of the child now means the end."""
        self._state = self._state.ended()

    async def checkpoint(
        self, sequence_number: str | None, sub_sequence_number: int | None
    ) -> str | None:
        """Confirm a position; see :meth:`ShardCheckpointer.checkpoint`."""
        try:
            position = position_to_store(self._state, sequence_number, sub_sequence_number)
        except CheckpointRefused as refused:
            log.info("%s: checkpoint refused: %s", self.name, refused)
            return refused.error_name
        if position is not None:
            self._state = self._state.stored(position)
            self._confirm(position)
        return await self._shared.settle()

    def confirm(self, last: ExtendedSequenceNumber) -> None:
        """A part is answered, which confirms it (``childConfirms = status``).

        Nobody waits for the write; a failed one is only logged.
        """
        if last > self._state.last:
            self._state = self._state.stored(last)
        self._confirm(last)
        self._shared.moved.wake()

    def _confirm(self, position: ExtendedSequenceNumber) -> None:
        if position.is_shard_end:
            self.is_done = True
            self.progress.confirmed = self.progress.floor
            self.progress.parts.clear()
        else:
            self.progress.confirm(position)
        self._on_confirmed()


class SharedCheckpoint:
    """The mark of one shard, and its writes: one at a time, always the newest."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._writer = context.checkpointer
        self._children: list[ChildCheckpointer] = []
        self._lock = asyncio.Lock()
        #: The newest position that is being written, or waits for a write to end.
        self._pending: ExtendedSequenceNumber | None = None
        #: The mark may have moved without a checkpoint that waits for the write.
        self.moved = Wakeup()
        #: Of the shard, once it is read to its end; None before.
        self.child_shard_ids: tuple[str, ...] | None = None

    def add(self, child: ChildCheckpointer) -> None:
        """Count one more child."""
        self._children.append(child)

    @property
    def position(self) -> ExtendedSequenceNumber:
        """What the lease is to store: the mark, or the end once every child is done with it."""
        if self.child_shard_ids is not None and all(child.is_done for child in self._children):
            return SHARD_END
        return mark(child.progress for child in self._children)

    @property
    def slowest(self) -> ChildCheckpointer:
        """The child that holds the mark."""
        return min(self._children, key=lambda child: child.progress.edge.key)

    @property
    def owes(self) -> bool:
        """True while any child has a record that it has not confirmed."""
        return any(child.progress.owes for child in self._children)

    async def settle(self) -> str | None:
        """After a confirmation: store the mark if the lease does not have it.

        Returns:
            None when nothing is left to store, else the error name for the child.
        """
        if self._context.current() is None:
            return SHUTDOWN
        wanted = self.position
        if wanted <= self._writer.last:
            return None
        if self._pending is not None and wanted <= self._pending:
            return None  # it did not move the mark, and another one waits for that write
        self._pending = wanted
        try:
            async with self._lock:
                return await self._store()
        finally:
            if self._pending is wanted:
                self._pending = None

    async def _store(self) -> str | None:
        newest = self.position
        if newest <= self._writer.last:
            return None
        if newest.is_shard_end:
            self._writer.end_shard(self.child_shard_ids or ())
        return await self._writer.pass_over(newest)
