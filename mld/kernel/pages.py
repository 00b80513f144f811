"""Lists that come in pages must end some time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.errors import UnknownOutcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

#: Of one list: a lease table of 10 GB, or ten million shards. Each page may name another place to go
#: on, so that nothing but their number tells that something on the way to AWS makes them up.
MOST_PAGES = 10_000


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
