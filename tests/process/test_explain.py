"""``kcl-mld explain`` and ``kcl-mld wait``: tables that were made to be so, and living daemons."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld_protocol.conform.daemon import properties_text
from tests.process.daemon import (
    CHECKPOINT,
    STATUS,
    Application,
    child_pids,
    shard_id,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.process

#: Everything that may be asked of AWS.
READS = {
    "dynamodb.DescribeTable",
    "dynamodb.Scan",
    "dynamodb.GetItem",
    "kinesis.DescribeStreamSummary",
    "kinesis.ListShards",
    "kinesis.GetShardIterator",
    "kinesis.GetRecords",
}
FAILOVER_MS = 1000


def properties_of(app: Application, **more: str | None) -> Path:
    """A file as an operator has it."""
    file = app.folder / "operator.properties"
    values: dict[str, str | None] = {
        "executableName": "true",
        "applicationName": app.name,
        "streamName": app.name,
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "regionName": app.aws.region,
        "failoverTimeMillis": str(FAILOVER_MS),
        **more,
    }
    file.write_text(
        properties_text({key: value for key, value in values.items() if value is not None})
    )
    return file


def typed(
    app: Application, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What a command printed."""
    return subprocess.run(
        [sys.executable, "-m", "kcl_mld", *arguments],
        check=False,
        env=app.aws.environment_for_child() | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def told(app: Application, *arguments: str, **more: str | None) -> dict[str, Any]:
    """What ``explain`` says, as JSON; its exit code must fit."""
    done = typed(app, "explain", "-o", "json", "-p", str(properties_of(app, **more)), *arguments)
    assert done.returncode in (0, 7), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["needs_a_person"] == (done.returncode == 7)
    return answer


def verdicts(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Verdict and severity of each shard."""
    return {one["subject"]: (one["verdict"], one["severity"]) for one in answer["shards"]}


def row(app: Application, shard: int, **attributes: Any) -> None:
    """Put a row as a worker would leave it."""
    listed = {one["ShardId"]: one for one in app.kinesis.list_shards(StreamName=app.name)["Shards"]}
    keys = listed[shard_id(shard)]["HashKeyRange"]
    item: dict[str, Any] = {
        "leaseKey": {"S": shard_id(shard)},
        "leaseCounter": {"N": "7"},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "startingHashKey": {"S": keys["StartingHashKey"]},
        "endingHashKey": {"S": keys["EndingHashKey"]},
        **attributes,
    }
    app.dynamodb.put_item(
        TableName=app.name, Item={name: value for name, value in item.items() if value is not None}
    )


def owned_by(worker: str) -> dict[str, Any]:
    return {"leaseOwner": {"S": worker}}


def at(position: str) -> dict[str, Any]:
    return {"checkpoint": {"S": position}}


def scans(app: Application) -> int:
    """Scans of the table so far."""
    return app.calls().get("dynamodb.Scan", 0)


@contextlib.contextmanager
def renewed(
    app: Application, *shards: int, changes: Sequence[dict[str, Any]] = ()
) -> Iterator[None]:
    """Somebody renews these rows, as a Java worker would, and makes these changes one by one."""
    over = threading.Event()
    client = app.aws.client("dynamodb")
    looked = scans(app)

    def renew() -> None:
        left = list(changes)
        while not over.wait(0.25):
            # The first change comes after the first look.
            change = left.pop(0) if left and scans(app) > looked else {}
            for shard in shards:
                client.update_item(
                    TableName=app.name,
                    Key={"leaseKey": {"S": shard_id(shard)}},
                    AttributeUpdates={
                        "leaseCounter": {"Action": "ADD", "Value": {"N": "1"}},
                        **{k: {"Action": "PUT", "Value": v} for k, v in change.items()},
                    },
                )

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def numbers(app: Application, shard: int) -> list[str]:
    """Sequence numbers of the records of a shard."""
    iterator = app.kinesis.get_shard_iterator(
        StreamName=app.name, ShardId=shard_id(shard), ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    records = app.kinesis.get_records(ShardIterator=iterator)["Records"]
    return [str(one["SequenceNumber"]) for one in records]


def test_rows_of_dead_missing_and_departing_owners(new_app: Callable[..., Application]) -> None:
    app = new_app(4)
    app.create_table()
    row(app, 0)
    row(app, 1, **owned_by("dead"))
    row(app, 2, **owned_by("next"), checkpointOwner={"S": "old"})
    row(app, 3, **owned_by("w1"), leaseCounter=None)
    before = app.calls()
    with renewed(app, 2):
        answer = told(app)
    assert verdicts(answer) == {
        shard_id(0): ("UNOWNED", "info"),
        shard_id(1): ("OWNER_SILENT", "warning"),
        shard_id(2): ("HANDING_OVER", "info"),
        shard_id(3): ("UNREADABLE_ROW", "critical"),
    }
    assert answer["severity"] == "critical"
    asked = {name for name, count in app.calls().items() if count > before.get(name, 0)}
    assert "dynamodb.Scan" in asked
    assert asked - {"dynamodb.UpdateItem"} <= READS
    later = verdicts(told(app, "--for", "7"))
    assert later[shard_id(0)] == ("UNOWNED", "warning")
    assert later[shard_id(1)] == ("OWNER_SILENT", "critical")


def test_the_text_says_what_to_do_and_where_to_read_more(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.create_table()
    row(app, 0, **owned_by("dead"))
    row(app, 1, **owned_by("w1"))
    with renewed(app, 1):
        done = typed(app, "explain", str(properties_of(app)))
    assert done.returncode == 7, done.stderr
    assert "2 looks" in done.stdout
    assert f"WARNING OWNER_SILENT {shard_id(0)}\n" in done.stdout
    assert "See docs/verdicts.md#owner_silent" in done.stdout
    assert f"info  NO_PROGRESS  {shard_id(1)}  w1" in done.stdout
    with renewed(app, 1):
        done = typed(app, "explain", str(properties_of(app)), shard_id(1))
    assert done.returncode == 0, done.stdout
    assert shard_id(0) not in done.stdout
    assert typed(app, "explain", str(properties_of(app)), "shardId-9").returncode == 2
    once = told(app, "--once")
    assert set(verdicts(once).values()) == {("UNKNOWN", "info")}


def test_finished_shards_children_and_gaps(new_app: Callable[..., Application]) -> None:
    app = new_app(3)
    app.split(0)  # 3 and 4
    app.create_table()
    row(
        app,
        0,
        **owned_by("w1"),
        **at("SHARD_END"),
        childShardIds={"SS": [shard_id(3), shard_id(4)]},
    )
    row(app, 1, **owned_by("w1"))
    parents = {"parentShardId": {"SS": [shard_id(0)]}}
    row(app, 3, **owned_by("w1"), **parents)
    with renewed(app, 0, 1, 3):
        answer = told(app, "--for", "4")
    found = verdicts(answer)
    assert found[shard_id(0)] == ("CHILDREN_MISSING", "critical")
    assert found[shard_id(2)] == ("HASH_GAP", "critical")
    assert found[shard_id(3)] == ("NO_PROGRESS", "info")
    assert shard_id(4) not in found
    row(app, 2, **owned_by("w1"))
    row(app, 4, **owned_by("w1"), **parents)
    with renewed(app, 0, 1, 2, 3, 4):
        found = verdicts(told(app))
    assert found[shard_id(0)] == ("FINISHED", "ok")
    row(app, 0, **owned_by("w1"))
    with renewed(app, 0, 1, 2, 3, 4):
        found = verdicts(told(app))
    assert found[shard_id(3)] == found[shard_id(4)] == ("WAITING_FOR_PARENT", "info")


def test_rows_that_go_back_and_owners_that_take_turns(new_app: Callable[..., Application]) -> None:
    app = new_app(2)
    app.put(200)
    first, second = numbers(app, 0), numbers(app, 1)
    app.create_table()
    row(app, 0, **owned_by("w1"), **at(first[9]))
    row(app, 1, **owned_by("a"), **at(second[9]))
    back = [{}, {}, at(first[2])]
    turns = [{"leaseOwner": {"S": name}} for name in "aaaaabbbbbaaaaabbbbbaaaaabbbbb"]
    with renewed(app, 0, changes=back), renewed(app, 1, changes=turns):
        found = verdicts(told(app, "--for", "6"))
    assert found[shard_id(0)] == ("REWOUND", "warning")
    assert found[shard_id(1)] == ("THRASHING", "warning")


def test_streams_that_are_gone_or_were_others(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    app.create_table()
    row(app, 0, **owned_by("w1"), **at("1"))
    with renewed(app, 0):
        assert verdicts(told(app)) == {shard_id(0): ("STREAM_GONE", "critical")}
    app.kinesis.delete_stream(StreamName=app.name)
    answer = told(app)
    assert verdicts(answer) == {shard_id(0): ("STREAM_GONE", "critical")}
    assert "delete" in answer["shards"][0]["cause"]


def test_what_is_denied_is_said(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    app.put(3)
    app.create_table()
    row(app, 0, **owned_by("w1"))
    denied = {"service": "kinesis", "code": "AccessDeniedException", "contains": app.name}
    app.aws.control(faults=[{**denied, "operation": "GetShardIterator"}])
    with renewed(app, 0):
        answer = told(app, "--tip")
    assert verdicts(answer) == {shard_id(0): ("UNKNOWN", "warning")}
    assert "AccessDeniedException" in answer["shards"][0]["cause"]
    app.aws.control(faults=[{**denied, "operation": "ListShards"}])
    with renewed(app, 0):
        answer = told(app)
    assert [one["verdict"] for one in answer["fleet"]] == ["UNKNOWN"]
    app.aws.control(faults=[{**denied, "service": "dynamodb", "operation": "Scan"}])
    refused = typed(app, "explain", str(properties_of(app)))
    assert refused.returncode == 1
    assert refused.stderr.startswith("Scan: AccessDeniedException")
    assert "kcl-mld iam FILE --role viewer" in refused.stderr


def test_lag_against_the_retention(tmp_path: Path) -> None:
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        app = Application(aws, "retention", tmp_path)
        app.create_stream(1)
        app.put(5)
        app.create_table()
        row(app, 0, **owned_by("w1"), **at(numbers(app, 0)[0]))
        aws.control(advance_s=20 * 3600)
        with renewed(app, 0):
            answer = told(app, "--tip")
        assert verdicts(answer) == {shard_id(0): ("RETENTION_RISK", "critical")}
        assert answer["shards"][0]["behind_s"] > 70_000
        app.split(0)
        aws.control(advance_s=30 * 3600)
        with renewed(app, 0):
            found = verdicts(told(app))
        assert found[shard_id(0)] == ("RECORDS_LOST", "critical")


def test_a_living_daemon_reads_is_idle_and_stalls(new_app: Callable[..., Application]) -> None:
    app = new_app(1, failoverTimeMillis="3000")
    app.put(1)
    script = {"processRecords": [[CHECKPOINT, STATUS]]}
    same = {"failoverTimeMillis": "3000", "initialPositionInStream": "TRIM_HORIZON"}
    file = str(properties_of(app, **same))
    with ThreadPoolExecutor() as pool:  # it waits for the lease table, too
        waiting = pool.submit(typed, app, "wait", file, "--for", "all-owned", "--timeout", "90")
        time.sleep(1)
        run = app.start(script, workerId="w1")
        run.wait_for_actions("checkpoint")
    assert waiting.result().returncode == 0
    assert typed(app, "wait", file, "--for=caught-up", "--timeout", "90").returncode == 0
    answer = told(app, "--tip", **same)
    assert verdicts(answer) == {shard_id(0): ("IDLE", "ok")}
    assert answer["shards"][0]["owner"] == "w1"
    over = threading.Event()

    def feed() -> None:
        while not over.wait(1.2):
            app.put(1)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        answer = told(app, **same)
    finally:
        over.set()
        thread.join()
    assert verdicts(answer) == {shard_id(0): ("READING", "ok")}
    (child,) = child_pids(run)
    os.kill(child, signal.SIGSTOP)
    app.put(1)
    answer = told(app, "--tip", "--stalled-after", "4", "--for", "6", **same)
    assert verdicts(answer) == {shard_id(0): ("STALLED", "critical")}
    assert "/leases of w1" in answer["shards"][0]["do"]
    assert answer["fleet"] == []
    done = typed(app, "wait", file, "--for=caught-up", "--within", "1", "--timeout", "8")
    assert done.returncode == 7
    assert shard_id(0) in done.stdout
    run.kill()


@pytest.mark.parametrize("says", [None, "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"])
def test_a_fleet_of_many_streams(new_app: Callable[..., Application], says: str | None) -> None:
    app, other = new_app(1), new_app(2)
    many: dict[str, str | None] = {
        "streamName": None,
        "multiStream": "true",
        "failoverTimeMillis": "4000",
        "clientVersionConfig": says,
    }
    run = app.start(**many, streams=f"{app.name}, {other.name}")
    wait_until(lambda: len(run.children()) == 3, "all shards are read")
    answer = told(app, "--tip", **many, streams=f"{app.name}, {other.name}")
    assert {one["stream"].split(":")[1] for one in answer["shards"]} == {app.name, other.name}
    assert list(verdicts(answer).values()) == [("IDLE", "ok")] * 3
    assert answer["fleet"] == []
    answer = told(app, "--tip", **many, streams=f"{app.name}, {app.name}-none")
    strangers = [one for one in answer["shards"] if one["stream"].split(":")[1] == other.name]
    assert {(one["verdict"], one["severity"]) for one in strangers} == {("STREAM_GONE", "info")}
    assert [(one["subject"], one["verdict"]) for one in answer["fleet"]] == [
        (f"{app.name}-none", "STREAM_GONE")
    ]
    run.kill()


def test_a_table_that_does_not_exist(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    done = typed(app, "explain", str(properties_of(app)))
    assert done.returncode == 4
    assert "does not exist" in done.stderr
