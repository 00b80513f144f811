"""Lists that come in pages: they must end some time, and a throttled page is requested again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import LimitExceeded, Throttled, UnknownOutcome
from kcl_mld.kernel.rules.backoff import backoff_s

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterator, Mapping

#: Of one list: a lease table of 10 GB, or ten million shards. Each page may name another place to go
#: on, so that nothing but their number tells that something on the way to AWS makes them up.
MOST_PAGES = 10_000
#: How often a throttled page is requested again: the next read of a whole table is seconds away, and
#: a leader whose scan fails three times gives up the lead; its fleet has none for a while.
REPEATS = 3
#: Upper bounds in seconds of the pause before the first repeat, and of all of them.
FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 5.0


def page_numbers(operation: str) -> Iterator[int]:
    """0, 1, … for the pages of one list; take one before each request.

    Args:
        operation: API name, e.g. ``Scan``.

    Raises:
        UnknownOutcome: it does not end. Nothing is known of the list.
    """
    yield from range(MOST_PAGES)
    why = f"the list does not end: {MOST_PAGES} pages were read"
    raise UnknownOutcome(operation, "EndlessPages", why)


async def all_items(
    operation: str, call: Callable[..., Awaitable[dict[str, Any]]], request: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    """The items of all pages of a Scan or Query of DynamoDB.

    Args:
        operation: API name, e.g. ``Scan``.
        call: requests one page.
        request: of the first page.

    Raises:
        AwsError: a page could not be read, or the list does not end.
    """
    items: list[Mapping[str, Any]] = []
    start: dict[str, Any] = {}
    for _ in page_numbers(operation):
        page = await call(**request, **start)
        items += page.get("Items", ())
        if not page.get("LastEvaluatedKey"):
            break
        start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
    return items


def repeated(
    call: Callable[..., Awaitable[dict[str, Any]]], rng: random.Random
) -> Callable[..., Awaitable[dict[str, Any]]]:
    """The call, made again up to :data:`REPEATS` times while it is throttled."""

    async def calling(**request: Any) -> dict[str, Any]:
        for failures in range(REPEATS):
            try:
                return await call(**request)
            except (Throttled, LimitExceeded):
                pause_s = backoff_s(failures, rng, first_s=FIRST_PAUSE_S, cap_s=LAST_PAUSE_S)
            await asyncio.sleep(pause_s)
        return await call(**request)

    return calling
