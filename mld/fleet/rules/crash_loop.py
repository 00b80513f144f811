"""Whether workers fail repeatedly soon after their start; newcomers then wait for their leases.

A program that crashes soon after each start leaves its share of the shards unread each time. A
crash is a life of under a minute that ends by its own failure. There are two signs of it: the item
that a process leaves when it fails (:mod:`kcl_mld.fleet.model.worker_life`), and a worker that stops
renewing soon after its start. A process that is asked to stop leaves no such item, whatever its
age.

If all processes failed at one lease, at the same position, that lease is the cause: each next owner
fails, too. So no newcomer waits, and the lease is reported.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_life import SILENT
from kcl_mld.leases.rules.newcomers import MOST_WAIT_S, QUIET_S, SOON_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kcl_mld.fleet.model.worker_life import FailedLife

#: Items of failed lives that stay in the table: more do not make a worker wait longer.
MOST_LIVES = 20

#: Number of processes that are remembered as not new.
_MOST_KNOWN = 200


@dataclass(frozen=True, slots=True)
class CrashLoop:
    """The observations so far.

    Attributes:
        crashes: times that workers failed soon after they began, without a quiet time in between.
        crashed_at: reading of the monotonic clock at the last sign of a crash.
        lives: of the processes that left an item since the last quiet time, and of those that left
            none and were counted, the latest last; long ones among them.
        left_at: reading at the scan that showed the last of them first.
        unexplained: of the crashes, those of workers that left nothing themselves.
        known: ids of processes whose end is nothing new.
    """

    crashes: int = 0
    crashed_at: float = -math.inf
    lives: tuple[FailedLife, ...] = ()
    left_at: float = -math.inf
    unexplained: int = 0
    known: tuple[str, ...] = ()

    def wait_s(self, failover_s: float) -> float:
        """How long a newcomer has to live until it gets leases, in seconds; 0 = it gets them at once.

        Args:
            failover_s: the time after the first crash; twice as long after each further one.
        """
        if not self.crashes or self.poisoned() is not None:
            return 0.0
        return min(failover_s * 2.0 ** min(self.crashes - 1, 20), MOST_WAIT_S)

    def soon_s(self, failover_s: float) -> float:
        """Greatest length of a short life, in seconds."""
        return SOON_S + self.wait_s(failover_s)

    def died(
        self, instances: Collection[str], now: float, lives: Iterable[FailedLife]
    ) -> CrashLoop:
        """Workers stopped renewing soon after they began.

        Those that die together have one cause, perhaps a table that did not answer. One of them
        stands for all.

        Args:
            instances: ids of their processes; of those that left an item nothing new is learned.
            now: reading of the monotonic clock.
            lives: those of them that have an id of their own.
        """
        new = [one for one in instances if one not in self.known]
        if not new:
            return self
        found = [one for one in lives if one.instance in new][:1]
        return replace(
            self,
            crashes=self.crashes + 1,
            unexplained=self.unexplained + 1,
            crashed_at=now,
            lives=(*self.lives, *found)[-_MOST_KNOWN:],
            left_at=now if found else self.left_at,
            known=(*self.known, *new)[-_MOST_KNOWN:],
        )

    def still(self, now: float) -> CrashLoop:
        """A sign that workers still crash, but none of a crash that did harm."""
        return replace(self, crashed_at=now) if self.crashes else self

    def seen(
        self, found: Iterable[FailedLife], now: float, failover_s: float, *, is_first: bool
    ) -> CrashLoop:
        """After a scan.

        Args:
            found: of all items that the table has, the latest last.
            now: reading of the monotonic clock.
            is_first: nothing was known before: all of them count. Else those that appear at one
                look count once, and those at a lease that others failed at, at the same position,
                do not count again.
        """
        new = [one for one in found if one.instance not in self.known]
        if not new:
            return self
        after, counted = self, 0
        places = {_place(one) for one in self.lives}
        for one in new:
            is_counted = counted > 0 and not is_first
            is_elsewhere = one.lease_key is None or _place(one) not in places
            if is_elsewhere and not is_counted and one.lived_s <= after.soon_s(failover_s):
                counted += 1
                after = replace(after, crashes=after.crashes + 1, crashed_at=now)
            places.add(_place(one))
        after = replace(after, lives=(*self.lives, *new)[-_MOST_KNOWN:], left_at=now)
        known = (*self.known, *(one.instance for one in new))[-_MOST_KNOWN:]
        return replace(after, known=known)

    def quiet(self, now: float) -> CrashLoop:
        """The same, or without crashes that are over after a quiet period."""
        if now - self.crashed_at <= QUIET_S:
            return self
        lives = self.lives if now - self.left_at <= QUIET_S else ()
        return replace(self, crashes=0, unexplained=0, lives=lives)

    def outdated(self, found: Iterable[FailedLife]) -> tuple[FailedLife, ...]:
        """Items that are to be deleted, of those in the table.

        Args:
            found: the latest last.
        """
        current = {one.instance for one in self.lives[-MOST_LIVES:]}
        return tuple(one for one in found if one.instance not in current)

    def unnoted(self, found: Iterable[FailedLife]) -> tuple[FailedLife, ...]:
        """Lives that are to get an item: of processes that were seen to die, and left none.

        Args:
            found: those in the table.
        """
        there = {one.instance for one in found}
        return tuple(
            one
            for one in self.lives[-MOST_LIVES:]
            if one.why == SILENT and one.instance not in there
        )

    def has_failed(self, worker_id: str, instance: str | None) -> bool:
        """True for the id of a worker under which a process failed, other than the one given."""
        return any(one.worker_id == worker_id and one.instance != instance for one in self.lives)

    def poisoned(self) -> FailedLife | None:
        """The last of several lives that failed, if all failed at one lease and position."""
        return None if self.unexplained else poisoned(self.lives)


def poisoned(lives: Sequence[FailedLife]) -> FailedLife | None:
    """The last of two and more lives, if all failed at one lease and position.

    Args:
        lives: the latest last.
    """
    if len(lives) < 2 or lives[-1].lease_key is None:
        return None
    return lives[-1] if len({_place(one) for one in lives}) == 1 else None


def _place(life: FailedLife) -> tuple[str | None, str | None]:
    return (life.lease_key, life.position)
