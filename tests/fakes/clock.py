"""Time and ids under the test's control."""

from __future__ import annotations

import asyncio


class FakeClock:
    """Stands still until it is told to move."""

    def __init__(self, now: float = 1000.0, epoch: float = 1_700_000_000.0) -> None:
        self.now = now
        self.epoch = epoch

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.epoch

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.epoch += seconds


class LoopClock:
    """The time of the running event loop; virtual in ``tests.sim.loop.run``."""

    def __init__(self, epoch: float = 1_700_000_000.0) -> None:
        self.epoch = epoch

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.epoch + self.monotonic()


class CountingIds:
    """``prefix-1``, ``prefix-2``, …"""

    def __init__(self, prefix: str = "id") -> None:
        self.prefix = prefix
        self.count = 0

    def new_id(self) -> str:
        self.count += 1
        return f"{self.prefix}-{self.count}"
