"""Moves one shard's batches on while a message of the daemon is outstanding.

Take what is over, checkpoint what is durable, ask for what is due. What has to be waited for is waited for here, with
a keep-alive to the daemon whenever one is due.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.jobs.delivery_budget import GRANT_S
from mld.spark.shard.batcher import FlushReason

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from mld.spark.model import Row
    from mld.spark.ports import MonotonicClock
    from mld.spark.shard.storing import LeaseStorage
    from mld.spark.shard.work import ShardWork


class Pump:
    """The moves of one hold of a shard; used by the thread that serves it.

    Args:
        name: of the shard, for messages.
        work: its batches.
        storage: takes its checkpoints.
        clock: for the ages of records and for deadlines.
        keep_alive: starts the daemon's time-out for the outstanding message again.
        wake: set, by any thread, when a batch is over or nobody listens any more.
        is_over: True if nobody listens any more.
        keep_alive_s: how often a keep-alive is due, in s.

    Attributes:
        work: its batches.
    """

    def __init__(
        self,
        name: str,
        work: ShardWork,
        storage: LeaseStorage,
        *,
        clock: MonotonicClock,
        keep_alive: Callable[[], None],
        wake: threading.Event,
        is_over: Callable[[], bool],
        keep_alive_s: float,
    ) -> None:
        self._name = name
        self.work = work
        self._storage = storage
        self._clock = clock
        self._keep_alive = keep_alive
        self._wake = wake
        self._is_over = is_over
        self._sign_s = keep_alive_s

    def accept(self, rows: Sequence[Row], millis_behind: int | None) -> None:
        """Accept a delivery, and return when there is room for the next one.

        Args:
            rows: of the delivery; none if the daemon only gives a turn.
            millis_behind: how far the delivery is behind the tip of the shard, in ms; None =
                unknown.

        Raises:
            SparkChildError: a batch or a checkpoint failed.
        """
        if self.work.is_open:
            self.work.add(rows, self._clock.monotonic(), millis_behind)
        reason = FlushReason.FLOWING if rows else FlushReason.IDLE
        self._move(reason)
        while self._moves and self.work.is_backed_up:
            self._wait(self._sign_s)
            self._move(reason)
        self.wait_for_room(reason)

    def wait_for_room(self, reason: FlushReason) -> None:
        """Return when the host has room for the next delivery, or when the shard is lost.

        Raises:
            SparkChildError: a batch or a checkpoint failed.
        """
        since = self._clock.monotonic()
        while self._moves and not self.work.has_room():
            if self._wake.wait(min(self._sign_s, GRANT_S)):
                self._wake.clear()
            now = self._clock.monotonic()
            if now - since >= self._sign_s and not self._is_over():
                self._keep_alive()
                since = now
            self._move(reason)

    def drain(self, reason: FlushReason, patience_s: float | None = None) -> bool:
        """Make everything durable and checkpoint it.

        Args:
            reason: why; decides whether a tail is cut.
            patience_s: for how long, in s; None = as long as it takes.

        Returns:
            False if the time was over first; True also if the shard was lost meanwhile.

        Raises:
            SparkChildError: a batch or a checkpoint failed.
        """
        self.work.arrived()
        deadline = None if patience_s is None else self._clock.monotonic() + patience_s
        while True:
            self._move(reason)
            if self.work.is_idle or not self._moves:
                return True
            longest_s = self._sign_s
            if deadline is not None:
                longest_s = min(longest_s, deadline - self._clock.monotonic())
                if longest_s <= 0:
                    return False
            self._wait(longest_s)

    @property
    def _moves(self) -> bool:
        """False once the shard is lost, a batch has failed or nobody listens."""
        return self.work.is_open and not self._is_over()

    def _move(self, reason: FlushReason) -> None:
        """Take, checkpoint and ask until nothing is left to do now."""
        took = True
        while self._moves and took:
            took = self.work.collect()
            self._checkpoint()
            self.work.ask_if_due(self._clock.monotonic(), reason)

    def _checkpoint(self) -> None:
        position = self.work.due_checkpoint
        if position is None:
            return
        if self._storage.checkpoint(self._name, position):
            self.work.checkpointed(position)
        else:
            self.work.close()

    def _wait(self, seconds: float) -> None:
        """Until a batch is over; if none is in that time, the daemon hears that we are alive."""
        if self._wake.wait(seconds):
            self._wake.clear()
        elif not self._is_over():
            self._keep_alive()
