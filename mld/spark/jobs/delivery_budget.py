"""Which shards may get their next records, so that a host's memory does not grow with its shards.

Each shard that reads a backlog is handed up to 10 MB at a time. What all shards of a host hold is
bounded: a shard whose next delivery would exceed the bound withholds its status until jobs have
made room, and then the daemon sends it nothing. Whoever asked first is let in first.

The size of a delivery is not known before it is there, so it is expected to be like the last one.
No delivery may come at all, because the shard has been read to its tip: what was expected of it
counts only for a moment.

Pure: time is handed in, and the engine's lock is around every call.
"""

from __future__ import annotations

from typing import Generic, TypeVar

S = TypeVar("S")
#: How long a delivery is expected to come, in s: much longer than one takes that is there already.
GRANT_S = 0.5


class DeliveryBudget(Generic[S]):
    """Who waits for a delivery, and who may have one.

    Args:
        limit_bytes: what all shards may hold together, > 0.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._waiting: dict[S, None] = {}
        self._granted: dict[S, tuple[int, float]] = {}

    def admit(self, who: S, expected_bytes: int, held_bytes: int, now: float) -> bool:
        """Ask for a delivery; whoever is refused has its place in the queue and asks again.

        Args:
            who: a shard.
            expected_bytes: of the delivery. Where nobody holds anything it may exceed the bound.
            held_bytes: by all shards now.
            now: monotonic time in s.
        """
        self._granted = {
            each: (size, until)
            for each, (size, until) in self._granted.items()
            if until > now and each != who
        }
        self._waiting.setdefault(who)
        taken = held_bytes + sum(size for size, _ in self._granted.values())
        if who != self.first or (taken and taken + expected_bytes > self._limit_bytes):
            return False
        del self._waiting[who]
        self._granted[who] = expected_bytes, now + GRANT_S
        return True

    def arrived(self, who: S) -> None:
        """Its delivery is there, and is among what is held."""
        self._granted.pop(who, None)

    def leave(self, who: S) -> None:
        """It wants nothing any more."""
        self._granted.pop(who, None)
        self._waiting.pop(who, None)

    @property
    def first(self) -> S | None:
        """Whose turn it is; None = nobody waits."""
        return next(iter(self._waiting), None)
