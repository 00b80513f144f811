"""Where the records of one shard are cut into batches. Pure: time is handed in.

A batch ends at whichever comes first: enough records, enough bytes, or the age of its oldest
record. A cut never changes what was cut before, and nothing here is kept over a restart: records
are delivered again and are cut anew, so a batch must not be named by its range.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING

from kcl_mld.spark.jobs.cut_schedule import Offer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.spark.model import Position, Row


class FlushReason(Enum):
    """What is known about records to come when a cut is considered."""

    FLOWING = auto()
    """Records have just arrived."""
    IDLE = auto()
    """An empty delivery: the tail does not wait for more."""
    STOPPING = auto()
    """Nothing more will be handed to this process: whatever is there is a batch."""
    SHARD_ENDED = auto()
    """Nothing more will ever come."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When a batch is full.

    Attributes:
        max_records: >= 1.
        max_bytes: payload bytes, >= 1; one record may be bigger and is then a batch of its own.
        max_delay_s: age of the oldest record, in s, > 0.
        tick_s: how often an idle child is asked, in s; 0 = never (no ticks).
    """

    max_records: int
    max_bytes: int
    max_delay_s: float
    tick_s: float = 0.0

    @property
    def flowing_s(self) -> float:
        """Age that ends a batch while records flow: the next chance to cut is a tick away."""
        return max(self.max_delay_s / 2, self.max_delay_s - self.tick_s)

    @property
    def idle_s(self) -> float:
        """Age that ends an idle tail: the other half of the delay is left to commit it."""
        return self.max_delay_s / 2


@dataclass(frozen=True, slots=True)
class Cut:
    """The records of a batch.

    Attributes:
        after: position that the batch follows; None = the beginning.
        to: position where it ends.
        rows: in order, all in (after, to]; at least one.
        millis_behind_latest: of the newest delivery seen when it was cut; None if unknown.
    """

    after: Position | None
    to: Position
    rows: tuple[Row, ...] = field(repr=False)
    millis_behind_latest: int | None


class ShardBuffer:
    """The records of a shard that are in no batch yet.

    Args:
        after: position that the first batch follows; None = the beginning.
        drop_through: records up to here are durable already and are dropped; None = none are.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        after: Position | None = None,
        drop_through: Position | None = None,
    ) -> None:
        self._limits = limits
        self._after = after
        self._last = drop_through
        self._rows: deque[Row] = deque()
        self._bytes = 0
        self._offer: Offer | None = None
        self._ages: deque[tuple[Position, float]] = deque()
        self._millis_behind: int | None = None
        self.dropped = 0
        self.delivered: Position | None = None

    def __len__(self) -> int:
        """Records that are buffered."""
        return len(self._rows)

    @property
    def payload_bytes(self) -> int:
        """Payload that is buffered, in bytes."""
        return self._bytes

    def holds(self, batches: int) -> bool:
        """True if what is buffered makes so many batches by size."""
        return self._has_enough(batches)

    def add(self, rows: Iterable[Row], now: float, millis_behind: int | None = None) -> None:
        """Take a delivery.

        Args:
            rows: in the order of the shard; what is not beyond the last one known is dropped.
            now: monotonic time in s.
            millis_behind: distance of the delivery to the tip of the shard in ms; None if unknown.
        """
        self._millis_behind = millis_behind
        last = self._last
        before = len(self._rows)
        for row in rows:
            position = row.position
            if self.delivered is None or position > self.delivered:
                self.delivered = position
            if last is not None and position <= last:
                self.dropped += 1
                continue
            last = position
            self._rows.append(row)
            self._bytes += len(row.data)
        self._last = last
        if len(self._rows) > before:
            self._offer = None
            self._ages.append((self._rows[-1].position, now))

    def is_due(self, now: float, reason: FlushReason) -> bool:
        """True if what is buffered makes a batch, by its size, its age or the reason."""
        if not self._rows:
            return False
        if self._has_enough() or reason in (FlushReason.STOPPING, FlushReason.SHARD_ENDED):
            return True
        limits = self._limits
        patience = limits.idle_s if reason is FlushReason.IDLE else limits.flowing_s
        return now - self._ages[0][1] >= patience

    def offer(self) -> Offer | None:
        """What a cut would take now; None if nothing is buffered."""
        if self._offer is None and self._rows:
            sizes = [
                len(row.data) for row in islice(self._rows, self._prefix(self._limits.max_bytes))
            ]
            self._offer = Offer(sizes[0], sum(sizes), is_full=self._has_enough())
        return self._offer

    def cut_now(self, most_bytes: int | None = None) -> Cut:
        """The next batch, due or not; something has to be buffered.

        Args:
            most_bytes: payload, in bytes; one record may be bigger. None = the limit of a batch.
        """
        limit = self._limits.max_bytes
        return self._take(self._prefix(limit if most_bytes is None else most_bytes))

    def discard(self) -> None:
        """Forget everything that is buffered."""
        self._rows.clear()
        self._ages.clear()
        self._bytes, self._offer = 0, None

    def _has_enough(self, batches: int = 1) -> bool:
        limits = self._limits
        by_count = len(self._rows) >= batches * limits.max_records
        return by_count or self._bytes >= batches * limits.max_bytes

    def _prefix(self, most_bytes: int) -> int:
        """How many records fit: at least one, at most ``max_records``, within so many bytes."""
        count = size = 0
        for row in self._rows:
            size += len(row.data)
            if count == self._limits.max_records or (count and size > most_bytes):
                break
            count += 1
        return count

    def _take(self, count: int) -> Cut:
        rows = tuple(self._rows.popleft() for _ in range(count))
        self._bytes -= sum(len(row.data) for row in rows)
        self._offer = None
        to = rows[-1].position
        while self._ages and self._ages[0][0] <= to:
            self._ages.popleft()
        cut = Cut(self._after, to, rows, self._millis_behind)
        self._after = to
        return cut
