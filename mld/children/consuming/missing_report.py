"""Counts and logs user records of aggregates that no child gets."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.rules.delivery import Missing

log = logging.getLogger("mld.children")

#: Shortest time between two reports of such aggregates for one shard, in seconds.
OUTSIDE_EVERY_S = 60.0


class MissingReport:
    """The report of one hold of a lease."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._clock = context.parts.runtime.clock
        self._outside: list[Missing] = []
        self._outside_at: float | None = None

    def report(self, missing: Sequence[Missing]) -> None:
        """Count them; log those that can't be read at once, the others now and then."""
        unreadable = [one for one in missing if one.why is not None]
        outside = [one for one in missing if one.why is None]
        self._context.metrics.missing(_user_records(unreadable), _user_records(outside))
        shard_id = self._context.shard_id
        if unreadable:
            log.error(
                "%s: %s in aggregated records %s can't be read and are not delivered; "
                "those around them are (%s)",
                shard_id,
                counted(_user_records(unreadable), "user record", "user records"),
                _range(unreadable),
                unreadable[0].why,
            )
        self._outside += outside
        now = self._clock.monotonic()
        if self._outside and (
            self._outside_at is None or now - self._outside_at >= OUTSIDE_EVERY_S
        ):
            log.warning(
                "%s: %s in aggregated records %s are not delivered, because their "
                "aggregates hold keys of other shards. A KPL sends them again; for other producers "
                "set aggregatedRecordsOutsideShard = deliver",
                shard_id,
                counted(_user_records(self._outside), "user record", "user records"),
                _range(self._outside),
            )
            self._outside, self._outside_at = [], now


def _user_records(missing: Sequence[Missing]) -> int:
    return sum(one.records for one in missing)


def _range(missing: Sequence[Missing]) -> str:
    first, last = missing[0].sequence_number, missing[-1].sequence_number
    return first if first == last else f"{first} to {last}"
