"""``kcl-mld leases``, ``workers`` and ``records`` beside living daemons, and on tables made to be so."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from botocore.config import Config

from tests.emulators import DYNAMODB_LOCAL, Emulator
from tests.fakes.aggregate import aggregate
from tests.process.daemon import CHECKPOINT, STATUS, Application, shard_id, wait_until
from tests.process.test_daemon_watched import free_address, get
from tests.process.test_explain import (
    READS,
    at,
    numbers,
    owned_by,
    properties_of,
    renewed,
    row,
    scans,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.process

COMPATIBLE = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"


def document(app: Application, *words: str, **more: str | None) -> dict[str, Any]:
    """What a command prints as JSON."""
    done = typed(app, *words, "-o", "json", "-p", str(properties_of(app, **more)))
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["version"] == 1
    return answer


def test_what_is_set_outside_the_file_means_the_same_table_everywhere(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.put(3)
    outside = ("--set", "tableName=${TABLE}", "--expand-env")
    run = app.start(arguments=outside, environment={"TABLE": f"{app.name}-blue"})
    wait_until(lambda: len(run.records()) == 3, "the records are read")
    words = ("leases", "list", "-o", "json", "-p", str(properties_of(app)))
    done = typed(app, *words, "--set", f"tableName={app.name}-blue")
    (one,) = json.loads(done.stdout)["leases"]
    assert (one["lease"], one["owner"]) == (shard_id(0), "w1")
    env = {"KCL_MLD_SET": "tableName=${TABLE}", "KCL_MLD_EXPAND_ENV": "1"}
    done = typed(app, *words, **env, TABLE=f"{app.name}-blue")
    assert json.loads(done.stdout)["leases"][0]["owner"] == "w1"
    done = typed(app, *words)
    assert done.returncode == 4, done.stderr
    done = typed(app, *words, **env)
    assert done.returncode == 2
    assert "KCL_MLD_SET: error: tableName: the environment has no variable TABLE" in done.stderr


@pytest.mark.parametrize("says", [None, COMPATIBLE], ids=["3.x", "2.x"])
def test_a_living_worker_and_what_it_serves(
    new_app: Callable[..., Application], says: str | None
) -> None:
    more = {"failoverTimeMillis": "3000", "clientVersionConfig": says}
    app = new_app(2, **{key: value for key, value in more.items() if value is not None})
    app.put(40)
    address = free_address()
    stuck = {"processRecords": [[CHECKPOINT, STATUS], [["sleep", 600], STATUS]]}
    run = app.start(stuck, arguments=("--http", address))
    run.wait_for_actions("checkpoint", 2)
    app.put(40)
    wait_until(lambda: len(run.records()) == 80, "the children have the second batch")
    scrape = ("--scrape", f"http://{address}", "--scrape", f"http://{free_address()}/leases")

    def is_slow() -> bool:
        shards = get(address, "/leases")[1]["leases"]
        return all((shard["child_silent_s"] or 0) >= 10 for shard in shards)

    wait_until(is_slow, "both calls take long")
    before = app.calls()
    listed = document(app, "leases", "list", "--tip", *scrape, **more)
    asked = {name for name, count in app.calls().items() if count > before.get(name, 0)}
    assert asked - {"dynamodb.UpdateItem", "dynamodb.PutItem"} <= READS | {"dynamodb.Query"}
    assert [one["lease"] for one in listed["leases"]] == [shard_id(0), shard_id(1)]
    for one in listed["leases"]:
        assert (one["owner"], one["state"], one["host"]) == ("w1", "owned", "127.0.0.1")
        assert one["renewed_within_s"] < 3
        assert one["lag_s"] > 0
        assert one["records_per_s"] is None
        assert one["worker_page"]["call"] == "processRecords"
        assert one["worker_page"]["call_s"] >= 10
    assert sum("Connection refused" in fact for fact in listed["facts"]) == 1
    (worker,) = document(app, "workers", "list", *scrape, **more)["workers"]
    assert (worker["worker"], worker["lives"], worker["leases"]) == ("w1", True, 2)
    assert worker["leads"] is (says is None)
    assert worker["call_s"] >= 10
    # Either tells that records wait: the tip of the shard, or the page of the owner.
    words = ["--stalled-after", "2", *scrape, *(["--tip"] if says is None else [])]
    done = typed(app, "explain", "-p", str(properties_of(app, **more)), *words)
    assert done.returncode == 7
    told = " ".join(done.stdout.split())
    assert "CRITICAL STALLED 2 shards" in told
    assert "the child has not answered processRecords for" in told
    run.kill()
    (worker,) = document(app, "workers", "list", **more)["workers"]
    assert (worker["lives"], worker["silent_leases"]) == (False, 2)


def test_a_table_of_java_workers_with_relatives(new_app: Callable[..., Application]) -> None:
    app = new_app(2)
    app.split(0)  # 2 and 3
    app.create_table()
    java = "ip-10-0-0-7:0b1c8f8e-0000-4000-8000-00000000abcd"
    children = {"childShardIds": {"SS": [shard_id(2), shard_id(3)]}}
    row(app, 0, **owned_by(java), **at("SHARD_END"), **children)
    row(app, 1, **owned_by("dead"))
    row(app, 2, **owned_by("next"), checkpointOwner={"S": java})
    row(app, 3)
    with renewed(app, 0, 2):
        done = typed(app, "leases", "list", str(properties_of(app)))
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line[:7] == "shardId"}
    assert lines[shard_id(0)].split()[1:4] == [java, "FINISHED", "finished"]
    assert lines[shard_id(1)].split()[1:4] == ["dead", "OWNER_SILENT", "expired"]
    assert f"{java} > next" in lines[shard_id(2)]
    with renewed(app, 0, 2):
        listed = document(app, "leases", "list", "--worker", java)["leases"]
    assert [(one["shard"], one["host"]) for one in listed] == [
        (shard_id(0), "ip-10-0-0-7"),
        (shard_id(2), "ip-10-0-0-7"),
    ]
    (parent,) = document(app, "leases", "describe", shard_id(0), "--once")["leases"]
    assert [kin["lease"] for kin in parent["child_leases"]] == [shard_id(2), shard_id(3)]


def test_a_table_in_dynamodb_local(new_app: Callable[..., Application]) -> None:
    if reason := DYNAMODB_LOCAL.missing():
        pytest.skip(reason)
    app = new_app(2)
    app.put(20)
    with Emulator(DYNAMODB_LOCAL) as emulator:
        environment = app.aws.environment_for_child()
        app.dynamodb = botocore.session.Session().create_client(
            "dynamodb",
            region_name=app.aws.region,
            endpoint_url=emulator.url,
            # It has tables of their own for each key.
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            config=Config(proxies={}),
        )
        app.create_table()
        row(app, 0, **owned_by("w1"), **at(numbers(app, 0)[1]))
        row(app, 1, **owned_by("w1"), leaseCounter=None)
        there: dict[str, str | None] = {"dynamoDBEndpoint": emulator.url}
        listed = document(app, "leases", "list", "--tip", **there)
        (one,) = listed["leases"]
        assert (one["owner"], one["state"], one["lag_s"] > 0) == ("w1", "expired", True)
        assert [other["verdict"] for other in listed["without_lease"]] == ["UNREADABLE_ROW"]
        (worker,) = document(app, "workers", "list", **there)["workers"]
        assert (worker["worker"], worker["lives"]) == ("w1", False)
        found = document(app, "records", "peek", shard_id(0), "--count", "2", **there)
        assert len(found["records"]) == 2


def test_events_of_a_worker_that_comes_and_goes(new_app: Callable[..., Application]) -> None:
    app = new_app(2, failoverTimeMillis="2000")
    app.create_table()
    row(app, 0)
    row(app, 1)
    file = str(properties_of(app, failoverTimeMillis="2000"))
    watching = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "kcl_mld",
            "leases",
            "watch",
            file,
            "--every",
            "0.3",
            "--for",
            "600",
        ],
        env=app.aws.environment_for_child(),
        stdout=subprocess.PIPE,
        text=True,
    )
    events: list[tuple[str, str, str | None, str | None]] = []

    def read_until_both(kind: str, before: str | None, after: str | None) -> None:
        assert watching.stdout is not None
        awaited = {(kind, shard_id(number), before, after) for number in (0, 1)}
        for line in watching.stdout:
            one = json.loads(line)
            events.append((one["event"], one["subject"], one["before"], one["after"]))
            if awaited <= set(events):
                return
        raise AssertionError(events)

    try:
        looked = scans(app)
        wait_until(lambda: scans(app) > looked + 1, "it looks")
        run = app.start(clientVersionConfig=COMPATIBLE)
        read_until_both("LEASE_TAKEN", None, "w1")
        assert run.stop() == 0, run.output
        read_until_both("LEASE_RELEASED", "w1", None)
    finally:
        watching.terminate()
        watching.communicate()
    assert ("WORKER_APPEARED", "w1", None, None) in events


def test_a_fleet_of_many_streams(new_app: Callable[..., Application]) -> None:
    app, other = new_app(1), new_app(1)
    many: dict[str, str | None] = {"streamName": None, "multiStream": "true"}
    run = app.start(**many, streams=f"{app.name}, {other.name}")
    wait_until(lambda: len(run.children()) == 2, "all shards are read")
    other.put(3)
    wait_until(lambda: len(run.records()) == 3, "all is read")
    more = {**many, "streams": f"{app.name}, {other.name}"}
    (one,) = document(app, "leases", "list", "--stream", other.name, **more)["leases"]
    assert (one["stream"], one["shard"], one["owner"]) == (other.name, shard_id(0), "w1")
    done = typed(app, "records", "peek", str(properties_of(app, **more)), shard_id(0))
    assert done.returncode == 2
    assert "is a shard of several streams" in done.stderr
    peeked = document(app, "records", "peek", one["lease"], **more)
    assert (peeked["lease"], peeked["records"]) == (one["lease"], [])
    run.kill()


def test_records_behind_a_checkpoint(new_app: Callable[..., Application]) -> None:
    app = new_app(2)
    app.put(60)
    first = numbers(app, 0)
    packed = aggregate(("a", b"one"), ("b", b"\xff"))
    app.kinesis.put_record(StreamName=app.name, Data=packed, PartitionKey="k", ExplicitHashKey="0")
    app.create_table()
    row(app, 0, **at(first[-3]))
    row(app, 1, **at("SHARD_END"))
    file = str(properties_of(app, aggregatedRecordsOutsideShard="deliver"))
    before = app.calls()
    done = typed(app, "records", "peek", file, shard_id(0), "--data")
    assert done.returncode == 0, done.stderr
    calls = app.calls()
    assert calls["kinesis.GetRecords"] == before.get("kinesis.GetRecords", 0) + 1
    assert "dynamodb.UpdateItem" not in {n for n in calls if calls[n] > before.get(n, 0)}
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if line and line[0].isdigit() and len(line) > 5][:2] == first[
        -2:
    ]
    assert [line[1:3] + line[5:] for line in lines if line[5:6] == ["yes"]] == [
        ["0", "a", "yes", "one"],
        ["1", "b", "yes", "base64", "/w=="],
    ]
    assert "1 read of the shard's five a second" in done.stdout
    shown = typed(app, "records", "peek", file, shard_id(0), "-o", "jsonl", "--count", "1").stdout
    (one,) = map(json.loads, shown.splitlines())
    assert one.pop("arrived_s") > 1e9
    assert one.pop("partition_key").startswith("key-")
    assert one.pop("size_bytes") in (1, 2)
    assert one == {
        "sequence_number": first[-2],
        "sub_sequence_number": 0,
        "aggregated": False,
        "dropped": False,
    }
    (*_, last) = document(app, "records", "peek", shard_id(0))["records"]
    assert (last["aggregated"], last["dropped"]) == (True, True)
    ended = document(app, "records", "peek", shard_id(1))
    assert (ended["records"], ended["reads"]) == ([], 0)
    assert "read to its end" in ended["note"]
    for position, count in (("LATEST", 0), ("TRIM_HORIZON", 10), ("AT_TIMESTAMP", 10)):
        row(app, 0, **at(position))
        found = document(app, "records", "peek", shard_id(0))
        assert (len(found["records"]), found["note"] is None) == (count, count > 0), position
    done = typed(app, "records", "peek", file, shard_id(1))
    assert "no record follows" in done.stdout


def test_what_cannot_be_peeked_at_is_said(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    file = str(properties_of(app))
    done = typed(app, "records", "peek", file, shard_id(0))
    assert done.returncode == 4
    assert "does not exist in us-east-1" in done.stderr
    copied = typed(app, "leases", "export", str(properties_of(app)))
    assert (copied.returncode, copied.stderr) == (4, done.stderr)
    app.create_table()
    row(app, 0)
    for words, why in (
        ((), "Name one shard id"),
        ((shard_id(0), shard_id(0)), "Name one shard id"),
        ((shard_id(9),), "is no lease of"),
        ((shard_id(0), "--count", "0"), "--count"),
    ):
        done = typed(app, "records", "peek", file, *words)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    done = typed(app, "records", "peek", file, shard_id(0))
    assert "no record was found behind it" in done.stdout
    row(app, 0, leaseCounter=None)
    done = typed(app, "records", "peek", file, shard_id(0))
    assert done.returncode == 2
    assert "can't be read" in done.stderr
    row(app, 0)
    app.kinesis.delete_stream(StreamName=app.name)
    done = typed(app, "records", "peek", file, shard_id(0))
    assert done.returncode == 4
    assert "delete" in done.stderr
