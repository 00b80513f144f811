"""What a collector gets by OTLP, over loopback, read with OpenTelemetry's own messages."""

from __future__ import annotations

import asyncio
import http.server
import threading
from dataclasses import replace

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import SystemClock
from kcl_mld.signals.model.metric_values import Distribution, FamilyValues
from kcl_mld.signals.model.metrics import BUCKETS, CHILD_MEMORY, FAMILIES, PROCESS_RECORDS, RECORDS

otlp = pytest.importorskip("kcl_mld.observe.adapters.otlp")
messages = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")

CONFIG = replace(
    build_config(
        b"executableName = a\nstreamName = s\napplicationName = app\n"
        b"AwsCredentialsProvider = DefaultCredentialsProvider\n",
        "app.properties",
        worker_id="w1",
    ).require()
)


class Collector(http.server.ThreadingHTTPServer):
    """Answers like a collector and keeps what it got."""

    def __init__(self, code=200):
        super().__init__(("127.0.0.1", 0), Handler)
        self.code = code
        self.requests = []

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = messages.ExportMetricsServiceRequest.FromString(body)
        self.server.requests.append((self.path, request))
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        """Say nothing."""


@pytest.fixture
def collector(monkeypatch):
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
        yield server
        server.shutdown()
        thread.join()


def send(readings, environ=()):
    async def main():
        pool = CallPool("metrics", 1)
        sender = otlp.OtlpSender(CONFIG, dict(environ), pool, SystemClock())
        await sender.send(readings)
        sender.close()
        pool.close()
        return sender

    return asyncio.run(main())


def test_a_collector_gets_values_units_and_who_sent_them(collector):
    times = Distribution()
    times.add(0.02)
    times.add(7.0)
    shard = (("stream", "s"), ("shard", "shardId-0"))
    send(
        [
            FamilyValues(RECORDS, ((shard, 12.0),)),
            FamilyValues(CHILD_MEMORY, (((), 4096.0),)),
            FamilyValues(PROCESS_RECORDS, (((), times),)),
        ]
    )
    ((path, request),) = collector.requests
    assert path == "/v1/metrics"
    (of_resource,) = request.resource_metrics
    who = {one.key: one.value.string_value for one in of_resource.resource.attributes}
    assert (who["service.name"], who["service.instance.id"]) == ("app", "w1")
    (scope,) = of_resource.scope_metrics
    assert scope.scope.name == "kcl-mld"
    records, memory, histogram = scope.metrics
    assert (records.name, records.unit) == ("kcl.records_processed", "")
    assert records.sum.is_monotonic
    (point,) = records.sum.data_points
    assert point.as_double == 12.0
    assert {one.key: one.value.string_value for one in point.attributes} == dict(shard)
    assert 0 < point.start_time_unix_nano <= point.time_unix_nano
    assert (memory.name, memory.unit) == ("kcl.child_resident_memory", "By")
    assert memory.gauge.data_points[0].as_double == 4096.0
    assert (histogram.name, histogram.unit) == ("kcl.process_records", "s")
    (point,) = histogram.histogram.data_points
    assert tuple(point.explicit_bounds) == BUCKETS
    assert (point.count, point.sum, point.min, point.max) == (2, 7.02, 0.02, 7.0)
    assert sum(point.bucket_counts) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_SERVICE_NAME", "billing"),
        ("OTEL_RESOURCE_ATTRIBUTES", "team=x, service.name=billing"),
    ],
)
def test_the_environment_may_name_the_service(collector, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    send([FamilyValues(CHILD_MEMORY, (((), 1.0),))], {name: value})
    ((_, request),) = collector.requests
    attributes = request.resource_metrics[0].resource.attributes
    who = {one.key: one.value.string_value for one in attributes}
    assert (who["service.name"], who["service.instance.id"]) == ("billing", "w1")


def test_a_collector_that_refuses_is_logged_and_ends_nothing(collector, caplog):
    collector.code = 400
    send([FamilyValues(CHILD_MEMORY, (((), 1.0),))])
    assert len(collector.requests) == 1
    assert "Failed to export" in caplog.text


def test_what_has_no_value_is_not_sent(collector):
    send([FamilyValues(CHILD_MEMORY, ())])
    ((_, request),) = collector.requests
    assert list(request.resource_metrics[0].scope_metrics[0].metrics) == []


@pytest.mark.parametrize(("text", "seconds"), [(None, 60.0), ("", 60.0), ("5000", 5.0)])
def test_the_interval_is_that_of_the_environment(collector, text, seconds):
    environ = {} if text is None else {"OTEL_METRIC_EXPORT_INTERVAL": text}
    assert send([], environ).interval_s == seconds


@pytest.mark.parametrize("text", ["0", "-1", "soon", "inf", "nan"])
def test_an_interval_that_is_none_is_an_error(text):
    with pytest.raises(ValueError, match="OTEL_METRIC_EXPORT_INTERVAL"):
        send([], {"OTEL_METRIC_EXPORT_INTERVAL": text})


def test_names_are_those_of_prometheus_once_a_collector_has_added_unit_and_total():
    suffixes = {"seconds": "_seconds", "bytes": "_bytes", "count": ""}
    for family in FAMILIES:
        name = otlp.otlp_name(family).replace("kcl.", "kcl_")
        total = "_total" if family.kind == "counter" else ""
        assert name + suffixes[family.unit] + total == family.name
