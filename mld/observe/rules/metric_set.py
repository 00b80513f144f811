"""Accumulating single values into the statistic sets that CloudWatch takes.

The key of a set is its dimensions and name, so the same metric of one flush period is one datum.

Source: MetricAccumulatingQueue, FilteringMetricsScope, StatisticSet (KCL 3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Sorted (name, value) pairs.
Dimensions: TypeAlias = tuple[tuple[str, str], ...]

#: Always kept: without it the data of all operations would run into one metric. Java drops it when
#: ``metricsEnabledDimensions`` does not list it.
OPERATION = "Operation"
ALL = "ALL"


@dataclass(slots=True)
class StatisticSet:
    """Sum, extremes and number of the values of one metric."""

    unit: str
    count: int = 0
    total: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0

    def add(self, value: float) -> None:
        """One more value."""
        self.minimum = value if self.count == 0 else min(self.minimum, value)
        self.maximum = value if self.count == 0 else max(self.maximum, value)
        self.total += value
        self.count += 1


@dataclass(frozen=True, slots=True)
class MetricKey:
    """What makes two values the same metric."""

    name: str
    dimensions: Dimensions

    def datum(self, values: StatisticSet) -> dict[str, object]:
        """An entry of ``MetricData``."""
        return {
            "MetricName": self.name,
            "Dimensions": [{"Name": name, "Value": value} for name, value in self.dimensions],
            "StatisticValues": {
                "SampleCount": float(values.count),
                "Sum": float(values.total),
                "Minimum": float(values.minimum),
                "Maximum": float(values.maximum),
            },
            "Unit": values.unit,
        }

    def size_bytes(self) -> int:
        """Upper bound of what its datum takes in a request."""
        texts = [self.name, *(text for pair in self.dimensions for text in pair)]
        return 400 + sum(3 * len(text) + 40 for text in texts)


def dimensions_of(
    pairs: Iterable[tuple[str, str | None]], enabled: tuple[str, ...] | None
) -> Dimensions:
    """The dimensions that survive the configuration, sorted.

    Args:
        pairs: name and value; an absent value drops the dimension.
        enabled: ``metricsEnabledDimensions``; None, or a list with ``ALL``, keeps all.
    """
    keeps_all = enabled is None or ALL in enabled
    return tuple(
        sorted(
            (name, value)
            for name, value in pairs
            if value and (keeps_all or name == OPERATION or name in (enabled or ()))
        )
    )


class MetricQueue:
    """Statistic sets by key, in the order of their first value.

    Args:
        max_keys: a new key beyond this number is refused; known ones still accumulate.
    """

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._sets: dict[MetricKey, StatisticSet] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def add(self, key: MetricKey, value: float, unit: str) -> bool:
        """Accumulate; False when there is no room for a new key.

        A value in another unit than the first one of its key is refused, too.
        """
        values = self._sets.get(key)
        if values is None:
            if len(self._sets) >= self._max_keys:
                return False
            values = self._sets[key] = StatisticSet(unit)
        if values.unit != unit:
            return False
        values.add(value)
        return True

    def pop_data(self, max_data: int, max_bytes: int) -> list[dict[str, object]]:
        """Remove and return the oldest data, as many as fit one request; empty when none is left.

        Args:
            max_data: >= 1.
            max_bytes: of a request; the first datum is taken whatever its size.
        """
        data: list[dict[str, object]] = []
        size = 0
        for key in list(self._sets)[:max_data]:
            size += key.size_bytes()
            if data and size > max_bytes:
                break
            data.append(key.datum(self._sets.pop(key)))
        return data
