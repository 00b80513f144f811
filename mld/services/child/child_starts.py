"""Few children start at a time.

A worker that gets hundreds of shards at once would start a child for each at once. They would share
the processors with the worker, which stands still while the kernel makes a process, and renewals
would come too late: on two busy cores 12 of 300 leases were lost.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mld.services.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mld.ports.clock import Clock

#: Children that start at a time.
PLACES = 8
#: A child that takes longer waits for something, and makes room for the next one.
START_S = 0.5


class ChildStarts:
    """Shared by all consumers of a worker. Use: ``async with starts.place(): ...``."""

    def __init__(self, clock: Clock) -> None:
        """All places are free."""
        self._clock = clock
        self._turn = asyncio.Lock()
        self._freed = Wakeup()
        self._began: dict[object, float] = {}

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, in the order of calls, and give it back at the end.

        It is given to another one after :data:`START_S`, whether or not the end has come.
        """
        child = object()
        async with self._turn:
            while len(self._began) >= PLACES:
                first, began = next(iter(self._began.items()))
                if not await self._freed.wait(began + START_S - self._clock.monotonic()):
                    self._began.pop(first, None)
            self._began[child] = self._clock.monotonic()
        try:
            yield
        finally:
            if self._began.pop(child, None) is not None:
                self._freed.wake()
