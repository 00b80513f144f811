"""Adds the stream's name to its metrics if a worker reads several streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.signals.ports import Metrics

if TYPE_CHECKING:
    from kcl_mld.config.stream import Stream
    from kcl_mld.signals.model.metrics import Metric


class StreamMetrics(Metrics):
    """Adds the dimension ``StreamId``; passes everything else on unchanged."""

    def __init__(self, metrics: Metrics, stream_id: str) -> None:
        self._metrics = metrics
        self._stream_id = stream_id

    def add(
        self,
        metric: Metric,
        value: float,
        *,
        shard_id: str | None = None,
        stream_id: str | None = None,
    ) -> None:
        """Report one value; an explicit ``stream_id`` is kept.

        See :class:`kcl_mld.signals.ports.Metrics`.
        """
        self._metrics.add(metric, value, shard_id=shard_id, stream_id=stream_id or self._stream_id)


def metrics_of(stream: Stream, metrics: Metrics) -> Metrics:
    """The sink for a stream's services; the same one in single-stream mode, as in Java."""
    return metrics if stream.identifier is None else StreamMetrics(metrics, stream.identifier)
