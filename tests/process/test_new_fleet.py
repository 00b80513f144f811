"""New applications of 3.x: the one table of Java 3.5, and what workers of ours do on it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import JOURNALING, Application, journals, shard_id, wait_until
from tests.process.test_migrating_tables import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Running

pytestmark = pytest.mark.process

WISH = {"clientVersionConfig": "CLIENT_VERSION_CONFIG_3X"}
#: Attributes of a lease of Java 3.5.1 on a new stream, of two open shards without traffic.
LEASE = {
    "leaseKey",
    "entityType",
    "leaseCounter",
    "ownerSwitchesSinceCheckpoint",
    "checkpoint",
    "checkpointSubSequenceNumber",
    "startingHashKey",
    "endingHashKey",
}


def numbers(*runs: Running) -> set[str]:
    """Sequence numbers of what these workers' children got."""
    return {record["sequenceNumber"] for run in runs for record in run.records()}


def test_an_application_that_asks_for_3x_gets_the_table_of_java_3_5(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2, **WISH)
    app.put(20)
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 20, "all records were read")
    leases = {shard_id(0), shard_id(1)}
    wait_until(lambda: "w1" in app.everything(), "metrics of the worker")
    items = app.everything()
    assert set(items) == leases | {"Leader", "Migration3.0", "w1"}
    assert {key: item["entityType"] for key, item in items.items()} == {
        **dict.fromkeys(leases, "LEASE"),
        "Leader": "LEADER",
        "Migration3.0": "CLIENT_VERSION_MIGRATION",
        "w1": "WORKER_METRIC_STATS",
    }
    assert items["Migration3.0"]["cv"] == "CLIENT_VERSION_3X"
    assert items["Leader"]["ownerName"] == "w1"
    for key in leases:
        assert set(items[key]) - {"leaseOwner", "throughputKBps"} == LEASE
        assert items[key]["leaseOwner"] == "w1"
    table = app.dynamodb.describe_table(TableName=app.name)["Table"]
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "LeaseOwnerToLeaseKeyIndex"
    assert run.stop() == 0, run.output
    assert set(app.everything()) == leases | {"Migration3.0"}
    assert set(app.owners().values()) == {None}


def test_a_restart_goes_on_where_the_worker_before_ended(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2, **WISH)
    app.put(20)
    runs = [app.start()]
    assert wait_until(lambda: len(runs[0].records()) == 20, "all records were read")
    assert runs[0].stop() == 0, runs[0].output
    app.put(10)
    runs.append(app.start(worker="w2", clientVersionConfig=None))  # it follows the table
    assert wait_until(lambda: len(runs[1].records()) == 10, "the new ones were read")
    assert len(numbers(*runs)) == 30
    runs[1].kill()
    app.put(10)
    runs.append(app.start(worker="w2"))  # the same id: its leases are its own
    assert wait_until(lambda: len(numbers(*runs)) == 40, "those after the kill were read")
    assert runs[2].stop() == 0, runs[2].output


def test_two_workers_that_start_together_share_and_the_other_goes_on_alone(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=4, failoverTimeMillis="3000", **WISH)
    runs = {name: app.start(worker=name) for name in ("w1", "w2")}
    wait_until(
        lambda: sorted(app.owners().values(), key=str) == ["w1", "w1", "w2", "w2"], "halves each"
    )
    app.put(40)
    wait_until(lambda: len(numbers(*runs.values())) == 40, "all records were read")
    leader = app.everything()["Leader"]["ownerName"]
    assert sum("This worker leads the fleet now" in run.output for run in runs.values()) == 1
    runs[leader].kill()
    (rest,) = set(runs) - {leader}
    app.put(40)
    wait_until(lambda: len(numbers(*runs.values())) == 80, "the other one reads all")
    assert set(app.owners().values()) == {rest}
    assert runs[rest].stop() == 0, runs[rest].output


def test_leases_of_many_streams_are_those_of_3x_and_can_be_moved(
    new_app: Callable[..., Application],
) -> None:
    first, second = new_app(1, **WISH), new_app(2)
    for app in (first, second):
        app.put(10)
    names = {"streamName": None, "multiStream": "true", "streams": f"{first.name}, {second.name}"}
    run = first.start(executable=(sys.executable, str(JOURNALING), "3", "batch"), **names)

    def read() -> int:
        entries = [one for journal in journals(run).values() for one in journal]
        return sum(len(one["records"]) for one in entries if one["saw"] == "records")

    assert wait_until(lambda: read() == 20, "all records were read")
    rows = first.items()
    assert len(rows) == 3
    assert {row["entityType"] for row in rows.values()} == {"LEASE"}
    assert run.stop() == 0, run.output


def test_the_table_of_a_stopped_fleet_can_be_moved_there_and_back(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2, failoverTimeMillis="2000", **WISH)
    app.put(10)
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 10, "all records were read")
    assert run.stop() == 0, run.output
    before = app.everything()
    for to in ("multi-stream", "single-stream"):
        code, output = migrate(app, run, to, "--apply")
        assert code == 0, output
    assert app.everything() == before


def test_the_commands_that_look_at_a_table_know_this_one(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2, **WISH)
    app.put(2)
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 2, "all records were read")
    for words in (["leases", "list"], ["validate"]):
        done = subprocess.run(
            [sys.executable, "-m", "mld", *words, str(run.folder / "app.properties")],
            env=app.aws.environment_for_child(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout
    assert run.stop() == 0, run.output
