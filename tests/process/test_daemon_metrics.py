"""Metrics of a real worker: a scrape, OTLP, and what systemd is told."""

from __future__ import annotations

import os
import signal
import socket
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import (
    PATIENCE_S,
    STATUS,
    Application,
    child_pids,
    shard_id,
    wait_until,
)
from tests.process.test_daemon_watched import free_address, get
from tests.unit.observe.adapters.test_otlp import Collector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

parser = pytest.importorskip("prometheus_client.parser")
pytestmark = pytest.mark.process


def scrape(address: str) -> dict[str, dict[Any, float]]:
    """Values by name of the series and labels; empty while nobody listens."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{address}/metrics", timeout=10) as response:
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = response.read().decode()
    except OSError:
        return {}
    found: dict[str, dict[Any, float]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_a_scrape_shows_what_the_worker_did(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=2)
    app.put(20)
    address = free_address()
    run = app.start(arguments=("--http", address), metricsLevel="NONE")
    run.wait_for_actions("checkpoint", 2)
    wait_until(
        lambda: scrape(address).get("kcl_records_processed_total") == {(): 20.0}, "20 are counted"
    )
    # The answer to a message comes a moment after what the child has written down.
    wait_until(lambda: scrape(address)["kcl_calls_in_progress"] == {(): 0.0}, "both have answered")
    found = scrape(address)
    assert found["kcl_worker_ready"] == {(): 1.0}
    assert found["kcl_leases_held"][("state", "read"),] == 2.0
    assert found["kcl_children"] == {(): 2.0}
    assert found["kcl_child_resident_memory_bytes"][()] > 1e6
    assert found["kcl_process_records_seconds_count"][()] >= 2.0
    assert found["kcl_checkpoints_total"][("outcome", "success"),] >= 2.0
    assert found["kcl_behind_latest_seconds"] == {(): 0.0}
    assert found["process_resident_memory_bytes"][()] > 1e6
    ((about, one),) = found["kcl_worker_info"].items()
    assert (dict(about)["application"], dict(about)["worker_id"], one) == (app.name, "w1", 1.0)
    assert run.stop() == 0, run.output


def test_a_hanging_child_a_restart_and_each_shard_can_be_seen(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=1)
    app.put(5)
    address = free_address()
    run = app.start(
        {"processRecords": [[["sleep", 600], STATUS]]},
        arguments=("--http", address),
        childFailurePolicy="restart",
        childRestartBackoffMillis="100",
        metricsShardLabels="true",
        readyMaxAgeMillis="500",
    )
    key = (("shard", shard_id(0)), ("stream", app.name))
    wait_until(
        lambda: scrape(address).get("kcl_call_age_seconds", {}).get(key, 0.0) > 0.5, "it hangs"
    )
    assert scrape(address)["kcl_records_processed_total"] == {key: 5.0}
    (child,) = child_pids(run)
    os.kill(child, signal.SIGKILL)
    wait_until(
        lambda: scrape(address).get("kcl_child_restarts_total") == {key: 1.0}, "it is restarted"
    )
    wait_until(lambda: scrape(address)["kcl_worker_ready"] == {(): 0.0}, "it is too old")
    status, body = get(address, "/readyz")
    assert status == 503
    assert {one["reason"] for one in body["reasons"]} == {"too_old"}
    assert get(address, "/readyz?maxAge=900")[0] == 200
    wait_until(lambda: get(address, "/leases")[1]["leases"][0]["call_age_s"], "it is shown")
    run.kill()


def test_metrics_are_pushed_while_it_runs_and_at_its_end(
    new_app: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app(shards=1)
    app.put(7)
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint)
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "300")
        run = app.start(otlpMetrics="true", metricsLevel="NONE")
        run.wait_for_actions("checkpoint")
        wait_until(lambda: pushed(collector, "kcl.records_processed") == 7.0, "7 are pushed")
        assert pushed(collector, "kcl.worker_ready") == 1.0
        assert run.stop() == 0, run.output
        assert pushed(collector, "kcl.worker_ready") == 0.0
        collector.shutdown()
        thread.join()


def pushed(collector: Collector, name: str) -> float | None:
    """The value of a metric in the last request."""
    for _, request in reversed(list(collector.requests)):
        for metric in request.resource_metrics[0].scope_metrics[0].metrics:
            if metric.name == name:
                (point,) = (metric.sum if metric.HasField("sum") else metric.gauge).data_points
                return float(point.as_double)
    return None


def test_an_interval_that_is_none_ends_the_start(
    new_app: Callable[..., Application], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = new_app(shards=1)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")
    run = app.start(otlpMetrics="true")
    assert run.ends() == 2
    assert "otlpMetrics" in run.output
    assert "OTEL_METRIC_EXPORT_INTERVAL=soon" in run.output


def test_systemd_is_told_of_the_life_of_a_worker(
    new_app: Callable[..., Application], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    app = new_app(shards=1)
    app.put(1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        run = app.start()
        said: list[str] = []

        def read() -> None:
            while (text := supervisor.recv(100).decode()) != "over":
                said.append(text)

        # All the time: the kernel holds ten messages, and refuses more.
        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        wait_until(lambda: said.count("WATCHDOG=1") >= 4 and "READY=1" in said, "signs of life")
        run.wait_for_actions("checkpoint")
        assert run.stop() == 0, run.output
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"over", str(tmp_path / "notify"))
        reading.join(PATIENCE_S)
        assert not reading.is_alive()
    told = [one for one in said if one != "WATCHDOG=1"]
    assert told[:2] == ["READY=1", "STOPPING=1"]
    assert set(told) == {"READY=1", "STOPPING=1"}
