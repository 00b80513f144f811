"""Facts that the lines of a task carry in the log, such as its shard."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Logger of what children print, and of nothing else.
CHILD_LOGGER = "mld.child"

_FACTS: ContextVar[Mapping[str, str]] = ContextVar("mld_log_facts")


def log_facts() -> dict[str, str]:
    """Those of the running task; usually none."""
    return dict(_FACTS.get({}))


@contextmanager
def logging_with(**facts: str) -> Iterator[None]:
    """Lines that are logged in the block, and by tasks started in it, carry these facts."""
    token = _FACTS.set(log_facts() | facts)
    try:
        yield
    finally:
        # A task that never ended is closed by the garbage collector, in whatever context that runs.
        with suppress(ValueError):
            _FACTS.reset(token)
