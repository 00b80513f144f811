"""Few children start at a time, those of the shards that are furthest behind first.

A worker that gets hundreds of shards at once would start a child for each at once. They would share
the processors with the worker, which stands still while the kernel makes a process, and renewals
would come too late. A lease whose child waits here is held and renewed like any other.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mld.decide.children.lifecycle import start_order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mld.model.sequence import ExtendedSequenceNumber

#: Children that start at a time.
PLACES = 8
#: A child that takes longer waits for something, and makes room for the next one.
START_S = 0.5


class ChildStarts:
    """Shared by all consumers of a worker. Use: ``async with starts.place(position): ...``."""

    def __init__(self, in_time: asyncio.Event) -> None:
        """All places are free.

        Args:
            in_time: cleared while renewals are late; no child starts then.
        """
        self._in_time = in_time
        self._numbers = itertools.count()
        self._waiting: list[
            tuple[tuple[bool, tuple[int, int, int]], int, asyncio.Future[None]]
        ] = []
        self._taken: dict[asyncio.Future[None], asyncio.TimerHandle | None] = {}

    @asynccontextmanager
    async def place(self, position: ExtendedSequenceNumber) -> AsyncIterator[None]:
        """Wait for a place, and give it back at the end.

        It is given to another one after :data:`START_S`, whether or not the end has come.

        Args:
            position: where the child is to begin; see :func:`start_order`.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (start_order(position), next(self._numbers), turn))
        self._let_in()
        try:
            await turn
            await self._in_time.wait()
            if turn in self._taken:
                self._taken[turn] = loop.call_later(START_S, self._give_back, turn)
            yield
        finally:
            turn.cancel()
            self._give_back(turn)

    def _let_in(self) -> None:
        while self._waiting and len(self._taken) < PLACES:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # else who waited has given up
                self._taken[turn] = None
                turn.set_result(None)

    def _give_back(self, turn: asyncio.Future[None]) -> None:
        if turn in self._taken:
            timer = self._taken.pop(turn)
            if timer is not None:
                timer.cancel()
            self._let_in()
