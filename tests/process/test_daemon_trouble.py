"""Bad moments: stops in the middle of things, outages, frozen workers, children with odd pipes."""

from __future__ import annotations

import base64
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import (
    CHECKPOINT,
    GOOD,
    PATIENCE_S,
    STATUS,
    alive,
    heard,
    killed_children_are_gone,
    shard_id,
    wait_until,
)
from tests.process.test_daemon_watched import free_address, get

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process


def data(run: Running) -> list[str]:
    return [base64.b64decode(record["data"]).decode() for record in run.records()]


# --- stops in the middle


def stop_before_the_gate_opens(run: Running, address: str) -> None:
    run.signal(signal.SIGTERM)
    wait_until(
        lambda: all(one["reason"] for one in get(address, "/leases")[1]["leases"]),
        "every shard is asked to end",
    )
    run.open_gate()
    assert run.ends() == 0, run.output


def test_a_stop_waits_for_a_child_that_is_still_initializing(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    address = free_address()
    slow = {**GOOD, "initialize": [[["gate"], STATUS]]}
    run = app.start(slow, arguments=("--http", address))
    run.wait_for_actions("initialize")
    stop_before_the_gate_opens(run, address)
    (child,) = run.children()
    assert heard(child)[-1] == "EOF"
    assert "processRecords" not in heard(child)
    assert app.owners() == {shard_id(0): None}


def test_a_stop_releases_the_lease_of_a_shard_that_waits_for_its_parent(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    app.split(0)
    # The table knows the children before the parent has ended.
    app.create_table()
    half = 2**127
    ranges = {0: (0, 2 * half - 1), 1: (0, half - 1), 2: (half, 2 * half - 1)}
    for number, (first, last) in ranges.items():
        item = {
            "leaseKey": {"S": shard_id(number)},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": {"N": "0"},
            "leaseCounter": {"N": "0"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
            "startingHashKey": {"S": str(first)},
            "endingHashKey": {"S": str(last)},
        }
        if number:
            item["parentShardId"] = {"SS": [shard_id(0)]}  # type: ignore[dict-item]
        app.dynamodb.put_item(TableName=app.name, Item=item)
    address = free_address()
    slow = {**GOOD, "processRecords": [[["gate"], CHECKPOINT, STATUS]]}
    run = app.start(slow, arguments=("--http", address))
    run.wait_for_actions("processRecords")
    wait_until(lambda: set(app.owners().values()) == {"w1"}, "all three are held")
    stop_before_the_gate_opens(run, address)
    assert set(app.owners().values()) == {None}
    assert len(run.children()) == 1


def test_a_stop_while_the_table_is_away_ends_in_time(new_app: Callable[..., Application]) -> None:
    app = new_app(shutdownGraceMillis="4000", failoverTimeMillis="30000")
    app.put(1)
    run = app.start()
    run.wait_for_actions("checkpoint")
    app.aws.control(faults=[{"service": "dynamodb", "contains": app.name, "drop": True}])
    assert run.stop() == 143, run.output
    app.aws.control(faults=[])
    assert "shutdownRequested" in run.actions()
    assert "1 lease will expire" in run.output
    assert app.owners() == {shard_id(0): "w1"}
    killed_children_are_gone(run)


# --- starts


def test_workers_of_a_new_application_start_while_dynamodb_throttles(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(20)
    fault = {"service": "dynamodb", "code": "ThrottlingException", "probability": 0.4}
    app.aws.control(faults=[fault])
    runs = [app.start(worker=f"w{number}") for number in range(3)]
    for run in runs:
        run.wait_for_log("Initialized as worker")
    wait_until(lambda: sum(len(run.records()) for run in runs) >= 20, "all records were read")
    app.aws.control(faults=[])
    assert [run.stop() for run in runs] == [0, 0, 0]


def test_a_table_that_answers_late_does_not_keep_a_worker_from_starting(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.aws.control(faults=[{"service": "dynamodb", "contains": app.name, "delay_s": 2.5}])
    run = app.start()
    run.wait_for_log("Initialized as worker")
    app.aws.control(faults=[])
    assert "raise failoverTimeMillis" in run.output
    assert run.stop() == 0, run.output


# --- outages


def test_after_an_outage_of_the_table_the_worker_goes_on(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(failoverTimeMillis="2500")
    app.put(5, "key")
    run = app.start()
    run.wait_for_actions("checkpoint")
    app.aws.control(faults=[{"service": "dynamodb", "contains": app.name, "drop": True}])
    # By its own clock the lease is not its any more.
    run.wait_for_actions("leaseLost")
    app.aws.control(faults=[])
    put = app.put(5, "key")
    assert run.wait_for(lambda r: len(r.children()) >= 2, PATIENCE_S), run.output
    wait_until(lambda: data(run)[-1:] == put[-1:], "the last record")
    assert run.stop() == 0, run.output
    assert data(run) == [str(number) for number in range(10)]


def test_after_an_outage_of_the_stream_reading_goes_on(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(5, "key")
    run = app.start()
    run.wait_for_actions("checkpoint")
    rule = {"service": "kinesis", "operation": "GetRecords", "contains": "", "drop": True}
    before = app.aws.control(faults=[rule])["faults"].get("kinesis.GetRecords", 0)
    wait_until(
        lambda: app.aws.control()["faults"].get("kinesis.GetRecords", 0) >= before + 3, "failures"
    )
    app.aws.control(faults=[])
    app.put(5, "key")
    assert run.wait_for(lambda r: len(r.records()) >= 10, PATIENCE_S), run.output
    assert run.stop() == 0, run.output
    assert data(run) == [str(number) for number in range(10)]
    assert len(run.children()) == 1


def test_a_frozen_worker_finds_its_lease_taken_when_it_wakes(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(failoverTimeMillis="4000")
    app.put(5, "key")
    first = app.start(worker="w1")
    first.wait_for_actions("checkpoint")
    second = app.start(worker="w2")
    first.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: app.owners() == {shard_id(0): "w2"}, "w2 has taken over")
        put = app.put(5, "key")
        wait_until(lambda: data(second)[-1:] == put[-1:], "the last record")
    finally:
        first.signal(signal.SIGCONT)
    first.wait_for_actions("leaseLost")
    assert app.owners() == {shard_id(0): "w2"}
    assert second.stop() == 0, second.output
    assert first.stop() == 0, first.output
    assert data(first)[:5] + data(second) == [str(number) for number in range(10)]


# --- children with odd pipes


def program(app: Application, text: str) -> tuple[str, str]:
    file = app.folder / "program.py"
    file.write_text(text)
    return (sys.executable, str(file))


POLITE = """
import json, os, subprocess, sys, time

def answer(message):
    print(json.dumps({"action": "status", "responseFor": message["action"]}), flush=True)

def ask():
    print(json.dumps({"action": "checkpoint", "sequenceNumber": None}), flush=True)
    sys.stdin.readline()

def live(on_records):
    for line in sys.stdin:
        message = json.loads(line)
        if message["action"] == "processRecords":
            on_records(message)
            ask()
        answer(message)
"""


def test_a_child_may_babble_without_end(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(3)
    text = (
        POLITE
        + """
def babble(message):
    for _ in range(20000):
        print("a line that is no message, and a long one at that", flush=False)
    sys.stdout.write("x" * 5_000_000 + "\\n")
    for _ in range(20000):
        print("another line", file=sys.stderr)
    print("the end", file=sys.stderr, flush=True)

live(babble)
"""
    )
    run = app.start(executable=program(app, text))
    wait_until(lambda: app.items().get(shard_id(0), {}).get("checkpoint", "T").isdecimal(), "done")
    assert run.stop() == 0, run.output[-3000:]
    assert "lines a second: in" in run.output
    assert len(run.output) < 4_000_000, "lines are counted beyond a rate, and long ones cut"


def test_a_grandchild_that_keeps_the_pipes_open_does_not_hold_the_stop_up(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    app.put(1)
    pid_file = app.folder / "pid"
    text = (
        POLITE
        + f"""
def fork(message):
    made = subprocess.Popen(["sleep", "600"])
    with open({str(pid_file)!r}, "w") as out:
        out.write(str(made.pid))

live(fork)
"""
    )
    run = app.start(executable=program(app, text))
    wait_until(lambda: app.items().get(shard_id(0), {}).get("checkpoint", "T").isdecimal(), "done")
    assert run.stop() == 0, run.output
    assert app.owners() == {shard_id(0): None}
    grandchild = int(pid_file.read_text())
    wait_until(lambda: not alive(grandchild), "the grandchild is gone")


def test_a_child_that_closes_its_stdout_has_failed(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(1)
    text = (
        POLITE
        + """
def close(message):
    os.close(1)
    time.sleep(600)

live(close)
"""
    )
    run = app.start(executable=program(app, text))
    assert run.ends() == 1, run.output
    assert "child failed at processRecords" in run.output


def test_a_child_that_does_not_read_large_batches_is_no_reason_to_lose_the_lease(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(failoverTimeMillis="2000")
    for start in range(8):
        app.kinesis.put_records(
            StreamName=app.name,
            Records=[
                {"Data": bytes([start]) * 500_000, "PartitionKey": str(number)}
                for number in range(4)
            ],
        )
    text = (
        POLITE
        + """
answer(json.loads(sys.stdin.readline()))
time.sleep(5)  # the pipe is full now, and two failover times pass
live(lambda message: print(len(message["records"]), file=sys.stderr, flush=True))
"""
    )
    run = app.start(executable=program(app, text))
    wait_until(lambda: app.items().get(shard_id(0), {}).get("checkpoint", "T").isdecimal(), "done")
    assert run.stop() == 0, run.output[-3000:]
    assert app.items()[shard_id(0)]["ownerSwitchesSinceCheckpoint"] == 0
    assert "leaseLost" not in run.output


def test_text_of_all_kinds_reaches_the_child(new_app: Callable[..., Application]) -> None:
    app = new_app()
    keys = ["Zürich", "日本", "\u2028", 'quote"\\', "🛫", "tab\tnewline\n"]
    for key in keys:
        app.kinesis.put_record(
            StreamName=app.name, PartitionKey=key, Data=os.urandom(10), ExplicitHashKey="7"
        )
    run = app.start()
    assert run.wait_for(lambda r: len(r.records()) >= len(keys), PATIENCE_S), run.output
    assert run.stop() == 0, run.output
    assert [record["partitionKey"] for record in run.records()] == keys
