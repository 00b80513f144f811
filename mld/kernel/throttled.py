"""Repeats a read of a whole table while it is throttled: its next turn is seconds away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import LimitExceeded, Throttled
from kcl_mld.kernel.rules.backoff import backoff_s

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

#: How often a throttled read is repeated. A leader whose scan fails three times gives up the lead,
#: and its fleet has none for a while.
REPEATS = 3
#: Upper bounds in seconds of the pause before the first repeat, and of all of them.
FIRST_PAUSE_S = 0.2
LAST_PAUSE_S = 5.0


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
