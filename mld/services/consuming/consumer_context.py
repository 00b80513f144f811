"""What is known about one hold of a lease while its shard is consumed.

The consumer walks, :mod:`mld.services.consuming.shard_closing` ends; both read and write here: the
child with the fetching that feeds it, and what went wrong last. Whether and why it ends is told to
:class:`~mld.services.consuming.consumer_shutdown.ConsumerShutdown`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.children.restart import RestartCount
from mld.errors import ChildFailed
from mld.model.config.config import ChildExceptionPolicy
from mld.model.sequence import Sentinel
from mld.services.consuming.checkpointer import ShardCheckpointer
from mld.services.consuming.consumer_metrics import ConsumerMetrics
from mld.services.consuming.consumer_shutdown import ConsumerShutdown
from mld.services.wakeup import Wakeup
from protocol import Action

if TYPE_CHECKING:
    from mld.model.leases.lease import HeldLease
    from mld.model.sequence import ExtendedSequenceNumber
    from mld.services.child.record_processor import RecordProcessor
    from mld.services.consuming.child_pipeline import ChildPipeline
    from mld.services.consuming.consumer_parts import ConsumerParts


log = logging.getLogger(__name__)


class ConsumerContext:
    """One hold of one lease, named by its token.

    Attributes:
        held: the lease as it was when the hold began; :meth:`current` has the newest.
        stream_context: what belongs to the lease's stream.
        shutdown: whether and why the consumer ends.
        parents_wakeup: ends the wait for parents: one may have finished, or there is a reason to end.
        pipeline: child and fetching; None while there is no child.
        restarts: of the child.
        began_at: reading of the monotonic clock when the hold began.
        child_failed_at: the same of the child's last failure; None without one.
        last_error: the last failure, one sentence.
        delivering: first and last position of what the child has been given; None without records.
        exceptions: of the processor with which the child went on.
    """

    def __init__(self, held: HeldLease, parts: ConsumerParts) -> None:
        """Begin at the lease's checkpoint.

        Raises:
            LeaseLost: the row of the lease has no checkpoint, or its stream is none of this worker's.
        """
        self.held = held
        self.parts = parts
        self.stream_context = parts.streams.of(held.lease)
        self.lease_key = held.lease.lease_key
        self.shard_id = held.lease.shard_id
        self.shutdown = ConsumerShutdown(self._end_waits)
        clock = parts.runtime.clock
        metrics = self.stream_context.metrics
        self.metrics = ConsumerMetrics(self.shard_id, clock, metrics)
        self.checkpointer = ShardCheckpointer(
            held,
            parts.renewer,
            clock,
            parts.runtime.rng,
            metrics,
            self._note_progress,
            self.shutdown.lease_lost,
        )
        self.parents_wakeup = Wakeup()
        self.pipeline: ChildPipeline | None = None
        self.restarts = RestartCount()
        self.began_at = clock.monotonic()
        self.child_failed_at: float | None = None
        self.last_error: str | None = None
        self.delivering: tuple[ExtendedSequenceNumber, ExtendedSequenceNumber] | None = None
        self.exceptions = 0

    @property
    def log_facts(self) -> dict[str, str]:
        """Stream and shard; the identifier too where there may be many streams."""
        stream = self.stream_context.stream
        facts = {"stream": stream.name, "shard": self.shard_id}
        return facts | ({"stream_identifier": stream.identifier} if stream.identifier else {})

    def _end_waits(self) -> None:
        """There is a reason to end: whoever waits for parents or data must look at it."""
        self.parents_wakeup.wake()
        if self.pipeline is not None:
            self.pipeline.publisher.interrupt()

    def exception_caught(self, action: Action, said: str) -> None:
        """The child's processor raised, and the child goes on: to Java the action has succeeded.

        Raises:
            ChildFailed: the file says that this is a failure. A lease that is lost is no matter of
                that: nothing can be lost any more.
        """
        self.exceptions += 1
        self.metrics.exception_caught()
        why = f"its processor raised an exception: {said}"
        if self.delivering is not None:
            first, last = self.delivering
            why += f"; records {first} to {last} may not be processed"
        self.last_error = f"{self.shard_id}: {action}: {why}"
        policy = self.parts.config.child.exception_policy
        if policy is ChildExceptionPolicy.FAIL and action is not Action.LEASE_LOST:
            raise ChildFailed(self.shard_id, str(action), why, None)
        log.error("%s", self.last_error, extra={"shard_id": self.shard_id})

    def _note_progress(self) -> None:
        self.restarts = self.restarts.after_progress()

    # -- the lease -----------------------------------------------------------------------------

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

    # -- child and fetching --------------------------------------------------------------------

    async def pause(self, seconds: float) -> None:
        """Sleep before something is tried again; a stop or a lost lease ends it.

        Raises:
            ChildFailed: there was an idle child, and it ended meanwhile.
        """
        if self.pipeline is None:
            await self.shutdown.pause(seconds)
            return
        async with self.pipeline.processor.unless_it_ends():
            await self.shutdown.pause(seconds)

    def listener(self) -> RecordProcessor | None:
        """The child, if it waits for a message."""
        if self.pipeline is None or not self.pipeline.processor.may_talk:
            return None
        return self.pipeline.processor

    async def end_child(self) -> None:
        """See the child off; nothing without one."""
        if self.pipeline is not None:
            await self.pipeline.processor.stop()
            self.pipeline = None

    async def stop_fetching(self) -> None:
        """End the fetching; the child, if any, lives on. May be called again."""
        if self.pipeline is not None:
            await self.pipeline.stop_fetching()
            self._remember_latest(self.pipeline.publisher.latest_since_s)

    def latest_since_s(self) -> float | None:
        """Where an earlier child or holding began at LATEST, unless others had the lease since."""
        switches, since_s = self.parts.latest_starts.get(self.lease_key, (None, None))
        is_same_reader = switches == self.held.lease.owner_switches_since_checkpoint
        return since_s if is_same_reader else None

    def _remember_latest(self, since_s: float | None) -> None:
        if self.checkpointer.last.sentinel is not Sentinel.LATEST:
            self.parts.latest_starts.pop(self.lease_key, None)
        elif since_s is not None:
            switches = self.held.lease.owner_switches_since_checkpoint
            self.parts.latest_starts[self.lease_key] = (switches, since_s)
