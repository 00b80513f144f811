"""Scans the lease table, and reports rows that can't be read, whose shards no worker processes.

Such a row is logged when it is found and when it is repaired. While there are any, one line per
minute repeats them, ``/readyz`` answers 503, and a metric counts them.
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.pages import all_items, repeated
from kcl_mld.leases.model.lease_item import is_lease_item, item_key, lease_from_item
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.model.metrics import UNREADABLE_LEASES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable, Mapping

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.config.config import LeaseConfig
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.signals.ports import Metrics

    #: Returns why no worker of this application may use these items; None = it may.
    FindConflict = Callable[[Iterable[Mapping[str, Any]]], str | None]

log = logging.getLogger("mld.leases")

#: One scan segment per so many bytes, at most 32 (LeaseTableScanSegmentResolver, 3.5.1).
SEGMENT_BYTES = 0.2 * 2**30
MAX_SEGMENTS = 32
#: Seconds between two log lines about rows that stay unreadable.
REPEAT_S = 60.0
#: Number of rows that such a line names.
NAMED = 3


@dataclass(frozen=True, slots=True)
class TableScan:
    """The result of one scan.

    Attributes:
        leases: sorted by lease key.
        foreign: items that aren't leases, by their key.
        broken: (lease key, reason) of leases that can't be read, sorted.
        conflict: why nothing may be created, taken, assigned or deleted in this table; None = all
            rows belong to this application.
        started_at: reading of ``Clock.monotonic`` before the first request.
        finished_at: reading after the last answer.
    """

    leases: tuple[Lease, ...]
    foreign: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    broken: tuple[tuple[str, str], ...] = ()
    conflict: str | None = None
    started_at: float = 0.0
    finished_at: float = 0.0

    @property
    def items(self) -> int:
        """Rows and other items of the table."""
        return len(self.leases) + len(self.foreign) + len(self.broken)


class TableScanner:
    """Scans the table; separates leases, other items, and leases that can't be read."""

    def __init__(
        self,
        dynamodb: DynamoDb,
        config: LeaseConfig,
        clock: Clock,
        rng: random.Random,
        find_conflict: FindConflict | None = None,
    ) -> None:
        """Create a scanner; without ``find_conflict``, rows of any application are accepted."""
        self._find_conflict = find_conflict
        self._dynamodb = dynamodb
        self._rng = rng
        self._config = config
        self._clock = clock
        #: The items of the last scan, by lease key: most rows don't change between scans, and
        #: comparing costs a tenth of parsing.
        self._read: dict[str, tuple[Mapping[str, Any], Lease]] = {}

    async def scan(self, size_bytes: int, *, consistent: bool = False) -> TableScan:
        """Read the table page by page.

        Args:
            size_bytes: size of the table; sets the number of parallel segments unless the
                configuration does.
            consistent: use strongly consistent reads.

        Raises:
            AwsError: a page could not be read; there is no result.
        """
        started_at = self._clock.monotonic()
        segments = self._config.scan_segments or segments_for(size_bytes)
        items = await self._scan_all(segments, consistent=consistent)
        return self._sort_out(items, started_at)

    async def _scan_all(self, segments: int, *, consistent: bool) -> list[Mapping[str, Any]]:
        if segments == 1:
            return await self._scan_segment(0, 1, consistent=consistent)
        try:
            async with asyncio.TaskGroup() as group:
                parts = [
                    group.create_task(self._scan_segment(n, segments, consistent=consistent))
                    for n in range(segments)
                ]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [item for part in parts for item in part.result()]

    async def _scan_segment(
        self, segment: int, segments: int, *, consistent: bool
    ) -> list[Mapping[str, Any]]:
        request: dict[str, Any] = {"TableName": self._config.table_name}
        if consistent:
            request["ConsistentRead"] = True
        if segments > 1:
            request |= {"Segment": segment, "TotalSegments": segments}
        return await all_items("Scan", repeated(self._dynamodb.scan, self._rng), request)

    def _sort_out(self, items: list[Mapping[str, Any]], started_at: float) -> TableScan:
        leases: list[Lease] = []
        broken: list[tuple[str, str]] = []
        foreign: dict[str, Mapping[str, Any]] = {}
        before, self._read = self._read, {}
        for item in sorted(items, key=item_key):
            key = item_key(item)
            if not is_lease_item(item):
                foreign[key] = item
                continue
            known = before.get(key)
            try:
                lease = known[1] if known and known[0] == item else lease_from_item(item)
            except Exception as error:  # noqa: BLE001 - one row must not hide the others
                why = str(error) if isinstance(error, MalformedData) else repr(error)
                broken.append((key, printable(why)))
                continue
            leases.append(lease)
            self._read[key] = item, lease
        return TableScan(
            leases=tuple(leases),
            foreign=foreign,
            broken=tuple(broken),
            conflict=None if self._find_conflict is None else self._find_conflict(items),
            started_at=started_at,
            finished_at=self._clock.monotonic(),
        )


def segments_for(size_bytes: int) -> int:
    """Number of parallel segments for a table of that size, 1 to 32."""
    return max(1, min(MAX_SEGMENTS, math.ceil(size_bytes / SEGMENT_BYTES)))


class UnreadableRows:
    """Reports the rows that a scan could not read; one per worker.

    Args:
        metrics: gets ``UnreadableLeases`` of ``TakeLeases`` at every scan that finds one, and a
            final zero.
    """

    def __init__(
        self, table_name: str, conditions: Conditions, clock: Clock, metrics: Metrics
    ) -> None:
        self._table_name = table_name
        self._conditions = conditions
        self._clock = clock
        self._metrics = metrics
        self._known: dict[str, str] = {}
        self._logged_at = 0.0

    def note(self, broken: Iterable[tuple[str, str]]) -> None:
        """Report the unreadable rows of a scan.

        Args:
            broken: (lease key, reason), sorted.
        """
        rows, before = dict(broken), self._known
        self._known = rows
        if rows or before:
            self._metrics.add(UNREADABLE_LEASES, len(rows))
        for key in sorted(before.keys() - rows.keys()):
            log.warning("The row %s of %s can be read again, or is gone", key, self._table_name)
        now = self._clock.monotonic()
        for key, why in rows.items():
            if before.get(key) != why:
                log.error("The row %s of %s can't be read: %s", key, self._table_name, why)
                self._logged_at = now
        if not rows:
            self._conditions.clear(Reason.UNREADABLE_ROWS)
            return
        message = self._message(rows)
        self._conditions.report(Reason.UNREADABLE_ROWS, message)
        if now - self._logged_at >= REPEAT_S:
            log.error("%s", message)
            self._logged_at = now

    def _message(self, rows: dict[str, str]) -> str:
        named = "; ".join(f"{key}: {why}" for key, why in list(rows.items())[:NAMED])
        more = f"; and {len(rows) - NAMED} more" if len(rows) > NAMED else ""
        count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        return (
            f"{count} of the lease table {self._table_name} can't be read, so no worker can take "
            f"their shards. Repair them; a row that is deleted loses its checkpoint ({named}{more})"
        )
