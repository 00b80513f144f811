"""The machine's clocks and its randomness, behind the ports Clock and IdSource."""

from __future__ import annotations

import time
import uuid

#: Counts while the machine is suspended, where there is such a clock: a lease must not be believed
#: after a night's sleep because CLOCK_MONOTONIC stood still.
_AGES = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Both clocks of this machine; satisfies :class:`mld.ports.clock.Clock`."""

    def monotonic(self) -> float:
        """Seconds that never step and go on during suspension; not the event loop's zero."""
        return time.clock_gettime(_AGES)

    def wall(self) -> float:
        """Epoch seconds."""
        return time.time()


class RandomIds:
    """Random UUIDs; satisfies :class:`mld.ports.clock.IdSource`."""

    def new_id(self) -> str:
        """A fresh UUID, e.g. ``2c0b1c0e-7f0e-4a63-8d7e-0d1f5a3b9c55``."""
        return str(uuid.uuid4())
