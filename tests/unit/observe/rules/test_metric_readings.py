"""What the state of a worker says in metrics."""

from __future__ import annotations

from typing import Any

import pytest

from kcl_mld.children.model.consumer_status import ChildStatus, ConsumerStatus
from kcl_mld.observe.rules.metric_readings import WorkerFacts, observed, stream_and_shard
from kcl_mld.observe.rules.readiness import ShardHealth, WorkerSnapshot
from kcl_mld.signals.model.metric_values import Distribution
from kcl_mld.signals.model.metrics import BUCKETS, FAMILIES, METRICS

S0, S1 = (("stream", "s"), ("shard", "a-0")), (("stream", "s"), ("shard", "a-1"))


def shard(number: int, **facts: Any) -> ConsumerStatus:
    name = f"a-{number}"
    return ConsumerStatus(
        **{"lease_key": name, "shard_id": name, "state": "PROCESSING", "stream": "s", **facts}
    )


def read(
    *shards: ConsumerStatus, by_shard: bool = False, **facts: Any
) -> dict[str, dict[Any, Any]]:
    made = WorkerFacts(
        **{
            "snapshot": WorkerSnapshot(state="running", shards=shards),
            "about": {"application": "app", "worker_id": "w1"},
            "unreadable": 1,
            "left_free": 2,
            "child_timeout_s": 60.0,
            "clock_ahead_s": -300.0,
            "dropped_messages": 3,
            "resident_bytes": {11: 1000, 12: 500}.get,
            **facts,
        }
    )
    return {one.family.name: dict(one.samples) for one in observed(made, by_shard=by_shard)}


BUSY = shard(
    0,
    millis_behind_latest=1500,
    processing_lag_s=4.0,
    reading_lag_s=2.0,
    retention_s=80.0,
    last_processed_age_s=9.0,
    call_age_s=3.0,
    child_pid=11,
)
CALM = shard(1, millis_behind_latest=0, reading_lag_s=2.5, last_processed_age_s=1.0, child_pid=12)
NEW = shard(2, state="INITIALIZING", held_s=5.0, child_pid=13)


def test_shards_are_summed_or_the_worst_one_is_shown():
    found = read(BUSY, CALM, NEW)
    values = {name: samples[()] for name, samples in found.items() if list(samples) == [()]}
    assert values == {
        "kcl_worker_ready": 1.0,
        "kcl_unreadable_leases": 1.0,
        "kcl_leases_left_free": 2.0,
        "kcl_child_timeout_seconds": 60.0,
        "kcl_clock_ahead_seconds": -300.0,
        "kcl_log_messages_dropped_total": 3.0,
        "kcl_behind_latest_seconds": 1.5,
        "kcl_processing_lag_seconds": 4.0,
        "kcl_reading_lag_seconds": 2.5,
        "kcl_retention_used_ratio": 0.05,
        "kcl_last_batch_age_seconds": 9.0,
        "kcl_calls_in_progress": 1.0,
        "kcl_call_age_seconds": 3.0,
        "kcl_children": 3.0,
        "kcl_child_resident_memory_bytes": 1500.0,
    }
    about = (("application", "app"), ("worker_id", "w1"))
    assert found["kcl_worker_info"] == {about: 1.0}


def test_a_clock_of_which_nothing_is_known_has_no_series():
    assert read(clock_ahead_s=None)["kcl_clock_ahead_seconds"] == {}


def test_children_that_may_be_silent_for_ever_have_no_time_out():
    assert read(child_timeout_s=None)["kcl_child_timeout_seconds"] == {}


def test_a_lag_is_no_share_of_a_retention_that_is_not_known():
    assert shard(0, reading_lag_s=2.0).retention_used is None
    assert shard(0, retention_s=80.0).retention_used is None
    assert read(shard(0, reading_lag_s=2.0))["kcl_retention_used_ratio"] == {}


