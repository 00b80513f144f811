"""Records that children fail at, with real children: each is processed or becomes a dead letter."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.kclpy_cache import aws_kcl
from tests.process.daemon import shard_id, wait_until
from tests.process.test_daemon_life import library
from tests.sim.stream import kpl_aggregate

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

DATA = Path(__file__).resolve().parents[1] / "data"
POISONED = DATA / "poisoned_child.py"
RAISING = DATA / "kclpy" / "poisoned.py"
THROWING = DATA / "node" / "poisoned.js"
SHELL = r"""#!/bin/sh
# Ends at the payload "17", of which it sees the base64; checkpoints at the end alone.
while IFS= read -r line; do
    action=${line#*'"action":"'}; action=${action%%'"'*}
    case $line in *MTc=*) exit 9 ;; esac
    case $action in
    shutdownRequested)
        echo '{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}'
        IFS= read -r result
        ;;
    esac
    echo "{\"action\":\"status\",\"responseFor\":\"$action\"}"
done
"""


def contained(new_app: Callable[..., Application], folder: Path, **more: Any) -> Application:
    return new_app(
        childFailurePolicy="deadletter",
        onFailureDestination=f"file:{folder / 'letters'}",
        childRestartBackoffMillis="10",
        childRestartMaxAttempts="1",
        **more,
    )


def letters(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(one.read_text()) for one in (folder / "letters").glob("*.json")]


def poisoned(how: str, *payloads: str) -> list[str]:
    return [sys.executable, str(POISONED), how, ",".join(payloads), "checkpoint"]


def processed(*runs: Running) -> list[str]:
    """Payloads that children have answered."""
    journals = [run.folder / "processed" for run in runs]
    return [text for one in journals if one.exists() for text in one.read_text().split()]


@pytest.mark.parametrize(
    ("how", "reason", "exit_code", "signal"),
    [
        ("exit", "exit", 3, None),
        pytest.param("signal", "signal", None, 9, marks=pytest.mark.proof),
        pytest.param("hang", "timeout", None, None, marks=pytest.mark.proof),
        pytest.param("protocol", "protocol", None, None, marks=pytest.mark.proof),
        ("status", "status", None, None),
    ],
)
def test_the_record_that_a_child_fails_at_is_found_kept_and_skipped(
    new_app: Callable[..., Application],
    tmp_path: Path,
    how: str,
    reason: str,
    exit_code: int | None,
    signal: int | None,
) -> None:
    app = contained(
        new_app,
        tmp_path,
        timeoutInSeconds="5" if how == "hang" else "100",
        deadLetterRecords="true",
        deadLetterStderr="true",
    )
    put = app.put(6, "key")
    run = app.start(executable=poisoned(how, "3"))
    wait_until(lambda: set(processed(run)) == set(put) - {"3"}, "all others are processed")
    wait_until(lambda: letters(tmp_path), "a dead letter")
    assert run.stop() == 0, run.output
    (letter,) = letters(tmp_path)
    assert (letter["reason"], letter["exitCode"], letter["signal"]) == (reason, exit_code, signal)
    assert (letter["recordCount"], letter["attempts"]) == (1, 2)
    assert letter["streamArn"].endswith(f":stream/{app.name}")
    assert letter["stderrTail"].endswith("cannot process a record")
    assert [record["data"] for record in letter["records"]] == ["Mw=="]
    row = app.items()[shard_id(0)]
    assert "kclMldSkip" not in row
    assert "suspects" not in row["kclMldFailure"]


def test_a_shell_script_that_checkpoints_at_its_end_gets_the_others_once_more(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    script = tmp_path / "child.sh"
    script.write_text(SHELL)
    script.chmod(0o755)
    app = contained(new_app, tmp_path)
    app.put(20, "key")
    run = app.start(executable=(str(script),))
    wait_until(lambda: "kclMldSkip" in app.items().get(shard_id(0), {}), "it is skipped")
    wait_until(lambda: app.items()[shard_id(0)]["checkpoint"] == "TRIM_HORIZON", "no checkpoint")
    (letter,) = letters(tmp_path)
    assert app.items()[shard_id(0)]["kclMldSkip"] == [letter["firstSequenceNumber"]]
    app.put(1, "key")
    assert run.stop() == 0, run.output
    row = app.items()[shard_id(0)]
    if row["checkpoint"].isdecimal():
        assert ("kclMldSkip" in row) is (
            int(row["checkpoint"]) < int(letter["firstSequenceNumber"])
        )


@pytest.mark.parametrize(
    ("version", "kind"),
    [pytest.param("1", "real", marks=pytest.mark.proof), ("3", "real"), ("3", "shim")],
)
def test_an_exception_of_a_kclpy_processor_is_a_failure_and_what_it_confirmed_comes_once(
    new_app: Callable[..., Application], tmp_path: Path, version: str, kind: str
) -> None:
    app = contained(new_app, tmp_path)
    put = app.put(3, "key")
    app.kinesis.put_record(StreamName=app.name, Data=b"bad", PartitionKey="key")
    put += app.put(3, "key")
    run = app.start(executable=[sys.executable, str(RAISING), version], environment=library(kind))
    wait_until(lambda: len(processed(run)) >= len(put), "all others are processed")
    assert run.stop() == 0, run.output
    assert processed(run) == put
    (letter,) = letters(tmp_path)
    assert letter["reason"] == "exception"
    assert "no such customer" in letter["message"]


def test_a_kclpy_processor_that_checkpoints_by_the_number_alone_goes_on_inside_an_aggregate(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = contained(new_app, tmp_path)
    pairs = [("key", text) for text in (b"0", b"bad", b"2", b"3")]
    app.kinesis.put_record(StreamName=app.name, Data=kpl_aggregate(pairs), PartitionKey="key")
    program = [sys.executable, str(RAISING), "3", "number"]
    run = app.start(executable=program, environment=library("real"))
    wait_until(lambda: "3" in processed(run), "the rest of the aggregate is processed")
    assert run.stop() == 0, run.output
    assert processed(run) == ["0", "2", "3"]
    (letter,) = letters(tmp_path)
    assert letter["firstSubSequenceNumber"] == 1


def test_a_program_of_aws_kcl_that_throws_is_a_failure(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    folder, node = aws_kcl(), shutil.which("node")
    if folder is None or node is None:
        pytest.skip("Node and aws-kcl cannot be had here")
    app = contained(new_app, tmp_path)
    put = app.put(3, "key")
    app.kinesis.put_record(StreamName=app.name, Data=b"bad", PartitionKey="key")
    put += app.put(3, "key")
    run = app.start(executable=(node, str(THROWING)), environment={"NODE_PATH": str(folder)})
    wait_until(lambda: len(processed(run)) >= len(put), "all others are processed")
    assert run.stop() == 0, run.output
    assert processed(run) == put
    (letter,) = letters(tmp_path)
    assert letter["reason"] == "exit"
    assert "no such customer" in letter["message"]


def test_a_user_record_that_is_pushed_is_set_aside_alone(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = contained(new_app, tmp_path, retrievalMode="FANOUT")
    pairs = [("key", str(number).encode()) for number in range(5)]
    app.kinesis.put_record(StreamName=app.name, Data=kpl_aggregate(pairs), PartitionKey="key")
    run = app.start(executable=poisoned("exit", "2"), idleTimeBetweenReadsInMillis=None)
    wait_until(lambda: set(processed(run)) == set("0134"), "all others are processed")
    assert run.stop() == 0, run.output
    (letter,) = letters(tmp_path)
    assert letter["firstSubSequenceNumber"] == letter["lastSubSequenceNumber"] == 2
    assert letter["aggregated"] is True
    assert app.items()[shard_id(0)]["checkpointSubSequenceNumber"] == 4


def test_a_shard_with_too_many_letters_is_held_while_others_go_on(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = contained(new_app, tmp_path, shards=2, deadLetterLimit="1", bisectBatchOnFailure="false")
    run = app.start(executable=poisoned("exit", "a", "b"))
    one, other = "0", str(2**127)

    def put(text: str, key: str) -> None:
        app.kinesis.put_record(
            StreamName=app.name, Data=text.encode(), PartitionKey="k", ExplicitHashKey=key
        )

    put("a", one)
    wait_until(lambda: letters(tmp_path), "the first letter")
    put("b", one)
    run.wait_for_log("the shard is held, nothing is read")
    put("c", other)
    wait_until(lambda: "c" in processed(run), "the other shard goes on")
    row = app.items()[shard_id(0)]
    assert "it had 1 dead letter within five minutes" in json.loads(row["kclMldFailure"])["held"]
    assert row["leaseOwner"] == "w1"
    wait_until(lambda: app.items()[shard_id(0)]["leaseCounter"] > row["leaseCounter"], "renewed")
    started = f"{shard_id(0)}: started child"
    before = run.output.count(started)
    file = run.folder / "app.properties"
    command = ["leases", "release", str(file), shard_id(0), "--execute", "--reason", "mended"]
    subprocess.run(
        [sys.executable, "-m", "kcl_mld", *command],
        env=os.environ | app.aws.environment_for_child(),
        check=True,
    )
    wait_until(lambda: run.output.count(started) > before, "the next owner tries again")
    assert run.stop() == 0, run.output
    assert len(letters(tmp_path)) == 1


def test_a_shard_whose_letter_finds_no_room_waits_until_there_is_some(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    # The batch is one letter, larger than a file may be, which logs and journals are not.
    batch = {"bisectBatchOnFailure": "false", "deadLetterRecords": "true"}
    app = contained(new_app, tmp_path, shards=2, **batch)
    for number in range(1000):
        app.kinesis.put_record(
            StreamName=app.name,
            Data=b"bad" if number == 500 else b"good",
            PartitionKey="k" * 200,
            ExplicitHashKey="0",
        )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        run = app.start(executable=poisoned("exit", "bad"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run.wait_for_log("cannot keep the dead letter of records")
    app.kinesis.put_record(
        StreamName=app.name, Data=b"other", PartitionKey="k", ExplicitHashKey=str(2**127)
    )
    wait_until(lambda: "other" in processed(run), "the other shard goes on")
    (said, *_) = (line for line in run.output.splitlines() if "cannot keep the" in line)
    assert "ERROR" in said
    assert re.search(rf"{shard_id(0)}: .* of records \d+\.\.\d+; nothing is skipped", said)
    assert "File too large" in said
    assert app.items()[shard_id(0)]["checkpoint"] == "TRIM_HORIZON"
    assert letters(tmp_path) == []
    resource.prlimit(run.pid, resource.RLIMIT_FSIZE, before)
    wait_until(lambda: letters(tmp_path), "the letter")
    wait_until(lambda: app.items()[shard_id(0)]["checkpoint"] != "TRIM_HORIZON", "it is skipped")
    assert run.stop() == 0, run.output
    (letter,) = letters(tmp_path)
    assert letter["recordCount"] == 1000


@pytest.mark.parametrize("service", ["sqs", "s3"])
def test_letters_go_to_aws(new_app: Callable[..., Application], service: str) -> None:
    app = new_app()
    name = app.name[-60:].strip("-")
    client = app.aws.client(service)
    if service == "sqs":
        url = client.create_queue(QueueName=name)["QueueUrl"]
        destination = f"sqs:{url}"
    else:
        client.create_bucket(Bucket=name)
        destination = f"s3://{name}/letters"
    app.put(1)
    run = app.start(
        executable=poisoned("exit", "0"),
        childFailurePolicy="deadletter",
        onFailureDestination=destination,
        childRestartBackoffMillis="10",
        childRestartMaxAttempts="1",
    )
    run.wait_for_log("skipped; dead letter")
    assert run.stop() == 0, run.output
    if service == "sqs":
        (message,) = client.receive_message(QueueUrl=url)["Messages"]
        text = message["Body"]
    else:
        (one,) = client.list_objects_v2(Bucket=name)["Contents"]
        text = client.get_object(Bucket=name, Key=one["Key"])["Body"].read()
        assert one["Key"] == f"letters/{json.loads(text)['id']}.json"
    assert json.loads(text)["reason"] == "exit"


def test_a_replay_reads_from_the_stream_what_a_letter_lacks(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = contained(new_app, tmp_path)
    pairs = [("key", str(number).encode()) for number in range(5)]
    app.put(3, "key")
    app.kinesis.put_record(StreamName=app.name, Data=kpl_aggregate(pairs), PartitionKey="key")
    run = app.start(executable=poisoned("exit", "4"))
    wait_until(lambda: letters(tmp_path), "a dead letter")
    assert run.stop() == 0, run.output
    (letter,) = letters(tmp_path)
    program = poisoned("exit", "none")
    file = tmp_path / "mended.properties"
    text = (run.folder / "app.properties").read_text()
    file.write_text(re.sub("executableName.*", f"executableName = {' '.join(program)}", text))
    mended = tmp_path / "mended"
    mended.mkdir()
    environment = os.environ | app.aws.environment_for_child() | {"JOURNAL": str(mended)}
    command = [
        sys.executable,
        "-m",
        "kcl_mld",
        "dead-letters",
        "replay",
        str(file),
        letter["id"][:8],
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{letter['id']}: processed\n"
    assert (mended / "processed").read_text() == "4\n"


def test_it_is_refused_beside_the_spark_child(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=0)
    run = app.start(
        executable=("kcl-mld-spark", "app.py"),
        childFailurePolicy="deadletter",
        onFailureDestination="file:letters",
    )
    assert run.ends() == 2, run.output
    assert "spark.function.onError" in run.output
