"""Metrics for Prometheus and OTLP: added up, and sent; ``metricsLevel`` does not apply to them.

Without labels by shard the number of series is fixed. With them it follows the leases: series of a
shard that is no longer held are dropped after :data:`KEPT_S`, so that the last change is still seen.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.signals.model.metric_values import Distribution, FamilyValues, shard_labels
from kcl_mld.signals.model.metrics import FAILURE, METRICS, OUTCOME, SUCCESS, FamilyKind
from kcl_mld.signals.ports import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.model.metric_values import Labels
    from kcl_mld.signals.model.metrics import Family, Metric
    from kcl_mld.signals.ports import MetricSender

    #: Returns all metrics as they are now.
    ReadMetrics = Callable[[], Sequence[FamilyValues]]

log = logging.getLogger("mld.signals")

#: Seconds that series of a shard stay after the shard is no longer held.
KEPT_S = 300.0

_COUNTED = tuple(dict.fromkeys(one.family for one in METRICS if one.family is not None))


def _values_of(family: Family) -> tuple[str, ...]:
    """Of the label of a family; "" without one."""
    if OUTCOME in family.labels:
        return (SUCCESS, FAILURE)
    return tuple(one.label for one in METRICS if one.family is family)


class _Series(NamedTuple):
    """Stream and shard are empty where the shard is no label, the value where there is no other."""

    family: Family
    value: str = ""
    stream: str = ""
    shard: str = ""

    def labels(self) -> Labels:
        of_shard = shard_labels(self.stream, self.shard) if self.shard else ()
        return of_shard + (((self.family.labels[0], self.value),) if self.value else ())


class MetricStore(Metrics):
    """The values counted since the start of the process.

    Args:
        clock: spaces how long series stay.
        stream_name: label of shards outside of multi-stream mode.
        by_shard: series have labels ``stream`` and ``shard``, except histograms.
    """

    def __init__(self, clock: Clock, stream_name: str, *, by_shard: bool) -> None:
        self._clock = clock
        self._stream_name = stream_name
        self._by_shard = by_shard
        self._numbers: dict[_Series, float] = {}
        self._times: dict[Family, Distribution] = {}
        self._left_at: dict[tuple[str, str], float] = {}
        for family in _COUNTED:
            if family.kind is FamilyKind.HISTOGRAM:
                self._times[family] = Distribution()
            elif not (by_shard and family.over):
                self._numbers |= {_Series(family, one): 0.0 for one in _values_of(family)}

    def add(
        self,
        metric: Metric,
        value: float,
        *,
        shard_id: str | None = None,
        stream_id: str | None = None,
    ) -> None:
        """Add a value; metrics without a family are not kept."""
        family = metric.family
        if family is None:
            return
        if family.kind is FamilyKind.HISTOGRAM:
            self._times[family].add(value)
            return
        label = metric.label
        if OUTCOME in family.labels:
            label, value = (SUCCESS if value > 0 else FAILURE), 1.0
        if self._by_shard and family.over and shard_id:
            series = _Series(family, label, stream_id or self._stream_name, shard_id)
        else:
            series = _Series(family, label)
        self._numbers[series] = self._numbers.get(series, 0.0) + value

    def readings(self, held: Collection[tuple[str, str]]) -> list[FamilyValues]:
        """All families with their counted values.

        Args:
            held: stream and shard of each lease that has a consumer.
        """
        self._drop_old(held)
        samples: dict[Family, list[tuple[Labels, float | Distribution]]] = {
            family: [] for family in _COUNTED
        }
        for series, value in self._numbers.items():
            samples[series.family].append((series.labels(), value))
        for family, times in self._times.items():
            samples[family].append(((), times.copy()))
        return [FamilyValues(family, tuple(found)) for family, found in samples.items()]

    def _drop_old(self, held: Collection[tuple[str, str]]) -> None:
        """Drop series of shards that were not held at two calls, long enough apart."""
        now = self._clock.monotonic()
        shards = {(one.stream, one.shard) for one in self._numbers if one.shard}
        left = shards.difference(held)
        self._left_at = {one: self._left_at.get(one, now) for one in left}
        old = {one for one, at in self._left_at.items() if now - at >= KEPT_S}
        if old:
            self._numbers = {
                series: value
                for series, value in self._numbers.items()
                if (series.stream, series.shard) not in old
            }


class MetricPush:
    """One per worker.

    Args:
        sender: where to, and how often.
    """

    def __init__(self, sender: MetricSender) -> None:
        self._sender = sender

    async def run(self, read: ReadMetrics) -> None:
        """Send until cancelled; the last values are for :meth:`close`.

        Args:
            read: all metrics now.
        """
        while True:
            await asyncio.sleep(self._sender.interval_s)
            await self._send(read)

    async def close(self, read: ReadMetrics, timeout_s: float) -> None:
        """Send a last time.

        Args:
            read: all metrics now.
            timeout_s: metrics that can't be sent within it are lost.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(read)
        except TimeoutError:
            log.warning("The last metrics were not sent: no answer in %g s", timeout_s)

    async def _send(self, read: ReadMetrics) -> None:
        try:
            await self._sender.send(read())
        except Exception:
            # Metrics must not end the worker; the exporter logs its own errors.
            log.exception("Sending metrics failed unexpectedly")
