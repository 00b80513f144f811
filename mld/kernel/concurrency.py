"""Waking a loop, and doing many things at once, but not too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator


T = TypeVar("T")


class Wakeup:
    """Wakes one waiting loop; calls made while it is busy are remembered as one.

    For a single waiter: two loops that wait on the same signal would take each other's calls.
    """

    def __init__(self) -> None:
        self._is_called = False
        self._waiters: list[asyncio.Future[None]] = []

    def wake(self) -> None:
        """Let the current or the next :meth:`wait` return at once."""
        self._is_called = True
        for waiter in self._waiters:
            _end(waiter)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a call, then forget it.

        Args:
            timeout_s: longest wait; None = no limit; zero or less only checks.

        Returns:
            True when called, False after the timeout.
        """
        if timeout_s is not None and timeout_s <= 0:
            # Let other tasks run: a loop that only checks must not starve the event loop.
            await asyncio.sleep(0)
        elif not self._is_called:
            await self._sleep(timeout_s)
        called, self._is_called = self._is_called, False
        return called

    async def _sleep(self, timeout_s: float | None) -> None:
        """Wait for a call or the timeout; cheaper than ``asyncio.timeout`` with an event."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = None if timeout_s is None else loop.call_later(timeout_s, _end, waiter)
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            if timer is not None:
                timer.cancel()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


async def for_each(items: Iterable[T], limit: int, work: Callable[[T], Awaitable[None]]) -> None:
    """Await ``work(item)`` for every item, started in order, at most ``limit`` at a time.

    The first exception of ``work`` cancels the rest and comes out in an ExceptionGroup; work that
    may fail for one item only must catch its own.

    Args:
        items: taken one by one, when a place is free.
        limit: >= 1.
        work: called once an item.
    """
    queue = list(items)
    if not queue:
        return
    rest = iter(queue)
    async with asyncio.TaskGroup() as group:
        for _ in range(min(limit, len(queue))):
            group.create_task(_drain(rest, work))


async def _drain(rest: Iterator[T], work: Callable[[T], Awaitable[None]]) -> None:
    for item in rest:
        await work(item)
