"""Values of metrics: numbers, distributions, and families with their labels."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from kcl_mld.signals.model.metrics import BUCKETS

if TYPE_CHECKING:
    from kcl_mld.signals.model.metrics import Family

#: (name, value) pairs.
Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Distribution:
    """Values by bucket.

    Attributes:
        counts: of values up to each bound of :data:`~kcl_mld.signals.model.metrics.BUCKETS`, and above the last.
        total: of the values.
        least: of them; 0 without any.
        greatest: likewise.
    """

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0
    least: float = 0.0
    greatest: float = 0.0

    @property
    def count(self) -> int:
        """Number of the values."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """One more value."""
        self.least = min(self.least, value) if self.count else value
        self.greatest = max(self.greatest, value)
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value

    def copy(self) -> Distribution:
        """As it is now."""
        return replace(self, counts=list(self.counts))


@dataclass(frozen=True, slots=True)
class FamilyValues:
    """A family with its values; a histogram has one :class:`Distribution`, others have numbers."""

    family: Family
    samples: tuple[tuple[Labels, float | Distribution], ...]


def shard_labels(stream: str, shard: str) -> Labels:
    """Labels of a series of one shard."""
    return (("stream", stream), ("shard", shard))
