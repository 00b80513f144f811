"""Exit codes of a daemon that cannot work here, and what it leaves untouched."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

pytestmark = pytest.mark.process


def test_a_stream_that_does_not_exist_ends_the_start_with_4(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=0, schedulerInitializationBackoffTimeMillis="20")
    run = app.start()
    assert run.ends() == 4, run.output
    assert app.name in run.output
    assert "create it or correct the name" in run.output
    assert run.children() == []


def test_a_stream_that_appears_during_the_start_is_read(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=0)
    run = app.start()
    run.wait_for_log("waiting 5 s for it")
    app.create_stream(1)
    app.put(1)
    run.wait_for_actions("processRecords")
    assert run.stop() == 0, run.output


def generation(version: str, key: str = "leaseKey") -> dict[str, dict[str, str]]:
    """The item that says what a fleet works as."""
    return {
        key: {"S": "Migration3.0"},
        "cv": {"S": version},
        "mb": {"S": "other"},
        "mts": {"N": "1700000000000"},
    }


@pytest.mark.parametrize("place", ["lease table", "coordinator table"])
def test_a_fleet_of_an_unknown_generation_is_refused_and_left_alone(
    new_app: Callable[..., Application], place: str
) -> None:
    app = new_app()
    app.create_table()
    table, key = app.name, "leaseKey"
    if place == "coordinator table":
        table, key = f"{app.name}-CoordinatorState", "key"
        app.create_table(table, key)
    app.dynamodb.put_item(TableName=table, Item=generation("CLIENT_VERSION_4X", key))
    run = app.start()
    assert run.ends() == 5, run.output
    assert "CLIENT_VERSION_4X" in run.output
    assert "Keep the Java daemon" in run.output
    assert list(app.items(table)) == ["Migration3.0"]
    assert set(app.everything()) <= {"Migration3.0"}
    assert run.children() == []


@pytest.mark.parametrize("version", ["CLIENT_VERSION_3X", "CLIENT_VERSION_3X_WITH_ROLLBACK"])
@pytest.mark.parametrize("place", ["lease table", "coordinator table"])
def test_a_3x_fleet_is_joined_led_and_left_in_order(
    new_app: Callable[..., Application], place: str, version: str
) -> None:
    app = new_app(shards=2)
    app.create_table()
    table, key = app.name, "leaseKey"
    if place == "coordinator table":
        table, key = f"{app.name}-CoordinatorState", "key"
        app.create_table(table, key)
        app.create_table(f"{app.name}-WorkerMetricStats", "wid")
    app.dynamodb.put_item(TableName=table, Item=generation(version, key))
    app.put(20)
    run = app.start()
    run.wait_for_actions("processRecords", 2)
    assert "leads the fleet now" in run.output
    assert set(app.items(table)) >= {"Leader", "Migration3.0"}
    assert run.stop() == 0, run.output
    assert app.owners() == {shard_id(0): None, shard_id(1): None}
    assert set(app.everything()) - {"Migration3.0"} == {shard_id(0), shard_id(1)}
    assert set(app.items(table)) >= {"Migration3.0"}
    assert "Leader" not in app.items(table)


def test_a_fleet_that_is_flipped_to_3x_reads_on(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=2, failoverTimeMillis="2000")
    app.put(20)
    run = app.start()
    run.wait_for_actions("processRecords", 2)
    app.dynamodb.put_item(TableName=app.name, Item=generation("CLIENT_VERSION_3X"))
    run.wait_for_log("leads the fleet now")
    app.put(20)
    run.wait_for_actions("processRecords", 4)
    assert len(run.children()) == 2
    assert run.stop() == 0, run.output
    assert app.owners() == {shard_id(0): None, shard_id(1): None}


def test_a_fleet_that_is_upgrading_is_served_as_2x_and_told_of_this_worker(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(workerId="w")
    app.create_table()
    item = generation("CLIENT_VERSION_UPGRADE_FROM_2X")
    app.dynamodb.put_item(TableName=app.name, Item=item)
    app.put(1)
    run = app.start()
    run.wait_for_actions("processRecords")
    wait_until(lambda: "w" in app.everything(), "metrics of the worker")
    assert run.stop() == 0, run.output
    assert set(app.everything()) == {"Migration3.0", shard_id(0)}
    assert "The fleet works as CLIENT_VERSION_UPGRADE_FROM_2X" in run.output


def test_without_credentials_the_daemon_ends_with_3(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    app = new_app()
    nowhere = {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "HOME": str(tmp_path),
    }
    run = app.start(environment=nowhere)
    assert run.ends() == 3, run.output
    assert "AwsCredentialsProvider" in run.output
    assert app.items() == {}


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"applicationName": None}, "applicationName"),
        ({"initialPositionInStream": "SOMEWHERE"}, "initialPositionInStream"),
        ({"timeoutInSeconds": "x"}, "timeoutInSeconds"),
        ({"maxRecords": "10001"}, "maxRecords"),
    ],
)
def test_a_bad_file_ends_the_daemon_with_2(
    new_app: Callable[..., Application], properties: dict[str, str | None], words: str
) -> None:
    app = new_app(shards=0)
    run = app.start(**properties)
    assert run.ends() == 2, run.output
    assert words in run.output
    assert "kcl-mld --help" not in run.output  # usage was right


def test_a_path_that_spark_could_not_write_ends_the_daemon_with_2_and_is_told_once(
    new_app: Callable[..., Application], tmp_path: Path
) -> None:
    """And not by each shard's child, after a JVM has started."""
    (tmp_path / "in the way").touch()
    app = new_app(shards=4)
    app.put(4)
    run = app.start(
        executable=(str(Path(sys.executable).with_name("kcl-mld-spark")), "app.py"),
        **{"spark.sink.path": str(tmp_path / "in the way" / "rows")},
    )
    assert run.ends() == 2, run.output
    assert run.output.count("spark.sink.path") == 1, run.output
    assert "in the way, a file (name a directory that can be made or written)" in run.output
    assert app.everything() == {}
    assert run.children() == []


