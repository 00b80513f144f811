"""One budget of bytes for all shards of the process, reserved before anything may come.

Java buffers up to 28 MB a shard, whatever the number of shards. Here the bytes of answers on their
way, of answers waiting for delivery and of lines being written share one limit.

Fairness: reservations are granted in the order of asking, but nobody who reads ahead keeps those
waiting whose child waits for data. Liveness: an empty budget grants any
size, and when nothing has moved for ``STALL_S`` (children that hang, holding what was fetched for
them) the longest waiting shard whose child waits for data is granted beyond the limit, so that one
hanging child never stops the others. Reading ahead is never granted beyond it.

Credit: what comes cannot be sized before it is there. A publisher therefore holds a
:class:`Credit`, which it fills before it lets anything come and spends on what came.
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


class Credit:
    """What one publisher may receive before it asks again.

    A publisher that asks for records refills before each request, spends what the answer takes,
    and gives back the rest. One whose records are pushed refills, spends on each event as it comes,
    and refills before it lets more come.
    """

    def __init__(self, budget: ByteBudget, is_awaited: Callable[[], bool]) -> None:
        """Made by :meth:`ByteBudget.credit` only; empty."""
        self._budget = budget
        self._is_awaited = is_awaited
        self._unspent = 0

    @property
    def unspent_bytes(self) -> int:
        """What may come without another :meth:`refill`."""
        return self._unspent

    async def refill(self, size_bytes: int) -> None:
        """Wait until there is credit for so many bytes.

        While it waits it holds none, so that publishers with a little each never wait for each
        other.

        Args:
            size_bytes: > 0; more than the limit is granted when nothing else is reserved.

        Cancellation: the credit is empty.
        """
        if self._unspent < size_bytes:
            self.give_back()
            await self._budget.admit(size_bytes, self._is_awaited)
            self._unspent = size_bytes

    def spend(self, size_bytes: int) -> Reservation:
        """Turn credit into the reservation of what came; never waits.

        Args:
            size_bytes: > 0; what exceeds the credit is accounted for beyond it, and beyond the
                limit, because it is there already.
        """
        covered = min(self._unspent, size_bytes)
        self._unspent -= covered
        if size_bytes > covered:
            self._budget.move(size_bytes - covered)
        return Reservation(self._budget, size_bytes)

    def give_back(self) -> None:
        """Return what was not spent; may be called again."""
        unspent, self._unspent = self._unspent, 0
        if unspent:
            self._budget.move(-unspent)


class Reservation:
    """Bytes taken from a budget; give them back with :meth:`release`."""

    def __init__(self, budget: ByteBudget, size_bytes: int) -> None:
        """Made by :meth:`Credit.spend` only."""
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
    is_awaited: Callable[[], bool]


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

    def credit(self, *, is_awaited: Callable[[], bool]) -> Credit:
        """The credit of one publisher, empty.

        Args:
            is_awaited: asked while it waits; False = it only reads ahead, nobody misses it yet.
        """
        return Credit(self, is_awaited)

    async def admit(self, size_bytes: int, is_awaited: Callable[[], bool]) -> None:
        """Wait for room and take it; called by credits.

        Cancellation: nothing is taken.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = _Entry(size_bytes, turn, is_awaited)
        self._waiting.append(entry)
        self.look_again()
        if not turn.done():
            await self._turn(entry)

    def move(self, change_bytes: int) -> None:
        """Account for a change and let in whoever fits now; called by credits and reservations."""
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
        return next((one for one in self._waiting if one.is_awaited()), self._waiting[0])

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
            if stalled_s >= STALL_S and self._next() is entry and entry.is_awaited():
                log.warning(
                    "Nothing was delivered for %.0f s while %d bytes wait for their children; "
                    "reading on beyond the memory budget",
                    stalled_s,
                    self._used,
                )
                self._let_in(entry)
