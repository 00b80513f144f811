"""Whole lives: unmodified kclpy programs, resharding, aggregated records, positions to start at."""

from __future__ import annotations

import base64
import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.aggregate import aggregate
from tests.kclpy_cache import kclpy
from tests.process.daemon import (
    JOURNALING,
    PATIENCE_S,
    RAISING,
    STATUS,
    heard,
    journals,
    shard_id,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process


def journaling(version: str, when: str = "batch") -> list[str]:
    return [sys.executable, str(JOURNALING), version, when]


def library(name: str) -> dict[str, str]:
    """Environment in which a program finds the real kclpy, or only ours."""
    if name == "shim":
        return {}
    folder = kclpy()
    if folder is None:
        pytest.skip("amazon_kclpy cannot be fetched here")
    return {"PYTHONPATH": str(folder)}


def seen(run: Running) -> list[str]:
    """Payloads in the order in which the programs saw them."""
    entries = [entry for journal in journals(run).values() for entry in journal]
    entries.sort(key=lambda entry: entry["at"])
    return [
        record[3] for entry in entries if entry["saw"] == "records" for record in entry["records"]
    ]


@pytest.mark.parametrize("prefork", ["false", "true"])
def test_modules_of_the_users_that_have_our_folders_names_are_theirs(
    new_app: Callable[..., Application], tmp_path: Path, prefork: str
) -> None:
    """Beside the program and on the path of daemon, template and child."""
    lines = []
    for name in ("mld", "protocol"):
        (tmp_path / f"{name}.py").write_text("OWNER = 'the user'\n")
        lines.append(f"import {name}\nassert {name}.OWNER == 'the user'\n")
    program = tmp_path / "app.py"
    program.write_text("".join(lines) + JOURNALING.read_text("utf-8"))
    app = new_app(childPrefork=prefork)
    put = app.put(10)
    executable = [sys.executable, str(program), "3", "batch"]
    run = app.start(executable=executable, environment={"PYTHONPATH": str(tmp_path)})
    wait_until(lambda: len(seen(run)) >= 10, "every record")
    assert sorted(seen(run)) == sorted(put)
    assert run.stop() == 0, run.output


@pytest.mark.parametrize(
    ("version", "kind"),
    [("1", "real"), ("2", "real"), ("3", "real"), ("1", "shim"), ("2", "shim"), ("3", "shim")],
)
def test_a_kclpy_program_sees_every_record_in_order_and_a_stop(
    new_app: Callable[..., Application], version: str, kind: str
) -> None:
    app = new_app()
    put = app.put(30, "one key")
    run = app.start(executable=journaling(version), environment=library(kind))
    wait_until(lambda: len(seen(run)) >= 30, "30 records")
    last = app.put(5, "one key")
    wait_until(lambda: len(seen(run)) >= 35, "5 more")
    assert run.stop() == 0, run.output
    assert seen(run) == put + last
    (journal,) = journals(run).values()
    assert ("site-packages" in journal[0]["library"] or "mld" in journal[0]["library"]) is (
        kind == "shim"
    )
    told = [entry["saw"] for entry in journal if entry["saw"] not in {"records", "checkpoint"}]
    end = ["shutdown"] if version != "3" else ["lease_lost"]
    assert told == ["initialize", "shutdown_requested", *end, "EOF"]
    assert "refused" not in {entry["saw"] for entry in journal}
    row = app.items()[shard_id(0)]
    assert row["checkpoint"].isdecimal()
    assert "leaseOwner" not in row


@pytest.mark.parametrize(
    ("version", "kind"), [("1", "real"), ("2", "real"), ("3", "real"), ("1", "shim"), ("3", "shim")]
)
def test_an_exception_of_a_kclpy_processor_is_told_and_may_be_a_failure(
    new_app: Callable[..., Application], tmp_path: Path, version: str, kind: str
) -> None:
    app = new_app()
    app.put(3, "one key")
    program = [sys.executable, str(RAISING), version, str(tmp_path / "raised")]
    run = app.start(executable=program, environment=library(kind))
    told = f"{shard_id(0)}: processRecords: its processor raised an exception: ValueError: no such"
    run.wait_for_log(told)
    assert run.stop() == 0, run.output
    (error,) = [line for line in run.output.splitlines() if told in line]
    assert re.search(r"customer; records \d+ to \d+ may not be processed", error)
    assert json.loads(error)["level"] == "ERROR"
    assert "processed 3" not in run.output

    (tmp_path / "raised").unlink()
    run = app.start(
        executable=program,
        environment=library(kind),
        childExceptionPolicy="fail",
        childFailurePolicy="restart",
        childRestartBackoffMillis="100",
    )
    run.wait_for_log("processed 3")
    assert run.stop() == 0, run.output
    assert "child failed at processRecords: its processor raised an exception" in run.output
    assert "a new child starts" in run.output
    assert app.items()[shard_id(0)]["checkpoint"].isdecimal()


def test_children_of_a_split_and_a_merge_start_after_their_parents_ended(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    put = app.put(60)
    run = app.start(executable=journaling("3"), environment=library("real"))
    wait_until(lambda: len(seen(run)) >= 60, "the first records")
    app.split(0)  # makes 2 and 3
    put += app.put(60)
    app.merge(3, 1)  # makes 4
    put += app.put(60)
    wait_until(lambda: len(set(seen(run))) >= 180, "every record")
    ended = {shard_id(0), shard_id(1), shard_id(3)}
    wait_until(
        lambda: {k for k, row in app.items().items() if row["checkpoint"] == "SHARD_END"} == ended,
        "the ends of 0, 1 and 3",
    )
    assert run.stop() == 0, run.output
    assert sorted(seen(run), key=int) == put
    first, last = {}, {}
    for journal in journals(run).values():
        shard = journal[0]["shard"]
        first[shard] = journal[0]["at"]
        ends = [entry["at"] for entry in journal if entry["saw"] == "shard_ended"]
        if ends:
            last[shard] = ends[0]
    parents = {2: (0,), 3: (0,), 4: (1, 3)}
    assert set(last) == ended
    for child, of in parents.items():
        for parent in of:
            assert last[shard_id(parent)] < first[shard_id(child)]
    rows = app.items()
    assert rows[shard_id(0)]["childShardIds"] == [shard_id(2), shard_id(3)]
    assert rows[shard_id(4)]["parentShardId"] == [shard_id(1), shard_id(3)]


def test_keys_keep_their_order_through_a_split(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(100)
    run = app.start()
    run.wait_for(lambda r: len(r.records()) >= 100, PATIENCE_S)
    app.split(0)
    app.put(100)
    assert run.wait_for(lambda r: len(r.records()) >= 200, PATIENCE_S), run.output
    assert run.stop() == 0
    last: dict[str, int] = {}
    for record in run.records():
        number = int(base64.b64decode(record["data"]))
        assert last.get(record["partitionKey"], -1) < number
        last[record["partitionKey"]] = number


# --- KPL


def test_reading_goes_on_inside_an_aggregated_record(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.kinesis.put_record(
        StreamName=app.name,
        PartitionKey="outer",
        Data=aggregate(("a", b"r0"), ("b", b"r1"), ("c", b"r2"), ("d", b"r3")),
    )
    script = {
        "processRecords": [[["checkpoint", "$first", 1], ["checkpoint", "$first", 0], STATUS]]
    }
    run = app.start(script)
    run.wait_for_actions("checkpoint", 2)
    assert run.stop() == 0
    (child,) = run.children()
    assert heard(child)[1:5] == [
        "processRecords",
        "checkpoint",
        "checkpoint IllegalArgumentException",
        "shutdownRequested",
    ]
    assert [(r["subSequenceNumber"], r["partitionKey"]) for r in run.records()] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
        (3, "d"),
    ]
    sequence_number = run.records()[0]["sequenceNumber"]
    row = app.items()[shard_id(0)]
    assert (row["checkpoint"], row["checkpointSubSequenceNumber"]) == (sequence_number, 1)

    again = app.start(worker="w2")
    again.wait_for_actions("checkpoint")
    assert again.stop() == 0
    initialize = json.loads(again.lines()[0])
    assert (initialize["sequenceNumber"], initialize["subSequenceNumber"]) == (sequence_number, 1)
    assert [base64.b64decode(r["data"]) for r in again.records()] == [b"r2", b"r3"]
    row = app.items()[shard_id(0)]
    assert (row["checkpoint"], row["checkpointSubSequenceNumber"]) == (sequence_number, 3)


def test_a_kclpy_program_may_checkpoint_every_record_of_an_aggregate(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.kinesis.put_record(
        StreamName=app.name,
        PartitionKey="outer",
        Data=aggregate(("a", b"r0"), ("b", b"r1"), ("c", b"r2")),
    )
    run = app.start(executable=journaling("3", "each"), environment=library("real"))
    wait_until(
        lambda: app.items().get(shard_id(0), {}).get("checkpointSubSequenceNumber") == 2, "2"
    )
    assert run.stop() == 0
    assert "refused" not in str(journals(run))
    assert seen(run) == ["r0", "r1", "r2"]


# --- where to start, what to deliver


@pytest.mark.parametrize("position", ["LATEST", "AT_TIMESTAMP"])
def test_a_fresh_application_starts_where_it_is_told(
    new_app: Callable[..., Application], position: str
) -> None:
    app = new_app()
    old = app.put(5, "key")
    if position == "LATEST":
        told = {"initialPositionInStream": "LATEST"}
    else:
        (record, *_) = read_all(app)
        late = record["ApproximateArrivalTimestamp"].timestamp() - 3600
        told = {"initialPositionInStreamExtended": str(int(late)), "initialPositionInStream": None}
    run = app.start({"processRecords": [[STATUS]]}, **told)
    run.wait_for_actions("initialize")
    initialize = json.loads(run.lines()[0])
    assert (initialize["sequenceNumber"], initialize["subSequenceNumber"]) == (position, 0)
    assert app.items()[shard_id(0)]["checkpoint"] == position
    wanted = old if position == "AT_TIMESTAMP" else []
    number = 0
    while len(run.records()) < len(wanted) + 1:  # LATEST begins with the first read, not with init
        if position == "LATEST":
            app.put(1, "key")
        else:
            number = number or len(app.put(1, "key"))
        time.sleep(0.3)
        assert run.exit_code(0) is None, run.output
    found = [base64.b64decode(r["data"]).decode() for r in run.records()]
    assert found[: len(wanted)] == wanted
    if position == "LATEST":
        assert not set(found) & set(old)
    assert run.stop() == 0


def read_all(app: Application) -> list[dict[str, Any]]:
    iterator = app.kinesis.get_shard_iterator(
        StreamName=app.name, ShardId=shard_id(0), ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    found: list[dict[str, Any]] = app.kinesis.get_records(ShardIterator=iterator)["Records"]
    return found


def test_a_timestamp_between_two_records_skips_the_first(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(3, "key")
    newest = max(r["ApproximateArrivalTimestamp"].timestamp() for r in read_all(app))
    second = int(newest) + 1  # the file has whole seconds only
    wait_until(lambda: time.time() > second, "the next second")
    later = app.put(3, "key")
    run = app.start(initialPositionInStreamExtended=str(second), initialPositionInStream=None)
    assert run.wait_for(lambda r: len(r.records()) >= 3, PATIENCE_S), run.output
    assert run.stop() == 0
    assert [base64.b64decode(r["data"]).decode() for r in run.records()] == later


def test_empty_batches_are_delivered_where_the_file_says_so(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(callProcessRecordsEvenForEmptyRecordList="true")
    run = app.start({"processRecords": [[STATUS]]})
    run.wait_for_actions("processRecords", 3)
    assert run.stop() == 0
    empty = [line for line in run.lines() if line.startswith('{"action":"processRecords"')]
    assert set(empty) == {'{"action":"processRecords","records":[],"millisBehindLatest":0}'}


def test_without_that_flag_a_silent_stream_tells_a_child_nothing(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    before = app.calls().get("kinesis.GetRecords", 0)
    run = app.start()
    wait_until(lambda: app.calls().get("kinesis.GetRecords", 0) >= before + 4, "four reads")
    assert run.stop() == 0
    assert run.actions() == ["initialize", "shutdownRequested", "checkpoint", "leaseLost"]


def test_a_finished_parent_leaves_the_table_when_its_children_have_progress(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(completedLeaseCleanupIntervalMillis="1000", leaseCleanupIntervalMillis="1000")
    app.put(10)
    run = app.start()
    run.wait_for_actions("processRecords")
    app.split(0)
    app.put(20)
    wait_until(lambda: set(app.owners()) == {shard_id(1), shard_id(2)}, "0 is gone")
    assert run.stop() == 0
    assert heard(run.child_of(0))[-3:] == ["shardEnded", "checkpoint", "EOF"]
