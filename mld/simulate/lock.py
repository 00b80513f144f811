"""The leader lock of a 3.x fleet: an item whose version moves by rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mld.model.leader_lock_item import LockItem

if TYPE_CHECKING:
    from mld.decide.leader_lock import LockTiming
    from mld.simulate.bill import Bill


class Leader(Protocol):
    """What the item says of a worker, and until when it writes heartbeats."""

    id: str
    ended_at: float


class Lock:
    """Who leads.

    Attributes:
        owner: the worker named in the item, alive or not; None = there is no item.
    """

    def __init__(self, timing: LockTiming, bill: Bill) -> None:
        """There is no item."""
        self.owner: Leader | None = None
        self._timing = timing
        self._bill = bill
        self._taken_at = 0.0

    def read(self, now: float) -> LockItem | None:
        """The item as a consistent read shows it."""
        if self.owner is None:
            return None
        version = f"{self.owner.id}/{self._taken_at}/{self._heartbeats(now)}"
        return LockItem(self.owner.id, self._timing.duration_s, version)

    def grant(self, worker: Leader, now: float) -> None:
        """A worker has written itself into the item."""
        self.count(now)
        self.owner, self._taken_at = worker, now
        self._bill.write()

    def release(self, now: float) -> None:
        """The leader deletes the item."""
        self.count(now)
        self.owner = None
        self._bill.write()

    def count(self, now: float) -> None:
        """Put the heartbeats of who leads on the bill."""
        self._bill.write(self._heartbeats(now))

    def _heartbeats(self, now: float) -> int:
        if self.owner is None:
            return 0
        return int((min(now, self.owner.ended_at) - self._taken_at) / self._timing.heartbeat_s)
