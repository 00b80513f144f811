"""What happened, in order: for the judges' verdict, for people, and for comparing two runs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

#: Width of one worker's column.
COLUMN = 30


class Row(NamedTuple):
    """One event.

    Attributes:
        at_s: virtual seconds.
        actor: worker name, or "" for the world.
        text: what happened.
    """

    at_s: float
    actor: str
    text: str


class Trace:
    """All rows of one run."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.rows: list[Row] = []

    def add(self, actor: str, text: str) -> None:
        """Write down one event."""
        self.rows.append(Row(self._now(), actor, text))

    def digest(self) -> str:
        """SHA-256 of everything that happened and when."""
        lines = "".join(f"{row.at_s:.6f} {row.actor} {row.text}\n" for row in self.rows)
        return hashlib.sha256(lines.encode()).hexdigest()

    def table(self, count: int = 40) -> str:
        """The last ``count`` rows, one column per actor that has a row among them."""
        rows = self.rows[-count:]
        actors = sorted({row.actor for row in rows})
        lines = ["      time " + "".join(f"{actor or 'world':<{COLUMN}}" for actor in actors)]
        for row in rows:
            indent = " " * (COLUMN * actors.index(row.actor))
            lines.append(f"{row.at_s:10.3f} {indent}{row.text}")
        return "\n".join(lines)
