"""Several children of one shard, each with the records of its keys, as one child to its consumer.

A line is assigned whole, each child's part noted, before its first part is written. The children
are called independently; the reader waits only while one of them has too much before it. A child
that is being replaced, or that is stuck, is left out of the lines. Once it is ready, the shard is
read again from its floor, and each of the others is given only what lies behind its own.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, TypeVar

from kcl_mld.children.consuming.child_slot import ChildSlot
from kcl_mld.children.consuming.mark_watch import MarkWatch
from kcl_mld.children.consuming.shared_checkpoint import SharedCheckpoint
from kcl_mld.children.rules.routing import Route
from kcl_mld.kernel.concurrency import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from kcl_mld.children.consuming.child_factory import ChildFactory
    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.model.consumer_status import ChildStatus
    from kcl_mld.children.record_processor import RecordProcessor
    from kcl_mld.children.rules.delivery import Delivery
    from kcl_mld.errors import ChildFailed
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.retrieval.byte_budget import BudgetShare

log = logging.getLogger("mld.children")

#: The reader waits so many seconds for a child that has too much before it and does not answer;
#: then the others go on without it.
LEAVE_S = 60.0


T = TypeVar("T")


class ChildGroup:
    """The children of one hold of a lease.

    Args:
        start: where the hold begins.
        share: makes a share of the memory for what waits for one child; see
            :meth:`ByteBudget.share`.
        interrupt: wakes the task that waits for a batch.
    """

    def __init__(
        self,
        count: int,
        start: ExtendedSequenceNumber,
        context: ConsumerContext,
        factory: ChildFactory,
        share: Callable[[Callable[[], None]], BudgetShare],
        interrupt: Callable[[], None],
    ) -> None:
        self._context = context
        self._clock = context.parts.runtime.clock
        self._interrupt = interrupt
        self._wakeup = Wakeup()
        self._line_number = 0
        #: The edge of the last line since the reader began anew; None = it must begin anew.
        self._read_to: ExtendedSequenceNumber | None = None
        self._failed: dict[int, ChildFailed] = {}
        self.shared = SharedCheckpoint(context)
        self.slots = tuple(
            ChildSlot(
                index,
                start,
                context,
                factory,
                self.shared,
                share,
                self.changed,
                self._wakeup.wake,
            )
            for index in range(count)
        )
        for slot in self.slots:
            self.shared.add(slot.checkpointer)
        self._watch = MarkWatch(context, self.shared)
        self._watching: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """A child wants records, or there is a reason to stop."""
        self._wakeup.wake()
        self._interrupt()

    # -- for the reader ----------------------------------------------------------------------------

    @property
    def reads_from(self) -> ExtendedSequenceNumber:
        """Where a new reader has to begin."""
        return min(slot.floor for slot in self.slots)

    def began_at(self, position: ExtendedSequenceNumber) -> None:
        """A reader begins at a position: all children are assigned what follows their floors."""
        self._read_to = position
        for slot in self.slots:
            slot.follow()

    def moves_to(self) -> ExtendedSequenceNumber | None:
        """Let children follow that are ready to; call it between two batches.

        Returns:
            Where the reader must begin anew: back for them, or on to where the others are, once the
            child for which it went back does not follow any more. None = it goes on.
        """
        for slot in self.slots:
            if slot.wants_records:
                slot.follow()
        to = min((slot.floor for slot in self.slots if slot.is_following), default=None)
        if to is None or (self._read_to is not None and to.key == self._read_to.key):
            return None
        self._read_to = to
        return to

    @property
    def _is_stopping(self) -> bool:
        return self._context.shutdown.reason is not None

    @property
    def _is_wanted(self) -> bool:
        """Whether the reader has something else to do than to read on."""
        return self._is_stopping or any(slot.wants_records for slot in self.slots)

    def _raise_failure(self) -> None:
        for slot in self.slots:
            if slot.failure is not None:
                raise slot.failure

    async def room(self, *, mid_batch: bool = False) -> bool:
        """Wait until no child has too much before it.

        Args:
            mid_batch: a part of the batch is assigned; only a stop leaves its rest out.

        Returns:
            False when there is something else to do than to read on.

        Raises:
            ChildFailed: a child failed, and the policy says that this ends the daemon.
        """
        while True:
            self._raise_failure()
            if self._is_stopping if mid_batch else self._is_wanted:
                return False
            now = self._clock.monotonic()
            full = [slot for slot in self.slots if slot.is_full]
            # The rest of a batch is passed over if nobody follows: it is read again for them.
            if not full and (mid_batch or any(slot.is_following for slot in self.slots)):
                return True
            due_at = min((slot.silent_since for slot in full), default=now) + LEAVE_S
            if due_at <= now:
                self._leave(min(full, key=lambda slot: slot.silent_since))
                continue
            await self._wakeup.wait(due_at - now)

    def _leave(self, slot: ChildSlot) -> None:
        text = "%s: it has not answered for %.0f s; the others go on without it"
        log.warning(text, slot.name, LEAVE_S)
        slot.leave()

    async def settled(self) -> bool:
        """At the end of the shard: wait until each child has answered its last part.

        Returns:
            False when there is something else to do.

        Raises:
            ChildFailed: as :meth:`room`.
        """
        while True:
            self._raise_failure()
            if self._is_wanted:
                return False
            if all(slot.is_idle and slot.is_following for slot in self.slots):
                return True
            await self._wakeup.wait()

    @property
    def route(self) -> Route:
        """How the next line is to be split."""
        floors = tuple(slot.floor if slot.is_following else None for slot in self.slots)
        keys_in_data = self._context.stream_context.stream.traits.keys_in_data
        return Route(floors, keys_in_data=keys_in_data)

    def assign(self, delivery: Delivery, route: Route, behind_ms: int | None) -> tuple[int, int]:
        """Assign a line whole; returns the number of its records and the bytes of their payloads.

        Args:
            route: by which it was split. A child that went back meanwhile gets nothing.
        """
        parts = {part.child: part for part in delivery.pop_parts()}
        edge = delivery.largest
        if self._is_stopping:  # since before the line was made
            return 0, 0
        if edge is None:
            if self._read_to is not None and route.behind(self._read_to) > self._read_to:
                self._read_to = None  # past it, by records that all who follow have
            return 0, 0
        self._line_number += 1
        self._context.checkpointer.delivered(edge)
        records = data_bytes = 0
        for slot, floor in zip(self.slots, route.floors, strict=True):
            if slot.is_following and floor is slot.floor:
                part = parts.pop(slot.index, None)
                slot.assign(part, edge, self._line_number, behind_ms)
                if part is not None:
                    records += part.records
                    data_bytes += part.data_bytes
        self._read_to = edge
        return records, data_bytes

    def assign_nothing(self, behind_ms: int | None) -> None:
        """A batch without records, for each child that waits."""
        for slot in self.slots:
            slot.assign_nothing(behind_ms)

    @property
    def oldest_s(self) -> float | None:
        """Epoch seconds at which the oldest record arrived that is assigned and not answered."""
        arrived = (slot.oldest_s for slot in self.slots)
        return min((one for one in arrived if one is not None), default=None)

    # -- for the consumer, as a single child -------------------------------------------------------

    def run(self, group: asyncio.TaskGroup) -> None:
        """Serve the children in tasks of the group, except those that are done with the shard."""
        if self._watching is None:
            self._watching = group.create_task(self._watch.run(), name="mark watch")
        failed, self._failed = self._failed, {}
        for slot in self.slots:
            if not slot.has_ended:
                slot.run(group, failed.get(slot.index))

    @property
    def _processors(self) -> list[RecordProcessor]:
        return [slot.processor for slot in self.slots if slot.processor is not None]

    @property
    def _worst(self) -> RecordProcessor | None:
        """That which has been silent for longest, or the first that runs."""
        running = [one for one in self._processors if one.pid is not None]
        return max(running, key=lambda one: one.silent_s or 0.0, default=None)

    @property
    def pid(self) -> int | None:
        """Of the child that has been silent for longest, or of the first that runs."""
        return None if (worst := self._worst) is None else worst.pid

    @property
    def call_age_s(self) -> float | None:
        """The longest of :attr:`RecordProcessor.call_age_s`."""
        ages = (one.call_age_s for one in self._processors)
        return max((age for age in ages if age is not None), default=None)

    @property
    def silent_s(self) -> float | None:
        """The longest of :attr:`RecordProcessor.silent_s`."""
        return None if (worst := self._worst) is None else worst.silent_s

    @property
    def silence_cause(self) -> str | None:
        """Why that one may have been silent."""
        return None if (worst := self._worst) is None else worst.silence_cause

    def status(self) -> tuple[ChildStatus, ...]:
        """A snapshot of each, for pages."""
        return tuple(slot.status() for slot in self.slots)

    @property
    def unconfirmed_s(self) -> float | None:
        """See :attr:`ConsumerStatus.unconfirmed_s`."""
        return self._watch.unconfirmed_s

    @property
    def failed_at(self) -> float | None:
        """Reading of ``Clock.monotonic`` at the last failure of one of them; None without one."""
        return max((s.failed_at for s in self.slots if s.failed_at is not None), default=None)

    async def shutdown_requested(self) -> None:
        """Complete the lines that are begun, and notify each child that the worker stops."""
        begun = max(slot.begun for slot in self.slots)
        for slot in self.slots:
            slot.drop_behind(begun)
        await self._each(slot.shutdown_requested() for slot in self.slots)
        await self.shared.settle()
        self._raise_failure()

    async def lease_lost(self) -> None:
        """Notify each child that the shard belongs to another worker now."""
        await self._each(slot.lease_lost() for slot in self.slots)
        self._raise_failure()

    async def shard_ended(self) -> bool:
        """Notify each child of the end; False when one must read again what it owes.

        Raises:
            ChildFailed: as :meth:`room`.
        """
        found = await self._each(slot.shard_ended() for slot in self.slots)
        self._raise_failure()
        self._failed = {index: error for index, error in enumerate(found) if error is not None}
        return not self._failed and not any(slot.wants_records for slot in self.slots)

    async def stop(self) -> None:
        """End all processes in order."""
        self._stop_watching()
        await self._each(slot.stop() for slot in self.slots)

    async def _each(self, calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Await all of them, then raise the first failure."""
        loop = asyncio.get_running_loop()
        running = [loop.create_task(call) for call in calls]
        await asyncio.gather(*running, return_exceptions=True)
        return [one.result() for one in running]

    def terminate(self, *, by_force: bool = False) -> None:
        """SIGTERM, or SIGKILL, for an operator's request; :meth:`stop` must follow."""
        for slot in self.slots:
            slot.terminate(by_force=by_force)

    def kill(self) -> None:
        """End them now, without a message."""
        self._stop_watching()
        for slot in self.slots:
            slot.kill()

    def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
