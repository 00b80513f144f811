"""One hold of a lease while its shard is consumed: the lease, the reason to end, the checkpoints.

Only :class:`ConsumerShutdown` sets the reason to end; all others read it.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kcl_mld.children.consuming.checkpointer import ShardCheckpointer
from kcl_mld.children.rules.lifecycle import ShutdownReason, stronger
from kcl_mld.signals.model.metrics import (
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

    from kcl_mld.children.consuming.consumer_parts import ConsumerParts
    from kcl_mld.errors import ChildFailed
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.model.lease import HeldLease
    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.signals.model.metrics import Metric
    from kcl_mld.signals.ports import Metrics


#: Seconds until the daemon knows of a Ctrl-C that has already ended a child.
INTERRUPT_S = 1.0


class ConsumerShutdown:
    """The requests that end one hold of a lease.

    Sources are the worker's stop, a leader's hand-over to another worker, any task that finds the
    lease lost, and the end of the shard. The strongest of them is the :attr:`reason`, by the ranks
    of :class:`~kcl_mld.children.rules.lifecycle.ShutdownReason`.

    Args:
        on_request: called after every request, so that waits for data or parents end.
    """

    def __init__(self, on_request: Callable[[], None]) -> None:
        self._on_request = on_request
        self._reason: ShutdownReason | None = None
        self._is_stop_requested = False
        #: True when the row already names the next owner, which waits for the lease.
        self.is_handing_over = False
        #: An operator's request, carried out once the child has ended; None = none.
        self.request: LeaseRequest | None = None
        self._is_leaving = asyncio.Event()

    @property
    def reason(self) -> ShutdownReason | None:
        """Why the consumer ends; None while it does not."""
        return self._reason

    def stop(self) -> None:
        """The worker stops: finish the current batch, notify the child, release the lease."""
        self._is_stop_requested = True
        self._is_leaving.set()
        self._request(ShutdownReason.REQUESTED)

    def hand_over(self) -> None:
        """Hand over to another worker: as :meth:`stop`.

        But the lease is passed on before the child ends.
        """
        self.is_handing_over = True
        self.stop()

    def steer(self, request: LeaseRequest) -> None:
        """An operator's request: as :meth:`stop`, but the lease is kept until it is carried out."""
        self.request = request
        self.stop()

    def lease_lost(self) -> None:
        """The lease is no longer ours: finish the current batch, notify the child."""
        self._is_leaving.set()
        self._request(ShutdownReason.LEASE_LOST)

    def shard_ended(self) -> None:
        """The last batch is delivered: the child checkpoints the end, then the cleanup follows."""
        self._request(ShutdownReason.SHARD_END)

    def withdraw_shard_end(self) -> None:
        """The shard's end could not be completed and will be read again, here or by the next owner.

        A requested stop remains; a lost lease remains lost.
        """
        if self._reason is ShutdownReason.SHARD_END:
            self._reason = ShutdownReason.REQUESTED if self._is_stop_requested else None

    @property
    def may_leave_shard_end(self) -> bool:
        """True when the lease is being given up.

        This way, the next owner may complete the shard's end.
        """
        return self._is_stop_requested and self._reason is ShutdownReason.SHARD_END

    async def pause(self, seconds: float) -> None:
        """Sleep before a retry; only a stop or a lost lease ends it early."""
        try:
            async with asyncio.timeout(seconds):
                await self._is_leaving.wait()
        except TimeoutError:
            pass

    async def leaving(self) -> None:
        """Return once the lease is being given up or is lost."""
        await self._is_leaving.wait()

    async def explains(
        self, error: ChildFailed, signals: tuple[int, ...] = (signal.SIGINT,)
    ) -> bool:
        """Whether a signal that stops the daemon, too, ended the child.

        A terminal also sends Ctrl-C to a child without its session yet.
        """
        if error.child_exit_code not in {-number for number in signals}:
            return False
        try:
            async with asyncio.timeout(INTERRUPT_S):
                await self.leaving()
        except TimeoutError:
            return False
        return True

    def _request(self, reason: ShutdownReason) -> None:
        self._reason = stronger(self._reason, reason)
        self._on_request()


class ConsumerMetrics:
    """The metrics of one consumer."""

    def __init__(self, shard_id: str, clock: Clock, metrics: Metrics) -> None:
        self._shard_id = shard_id
        self._clock = clock
        self._metrics = metrics
        self._is_handed_off = False

    @contextmanager
    def timed(self, metric: Metric) -> Iterator[None]:
        """Report the duration of the block, also when it fails."""
        began = self._clock.monotonic()
        try:
            yield
        finally:
            self.add(metric, self._clock.monotonic() - began)

    @contextmanager
    def process_task(self, behind_ms: int | None) -> Iterator[None]:
        """Report success and duration of a ProcessTask, and how far behind the shard is."""
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
        """Report that the lease went to the next owner; repeated calls are not counted."""
        if not self._is_handed_off:
            self._is_handed_off = True
            self.add(HANDED_OFF, int(in_time))

    def stayed_framed(self, records: int) -> None:
        """Report records whose frame could not be removed; does nothing for zero."""
        if records:
            self.add(SCHEMA_FAILURES, records)

    def missing(self, unreadable: int, outside: int) -> None:
        """Report user records of aggregates that are not delivered; zeros are not reported."""
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
    """One hold of one lease, identified by its token.

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
            parts: shared with other consumers.
            on_shutdown: called after every request to end.
            on_stored: called after each successful checkpoint.

        Raises:
            LeaseLost: the row of the lease has no checkpoint, or this worker does not read its
                stream.
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
        """Stream and shard; also the identifier where there may be many streams."""
        stream = self.stream_context.stream
        facts = {"stream": stream.name, "shard": self.shard_id}
        return facts | ({"stream_identifier": stream.identifier} if stream.identifier else {})

    @property
    def children(self) -> int:
        """How many children the shard has."""
        return self.stream_context.children or self.parts.config.child.per_shard

    def current(self) -> HeldLease | None:
        """The lease as held now; None when it is lost, which then becomes the reason to end."""
        held = self.parts.renewer.get(self.lease_key)
        if held is None or held.token != self.held.token:
            self.shutdown.lease_lost()
            return None
        return held

    def may_go_on(self) -> bool:
        """True while there is no reason to end."""
        return self.shutdown.reason is None and self.current() is not None
