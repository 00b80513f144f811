"""What happens when in a simulated fleet, and which child reads which shard.

A child has checkpointed at its own rhythm since it began to read; the next reader begins at the
last checkpoint that the table accepted. So what a child was given after that is given twice.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: A time that has not come.
_NEVER = float("inf")


class Events:
    """Things that will happen; those of one moment in the order in which they were planned.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Plan something.

        Args:
            time_s: when; not before now.
        """
        heapq.heappush(self._planned, (max(time_s, self.now), next(self._numbers), action))

    def run(self, until_s: float) -> None:
        """Let everything happen that is planned for times up to and including one."""
        while self._planned and self._planned[0][0] <= until_s:
            self.now, _, action = heapq.heappop(self._planned)
            action()
        self.now = until_s


@dataclass(slots=True, eq=False)
class Reading:
    """One child that reads a shard.

    Attributes:
        since: when its first record came.
        fenced_at: when its worker lost the lease in the table: later checkpoints were refused.
    """

    worker: str
    since: float
    fenced_at: float = _NEVER


@dataclass(slots=True)
class ShardHistory:
    """What happened to one shard.

    Attributes:
        readings: the workers that read it now; two while one has not noticed its loss.
        last_reader: who began last.
        unread_since: since when nobody reads; None = somebody does.
        moves: how often another worker than before began to read.
        twice_s: seconds of its records that were delivered again.
        longest_unread_s: of all times in which nobody read it, after the first reader.
    """

    readings: list[Reading] = field(default_factory=list)
    last_reader: str | None = None
    unread_since: float | None = 0.0
    moves: int = 0
    twice_s: float = 0.0
    longest_unread_s: float = 0.0


class Readings:
    """The children of all shards.

    Attributes:
        unread: how many shards nobody reads.
    """

    def __init__(self, keys: list[str], checkpoint_every_s: float) -> None:
        self.shards = {key: ShardHistory() for key in keys}
        self.unread = len(keys)
        self.moves = 0
        self._every_s = checkpoint_every_s

    def begin(self, key: str, worker: str, now: float) -> Reading:
        """A child begins to read at the last checkpoint."""
        shard = self.shards[key]
        if shard.unread_since is not None:
            if shard.last_reader is not None:
                unread_s = now - shard.unread_since
                shard.longest_unread_s = max(shard.longest_unread_s, unread_s)
            shard.unread_since = None
            self.unread -= 1
        if shard.last_reader not in (None, worker):
            shard.moves += 1
            self.moves += 1
        shard.last_reader = worker
        reading = Reading(worker, now)
        shard.readings.append(reading)
        return reading

    def end(self, key: str, reading: Reading, now: float, *, checkpoints: bool) -> None:
        """A child ends.

        Args:
            checkpoints: it writes a last checkpoint; the table refuses it when the lease is lost.
        """
        shard = self.shards[key]
        shard.readings.remove(reading)
        if not checkpoints or reading.fenced_at <= now:
            shard.twice_s += now - self._last_checkpoint(reading, now)
        if not shard.readings:
            shard.unread_since = now
            self.unread += 1

    def next_checkpoint_at(self, reading: Reading, now: float) -> float:
        """When a child checkpoints next."""
        return reading.since + ((now - reading.since) // self._every_s + 1) * self._every_s

    def longest_unread_s(self, now: float) -> float:
        """The longest time for which a shard that had been read was not."""
        open_s = (
            now - shard.unread_since
            for shard in self.shards.values()
            if shard.unread_since is not None and shard.last_reader is not None
        )
        done = (shard.longest_unread_s for shard in self.shards.values())
        return max([0.0, *open_s, *done])

    def _last_checkpoint(self, reading: Reading, now: float) -> float:
        accepted_s = max(0.0, min(now, reading.fenced_at) - reading.since)
        return reading.since + accepted_s // self._every_s * self._every_s
