"""The machine's clocks and its randomness, behind the ports Clock and IdSource."""

from __future__ import annotations

import time
import uuid


class SystemClock:
    """Both clocks of this machine; satisfies :class:`mld.ports.clock.Clock`."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC, the same that the event loop waits by."""
        return time.monotonic()

    def wall(self) -> float:
        """Epoch seconds."""
        return time.time()


class RandomIds:
    """Random UUIDs; satisfies :class:`mld.ports.clock.IdSource`."""

    def new_id(self) -> str:
        """A fresh UUID, e.g. ``2c0b1c0e-7f0e-4a63-8d7e-0d1f5a3b9c55``."""
        return str(uuid.uuid4())
