"""Reading time. Waiting is ``asyncio.sleep``: in a simulation the loop itself is virtual."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Two clocks, both in seconds."""

    def monotonic(self) -> float:
        """Never steps; for ages and deadlines. Its zero has no meaning."""
        ...

    def wall(self) -> float:
        """Epoch seconds; may step; only for what is stored, sent or shown."""
        ...


class IdSource(Protocol):
    """Where fresh ids come from."""

    def new_id(self) -> str:
        """A unique text, e.g. a random UUID."""
        ...
