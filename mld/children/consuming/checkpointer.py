"""Turns a child's checkpoints into conditional writes to the lease, and failures into error names.

One request at a time. Throttled writes are retried for up to two seconds before the child gets an
error (Java answers at once and leaves retries to the application). Everything else is answered as
in Java, except that an unreachable lease table is a ``KinesisClientLibDependencyException`` (Java
leaks a bare ``RuntimeException``).

Source: ShardRecordProcessorCheckpointer, DynamoDBCheckpointer.java:60-73 (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.children.rules.checkpointing import CheckpointState, position_to_store
from kcl_mld.errors import (
    CheckpointRefused,
    LeaseLost,
    MldError,
    NotFound,
    Throttled,
    UnknownOutcome,
)
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.signals.model.metrics import CHECKPOINT, LAST_CHECKPOINT
from kcl_mld_protocol.errors import DEPENDENCY, INVALID_STATE, SHUTDOWN, THROTTLING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.model.lease import HeldLease
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.children")

#: How long throttled writes are repeated before the child gets an error.
RETRY_S = 2.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 0.8


class ShardCheckpointer:
    """Checkpoints of one shard under one hold of its lease."""

    def __init__(
        self,
        held: HeldLease,
        renewer: LeaseRenewer,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
        on_stored: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Start at the lease's checkpoint.

        Args:
            held: the lease; its token guards every write.
            metrics: ``UpdateLease``.
            on_stored: called after each successful write.
            on_lost: called when a write found the lease lost.
        """
        if held.lease.checkpoint is None:
            raise LeaseLost(held.lease.lease_key, "its row has no checkpoint")
        self._key = held.lease.lease_key
        self._shard_id = held.lease.shard_id
        self._token = held.token
        self._renewer = renewer
        self._clock = clock
        self._rng = rng
        self._metrics = metrics
        self._on_stored = on_stored
        self._on_lost = on_lost
        self._lock = asyncio.Lock()
        self._state = CheckpointState.starting_at(held.lease.checkpoint)
        self._child_shard_ids: tuple[str, ...] = ()
        #: True when a write got no answer and no checkpoint was stored since: the table may be
        #: ahead.
        self.is_unsure = False
        #: True when the child tried to checkpoint the shard's end, but the table write failed.
        self.end_checkpoint_failed = False

    @property
    def last(self) -> ExtendedSequenceNumber:
        """The last position stored."""
        return self._state.last

    @property
    def has_ended(self) -> bool:
        """True when the shard's end is stored."""
        return self._state.last.is_shard_end

    def delivered(self, largest: ExtendedSequenceNumber | None) -> None:
        """A batch up to ``largest`` is sent to the child: it may be checkpointed from now on."""
        self._state = self._state.delivered(largest)

    @property
    def largest(self) -> ExtendedSequenceNumber:
        """The largest position given to the child, or where it began."""
        return self._state.largest

    async def pass_over(self, position: ExtendedSequenceNumber) -> str | None:
        """Store a position that no child has requested, because no work is left before it.

        Returns:
            None when it is stored, else the error name; the next checkpoint covers the position.
        """
        async with self._lock:
            return await self._store(position)

    def end_shard(self, child_shard_ids: tuple[str, ...]) -> None:
        """The shard ended: SHARD_END may be stored, together with the ids of the children."""
        self._state = self._state.ended()
        self._child_shard_ids = child_shard_ids
        self.end_checkpoint_failed = False

    def start_over(self) -> None:
        """A new child begins at the last stored position."""
        self._state = CheckpointState.starting_at(self._state.last)
        self._child_shard_ids = ()

    def found(self, position: ExtendedSequenceNumber) -> None:
        """Set the position found in the table after a write of unknown outcome.

        A new child begins there.
        """
        self._state = CheckpointState.starting_at(position)
        self.is_unsure = False

    async def checkpoint(
        self, sequence_number: str | None, sub_sequence_number: int | None
    ) -> str | None:
        """Store a position.

        Args:
            sequence_number: as requested; None = the largest position handed out.
            sub_sequence_number: as requested.

        Returns:
            None when it is stored, else the error name for the child.
        """
        async with self._lock:
            try:
                position = position_to_store(self._state, sequence_number, sub_sequence_number)
            except CheckpointRefused as refused:
                log.info("%s: checkpoint refused: %s", self._shard_id, refused)
                return refused.error_name
            if position is None:
                return None
            return await self._store(position)

    async def _store(self, position: ExtendedSequenceNumber) -> str | None:
        error = await self._attempt(
            lambda: self._renewer.checkpoint(
                self._key, self._token, position, child_shard_ids=self._child_shard_ids
            ),
            f"checkpoint at {position}",
        )
        if error is not None:
            self.end_checkpoint_failed = self._state.at_end is not None
            return error
        self._state = self._state.stored(position)
        self.is_unsure = False
        self._on_stored()
        return None

    async def _attempt(self, write: Callable[[], Awaitable[None]], what: str) -> str | None:
        """Try one write and measure it; the error name when it failed."""
        began = self._clock.monotonic()
        try:
            await self._repeat(write, began)
        except CheckpointRefused as refused:
            log.warning("%s: %s refused: %s", self._shard_id, what, refused)
            return refused.error_name
        except MldError as error:
            self._measure(began, succeeded=False)
            self.is_unsure |= isinstance(error, UnknownOutcome)
            return self._name_of(error, what)
        self._measure(began, succeeded=True)
        return None

    async def _repeat(self, write: Callable[[], Awaitable[None]], began: float) -> None:
        """One conditional write; throttled ones are repeated for a limited time."""
        attempt = 0
        while True:
            try:
                await write()
            except Throttled:
                pause_s = backoff_s(
                    attempt, self._rng, first_s=_FIRST_PAUSE_S, cap_s=_LONGEST_PAUSE_S
                )
                if self._clock.monotonic() - began + pause_s > RETRY_S:
                    raise
                attempt += 1
                await asyncio.sleep(pause_s)
            else:
                return

    def _name_of(self, error: MldError, what: str) -> str:
        log.warning("%s: %s failed: %s", self._shard_id, what, error)
        match error:
            case LeaseLost():
                self._on_lost()
                return SHUTDOWN
            case Throttled():
                return THROTTLING
            case NotFound():
                return INVALID_STATE
            case _:
                return DEPENDENCY

    def _measure(self, began: float, *, succeeded: bool) -> None:
        metrics = CHECKPOINT if self._state.at_end is None else LAST_CHECKPOINT
        took_s = self._clock.monotonic() - began
        self._metrics.call(metrics, took_s, succeeded=succeeded, shard_id=self._shard_id)
