"""New applications: the one table of Java 3.5, and what workers of ours do on it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import JOURNALING, Application, journals, shard_id, wait_until
from tests.process.test_migrating_tables import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Running

pytestmark = pytest.mark.process

COMPATIBLE = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"
#: What holders add.
OF_HOLDERS = {
    *("kclMldStream", "kclMldHolder", "kclMldReadUntil"),
    *("leaseOwner", "throughputKBps"),
}
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


@pytest.mark.parametrize("says", [None, "CLIENT_VERSION_CONFIG_3X"])
def test_a_new_application_gets_the_table_of_java_3_5(
    new_app: Callable[..., Application], says: str | None
) -> None:
    app = new_app(shards=2, **({"clientVersionConfig": says} if says else {}))
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
        assert set(items[key]) - OF_HOLDERS == LEASE
        assert items[key]["leaseOwner"] == "w1"
    (index,) = wait_until(app.indexes, "the index is there")
    assert index["IndexName"] == "LeaseOwnerToLeaseKeyIndex"
    assert run.stop() == 0, run.output
    assert set(app.everything()) == leases | {"Migration3.0"}
    assert set(app.owners().values()) == {None}


def test_a_restart_goes_on_where_the_worker_before_ended(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(20)
    runs = [app.start()]
    assert wait_until(lambda: len(runs[0].records()) == 20, "all records were read")
    assert runs[0].stop() == 0, runs[0].output
    app.put(10)
    runs.append(app.start(worker="w2"))
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
    app = new_app(shards=4, failoverTimeMillis="3000")
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


@pytest.mark.parametrize("generation", ["3.x", "2.x"])
def test_workers_that_stop_at_once_leave_no_lease_to_each_other(
    new_app: Callable[..., Application], generation: str
) -> None:
    """Each named the other one as the next owner, and the next start waited for the leases to expire."""
    keys = {"clientVersionConfig": COMPATIBLE} if generation == "2.x" else {}
    app = new_app(shards=8, failoverTimeMillis="10000", maxLeasesToStealAtOneTime="8", **keys)
    runs = [app.start(worker=name) for name in ("w1", "w2")]
    app.put(80)
    wait_until(lambda: len(numbers(*runs)) == 80, "all records were read")
    if generation == "3.x":
        halves = ["w1"] * 4 + ["w2"] * 4
        wait_until(lambda: sorted(app.owners().values(), key=str) == halves, "halves each")
    for run in runs:
        run.signal(signal.SIGTERM)
    for run in runs:
        assert run.ends() == 0, run.output
    rows = app.items()
    assert len(rows) == 8
    assert not any({"leaseOwner", "checkpointOwner"} & set(row) for row in rows.values())
    # A lease that one handed over before the other one had left is released by the other one.
    said = [
        re.search(r"children were notified; (\d+) leases? released, \d+ handed over", run.output)
        for run in runs
    ]
    outputs = [run.output for run in runs]
    assert sum(int(one[1]) for one in said if one is not None) == 8, outputs
    app.put(40)
    after = app.start(worker="w3")
    wait_until(lambda: len(numbers(*runs, after)) == 120, "the next start reads all")
    assert after.stop() == 0, after.output


def test_leases_of_many_streams_are_those_of_3x_and_can_be_moved(
    new_app: Callable[..., Application],
) -> None:
    first, second = new_app(1), new_app(2)
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
    app = new_app(shards=2, failoverTimeMillis="2000")
    app.put(10)
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 10, "all records were read")
    assert run.stop() == 0, run.output
    before = app.everything()
    for row in before.values():
        row.pop("kclMldStream", None)  # no multi-stream row has it
    for to in ("multi-stream", "single-stream"):
        code, output = migrate(app, run, to, "--apply")
        assert code == 0, output
    assert app.everything() == before


def test_the_commands_that_look_at_a_table_know_this_one(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(2)
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 2, "all records were read")
    for words in (["leases", "list"], ["validate"]):
        done = subprocess.run(
            [sys.executable, "-m", "kcl_mld", *words, str(run.folder / "app.properties")],
            env=app.aws.environment_for_child(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stdout
    assert run.stop() == 0, run.output


@pytest.mark.parametrize("says", [f"{COMPATIBLE}_PHASE1", COMPATIBLE])
def test_a_file_that_promises_2x_keeps_the_promise(
    new_app: Callable[..., Application], says: str
) -> None:
    app = new_app(shards=2, clientVersionConfig=says)
    app.put(20)
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 20, "all records were read")
    assert app.owners() == {shard_id(0): "w1", shard_id(1): "w1"}
    items = app.everything()
    if says == COMPATIBLE:
        assert items["Migration3.0"]["cv"] == "CLIENT_VERSION_UPGRADE_FROM_2X"
        assert "Leader" not in items
    else:
        assert set(items) == {shard_id(0), shard_id(1)}
    assert run.stop() == 0, run.output


def test_a_table_of_2x_stays_one_whatever_the_default(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    runs = [app.start(clientVersionConfig=f"{COMPATIBLE}_PHASE1")]
    wait_until(lambda: app.owners() == dict.fromkeys(map(shard_id, (0, 1)), "w1"), "its leases")
    assert runs[0].stop() == 0, runs[0].output
    app.put(20)
    for says in (None, "CLIENT_VERSION_CONFIG_3X"):
        runs.append(app.start(clientVersionConfig=says))
        assert wait_until(lambda: numbers(runs[-1]), "records were read")
        assert runs[-1].stop() == 0, runs[-1].output
        assert set(app.everything()) == {shard_id(0), shard_id(1)}
        app.put(20)


def test_five_workers_that_find_no_table_are_one_fleet(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=5, failoverTimeMillis="3000")
    app.put(50)
    runs = {f"w{number}": app.start(worker=f"w{number}") for number in range(5)}
    wait_until(lambda: sorted(map(str, app.owners().values())) == sorted(runs), "a lease each")
    try:
        wait_until(lambda: len(numbers(*runs.values())) == 50, "all records were read")
    except AssertionError:
        print(app.everything(), *(run.output for run in runs.values()), sep="\n")
        raise
    outputs = [run.output for run in runs.values()]
    assert sum("This new application is one of KCL 3.5" in output for output in outputs) == 1
    assert not any(" ERROR " in output for output in outputs), outputs
    for run in runs.values():
        assert run.stop() == 0, run.output
    assert len(app.everything()["Migration3.0"]["h"]) == 1


def denied(
    operation: str, contains: str = "", code: str = "AccessDeniedException"
) -> dict[str, Any]:
    """A rule of the embedded AWS."""
    rule = {"service": "dynamodb", "operation": operation, "contains": contains, "code": code}
    return {**rule, "message": f"not authorized to perform: dynamodb:{operation}"}


@pytest.mark.parametrize("code", ["AccessDeniedException", "UnknownOperationException"])
def test_without_an_index_the_fleet_works_and_says_what_is_missing(
    new_app: Callable[..., Application], code: str
) -> None:
    """With permissions that were written for 2.x, or beside a server that knows no indexes."""
    app = new_app(shards=4, failoverTimeMillis="3000")
    app.put(40)
    operations = ("UpdateTable", "Query")
    app.aws.control(faults=[denied(one, f'"{app.name}"', code) for one in operations])
    runs = {name: app.start(worker=name) for name in ("w1", "w2")}
    wait_until(
        lambda: sorted(app.owners().values(), key=str) == ["w1", "w1", "w2", "w2"], "halves each"
    )
    wait_until(lambda: len(numbers(*runs.values())) == 40, "all records were read")
    (told,) = [run for run in runs.values() if "could not be looked at or created" in run.output]
    assert "Java workers find no leases without it" in told.output
    assert ("Allow dynamodb:UpdateTable" in told.output) is (code == "AccessDeniedException")
    runs["w1"].kill()
    app.put(40)
    wait_until(lambda: len(numbers(*runs.values())) == 80, "the other one reads all")
    assert runs["w2"].stop() == 0, runs["w2"].output


def test_where_nobody_may_look_for_an_older_fleet_rows_of_2x_are_written(
    new_app: Callable[..., Application],
) -> None:
    """Permissions for the lease table alone, as a 2.x application has them."""
    app = new_app(shards=2)
    app.put(20)
    app.aws.control(faults=[denied("DescribeTable", f"{app.name}-CoordinatorState")])
    run = app.start()
    assert wait_until(lambda: len(run.records()) == 20, "all records were read")
    assert set(app.everything()) == {shard_id(0), shard_id(1)}
    assert "allow dynamodb:DescribeTable and GetItem on table" in run.output
    assert "Working as a KCL 2.x worker" in run.output
    assert run.stop() == 0, run.output


def test_a_parent_that_waits_for_its_children_leaves_them_room(
    new_app: Callable[..., Application],
) -> None:
    """Its finished lease once counted: the second child waited for room, the parent for it."""
    app = new_app(clientVersionConfig=COMPATIBLE, maxLeasesForWorker="2")
    app.put(5)
    run = app.start()
    assert wait_until(lambda: len(numbers(run)) == 5, "the records of the parent")
    app.split(0)
    app.put(20)
    wait_until(lambda: len(numbers(run)) == 25, "the records of both children")
    assert {key for key, owner in app.owners().items() if owner} >= {shard_id(1), shard_id(2)}
    assert run.stop() == 0, run.output
