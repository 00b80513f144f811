"""Taking bytes from a budget in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.retrieval.byte_budget import ByteBudget, Reservation


async def reserve(
    budget: ByteBudget, size_bytes: int, is_awaited: Callable[[], bool] = lambda: True
) -> Reservation:
    """Fill a new share and spend it."""
    share = budget.share(is_awaited=is_awaited)
    await share.refill(size_bytes)
    return share.spend(size_bytes)
