"""``python -m benchmarks.scrape``: what one scrape of /metrics costs a worker with many shards."""

from __future__ import annotations

import json
import os
import sys
import time

from kcl_mld.children.adapters.child_process import resident_bytes
from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.kernel.adapters.system import SystemClock
from kcl_mld.observe.adapters.prometheus import exposition
from kcl_mld.observe.metric_store import MetricStore
from kcl_mld.observe.rules.metric_readings import WorkerFacts, observed, stream_and_shard
from kcl_mld.observe.rules.readiness import WorkerSnapshot
from kcl_mld.signals.model.metrics import METRICS

ROUNDS = 20


def main() -> None:
    """Print one line for each way to label."""
    shards = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    pid = os.getpid()
    names = [f"shardId-{number:012d}" for number in range(shards)]
    statuses = tuple(
        ConsumerStatus(
            lease_key=name,
            shard_id=name,
            stream="orders",
            state="PROCESSING",
            millis_behind_latest=1234,
            processing_lag_s=1.5,
            reading_lag_s=2.5,
            last_processed_age_s=0.5,
            child_pid=pid,
            call_age_s=0.25,
        )
        for name in names
    )
    facts = WorkerFacts(
        snapshot=WorkerSnapshot(state="running", shards=statuses),
        about={"application": "app", "worker_id": "w1", "version": "0"},
        unreadable=0,
        left_free=0,
        child_timeout_s=None,
        clock_ahead_s=0.0,
        dropped_messages=0,
        resident_bytes=resident_bytes,
    )
    for by_shard in (False, True):
        store = MetricStore(SystemClock(), "orders", by_shard=by_shard)
        adds = 0
        began = time.process_time()
        for name in names:
            for metric in METRICS:
                if metric.dimension == "ShardId":
                    store.add(metric, 1.0, shard_id=name)
                    adds += 1
        add_us = (time.process_time() - began) / adds * 1e6
        in_loop_s = text_s = 0.0
        text = b""
        for _ in range(ROUNDS):
            began = time.process_time()
            held = {stream_and_shard(one) for one in statuses}
            readings = [*observed(facts, by_shard=by_shard), *store.readings(held)]
            read_at = time.process_time()
            text = exposition(readings)
            in_loop_s += read_at - began
            text_s += time.process_time() - read_at
        row = {
            "shards": shards,
            "by_shard": by_shard,
            "bytes": len(text),
            "lines": text.count(b"\n"),
            "ms_in_the_loop": round(in_loop_s / ROUNDS * 1000, 2),
            "ms_in_a_thread": round(text_s / ROUNDS * 1000, 2),
            "us_an_add": round(add_us, 2),
        }
        print(json.dumps(row))


if __name__ == "__main__":
    main()
