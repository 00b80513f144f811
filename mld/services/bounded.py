"""Doing many things at once, but not too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

T = TypeVar("T")


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
