"""One hold of a lease while its shard is consumed: its lease, why it ends, its checkpoints.

Everybody reads the reason to end; only :class:`ConsumerShutdown` sets it.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mld.children.consuming.checkpointer import ShardCheckpointer
from mld.children.rules.lifecycle import ShutdownReason, stronger
from mld.signals.model.metrics import (
    ANY_MILLIS_BEHIND_LATEST,
    DATA_BYTES_PROCESSED,
    HANDED_OFF,
    MILLIS_BEHIND_LATEST,
    PASSED_OUTSIDE,
    PASSED_UNDECODABLE,
    PROCESS_TASK,
    RECORDS_PROCESSED,
    SCHEMA_FAILURES,
    UNREADABLE_USER_RECORDS,
    USER_RECORDS_OUTSIDE_SHARD,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mld.children.consuming.consumer_parts import ConsumerParts
    from mld.kernel.ports import Clock
    from mld.leases.model.lease import HeldLease
    from mld.leases.model.lease_request import LeaseRequest
    from mld.signals.model.metrics import Metric
    from mld.signals.ports import Metrics


class ConsumerShutdown:
    """The requests that end one hold of a lease.

    The worker asks for a stop, or a leader for a hand-over to another worker; any task that finds the
    lease lost says so; the shard itself ends. The strongest of them is the :attr:`reason`, by the
    ranks of :class:`~mld.children.rules.lifecycle.ShutdownReason`.

    Args:
        on_request: called after every request, so that waits for data or parents end.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self._on_request = on_request
        self._reason: ShutdownReason | None = None
        self._is_stop_requested = False
        #: True when the next owner of the lease is named already and waits for it.
        self.is_handing_over = False
        #: What a person asks for and is to be done once the child has ended; None = nothing.
        self.request: LeaseRequest | None = None
        self._is_leaving = asyncio.Event()

    @property
    def reason(self) -> ShutdownReason | None:
        """Why the consumer ends; None while it does not."""
        return self._reason

    def stop(self) -> None:
        """The worker stops: finish the batch in hand, tell the child, release the lease."""
        self._is_stop_requested = True
        self._is_leaving.set()
        self._request(ShutdownReason.REQUESTED)

    def hand_over(self) -> None:
        """Another worker is to go on: as :meth:`stop`, but the lease goes before the child does."""
        self.is_handing_over = True
        self.stop()

    def steer(self, request: LeaseRequest) -> None:
        """A person asks for something: as :meth:`stop`, but the lease stays until that is done."""
        self.request = request
        self.stop()

    def lease_lost(self) -> None:
        """The lease is not ours any more: finish the batch in hand, tell the child."""
        self._is_leaving.set()
        self._request(ShutdownReason.LEASE_LOST)

    def shard_ended(self) -> None:
        """The last batch is delivered: the child checkpoints the end, the cleanup comes."""
        self._request(ShutdownReason.SHARD_END)

    def withdraw_shard_end(self) -> None:
        """The shard's end could not be settled and will be read again, here or by the next owner.

        A stop that was requested stays; a lost lease stays lost.
        """
        if self._reason is ShutdownReason.SHARD_END:
            self._reason = ShutdownReason.REQUESTED if self._is_stop_requested else None

    @property
    def may_leave_shard_end(self) -> bool:
        """True when the lease is being given up, so that the next owner may settle the shard's end."""
        return self._is_stop_requested and self._reason is ShutdownReason.SHARD_END

    async def pause(self, seconds: float) -> None:
        """Sleep before something is tried again; a stop or a lost lease ends it, nothing else."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_leaving.wait()
        except TimeoutError:
            pass

    async def leaving(self) -> None:
        """Return once the lease is being given up or is lost."""
        await self._is_leaving.wait()

    def _request(self, reason: ShutdownReason) -> None:
        self._reason = stronger(self._reason, reason)
        self._on_request()


class ConsumerMetrics:
    """One per consumer."""

    def __init__(self, shard_id: str, clock: Clock, metrics: Metrics) -> None:
        self._shard_id = shard_id
        self._clock = clock
        self._metrics = metrics
        self._is_handed_off = False

    @contextmanager
    def timed(self, metric: Metric) -> Iterator[None]:
        """Report how long the block took, also when it fails."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self.add(metric, self._clock.monotonic() - began)

    @contextmanager
    def process_task(self, behind_ms: int | None) -> Iterator[None]:
        """Report success and length of a ProcessTask, and how far behind the shard is."""
        if behind_ms is not None:
            self.add(MILLIS_BEHIND_LATEST, behind_ms)
            self.add(ANY_MILLIS_BEHIND_LATEST, behind_ms)
        self.delivered(0, 0)
        succeeded = False
        try:
            with self.timed(PROCESS_TASK.time):
                yield
            succeeded = True
        finally:
            self.add(PROCESS_TASK.success, int(succeeded))

    def delivered(self, records: int, data_bytes: int) -> None:
        """Report a batch; every task reports zeros first, as in Java."""
        self.add(RECORDS_PROCESSED, records)
        self.add(DATA_BYTES_PROCESSED, data_bytes)

    def handed_off(self, *, in_time: bool) -> None:
        """Report that the lease went to the next owner; what is said again is not counted."""
        if not self._is_handed_off:
            self._is_handed_off = True
            self.add(HANDED_OFF, int(in_time))

    def stayed_framed(self, records: int) -> None:
        """Report records whose frame could not be taken off; nothing while there is none."""
        if records:
            self.add(SCHEMA_FAILURES, records)

    def missing(self, unreadable: int, outside: int) -> None:
        """Report user records of aggregates that are not delivered; nothing of what is zero."""
        if unreadable:
            self.add(UNREADABLE_USER_RECORDS, unreadable)
            self.add(PASSED_UNDECODABLE, unreadable)
        if outside:
            self.add(USER_RECORDS_OUTSIDE_SHARD, outside)
            self.add(PASSED_OUTSIDE, outside)

    def add(self, metric: Metric, value: float) -> None:
        """Report one value of the shard."""
        self._metrics.add(metric, value, shard_id=self._shard_id)


