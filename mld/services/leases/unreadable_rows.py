"""Rows of the lease table that look like leases and can't be read: nobody reads their shards.

Each is said when it is met and when it is mended; while there are any, one line a minute repeats
it, ``/readyz`` answers 503, and a metric counts them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.readiness import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics
    from mld.services.conditions import Conditions

log = logging.getLogger(__name__)

#: Distance of two lines about rows that stay unreadable.
REPEAT_S = 60.0
#: So many rows are named in such a line.
NAMED = 3


class UnreadableRows:
    """Told of every scan; one per worker."""

    def __init__(
        self, table_name: str, conditions: Conditions, clock: Clock, metrics: Metrics
    ) -> None:
        """All rows can be read so far.

        Args:
            table_name: of the lease table.
            conditions: for ``/readyz``.
            clock: measures the distance of two lines.
            metrics: gets ``UnreadableLeases`` of ``TakeLeases`` at every scan that meets one, and
                a last zero.
        """
        self._table_name = table_name
        self._conditions = conditions
        self._clock = clock
        self._metrics = metrics
        self._known: dict[str, str] = {}
        self._said_at = 0.0

    def note(self, broken: Iterable[tuple[str, str]]) -> None:
        """Look at what a scan could not read.

        Args:
            broken: (lease key, why), sorted.
        """
        rows, before = dict(broken), self._known
        self._known = rows
        if rows or before:
            self._metrics.add("TakeLeases", "UnreadableLeases", len(rows), worker=True)
        for key in sorted(before.keys() - rows.keys()):
            log.warning("The row %s of %s can be read again, or is gone", key, self._table_name)
        now = self._clock.monotonic()
        for key, why in rows.items():
            if before.get(key) != why:
                log.error("The row %s of %s can't be read: %s", key, self._table_name, why)
                self._said_at = now
        if not rows:
            self._conditions.clear(Reason.UNREADABLE_ROWS)
            return
        message = self._message(rows)
        self._conditions.report(Reason.UNREADABLE_ROWS, message)
        if now - self._said_at >= REPEAT_S:
            log.error("%s", message)
            self._said_at = now

    def _message(self, rows: dict[str, str]) -> str:
        named = "; ".join(f"{key}: {why}" for key, why in list(rows.items())[:NAMED])
        more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        return (
            f"{count} of the lease table {self._table_name} can't be read, so nobody may be "
            f"reading their shards. Repair or delete them ({named}{more})"
        )
