"""Sends metrics to an OpenTelemetry collector by OTLP over HTTP (extra ``otel``).

The exporter of OpenTelemetry reads ``OTEL_EXPORTER_OTLP_*`` by itself: endpoint, headers,
certificates, compression, time-out. Names lose what a collector adds again for Prometheus:
``kcl_lease_renewal_seconds`` is ``kcl.lease_renewal`` in ``s``.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_METRIC_EXPORT_INTERVAL,
    OTEL_RESOURCE_ATTRIBUTES,
    OTEL_SERVICE_NAME,
)
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import (
    HOST_NAME,
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_VERSION,
    Resource,
)
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from kcl_mld import __version__
from kcl_mld.signals.model.metric_values import Distribution
from kcl_mld.signals.model.metrics import BUCKETS, FamilyKind, Unit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcl_mld.config.config import Config
    from kcl_mld.kernel.adapters.calls import CallPool
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.model.metric_values import FamilyValues
    from kcl_mld.signals.model.metrics import Family

_SCOPE = InstrumentationScope("kcl-mld", __version__)
_UNITS = {Unit.SECONDS: "s", Unit.BYTES: "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpSender:
    """One per worker.

    Attributes:
        interval_s: ``OTEL_METRIC_EXPORTOTEL_METRIC_EXPORT_INTERVAL``, in milliseconds there; a minute without it.
    """

    def __init__(
        self, config: Config, environ: Mapping[str, str], pool: CallPool, clock: Clock
    ) -> None:
        """Create the exporter; sends nothing.

        Args:
            config: names the instance, and the service unless the environment does.
            environ: of the process.
            pool: a thread that waits for the answers.
            clock: dates the values.

        Raises:
            ValueError: the interval is no positive number, or the exporter refuses a variable.
        """
        self.interval_s = _interval_s(environ.get(OTEL_METRIC_EXPORT_INTERVAL) or "60000")
        self._pool = pool
        self._clock = clock
        self._began_ns = _ns(clock)
        self._exporter = OTLPMetricExporter()
        attributes = {
            SERVICE_VERSION: __version__,
            SERVICE_INSTANCE_ID: config.worker_id,
            HOST_NAME: socket.gethostname(),
        }
        if not _names_service(environ):
            attributes[SERVICE_NAME] = config.application_name
        self._resource = Resource.create(attributes)

    async def send(self, readings: Sequence[FamilyValues]) -> None:
        """Send all metrics; what fails is logged by the exporter and comes with the next ones."""
        now_ns = _ns(self._clock)
        metrics = [
            _metric(one.family, one, self._began_ns, now_ns) for one in readings if one.samples
        ]
        scope = ScopeMetrics(scope=_SCOPE, metrics=metrics, schema_url="")
        data = MetricsData([ResourceMetrics(self._resource, [scope], schema_url="")])
        await self._pool.run(self._exporter.export, data)

    def close(self) -> None:
        """Close its connections."""
        self._exporter.shutdown()


def _interval_s(text: str) -> float:
    try:
        interval_s = float(text) / 1000
    except ValueError:
        interval_s = 0.0
    if not 0 < interval_s < float("inf"):
        raise ValueError(
            f"{OTEL_METRIC_EXPORT_INTERVAL}={text}: a number of milliseconds above 0 is needed"
        )
    return interval_s


def _names_service(environ: Mapping[str, str]) -> bool:
    listed = environ.get(OTEL_RESOURCE_ATTRIBUTES, "").split(",")
    names = [pair.partition("=")[0].strip() for pair in listed]
    return bool(environ.get(OTEL_SERVICE_NAME)) or SERVICE_NAME in names


def _ns(clock: Clock) -> int:
    return int(clock.wall() * 1e9)


def otlp_name(family: Family) -> str:
    """Without the unit and ``_total``, and with a dot behind ``kcl``."""
    bare = family.name.removesuffix("_total").removesuffix(f"_{family.unit}")
    return bare.replace("kcl_", "kcl.", 1)


def _metric(family: Family, reading: FamilyValues, began_ns: int, now_ns: int) -> Metric:
    points: list[NumberDataPoint] = []
    histograms: list[HistogramDataPoint] = []
    for labels, value in reading.samples:
        if isinstance(value, Distribution):
            histograms.append(_histogram(dict(labels), value, began_ns, now_ns))
        else:
            points.append(NumberDataPoint(dict(labels), began_ns, now_ns, value))
    data: Histogram | Sum | Gauge
    match family.kind:
        case FamilyKind.HISTOGRAM:
            data = Histogram(histograms, _CUMULATIVE)
        case FamilyKind.COUNTER:
            data = Sum(points, _CUMULATIVE, is_monotonic=True)
        case FamilyKind.GAUGE:
            data = Gauge(points)
    return Metric(otlp_name(family), family.help, _UNITS.get(family.unit, ""), data)


def _histogram(
    labels: dict[str, str], value: Distribution, began_ns: int, now_ns: int
) -> HistogramDataPoint:
    return HistogramDataPoint(
        attributes=labels,
        start_time_unix_nano=began_ns,
        time_unix_nano=now_ns,
        count=value.count,
        sum=value.total,
        bucket_counts=list(value.counts),
        explicit_bounds=BUCKETS,
        min=value.least,
        max=value.greatest,
    )
