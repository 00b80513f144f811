"""The line that says what a worker is doing."""

from __future__ import annotations

from typing import Any

import pytest

from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.kernel.model.text import counted
from kcl_mld.observe.rules.readiness import WorkerSnapshot
from kcl_mld.observe.rules.summary import summary
from kcl_mld.signals.model.conditions import Condition, Reason


def shard(number: int, state: str = "PROCESSING", **facts: Any) -> ConsumerStatus:
    name = f"shardId-{number}"
    return ConsumerStatus(lease_key=name, shard_id=name, state=state, **facts)


def line(*shards: ConsumerStatus, records: int = 0, restarts: int = 0, **facts: Any) -> str:
    worker = WorkerSnapshot(**{"state": "running", "shards": shards, **facts})
    return summary(worker, records=records, restarts=restarts, interval_s=60.0)


def test_a_worker_that_reads_all_its_shards():
    shards = shard(0, reading_lag_s=0.3), shard(1, reading_lag_s=0.0)
    assert line(*shards, records=75_000) == (
        "2 shards held: 2 being read; 1250 records/s; greatest lag 0 s (shardId-0);"
        " 0 child restarts"
    )


def test_the_memory_of_children():
    worker = WorkerSnapshot(state="running", shards=(shard(0), shard(1)))
    sizes = [62 * 2**20, 70 * 2**20]
    shown = summary(worker, records=0, restarts=0, interval_s=60.0, child_sizes=sizes)
    assert shown.endswith("; 0 child restarts; 2 children with 132 MiB, the largest 70")


def test_shards_of_many_streams_are_told_apart():
    shown = line(
        ConsumerStatus(
            lease_key="1:orders:7:shardId-0",
            stream="orders",
            shard_id="shardId-0",
            state="PROCESSING",
            reading_lag_s=0.3,
        )
    )
    assert "greatest lag 0 s (orders:shardId-0)" in shown


def test_a_standby():
    assert line() == "No shards held; 0 records/s; 0 child restarts"


def test_a_worker_in_trouble():
    failing = {"child_failures": 3, "child_failure_age_s": 1.0}
    assert line(
        shard(0, **failing),
        shard(1, state="WAITING_ON_PARENT_SHARDS"),
        records=90,
        restarts=1,
        conditions=(Condition(Reason.UNREADABLE_ROWS, "a"), Condition(Reason.TABLE_DELETED, "b")),
    ) == (
        "2 shards held: 1 waiting for parents, 1 with a failing child; 1.5 records/s;"
        " 1 child restart; not ready: all_shards_fail, unreadable_rows, table_deleted"
    )


def test_every_health_has_its_words():
    assert line(
        shard(0),
        shard(1, state="INITIALIZING"),
        shard(2, state="SHUTTING_DOWN", reason="LEASE_LOST"),
        shard(3, reading_fails_s=31.0),
        shard(4, child_silent_s=60.0),
    ).startswith(
        "5 shards held: 1 being read, 1 starting, 1 ending, 1 whose child does not answer, "
        "1 that can't be read; 0 rec"
    )


def test_the_greater_lag_of_a_shard_counts():
    shown = line(
        shard(0, processing_lag_s=90.0, reading_lag_s=1.0),
        shard(1, processing_lag_s=None, reading_lag_s=80.0),
    )
    assert "greatest lag 90 s (shardId-0)" in shown
    assert "greatest lag" not in line(shard(0))


@pytest.mark.parametrize(
    ("lag_ms", "shown"),
    [(0, "0 s"), (119_900, "120 s"), (120_000, "2 min"), (7_200_000, "2 h")],
)
def test_a_lag_is_shown_in_a_fitting_unit(lag_ms, shown):
    assert f"greatest lag {shown} (shardId-0)" in line(shard(0, reading_lag_s=lag_ms / 1000))


@pytest.mark.parametrize("state", ["INITIALIZING", "PROCESSING", "SHUTTING_DOWN"])
def test_a_child_that_does_not_answer_is_told_though_the_last_lag_was_none(state):
    shown = line(
        shard(0, state=state, held_s=600.0, last_processed_age_s=90.0, reading_lag_s=0.0),
        shard(1, held_s=900.0, last_processed_age_s=1.0, reading_lag_s=0.0),
    )
    assert "; longest without a finished batch 90 s (shardId-0); " in shown


def test_a_shard_whose_first_batch_is_not_finished_counts_from_its_hold():
    shown = line(shard(0, state="INITIALIZING", held_s=61.0), shard(1, held_s=600.0))
    assert "longest without a finished batch 10 min (shardId-1)" in shown


@pytest.mark.parametrize(
    "quiet",
    [
        {"held_s": 600.0, "last_processed_age_s": 59.0},
        {"held_s": 59.0},
        {"held_s": 600.0, "state": "WAITING_ON_PARENT_SHARDS"},
        {"held_s": 600.0, "state": "SHUTDOWN_COMPLETE"},
    ],
)
def test_who_has_no_batch_to_finish_is_not_named(quiet):
    assert "finished" not in line(shard(0, **quiet))


def test_leases_that_nobody_may_take_are_told():
    assert line(shard(0), left_free="3 leases have no owner, because ...").endswith(
        "; 0 child restarts; 3 leases have no owner, because ..."
    )


def test_one_is_not_many():
    counts = [counted(number, "shard", "shards") for number in (0, 1, 2)]
    assert counts == ["0 shards", "1 shard", "2 shards"]
