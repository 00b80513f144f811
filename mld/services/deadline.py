"""One budget of time, made at the signal and spent by every step of the stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.ports.clock import Clock


class Deadline:
    """A point in monotonic time that steps share instead of adding up their own time-outs."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        """Start it now.

        Args:
            clock: what measures it.
            seconds: length from now, >= 0.
        """
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._at - self._clock.monotonic())

    @property
    def has_passed(self) -> bool:
        """True when nothing is left."""
        return self.remaining_s() <= 0.0

    def shorten(self, seconds: float) -> None:
        """End it at most so many seconds from now."""
        self._at = min(self._at, self._clock.monotonic() + seconds)
