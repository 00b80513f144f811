"""When a call is tried again, and when who is asked is left alone: pauses, misses, outages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

#: 2**30 seconds exceed every cap; the exponent stops here so that it can't overflow a float.
_MAX_EXPONENT = 30


def backoff_s(attempt: int, rng: random.Random, *, first_s: float, cap_s: float) -> float:
    """Pause after a failed try: doubling, at most ``cap_s``, of which the upper half is random.

    The random half keeps many workers that failed together from coming back together; the fixed
    half keeps a worker from hammering.

    Args:
        attempt: how many tries failed before this one, from 0.
        first_s: upper bound of the first pause, > 0.
        cap_s: upper bound of all pauses, >= ``first_s``.

    Returns:
        Seconds in ``[d/2, d]`` with ``d = min(cap_s, first_s * 2**attempt)``.
    """
    longest = min(cap_s, first_s * 2.0 ** min(attempt, _MAX_EXPONENT))
    return float(longest * (0.5 + rng.random() / 2))


class MissLimit:
    """A bucket of questions that may stay without an answer; questions that find something are free.

    Any record may name a version that does not exist: each is a call, so a stream of random bytes
    could be a call a record.

    Args:
        burst: misses at a time, >= 1.
        interval_s: one more every so many seconds, > 0.
    """

    def __init__(self, burst: int, interval_s: float) -> None:
        self._burst = burst
        self._interval_s = interval_s
        self._left = float(burst)
        self._at: float | None = None

    def spend(self, now: float) -> bool:
        """Spend one question; False when there were too many misses; ``now`` never goes back."""
        passed_s = 0.0 if self._at is None else now - self._at
        self._at = now
        self._left = min(self._burst, self._left + passed_s / self._interval_s)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """The question was no miss."""
        self._left = min(self._burst, self._left + 1)


class Outage:
    """Keeps a registry that does not answer from being waited for again and again.

    Args:
        first_s: nobody asks for so long after the first failure; doubles with each further one.
        longest_s: at most so long.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._next_s = first_s
        self._until: float | None = None

    def lasts(self, now: float) -> bool:
        """Whether asking is pointless now."""
        return self._until is not None and now < self._until

    def failed(self, now: float) -> None:
        """No answer came; questions that were asked together count once."""
        if not self.lasts(now):
            self._until = now + self._next_s
            self._next_s = min(self._longest_s, 2 * self._next_s)

    def answered(self) -> None:
        """It answers again."""
        self._until = None
        self._next_s = self._first_s
