"""Who does the fleet's common work: a shuffle that every worker computes alike.

All workers of a 2.x fleet draw the same order from the same set of lease owners, so they agree
without talking. The draw is Java's, bit for bit: ``java.util.Random`` seeded with 1947 drives
``Collections.shuffle``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Source: DeterministicShuffleShardSyncLeaderDecider.java:49 (3.5.1).
SEED = 1947

_MULTIPLIER = 0x5DEECE66D
_INCREMENT = 0xB
_STATE_MASK = 2**48 - 1


class JavaRandom:
    """``java.util.Random``: the same numbers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & _STATE_MASK

    def _next_31(self) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & _STATE_MASK
        return self._state >> 17

    def next_int(self, bound: int) -> int:
        """A number in ``0 .. bound-1``.

        Args:
            bound: 1 to 2**31 - 1.
        """
        drawn = self._next_31()
        if bound & (bound - 1) == 0:
            return (bound * drawn) >> 31
        # Java draws again where its int arithmetic would overflow, so that all numbers are as likely.
        while drawn - drawn % bound + bound - 1 >= 2**31:
            drawn = self._next_31()
        return drawn % bound


def leader_of(owners: Iterable[str | None]) -> str | None:
    """The worker that leads a fleet.

    Args:
        owners: ``leaseOwner`` of every lease, expired ones included; repetitions and None are
            allowed and don't matter.

    Returns:
        A worker id, or None when no lease has an owner: then every worker leads.

    Source: DeterministicShuffleShardSyncLeaderDecider.electLeaders and isLeader.
    """
    # Java orders strings by UTF-16 code unit, Python by code point.
    order = sorted(
        {owner for owner in owners if owner is not None},
        key=lambda owner: owner.encode("utf-16-be", "surrogatepass"),
    )
    chance = JavaRandom(SEED)
    for size in range(len(order), 1, -1):
        other = chance.next_int(size)
        order[size - 1], order[other] = order[other], order[size - 1]
    return order[0] if order else None
