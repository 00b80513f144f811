"""One budget of bytes for all shards of the process, reserved before records are received.

Java buffers up to 28 MB per shard, whatever the number of shards. Here, answers in transit, answers
that wait for delivery, and lines being written share one limit. The size of an answer is unknown
before it arrives. So a publisher holds a :class:`BudgetShare`, which it fills before it receives
anything, and from which it takes the size of each answer.

Order: shards whose child waits for data come before shards that read ahead, each in the order of
their requests. A request that does not fit may be overtaken by smaller ones, for ``PATIENCE_S`` at
most: then all others wait for it.

Slow and stuck children: if a child has taken nothing for ``SLOW_S``, its shard's read-ahead is
dropped as soon as others need the room, and fetched again when the child continues. The line in a
pipe that is not read can't be dropped: after ``STUCK_S`` it no longer counts for shards whose child
waits for data. So the process holds at most the limit (or one answer) plus one line for each child
that has stopped reading; making the others wait would not make those lines smaller. Read-ahead is
never granted beyond the limit.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.retrieval.rules.polling import LARGEST_ANSWER_BYTES, SMALLEST_ANSWER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcl_mld.kernel.ports import Clock

#: Seconds between two checks whether the burst is over.
TRIM_LOOK_S = 30.0
#: Bytes that must have been in use at once for the heap to be worth trimming, and bytes that count
#: as little again.
BURST_BYTES = 4 * 2**20
log = logging.getLogger("mld.retrieval")
#: If a child has taken nothing for this many seconds, its shard does not read ahead while memory is
#: short.
SLOW_S = 2.0
#: A child that has taken nothing for this many seconds has probably stopped reading.
STUCK_S = 5.0
#: Seconds for which a request that does not fit may be overtaken by later ones that do.
PATIENCE_S = 2.0
#: After this many seconds without any reservation granted or returned, a shard whose child waits
#: for data is admitted in any case: publishers that receive nothing may hold the shares.
STALL_S = 5.0
#: Seconds between two checks for stuck children while a request waits.
LOOK_S = 1.0
#: Seconds between two checks for slow or stuck children while there are none: a check visits every
#: shard, and many shards may wait.
LOOK_FOR_SLOW_S = 0.1
#: Seconds between two warnings about stuck children.
_WARN_EVERY_S = 60.0
#: Number of the process's answers from which the size of a shard's first answer is estimated.
_REMEMBERED = 8


class BudgetShare:
    """What one publisher may receive before it refills, and the reservations made of it.

    A publisher that polls refills before each request, spends the size of the answer, and returns
    the rest. One whose records are pushed refills, spends on each event as it arrives, and refills
    before it receives more.
    """

    def __init__(
        self,
        budget: ByteBudget,
        is_awaited: Callable[[], bool],
        drop_read_ahead: Callable[[], None],
        now: float,
    ) -> None:
        """Create an empty share; called by :meth:`ByteBudget.share` only."""
        self._budget = budget
        self.is_awaited = is_awaited
        self.drop_read_ahead = drop_read_ahead
        self._unspent = 0
        self._held = 0
        self._served_at = now

    @property
    def held_bytes(self) -> int:
        """The unspent bytes, and all reservations made of the share."""
        return self._held

    async def refill(self, size_bytes: int) -> None:
        """Wait until the share has this many bytes, and keep no more than that.

        What an event leaves of a large share is returned: a publisher that receives little would
        hold it forever. While it waits it holds none, so that publishers with small shares never
        wait for each other.

        Args:
            size_bytes: > 0; more than the limit is granted when nothing else is reserved.

        Cancellation: the share is empty.
        """
        if self._unspent < size_bytes:
            self.give_back()
            await self._budget.admit(self, size_bytes)
            self._unspent = size_bytes
        elif excess := self._unspent - size_bytes:
            self._unspent = size_bytes
            self.hold(-excess)

    def spend(self, size_bytes: int) -> Reservation:
        """Turn a part of the share into the reservation of received bytes; never waits.

        Args:
            size_bytes: > 0; bytes beyond the share, and beyond the limit, are counted, too, because
                they have already been received.
        """
        covered = min(self._unspent, size_bytes)
        self._unspent -= covered
        if size_bytes > covered:
            self.hold(size_bytes - covered)
        return Reservation(self, size_bytes)

    def give_back(self) -> None:
        """Return the unspent bytes; may be called again."""
        unspent, self._unspent = self._unspent, 0
        if unspent:
            self.hold(-unspent)

    def served(self) -> None:
        """The consumer took a batch, or waited for one: its child makes progress."""
        self._served_at = self._budget.now()

    def hold(self, change_bytes: int) -> None:
        """Account for a change of the held bytes; called by reservations and the budget."""
        self._held += change_bytes
        self._budget.move(self, change_bytes)

    def is_unserved(self, since_s: float) -> bool:
        """Whether its consumer has not requested a batch for this many seconds."""
        return self._budget.now() - self._served_at >= since_s and not self.is_awaited()


class Reservation:
    """Bytes taken from a budget; give them back with :meth:`release`."""

    def __init__(self, share: BudgetShare, size_bytes: int) -> None:
        """Create a reservation; called by :meth:`BudgetShare.spend` only."""
        self._share = share
        self.size_bytes = size_bytes

    def resize(self, size_bytes: int) -> None:
        """Correct the size to the actual one; never waits, may exceed the limit."""
        change, self.size_bytes = size_bytes - self.size_bytes, size_bytes
        self._share.hold(change)

    def release(self) -> None:
        """Return everything; may be called again."""
        self.resize(0)


@dataclass(eq=False, slots=True)
class _Request:
    """A share that waits for room."""

    share: BudgetShare
    size_bytes: int
    asked_at: float
    turn: asyncio.Future[None]


class ByteBudget:
    """The limit, the size of each share, and the waiting shares.

    Args:
        limit_bytes: > 0.
    """

    def __init__(self, limit_bytes: int, clock: Clock) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._used = 0
        self._peak = 0
        self._holders: dict[BudgetShare, None] = {}
        self._waiting: deque[_Request] = deque()
        #: Size of the smallest waiting request, or less.
        self._least = 0
        self._looks_for_slow_at = -math.inf
        self._is_looking = False
        self._timer: asyncio.TimerHandle | None = None
        self._moved_at = clock.monotonic()
        self._warned_at = -math.inf
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)

    @property
    def used_bytes(self) -> int:
        """Reserved at this moment."""
        return self._used

    def pop_peak_bytes(self) -> int:
        """The most that was reserved at once since the last call."""
        peak, self._peak = max(self._peak, self._used), self._used
        return peak

    def expected_bytes(self) -> int:
        """Expected size of an answer for a shard without history."""
        return max(self._recent, default=LARGEST_ANSWER_BYTES)

    def remember(self, size_bytes: int) -> None:
        """Note the size of an answer."""
        self._recent.append(max(SMALLEST_ANSWER_BYTES, size_bytes))

    def now(self) -> float:
        """Reading of the monotonic clock."""
        return self._clock.monotonic()

    # -- for publishers and their shares ------------------------------------------------------

    def share(
        self,
        *,
        is_awaited: Callable[[], bool],
        drop_read_ahead: Callable[[], None] = lambda: None,
    ) -> BudgetShare:
        """An empty share for one publisher.

        Args:
            is_awaited: whether its consumer has no data and waits; otherwise the publisher only
                reads ahead.
            drop_read_ahead: called when others need the memory and the consumer has taken nothing
                for ``SLOW_S``: release batches that were not handed out, and fetch them again when
                the consumer waits for them. May be called repeatedly.
        """
        return BudgetShare(self, is_awaited, drop_read_ahead, self.now())

    async def admit(self, share: BudgetShare, size_bytes: int) -> None:
        """Wait for room and take it; called by shares.

        Cancellation: no bytes are taken.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = _Request(share, size_bytes, self.now(), turn)
        self._least = min(self._least, size_bytes) if self._waiting else size_bytes
        self._waiting.append(request)
        self.look_again()
        self._look_later()
        try:
            await turn
        except asyncio.CancelledError:
            if request in self._waiting:
                self._waiting.remove(request)
                self.look_again()  # the next in line may fit where this one did not
            else:
                share.hold(-size_bytes)
            raise

    def move(self, share: BudgetShare, change_bytes: int) -> None:
        """Count a change and admit waiting shares that fit now; called by shares."""
        if share.held_bytes:
            self._holders[share] = None
        else:
            self._holders.pop(share, None)
        self._used += change_bytes
        self._peak = max(self._peak, self._used)
        self._moved_at = self.now()
        self.look_again()

    def look_again(self) -> None:
        """Admit waiting shares that fit now; call it when one of them has become urgent."""
        if self._is_looking or not self._waiting or not self._may_any_fit():
            return
        self._is_looking = True  # granting and returning moves bytes, too
        try:
            self._let_in_all()
        finally:
            self._is_looking = False

    # -- who is let in -------------------------------------------------------------------------

    def _in_turn(self) -> Iterator[_Request]:
        """Requests whose child waits, then those that read ahead, each in the order of arrival."""
        asked = tuple(self._waiting)
        for is_urgent in (True, False):
            for request in asked:
                if not request.turn.done() and request.share.is_awaited() is is_urgent:
                    yield request

    def _may_any_fit(self) -> bool:
        """Whether a request may fit; a cheap check, as hundreds may wait for every change."""
        has_room = self._used == 0 or self._used + self._least <= self._limit
        return has_room or self.now() >= self._looks_for_slow_at

    def _let_in_all(self) -> None:
        now = self.now()
        looks_for_slow = now >= self._looks_for_slow_at
        if looks_for_slow and not self._unserved(SLOW_S):
            looks_for_slow, self._looks_for_slow_at = False, now + LOOK_FOR_SLOW_S
        too_much = math.inf  # what did not fit, a larger one does not fit either
        for request in self._in_turn():
            if request.size_bytes < too_much and self._fits(request, looks_for_slow=looks_for_slow):
                self._let_in(request)
                continue
            too_much = min(too_much, request.size_bytes)
            if too_much <= self._least or now - request.asked_at >= PATIENCE_S:
                return

    def _fits(self, request: _Request, *, looks_for_slow: bool) -> bool:
        size = request.size_bytes
        if self._used == 0 or self._used + size <= self._limit:
            return True
        if not looks_for_slow:
            return False
        if not request.share.is_unserved(SLOW_S) and self._reclaim(size):
            return True
        if not request.share.is_awaited():
            return False
        stuck = sum(share.held_bytes for share in self._unserved(STUCK_S))
        moving = self._used - stuck
        fits = moving == 0 or moving + size <= self._limit
        if fits:
            self._warn()
        return fits

    def _unserved(self, since_s: float) -> list[BudgetShare]:
        return [share for share in self._holders if share.is_unserved(since_s)]

    def _reclaim(self, size_bytes: int) -> bool:
        """Drop read-ahead of slow children; returns whether that makes enough room."""
        for share in self._unserved(SLOW_S):
            share.drop_read_ahead()
            if self._used + size_bytes <= self._limit:
                return True
        return False

    def _let_in(self, request: _Request) -> None:
        self._waiting.remove(request)
        request.share.hold(request.size_bytes)
        request.turn.set_result(None)

    # -- the time that passes ------------------------------------------------------------------

    def _look_later(self) -> None:
        """While requests wait, children may get stuck without any other event."""
        if self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(LOOK_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.look_again()
        if self.now() - self._moved_at >= STALL_S:
            # Perhaps none: a request that is being cancelled no longer waits, and is removed a
            # moment later.
            for request in itertools.islice(self._in_turn(), 1):
                if request.share.is_awaited():
                    self._warn()
                    self._let_in(request)
        self._look_later()

    def _warn(self) -> None:
        now = self.now()
        if now - self._warned_at < _WARN_EVERY_S:
            return
        self._warned_at = now
        stuck = self._unserved(STUCK_S)
        log.warning(
            "%d bytes of records are held in memory, %d of them for %d children that have read"
            " nothing for %.0f s or longer; other shards may exceed the budget of %d bytes",
            self._used,
            sum(share.held_bytes for share in stuck),
            len(stuck),
            STUCK_S,
            self._limit,
        )


class MemoryReturn:
    """Watches the byte budget; trims the heap after a burst.

    Args:
        release: returns free memory to the system; takes milliseconds.
    """

    def __init__(self, budget: ByteBudget, release: Callable[[], object]) -> None:
        self._budget = budget
        self._release = release
        self._had_burst = False

    def look(self) -> bool:
        """Note a burst, or trim after one; True when memory was returned."""
        peak = self._budget.pop_peak_bytes()
        self._had_burst = self._had_burst or peak >= BURST_BYTES
        if not self._had_burst or self._budget.used_bytes >= BURST_BYTES:
            return False
        self._had_burst = False
        self._release()
        log.debug("Returned free memory to the system")
        return True

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            await asyncio.sleep(TRIM_LOOK_S)
            self.look()
