"""Time and ids under the test's control."""

from __future__ import annotations

import asyncio

from kcl_mld.kernel.ports import Clock


class FakeClock(Clock):
    """Stands still until it is told to move; ``ahead`` is what :meth:`ahead_s` answers."""

    def __init__(self, now: float = 1000.0, epoch: float = 1_700_000_000.0) -> None:
        self.now = now
        self.epoch = epoch
        self.ahead: float | None = None

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.epoch

    def ahead_s(self) -> float | None:
        return self.ahead

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.epoch += seconds


class LoopClock(Clock):
    """The time of the running event loop; virtual in ``tests.sim.loop.run``."""

    def __init__(self, epoch: float = 1_700_000_000.0) -> None:
        self.epoch = epoch
        self.ahead: float | None = None

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.epoch + self.monotonic()

    def ahead_s(self) -> float | None:
        return self.ahead


class CountingIds:
    """``prefix-1``, ``prefix-2``, …"""

    def __init__(self, prefix: str = "id") -> None:
        self.prefix = prefix
        self.count = 0

    def new_id(self) -> str:
        self.count += 1
        return f"{self.prefix}-{self.count}"