def test_each_shard_may_have_its_own_series():
    found = read(BUSY, CALM, by_shard=True)
    assert found["kcl_behind_latest_seconds"] == {S0: 1.5, S1: 0.0}
    assert found["kcl_processing_lag_seconds"] == {S0: 4.0, S1: 0.0}
    assert found["kcl_call_age_seconds"] == {S0: 3.0, S1: 0.0}
    assert found["kcl_child_resident_memory_bytes"] == {S0: 1000.0, S1: 500.0}
    assert list(found["kcl_worker_ready"]) == [()]


def test_without_shards_nothing_lags():
    found = read()
    assert found["kcl_behind_latest_seconds"] == {}
    assert found["kcl_calls_in_progress"] == {(): 0.0}
    assert found["kcl_child_resident_memory_bytes"] == {(): 0.0}


def test_every_state_has_a_series_also_without_a_lease():
    found = read(BUSY, CALM, shard(3, state="WAITING_ON_PARENT_SHARDS"), by_shard=True)
    states = {labels[0][1]: value for labels, value in found["kcl_leases_held"].items()}
    assert states == {str(one): 0.0 for one in ShardHealth} | {
        "read": 2.0,
        "waiting_for_parents": 1.0,
    }


def test_a_shard_that_waits_is_not_late_and_has_no_child():
    found = read(shard(3, state="WAITING_ON_PARENT_SHARDS", held_s=900.0))
    assert found["kcl_last_batch_age_seconds"] == {}
    assert found["kcl_children"] == {(): 0.0}


def test_ready_goes_by_the_age_of_the_file():
    def ready(max_age_s):
        snapshot = WorkerSnapshot(state="running", shards=(BUSY,), max_age_s=max_age_s)
        return read(snapshot=snapshot)["kcl_worker_ready"]

    assert (ready(10.0), ready(3.0)) == ({(): 1.0}, {(): 0.0})


@pytest.mark.parametrize(("key", "stream"), [("a-0", "s"), ("123:orders:17:a-0", "123:orders:17")])
def test_one_of_several_streams_is_named_by_its_identifier(key, stream):
    assert stream_and_shard(shard(0, lease_key=key)) == (stream, "a-0")


def test_every_family_is_counted_or_observed_and_none_twice():
    counted = {one.family.name for one in METRICS if one.family is not None}
    seen = set(read())
    assert not counted & seen
    assert counted | seen == {one.name for one in FAMILIES}


def test_a_distribution_counts_up_to_and_including_a_bound():
    times = Distribution()
    for value in (BUCKETS[0], BUCKETS[0] + 0.001, 1e6):
        times.add(value)
    assert (times.counts[0], times.counts[1], times.counts[-1]) == (1, 1, 1)
    assert (times.count, times.total) == (3, pytest.approx(1e6 + 0.011))
    assert (times.least, times.greatest) == (BUCKETS[0], 1e6)


def test_a_copy_stays_as_it_is():
    times = Distribution()
    copied = times.copy()
    times.add(2.0)
    assert (copied.count, copied.total, times.count) == (0, 0.0, 1)


def child(index: int, pid: int | None, call_age_s: float | None = None) -> ChildStatus:
    return ChildStatus(
        child=index,
        pid=pid,
        call_age_s=call_age_s,
        silent_s=call_age_s,
        unanswered=0,
        confirmed="1",
        owes=False,
        is_left_out=False,
        restarts=0,
        failures=0,
    )


def test_several_children_of_a_shard_count_each():
    children = (child(0, 11, 3.0), child(1, 12, 1.0), child(2, 13), child(3, None))
    found = read(shard(0, child_pid=11, call_age_s=3.0, children=children, unconfirmed_s=70.0))
    values = {name: samples[()] for name, samples in found.items() if list(samples) == [()]}
    assert values["kcl_children"] == 3
    assert values["kcl_child_resident_memory_bytes"] == 1500
    assert values["kcl_calls_in_progress"] == 2
    assert values["kcl_unconfirmed_seconds"] == 70
    assert read(BUSY)["kcl_unconfirmed_seconds"] == {}
