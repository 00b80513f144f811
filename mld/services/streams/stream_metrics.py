"""Metrics of one of several streams: each datum has the stream's dimension, as in Java."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.ports.metrics import Level, Unit

if TYPE_CHECKING:
    from mld.model.streams.stream import Stream
    from mld.ports.metrics import Metrics


class StreamMetrics:
    """Adds the dimension ``StreamId``; everything else goes through as it is."""

    def __init__(self, metrics: Metrics, stream_id: str) -> None:
        """Report to a sink about a stream."""
        self._metrics = metrics
        self._stream_id = stream_id

    def add(
        self,
        operation: str,
        name: str,
        value: float,
        *,
        unit: Unit = Unit.COUNT,
        level: Level = Level.SUMMARY,
        shard_id: str | None = None,
        stream_id: str | None = None,
        worker: bool = False,
    ) -> None:
        """See :class:`mld.ports.metrics.Metrics`; another ``stream_id`` is kept."""
        self._metrics.add(
            operation,
            name,
            value,
            unit=unit,
            level=level,
            shard_id=shard_id,
            stream_id=stream_id or self._stream_id,
            worker=worker,
        )


def metrics_of(stream: Stream, metrics: Metrics) -> Metrics:
    """The sink for a stream's services; the same one in single-stream mode, as in Java."""
    return metrics if stream.identifier is None else StreamMetrics(metrics, stream.identifier)
