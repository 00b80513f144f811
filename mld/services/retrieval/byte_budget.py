"""One budget of bytes for all shards of the process, reserved before anything is fetched.

Java buffers up to 28 MB a shard, whatever the number of shards. Here the bytes of answers on their
way, of answers waiting for delivery and of lines being written share one limit.

Fairness: reservations are granted in the order of asking, but nobody who reads ahead keeps those
waiting whose child waits for data. Liveness: an empty budget grants any
size, and when nothing has moved for ``STALL_S`` (children that hang, holding what was fetched for
them) the longest waiting shard whose child waits for data is granted beyond the limit, so that one
hanging child never stops the others. Reading ahead is never granted beyond it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.ports.clock import Clock

log = logging.getLogger(__name__)

#: After this long without any reservation granted or given back an urgent one is granted anyway.
STALL_S = 5.0
#: What an answer is expected to take before any was seen: the largest one there is, 10 MB of data
#: as base64 text with its field names. It keeps a restart with many full shards within the limit.
LARGEST_ANSWER_BYTES = 14 * 2**20
#: Nothing is expected to take less.
SMALLEST_ANSWER_BYTES = 64 * 1024
#: So many answers of the process make the expectation for shards that had none yet.
_REMEMBERED = 8


class Reservation:
    """Bytes taken from a budget; give them back with :meth:`release`."""

    def __init__(self, budget: ByteBudget, size_bytes: int) -> None:
        """Made by :meth:`ByteBudget.reserve` only."""
        self._budget = budget
        self.size_bytes = size_bytes

    def resize(self, size_bytes: int) -> None:
        """Correct the size to what it really is; never waits, may exceed the limit."""
        change, self.size_bytes = size_bytes - self.size_bytes, size_bytes
        self._budget.move(change)

    def release(self) -> None:
        """Give everything back; may be called again."""
        self.resize(0)


@dataclass(eq=False, slots=True)
class _Entry:
    """One who waits for room."""

    size_bytes: int
    turn: asyncio.Future[None]
    is_urgent: Callable[[], bool]


class ByteBudget:
    """The limit, who holds what, and who waits."""

    def __init__(self, limit_bytes: int, clock: Clock) -> None:
        """An empty budget.

        Args:
            limit_bytes: > 0.
            clock: measures how long nothing moved.
        """
        self._limit = limit_bytes
        self._clock = clock
        self._used = 0
        self._peak = 0
        self._waiting: deque[_Entry] = deque()
        self._moved_at = clock.monotonic()
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)

    @property
    def used_bytes(self) -> int:
        """Reserved at this moment."""
        return self._used

    def take_peak_bytes(self) -> int:
        """The most that was reserved at once since the last call."""
        peak, self._peak = max(self._peak, self._used), self._used
        return peak

    def expected_bytes(self) -> int:
        """What an answer for a shard without history is expected to take."""
        return max(self._recent, default=LARGEST_ANSWER_BYTES)

    def remember(self, size_bytes: int) -> None:
        """Note the size of an answer."""
        self._recent.append(max(SMALLEST_ANSWER_BYTES, size_bytes))

    async def reserve(
        self, size_bytes: int, *, is_urgent: Callable[[], bool] = lambda: True
    ) -> Reservation:
        """Wait for room.

        Args:
            size_bytes: > 0; more than the limit is granted when nothing else is reserved.
            is_urgent: asked while waiting; False = only for reading ahead, nobody misses it yet.

        Cancellation: nothing is reserved.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = _Entry(size_bytes, turn, is_urgent)
        self._waiting.append(entry)
        self.look_again()
        if not turn.done():
            await self._turn(entry)
        return Reservation(self, size_bytes)

    def move(self, change_bytes: int) -> None:
        """Account for a change and let in whoever fits now; called by reservations."""
        self._used += change_bytes
        self._peak = max(self._peak, self._used)
        self._moved_at = self._clock.monotonic()
        self.look_again()

    def look_again(self) -> None:
        """Let in whoever fits now; call it when somebody who waits has become urgent."""
        while (entry := self._next()) is not None and self._fits(entry.size_bytes):
            self._let_in(entry)

    def _next(self) -> _Entry | None:
        """Whose turn it is: the first urgent one, else the first."""
        if not self._waiting:
            return None
        return next((one for one in self._waiting if one.is_urgent()), self._waiting[0])

    def _fits(self, size_bytes: int) -> bool:
        return self._used == 0 or self._used + size_bytes <= self._limit

    def _let_in(self, entry: _Entry) -> None:
        self._waiting.remove(entry)
        self._used += entry.size_bytes
        self._peak = max(self._peak, self._used)
        self._moved_at = self._clock.monotonic()
        entry.turn.set_result(None)

    async def _turn(self, entry: _Entry) -> None:
        try:
            while not entry.turn.done():
                await self._wait_or_stall(entry)
        except asyncio.CancelledError:
            if entry.turn.done():
                self.move(-entry.size_bytes)
            else:
                self._waiting.remove(entry)
                self.move(0)  # the next in line may fit where this one did not
            raise

    async def _wait_or_stall(self, entry: _Entry) -> None:
        try:
            async with asyncio.timeout(STALL_S):
                await asyncio.shield(entry.turn)
        except TimeoutError:
            stalled_s = self._clock.monotonic() - self._moved_at
            if stalled_s >= STALL_S and self._next() is entry and entry.is_urgent():
                log.warning(
                    "Nothing was delivered for %.0f s while %d bytes wait for their children; "
                    "reading on beyond the memory budget",
                    stalled_s,
                    self._used,
                )
                self._let_in(entry)
