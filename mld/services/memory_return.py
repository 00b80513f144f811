"""Gives memory back after a burst: a worker that caught up should look like one that never lagged."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.services.retrieval.byte_budget import ByteBudget

log = logging.getLogger(__name__)

#: How often it is asked whether the burst is over.
LOOK_S = 30.0
#: What must have been in use at once for the heap to be worth trimming, and what is little again.
BURST_BYTES = 4 * 2**20


class MemoryReturn:
    """Watches the byte budget; trims the heap once a burst has passed."""

    def __init__(self, budget: ByteBudget, release: Callable[[], object]) -> None:
        """Watch.

        Args:
            budget: what the record path has reserved.
            release: gives free memory to the system; takes milliseconds.
        """
        self._budget = budget
        self._release = release
        self._had_burst = False

    def look(self) -> bool:
        """Note a burst, or trim after one; True when memory was given back."""
        peak = self._budget.pop_peak_bytes()
        self._had_burst = self._had_burst or peak >= BURST_BYTES
        if not self._had_burst or self._budget.used_bytes >= BURST_BYTES:
            return False
        self._had_burst = False
        self._release()
        log.debug("Returned free memory to the system")
        return True

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()