class ConsumerContext:
    """One hold of one lease, named by its token.

    Attributes:
        held: the lease as it was when the hold began; :meth:`current` has the newest.
        last_error: the last failure, one sentence.
    """

    def __init__(
        self,
        held: HeldLease,
        parts: ConsumerParts,
        on_shutdown: Callable[[], None],
        on_stored: Callable[[], None],
    ) -> None:
        """Begin at the lease's checkpoint.

        Args:
            parts: what it shares with other consumers.
            on_shutdown: called after every request to end.
            on_stored: called after each successful checkpoint.

        Raises:
            LeaseLost: the row of the lease has no checkpoint, or its stream is none of this worker's.
        """
        self.held = held
        self.parts = parts
        self.stream_context = parts.streams.of(held.lease)
        self.lease_key = held.lease.lease_key
        self.shard_id = held.lease.shard_id
        self.shutdown = ConsumerShutdown(on_shutdown)
        clock = parts.runtime.clock
        metrics = self.stream_context.metrics
        self.metrics = ConsumerMetrics(self.shard_id, clock, metrics)
        self.checkpointer = ShardCheckpointer(
            held,
            parts.renewer,
            clock,
            parts.runtime.rng,
            metrics,
            on_stored,
            self.shutdown.lease_lost,
        )
        self.last_error: str | None = None

    @property
    def log_facts(self) -> dict[str, str]:
        """Stream and shard; the identifier too where there may be many streams."""
        stream = self.stream_context.stream
        facts = {"stream": stream.name, "shard": self.shard_id}
        return facts | ({"stream_identifier": stream.identifier} if stream.identifier else {})

    def current(self) -> HeldLease | None:
        """The lease as held now; None when it is lost, and then that is the reason to end."""
        held = self.parts.renewer.get(self.lease_key)
        if held is None or held.token != self.held.token:
            self.shutdown.lease_lost()
            return None
        return held

    def may_go_on(self) -> bool:
        """True while there is no reason to end."""
        return self.shutdown.reason is None and self.current() is not None
