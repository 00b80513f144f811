"""Publishes metrics to CloudWatch, and never lets CloudWatch delay the worker.

``add`` only accumulates. The loop flushes every ``buffer_s``, or earlier when many metrics wait; a
request that fails loses its own data and nothing else.

Requests carry up to 1,000 data (Java: 20, the limit of old): fewer calls, same metrics. Data carry
no timestamp; CloudWatch stamps them on arrival, as for Java.

Source: CloudWatchMetricsPublisher, CloudWatchPublisherRunnable (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import MldError
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.observe.rules.metric_set import OPERATION, MetricKey, MetricQueue, dimensions_of
from kcl_mld.signals.model.metrics import SHARD, STREAM, WORKER, Level, Unit
from kcl_mld.signals.ports import Metrics

if TYPE_CHECKING:
    from kcl_mld.aws.ports import CloudWatch
    from kcl_mld.config.config import MetricsConfig
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.model.metrics import Metric

log = logging.getLogger("mld.signals")

#: Number of waiting metrics that are flushed before their time.
FLUSH_AT_KEYS = 200
#: Limits of one PutMetricData.
MAX_DATA = 1000
MAX_BYTES = 900_000
#: Longest wait for one answer.
CALL_S = 5.0
_UNITS = {
    Unit.COUNT: "Count",
    Unit.BYTES: "Bytes",
    Unit.SECONDS: "Milliseconds",
    Unit.MILLISECONDS: "Milliseconds",
}
#: Least distance of two warnings about lost data.
_WARN_EVERY_S = 60.0


class CloudWatchMetrics(Metrics):
    """A :class:`kcl_mld.signals.ports.Metrics` over CloudWatch.

    Args:
        config: level, dimensions, period and queue length.
        namespace: the application name.
        worker_id: value of the dimension ``WorkerIdentifier``.
    """

    def __init__(
        self,
        cloudwatch: CloudWatch,
        config: MetricsConfig,
        *,
        namespace: str,
        worker_id: str,
        clock: Clock,
    ) -> None:
        self._cloudwatch = cloudwatch
        self._level = Level[config.level.upper()]
        self._enabled = config.enabled_dimensions
        self._buffer_s = config.buffer_s
        self._namespace = namespace
        self._worker_id = worker_id
        self._clock = clock
        self._queue = MetricQueue(config.max_queue)
        self._is_full = Wakeup()
        self._is_closed = False
        self._lost = 0
        self._warned_at: float | None = None

    def add(
        self,
        metric: Metric,
        value: float,
        *,
        shard_id: str | None = None,
        stream_id: str | None = None,
    ) -> None:
        """Add a value; metrics without an operation are not sent."""
        if metric.level < self._level or self._is_closed or not metric.operation:
            return
        dimensions = dimensions_of(
            (
                (OPERATION, metric.operation),
                (SHARD, shard_id if metric.dimension == SHARD else None),
                (STREAM, stream_id),
                (WORKER, self._worker_id if metric.dimension == WORKER else None),
            ),
            self._enabled,
        )
        key = MetricKey(metric.name, dimensions)
        sent = value * 1000 if metric.unit is Unit.SECONDS else value
        if not self._queue.add(key, float(sent), _UNITS[metric.unit]):
            self._note_loss(1, f"{metric.name} finds the queue full")
        if len(self._queue) >= FLUSH_AT_KEYS:
            self._is_full.wake()

    async def run(self) -> None:
        """Flush until cancelled; :meth:`close` sends the rest."""
        while True:
            await self._is_full.wait(self._buffer_s)
            await self._flush()

    async def close(self, timeout_s: float = CALL_S) -> None:
        """Refuse further data and send what waits.

        Args:
            timeout_s: data that cannot be sent within it are lost.
        """
        self._is_closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._flush()
        except TimeoutError:
            self._note_loss(len(self._queue), "CloudWatch is too slow for the stop")

    async def _flush(self) -> None:
        """Send all that waits now, one request after the other."""
        for _ in range(1 + len(self._queue) // MAX_DATA * 2):
            data = self._queue.pop_data(MAX_DATA, MAX_BYTES)
            if not data:
                return
            await self._put(data)

    async def _put(self, data: list[dict[str, object]]) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                await self._cloudwatch.put_metric_data(Namespace=self._namespace, MetricData=data)
        except TimeoutError:
            self._note_loss(len(data), "no answer in time")
        except MldError as error:
            self._note_loss(len(data), str(error))
        except Exception:
            log.exception("Unexpected error while publishing metrics; %d data are lost", len(data))

    def _note_loss(self, count: int, why: str) -> None:
        """Warn, but not all the time."""
        self._lost += count
        now = self._clock.monotonic()
        if self._warned_at is None or now - self._warned_at >= _WARN_EVERY_S:
            log.warning("%d metric data were lost so far: %s", self._lost, why)
            self._warned_at = now
