"""Whether a worker does its job."""

from __future__ import annotations

from typing import Any

import pytest

from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.observe.rules.readiness import ShardHealth, WorkerSnapshot, health_of, readiness
from kcl_mld.signals.model.conditions import Condition, Reason

DELETED = Condition(Reason.STREAM_DELETED, "stream orders was deleted")


def shard(number: int = 0, state: str = "PROCESSING", **facts: Any) -> ConsumerStatus:
    name = f"shardId-{number}"
    return ConsumerStatus(lease_key=name, shard_id=name, state=state, **facts)


def worker(*shards: ConsumerStatus, **facts: Any) -> WorkerSnapshot:
    return WorkerSnapshot(**{"state": "running", "shards": shards, **facts})


CRASHING = {"child_failures": 3, "child_failure_age_s": 1.0, "last_error": "it ended with 7"}


def test_a_running_worker_is_ready_without_any_lease():
    assert readiness(worker(), 1.0).as_dict() == {
        "ready": True,
        "state": "running",
        "reasons": [],
        "shards": {},
        "failing": [],
    }


@pytest.mark.parametrize("state", ["starting", "stopping", "stopped"])
def test_a_worker_that_does_not_run_is_not_ready(state):
    answer = readiness(worker(shard(**CRASHING), state=state, scan_age_s=999.0), 1.0)
    assert not answer.is_ready
    assert answer.reasons == (Condition(Reason.NOT_RUNNING, f"the worker is {state}"),)


def test_what_a_service_reported_makes_it_unready():
    answer = readiness(worker(shard(), conditions=(DELETED,)))
    assert not answer.is_ready
    assert answer.as_dict()["reasons"] == [
        {"reason": "stream_deleted", "message": "stream orders was deleted"}
    ]
    stopping = readiness(worker(state="stopping", conditions=(DELETED,)))
    assert [one.reason for one in stopping.reasons] == [Reason.NOT_RUNNING, Reason.STREAM_DELETED]


@pytest.mark.parametrize(
    ("status", "health"),
    [
        (shard(), ShardHealth.READ),
        (shard(state="INITIALIZING"), ShardHealth.STARTING),
        (shard(state="INITIALIZING", waits_to_start=True), ShardHealth.QUEUED),
        (shard(state="WAITING_ON_PARENT_SHARDS"), ShardHealth.WAITING),
        (shard(state="SHUTDOWN_REQUESTED", reason="REQUESTED"), ShardHealth.ENDING),
        (shard(state="SHUTTING_DOWN", reason="SHARD_END", **CRASHING), ShardHealth.ENDING),
        (shard(state="SHUTDOWN_COMPLETE"), ShardHealth.ENDING),
        (shard(child_failures=2, child_failure_age_s=0.0), ShardHealth.READ),
        (shard(**CRASHING), ShardHealth.CHILD_FAILS),
        (shard(child_failures=3, child_failure_age_s=119.9), ShardHealth.CHILD_FAILS),
        (shard(child_failures=3, child_failure_age_s=120.0), ShardHealth.READ),
        (shard(child_failures=3), ShardHealth.CHILD_FAILS),
        (
            shard(state="INITIALIZING", child_failures=3, child_failure_age_s=500.0),
            ShardHealth.CHILD_FAILS,
        ),
        (shard(reading_fails_s=29.9), ShardHealth.READ),
        (shard(reading_fails_s=30.0), ShardHealth.READING_FAILS),
        (shard(state="INITIALIZING", reading_fails_s=30.0), ShardHealth.READING_FAILS),
    ],
)
def test_the_health_of_a_shard(status, health):
    assert health_of(status) is health


def test_a_worker_whose_shards_all_fail_is_not_ready():
    parent = shard(2, state="WAITING_ON_PARENT_SHARDS")
    failing = shard(
        1, reading_fails_s=45.0, reading_error="E (GetRecords)", reading_todo="allow it"
    )
    answer = readiness(worker(shard(0, **CRASHING), failing, parent))
    assert answer.as_dict() == {
        "ready": False,
        "state": "running",
        "reasons": [
            {
                "reason": "all_shards_fail",
                "message": "all 2 shards to be read fail, e.g. shardId-0: its child failed 3 times"
                " in a row without a checkpoint; last error: it ended with 7",
            }
        ],
        "shards": {"waiting_for_parents": 1, "child_fails": 1, "reading_fails": 1},
        "failing": [
            {
                "shard_id": "shardId-0",
                "health": "child_fails",
                "message": "its child failed 3 times in a row without a checkpoint;"
                " last error: it ended with 7",
            },
            {
                "shard_id": "shardId-1",
                "health": "reading_fails",
                "message": "it could not be read for 45 s; E (GetRecords); allow it",
            },
        ],
    }


@pytest.mark.parametrize("state", ["PROCESSING", "INITIALIZING"])
def test_a_worker_that_reads_a_shard_is_ready_and_names_the_one_that_fails(state):
    answer = readiness(worker(shard(0, **CRASHING), shard(1, state=state)))
    assert answer.is_ready
    assert [one.shard_id for one in answer.failing] == ["shardId-0"]


def test_an_answer_of_the_table_is_awaited_for_three_scan_intervals():
    assert readiness(worker(scan_interval_s=20.0)).is_ready
    assert readiness(worker(scan_age_s=59.9, scan_interval_s=20.0)).is_ready
    assert readiness(worker(scan_age_s=29.9, scan_interval_s=1.0)).is_ready
    answer = readiness(worker(scan_age_s=60.0, scan_interval_s=20.0))
    assert answer.reasons == (
        Condition(
            Reason.TABLE_SILENT,
            "the lease table could not be read for 60 s; the log says why",
        ),
    )


def test_an_age_limit_holds_for_every_shard_that_is_due():
    fresh = shard(0, reading_lag_s=10.0, last_processed_age_s=10.0, held_s=999.0)
    assert readiness(worker(fresh), 10.0).is_ready
    assert readiness(worker(shard(1, reading_lag_s=99.999))).is_ready
    waiting = shard(2, state="WAITING_ON_PARENT_SHARDS", held_s=999.0)
    ending = shard(3, reason="REQUESTED", held_s=999.0)
    assert readiness(worker(fresh, waiting, ending), 10.0).is_ready


def test_an_age_limit_that_is_exceeded_is_told_with_the_worst_shard():
    answer = readiness(
        worker(
            shard(0, reading_lag_s=11.0, last_processed_age_s=1.0),
            shard(1, reading_lag_s=12.4, last_processed_age_s=1.0),
            shard(2, state="INITIALIZING", held_s=30.0),
        ),
        10.0,
    )
    assert [one.message for one in answer.reasons] == [
        "shardId-1 is 12 s behind, the limit is 10 s, and 1 more",
        "shardId-2 finished no batch for 30 s, the limit is 10 s",
    ]
    assert {one.reason for one in answer.reasons} == {Reason.TOO_OLD}


def test_who_asks_with_a_limit_of_its_own_does_not_get_that_of_the_worker():
    old = worker(shard(reading_lag_s=90.0), max_age_s=60.0)
    assert [one.reason for one in readiness(old).reasons] == [Reason.TOO_OLD]
    assert readiness(old, 100.0).is_ready
