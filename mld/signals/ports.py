"""Counting what happens; :mod:`kcl_mld.signals.model.metrics` has what can be counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kcl_mld.signals.model.metric_values import FamilyValues
    from kcl_mld.signals.model.metrics import CallMetrics, Metric


class Metrics(ABC):
    """A sink; never blocks, never raises."""

    @abstractmethod
    def add(
        self,
        metric: Metric,
        value: float,
        *,
        shard_id: str | None = None,
        stream_id: str | None = None,
    ) -> None:
        """Add one value.

        Args:
            value: in its unit.
            shard_id: bare; of metrics of a shard.
            stream_id: ``account:name:epoch``; multi-stream mode only.
        """

    def call(
        self, metrics: CallMetrics, took_s: float, *, succeeded: bool, shard_id: str | None = None
    ) -> None:
        """Add success and time of something that was tried."""
        self.add(metrics.success, int(succeeded), shard_id=shard_id)
        self.add(metrics.time, took_s, shard_id=shard_id)


class AllMetrics(Metrics):
    """Several sinks as one; without any, nobody wants metrics."""

    def __init__(self, sinks: Sequence[Metrics]) -> None:
        """Each gets everything."""
        self._sinks = tuple(sinks)

    def add(
        self,
        metric: Metric,
        value: float,
        *,
        shard_id: str | None = None,
        stream_id: str | None = None,
    ) -> None:
        """Add the value to every sink."""
        for sink in self._sinks:
            sink.add(metric, value, shard_id=shard_id, stream_id=stream_id)


@dataclass(frozen=True, slots=True)
class MetricSender:
    """Where metrics are sent at regular intervals.

    Attributes:
        send: all of them as they are; an answer that does not come is its own matter.
    """

    send: Callable[[Sequence[FamilyValues]], Awaitable[None]]
    interval_s: float
