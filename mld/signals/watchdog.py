"""Watches the event loop itself: a loop that is late renews late, and that loses leases."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.signals.model.metrics import LOOP_LATENESS

if TYPE_CHECKING:
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.signals")

#: How often the loop is asked for a sign of life.
TICK_S = 0.5
#: Lateness that is worth a line in the log: a sixth of the default renewal period.
WARN_S = 0.5


class LoopWatchdog:
    """Sleeps, and measures how late it is woken."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._last_tick: float | None = None

    def is_alive(self) -> bool:
        """True while the loop has ticked within the last five seconds; and before :meth:`run`.

        While the worker starts nothing ticks, but a loop that is blocked answers nobody anyway.
        """
        return self._last_tick is None or self._clock.monotonic() - self._last_tick < 5.0

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            before = self._clock.monotonic()
            await asyncio.sleep(TICK_S)
            self._last_tick = now = self._clock.monotonic()
            late_s = now - before - TICK_S
            if late_s > WARN_S:
                log.warning("The event loop was blocked for %.2f s", late_s)
                self._metrics.add(LOOP_LATENESS, late_s)