@pytest.mark.parametrize(
    ("program", "lines", "told"),
    [
        ("kcl-mld-spark", {}, "spark.sink.path: is missing: the delta sink writes there"),
        ("kcl-mld-spark", {"spark.sink": "jdbc"}, "spark.sink.url: is missing: the jdbc sink"),
        ("kcl-mld", {}, "kcl-mld is the daemon itself"),
    ],
)
def test_what_a_spark_child_would_refuse_ends_the_daemon_with_2_before_aws_is_asked(
    new_app: Callable[..., Application], program: str, lines: dict[str, str], told: str
) -> None:
    app = new_app()
    executable = (str(Path(sys.executable).with_name(program)), __file__)
    run = app.start(executable=executable, **lines)
    assert run.ends() == 2, run.output
    assert told in run.output
    assert app.everything() == {}
    assert run.children() == []


def test_a_port_that_is_taken_ends_the_daemon_with_2(new_app: Callable[..., Application]) -> None:
    app = new_app()
    address = app.aws.kinesis_url.removeprefix("http://")
    run = app.start(arguments=("--http", address))
    assert run.ends() == 2, run.output
    assert address in run.output
    wait_until(lambda: set(app.owners().values()) <= {None}, "no lease is held")


# -- rows of others


def test_a_second_stream_under_one_application_name_is_refused_with_5(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(4)
    app.put(40)
    first = app.start()
    wait_until(lambda: len(first.records()) == 40, "the first stream is read")
    marks = {row["kclMldStream"] for row in app.items().values()}
    (mark,) = marks
    assert mark.endswith(f":{app.aws.region}:{app.name}")
    other = f"{app.name}-b"
    app.kinesis.create_stream(StreamName=other, ShardCount=4)
    # A slow answer leaves the account unknown at the start; the name is enough.
    slow = {"service": "kinesis", "operation": "DescribeStreamSummary", "delay_s": 3.0}
    app.aws.control(faults=[slow])
    third = app.start(worker="w3", streamName=other)
    assert third.ends() == 5, third.output
    assert f"reads the stream {other}, but" in third.output
    app.aws.control(faults=[])
    second = app.start(worker="w2", streamName=other)
    assert second.ends() == 5, second.output
    for part in (
        # The account in front of the name where DescribeStreamSummary has answered by then.
        f"{other}, but",
        f"rows of another stream ({mark}: {shard_id(0)}, ",
    ):
        assert part in second.output
    assert set(app.owners().values()) == {"w1"}
    app.put(40)
    wait_until(lambda: len(first.records()) == 80, "the first stream is read on")
    assert first.stop() == 0, first.output
    if shutil.which("aws"):  # else the text alone is compared, in tests/unit/decide/fleet
        command = second.output.partition("stop all workers and run: ")[2].partition('"')[0]
        environment = app.aws.environment_for_child()
        subprocess.run(["bash", "-c", command], env=environment, check=True, timeout=120)
        assert app.items() == {}


def test_two_streams_that_start_at_once_under_one_name_do_not_both_read(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(4)
    other = f"{app.name}-b"
    app.kinesis.create_stream(StreamName=other, ShardCount=4)
    app.put(40)
    runs = [app.start(worker="a"), app.start(worker="b", streamName=other)]
    wait_until(lambda: any("of another stream" in run.output for run in runs), "a refusal")
    refused = [run for run in runs if "of another stream" in run.output]
    assert all(run.ends() == 5 and not run.records() for run in refused), refused[0].output


def test_a_row_that_names_another_shard_costs_its_shard_alone(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.put(10)
    first = app.start()
    wait_until(lambda: len(first.records()) == 10, "all is read")
    assert first.stop() == 0, first.output
    app.change(shard_id(0), shardId=shard_id(1))
    before = app.items()[shard_id(0)]
    app.put(10)
    second = app.start(worker="w2")
    second.wait_for_log("can't be read: its shardId is not that of its key")
    wait_until(second.records, "the other shard is read")
    assert second.stop() == 0, second.output
    assert {e["shardId"] for e in map(json.loads, second.lines()) if "shardId" in e} == {
        shard_id(1)
    }
    assert app.items()[shard_id(0)] == before
