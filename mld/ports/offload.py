"""Running CPU work away from the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


class Offload(Protocol):
    """A place for pure functions that take too long for the loop (> 1 ms)."""

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Result of ``work(*args, **kwargs)``, computed elsewhere; its exceptions come through."""
        ...
