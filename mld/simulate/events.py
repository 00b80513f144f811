"""The clock of the simulation: what happens next, in order."""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Events:
    """Things that will happen; those of one moment in the order in which they were planned.

    Attributes:
        now: seconds since the start.
    """

    def __init__(self) -> None:
        """Time 0, and nothing is planned."""
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        """Plan something.

        Args:
            time_s: when; not before now.
            action: what.
        """
        heapq.heappush(self._planned, (max(time_s, self.now), next(self._numbers), action))

    def run(self, until_s: float) -> None:
        """Let everything happen that is planned for times up to and including one."""
        while self._planned and self._planned[0][0] <= until_s:
            self.now, _, action = heapq.heappop(self._planned)
            action()
        self.now = until_s
