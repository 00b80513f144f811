"""A wake-up call that isn't lost when nobody is waiting yet."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes one waiting loop; calls that come while it is busy are remembered as one.

    For a single waiter: two loops that wait on the same signal would steal each other's calls.
    """

    def __init__(self) -> None:
        """Start without a call."""
        self._called = asyncio.Event()

    def wake(self) -> None:
        """Let the current or the next :meth:`wait` return at once."""
        self._called.set()

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a call, then forget it.

        Args:
            timeout_s: longest wait; None = for ever; zero or less only looks.

        Returns:
            True when called, False when the time is up.
        """
        if timeout_s is not None and timeout_s <= 0:
            # Give others a turn: a loop that only looks must not starve the event loop.
            await asyncio.sleep(0)
        elif not self._called.is_set():
            try:
                async with asyncio.timeout(timeout_s):
                    await self._called.wait()
            except TimeoutError:
                pass
        called = self._called.is_set()
        self._called.clear()
        return called
