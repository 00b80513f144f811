"""The text that Prometheus scrapes, read by prometheus_client's own parser."""

from __future__ import annotations

import asyncio
import shutil
import subprocess

import pytest

from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.kernel.adapters.system import SystemClock
from kcl_mld.observe.metric_store import MetricStore
from kcl_mld.observe.rules.metric_readings import WorkerFacts, observed
from kcl_mld.observe.rules.readiness import WorkerSnapshot
from kcl_mld.signals.model.metric_values import Distribution, FamilyValues
from kcl_mld.signals.model.metrics import BUCKETS, FAMILIES, LEASES, PROCESS_RECORDS, READY, RECORDS

prometheus = pytest.importorskip("kcl_mld.observe.adapters.prometheus")
parser = pytest.importorskip("prometheus_client.parser")
PROMTOOL = shutil.which("promtool")


def parsed(text):
    return {one.name: one for one in parser.text_string_to_metric_families(text.decode())}


def times(*values):
    made = Distribution()
    for value in values:
        made.add(value)
    return made


SHARD = (("stream", 'a"b\\c'), ("shard", "shardId-0"))


def test_the_text_has_kinds_helps_labels_and_values():
    text = prometheus.exposition(
        [
            FamilyValues(READY, (((), 1.0),)),
            FamilyValues(RECORDS, ((SHARD, 12.0),)),
            FamilyValues(LEASES, (((("state", "read"),), 2.0), ((("state", "ending"),), 0.0))),
            FamilyValues(PROCESS_RECORDS, (((), times(0.02, 7.0, 1000.0)),)),
        ]
    )
    found = parsed(text)
    ready = found["kcl_worker_ready"]
    assert (ready.type, ready.documentation, ready.samples[0].value) == ("gauge", READY.help, 1.0)
    (records,) = found["kcl_records_processed"].samples
    assert records.name == "kcl_records_processed_total"
    assert (records.labels, records.value) == (dict(SHARD), 12.0)
    assert [one.labels["state"] for one in found["kcl_leases_held"].samples] == ["read", "ending"]
    histogram = found["kcl_process_records_seconds"]
    assert histogram.type == "histogram"
    buckets = {
        one.labels["le"]: one.value for one in histogram.samples if one.name.endswith("_bucket")
    }
    assert len(buckets) == len(BUCKETS) + 1
    assert (buckets["0.01"], buckets["0.025"], buckets["10.0"], buckets["+Inf"]) == (0, 1, 2, 3)
    rest = {one.name: one.value for one in histogram.samples if not one.labels}
    assert rest == {
        "kcl_process_records_seconds_count": 3.0,
        "kcl_process_records_seconds_sum": 1007.02,
    }


def test_it_has_what_prometheus_client_says_of_a_process():
    assert "process_cpu_seconds" in parsed(prometheus.exposition([]))


@pytest.mark.skipif(not PROMTOOL, reason="there is no promtool: apt-get install prometheus")
def test_promtool_finds_nothing_to_complain_about():
    shard = ConsumerStatus(
        lease_key="a",
        shard_id="a",
        stream="s",
        state="PROCESSING",
        millis_behind_latest=1,
        reading_lag_s=1.0,
        retention_s=86400.0,
        child_pid=1,
    )
    facts = WorkerFacts(
        snapshot=WorkerSnapshot(state="running", shards=(shard,)),
        about={"application": "app"},
        unreadable=0,
        left_free=0,
        child_timeout_s=60.0,
        clock_ahead_s=0.0,
        dropped_messages=0,
        resident_bytes=lambda _pid: 1,
    )
    store = MetricStore(SystemClock(), "s", by_shard=False)
    text = prometheus.exposition([*observed(facts, by_shard=False), *store.readings(())])
    assert text.count(b"# TYPE kcl_") == len(FAMILIES)
    done = subprocess.run(
        [PROMTOOL, "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now

    wall = monotonic


class Offload:
    async def run(self, work, *args):
        await asyncio.sleep(0)
        return work(*args)


def test_many_who_ask_at_once_get_one_text():
    reads = []

    def read():
        reads.append(1)
        return [FamilyValues(READY, (((), float(len(reads))),))]

    async def main():
        clock = Clock()
        page = prometheus.MetricsPage(read, Offload(), clock)
        answers = await asyncio.gather(*(page.content() for _ in range(50)))
        assert len(reads) == 1
        assert len(set(answers)) == 1
        code, kind, text = answers[0]
        assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        clock.now = prometheus.FRESH_S
        later = await page.content()
        assert later[2] != text
        assert parsed(later[2])["kcl_worker_ready"].samples[0].value == 2.0

    asyncio.run(main())
