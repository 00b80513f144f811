"""Metrics as the text that Prometheus scrapes (extra ``prometheus``).

Source of the format: Prometheus, text-based exposition format 0.0.4, written by prometheus_client.
"""

from __future__ import annotations

import asyncio
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.registry import Collector

from kcl_mld.signals.model.metric_values import Distribution
from kcl_mld.signals.model.metrics import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kcl_mld.kernel.ports import Clock, Offload
    from kcl_mld.signals.model.metric_values import FamilyValues

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Seconds during which a text may be served again, so that many clients cost no more than one.
FRESH_S = 1.0
_BOUNDS = (*(str(bound) for bound in BUCKETS), "+Inf")


class MetricsPage:
    """The page ``/metrics``; one text serves all who ask within :data:`FRESH_S`.

    Args:
        read: all metrics now.
        offload: where the text is made.
        clock: measures its age.
    """

    def __init__(
        self, read: Callable[[], Sequence[FamilyValues]], offload: Offload, clock: Clock
    ) -> None:
        self._read = read
        self._offload = offload
        self._clock = clock
        self._alone = asyncio.Lock()
        self._text = b""
        self._made_at: float | None = None

    async def content(self) -> tuple[int, str, bytes]:
        """Code, content type and text."""
        async with self._alone:
            now = self._clock.monotonic()
            if self._made_at is None or now - self._made_at >= FRESH_S:
                self._text = await self._offload.run(exposition, self._read())
                self._made_at = now
        return 200, CONTENT_TYPE, self._text


def exposition(readings: Sequence[FamilyValues]) -> bytes:
    """The text, with prometheus_client's metrics of this process.

    Args:
        readings: each family once.
    """
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Readings(readings))
    return generate_latest(registry)


class _Readings(Collector):
    def __init__(self, readings: Sequence[FamilyValues]) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        return map(_metric, self._readings)


def _metric(reading: FamilyValues) -> Metric:
    name = reading.family.name
    made = Metric(name.removesuffix("_total"), reading.family.help, str(reading.family.kind))
    for pairs, value in reading.samples:
        labels = dict(pairs)
        if isinstance(value, Distribution):
            for bound, count in zip(_BOUNDS, accumulate(value.counts), strict=True):
                made.add_sample(f"{name}_bucket", labels | {"le": bound}, count)
            made.add_sample(f"{name}_count", labels, value.count)
            made.add_sample(f"{name}_sum", labels, value.total)
        else:
            made.add_sample(name, labels, value)
    return made
