"""Taking bytes from a budget in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.services.retrieval.byte_budget import ByteBudget, Reservation


async def reserve(
    budget: ByteBudget, size_bytes: int, is_awaited: Callable[[], bool] = lambda: True
) -> Reservation:
    """Fill a new credit and spend it."""
    credit = budget.credit(is_awaited=is_awaited)
    await credit.refill(size_bytes)
    return credit.spend(size_bytes)
