"""Reports if this machine's clock is wrong; corrects nothing.

Adapters correct requests that AWS refuses, and :class:`kcl_mld.kernel.ports.Clock` corrects times that
others compare. The rest uses the clock of the machine: the expiry of credentials, and the validity
of certificates.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.kernel.rules.clock_offset import WRONG_S, offset_text, wrong_by_s

if TYPE_CHECKING:
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.signals")

LOOK_S = 10.0
#: Seconds between two reports; also reported when the offset has changed by a minute.
REPEAT_S = 3600.0


class ClockWatch:
    """Compares the clock with the dates of AWS's answers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported_s: float | None = None
        self._reported_at = 0.0

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            self._look()
            await asyncio.sleep(LOOK_S)

    def _look(self) -> None:
        ahead_s, now = self._clock.ahead_s(), self._clock.monotonic()
        wrong_s = wrong_by_s(ahead_s)
        if wrong_s is None:
            if self._reported_s is not None and ahead_s is not None:
                log.info("The clock of this machine is right again")
                self._reported_s = None
            return
        is_reported = self._reported_s is not None and abs(wrong_s - self._reported_s) <= WRONG_S
        if not is_reported or now - self._reported_at >= REPEAT_S:
            log.warning(
                "The clock of this machine is %s. Set it right, by NTP for example: requests are "
                "signed at AWS's time only after AWS has refused one, and credentials and "
                "certificates expire by this clock",
                offset_text(wrong_s),
            )
            self._reported_s, self._reported_at = wrong_s, now
