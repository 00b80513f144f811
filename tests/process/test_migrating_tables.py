"""``kcl-mld leases migrate`` on a real server, between runs of real workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from tests.process.daemon import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.process.daemon import Application, Running


def command(app: Application, file: Path, to: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "kcl_mld", "leases", "migrate", str(file), "--to", to, *arguments]


def migrate(app: Application, run: Running, to: str, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        command(app, run.folder / "app.properties", to, *arguments),
        env=app.aws.environment_for_child(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stdout


def without_marks(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows without the name of their stream, which no multi-stream row has."""
    return {
        key: {name: value for name, value in row.items() if name != "kclMldStream"}
        for key, row in rows.items()
    }


def test_a_table_is_moved_there_and_back_and_nothing_is_read_again(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=3, failoverTimeMillis="2000")
    first = set(app.put(60))
    run = app.start(worker="blue-1")
    assert wait_until(lambda: len(run.records()) == 60, "all records were read")
    code, output = migrate(app, run, "multi-stream", "--apply")
    assert code == 6, output
    assert "worker blue-1 wrote row shardId-" in output
    assert run.stop() == 0, run.output

    before = app.items()
    assert migrate(app, run, "multi-stream")[0] == 0
    assert app.items() == before
    code, output = migrate(app, run, "multi-stream", "--apply")
    assert code == 0, output
    moved = app.items()
    epoch = int(
        app.kinesis.describe_stream_summary(StreamName=app.name)["StreamDescriptionSummary"][
            "StreamCreationTimestamp"
        ].timestamp()
    )
    identifier = f"123456789012:{app.name}:{epoch}"
    assert {key: value["streamName"] for key, value in moved.items()} == {
        f"{identifier}:{key}": identifier for key in before
    }
    refused = app.start(worker="blue-2")
    assert refused.ends() == 5
    assert app.items() == moved

    code, output = migrate(app, run, "single-stream", "--apply")
    assert code == 0, output
    assert app.items() == without_marks(before)
    second = set(app.put(30))
    run = app.start(worker="blue-3")
    assert wait_until(lambda: len(run.records()) == 30, "the new records were read")
    assert len(first | second) == 90
    assert run.stop() == 0, run.output
    assert len(run.records()) == 30


def test_a_move_that_is_killed_goes_on(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=0)
    app.create_table()
    for number in range(40):
        app.dynamodb.put_item(TableName=app.name, Item=row(number))
    before = app.items()
    run = app.start(worker="w1", streamName="absent")
    assert run.ends() == 4
    arguments = ("--apply", "--stream", "123456789012:s:77")
    file = run.folder / "app.properties"
    text = file.read_text() + "\nfailoverTimeMillis = 200\n"
    file.write_text(text)
    killed = 0
    for wanted in (25, 60):  # while copying, while deleting
        process = subprocess.Popen(
            command(app, file, "multi-stream", *arguments),
            env=app.aws.environment_for_child(),
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + PATIENCE_S
        while progress(app) < wanted and process.poll() is None:
            assert time.monotonic() < deadline
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
        kept = {key.rpartition(":")[2] for key in app.items()}
        assert kept == set(before), "every shard has a row"
    assert killed
    assert migrate(app, run, "multi-stream", *arguments)[0] == 0
    assert set(app.items()) == {f"123456789012:s:77:{key}" for key in before}
    code, output = migrate(app, run, "single-stream", *arguments)
    assert code == 0, output
    assert app.items() == before


def progress(app: Application) -> int:
    """Writes so far of a move of forty rows: copies, then deleted rows."""
    keys = app.items()
    copies = sum(":" in key for key in keys)
    return copies + (40 - (len(keys) - copies))


def row(number: int) -> dict[str, Any]:
    return {
        "leaseKey": {"S": f"shardId-{number:012d}"},
        "leaseCounter": {"N": str(number)},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": str(1000 + number)},
        "checkpointSubSequenceNumber": {"N": "0"},
        "parentShardId": {"SS": ["shardId-x", "shardId-y"]},
        "throughputKBps": {"N": "0.002952"},
        "mine": {"M": {"deep": {"L": [{"B": b"\x00"}, {"BOOL": True}]}}},
    }
