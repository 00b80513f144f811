"""Records that expire before they are read: what the daemon says of them, and when it is silent."""

from __future__ import annotations

import json
import re
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.local.kinesis.shard import next_sequence
from tests.process.daemon import GOOD, STATUS, Application, shard_id
from tests.process.test_daemon_watched import free_address, get

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.process.daemon import Running

pytestmark = pytest.mark.process

HOUR_S = 3600
#: Added to the number of a record, the number of none.
A_SECOND = next_sequence(0, 1)
MODES = {"POLLING": {"retrievalMode": "POLLING"}, "FANOUT": {"retrievalMode": "FANOUT"}}
#: What the log says, and nothing else in it says.
SAID = re.compile(r"records (?:were LOST|MAY BE LOST): .*")


@contextmanager
def application(
    tmp_path: Path, name: str, shards: int = 1, **properties: str
) -> Iterator[Application]:
    """On an AWS of its own, whose clock moves."""
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        # Dates of an endpoint that the file names count.
        app = Application(aws, name, tmp_path, kinesisEndpoint=aws.kinesis_url, **properties)
        app.create_stream(shards)
        try:
            yield app
        finally:
            app.kill_all()


def said(run: Running) -> list[str]:
    """The lines about losses."""
    return [line for line in run.output.splitlines() if SAID.search(line)]


def read_to_its_tip(
    app: Application, records: int, count: int | None = None, **properties: str
) -> None:
    """A worker reads and checkpoints some records, with those that were there, and stops."""
    app.put(records)
    run = app.start(**properties)
    assert run.wait_for(lambda one: len(one.records()) == (count or records), 60), run.output
    assert run.stop() == 0
    assert said(run) == []


def counted(address: str, cause: str) -> float:
    """Of the metric, by cause."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{address}/metrics", timeout=10) as response:
        text = response.read().decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("kcl_passed_total{") and f'cause="{cause}"' in line
    )


@pytest.mark.parametrize("mode", MODES)
def test_records_that_may_have_expired_while_no_worker_ran_are_a_warning(tmp_path: Path, mode: str):
    with application(tmp_path, "down", **MODES[mode]) as app:
        read_to_its_tip(app, 5)
        app.put(10)
        app.aws.control(advance_s=30 * HOUR_S)
        app.put(5)
        address = free_address()
        run = app.start(arguments=("--http", address))
        run.wait_for_log("MAY BE LOST")
        run.wait_for_actions("checkpoint")
        (line,) = said(run)
        assert '"level": "WARNING"' in line
        assert "those between 4" in line
        assert ", if there were any" in line
        assert counted(address, "trimmed") == 1
        (lease,) = get(address, "/leases")[1]["leases"]
        assert lease["loss"].startswith("records MAY BE LOST: those between")
        assert run.stop() == 0
        row = app.items()[shard_id(0)]
        loss = json.loads(row["kclMldLoss"])
        assert (loss["certain"], loss["cause"], loss["count"]) == (False, "trimmed", 1)
        assert loss["beforeMillis"] - loss["afterMillis"] > 29 * HOUR_S * 1000
        assert json.loads(row["kclMldReadUntil"])["untilMillis"] > loss["afterMillis"]


@pytest.mark.parametrize("mode", MODES)
def test_a_quiet_shard_that_was_read_to_its_tip_is_no_loss(tmp_path: Path, mode: str):
    with application(tmp_path, "quiet", **MODES[mode]) as app:
        read_to_its_tip(app, 5)
        app.aws.control(advance_s=48 * HOUR_S)
        address = free_address()
        run = app.start(arguments=("--http", address))

        def has_read() -> bool:
            leases = get(address, "/leases")[1].get("leases") or [{}]
            return leases[0].get("last_processed_age_s") is not None

        assert run.wait_for(lambda _run: has_read(), 60), run.output
        app.put(1)
        run.wait_for_actions("checkpoint")
        assert run.stop() == 0
        assert said(run) == []
        assert "kclMldLoss" not in app.items()[shard_id(0)]


def test_a_short_stop_is_no_loss_although_the_checkpointed_record_expired(tmp_path: Path):
    with application(tmp_path, "short") as app:
        app.put(5)
        run = app.start()
        run.wait_for_actions("checkpoint")
        app.aws.control(advance_s=20 * HOUR_S)
        until = json.loads(app.items()[shard_id(0)]["kclMldReadUntil"])["untilMillis"]

        def moved() -> bool:
            text = app.items()[shard_id(0)]["kclMldReadUntil"]
            return bool(json.loads(text)["untilMillis"] > until + HOUR_S * 1000)

        assert run.wait_for(lambda _run: moved(), 60)
        assert run.stop() == 0
        app.aws.control(advance_s=20 * HOUR_S)  # the record of the checkpoint is 40 h old by now
        app.put(5)
        run = app.start()
        run.wait_for_actions("checkpoint")
        assert run.stop() == 0
        assert said(run) == []


def test_what_was_checkpointed_halfway_and_expired_is_a_warning(tmp_path: Path):
    with application(tmp_path, "halfway") as app:
        app.put(10)
        iterator = app.kinesis.get_shard_iterator(
            StreamName=app.name, ShardId=shard_id(0), ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records: list[Any] = app.kinesis.get_records(ShardIterator=iterator)["Records"]
        fifth = records[4]["SequenceNumber"]
        script = {"processRecords": [[["checkpoint", fifth, 0], STATUS]]}
        run = app.start(script)
        run.wait_for_actions("checkpoint")
        assert run.stop() == 0
        app.aws.control(advance_s=23 * HOUR_S)
        run = app.start(script)
        run.wait_for_actions("checkpoint")
        assert run.stop() == 0
        assert said(run) == []
        app.aws.control(advance_s=7 * HOUR_S)
        app.put(5)
        run = app.start()
        run.wait_for_log("MAY BE LOST")
        assert f"those between {fifth} " in said(run)[0]
        assert run.stop() == 0


def test_a_child_that_is_slower_than_the_retention_loses_records_for_certain(
    tmp_path: Path,
) -> None:
    with application(tmp_path, "slow", maxRecords="1") as app:
        app.put(20)
        script = {**GOOD, "processRecords": [[["gate"], ["checkpoint", None, None], STATUS]]}
        address = free_address()
        run = app.start(script, arguments=("--http", address))
        run.wait_for_actions("processRecords")
        app.aws.control(advance_s=30 * HOUR_S)
        app.put(5)
        (run.folder / "gate").touch()
        run.wait_for_log("were LOST")
        (line,) = said(run)
        assert '"level": "ERROR"' in line
        assert counted(address, "expired") == 1
        assert run.wait_for(lambda one: len(one.records()) >= 6, 60), run.output
        assert run.stop() == 0
        loss = json.loads(app.items()[shard_id(0)]["kclMldLoss"])
        assert (loss["certain"], loss["cause"]) == (True, "expired")


def test_a_checkpoint_that_is_no_record_is_no_loss(tmp_path: Path) -> None:
    with application(tmp_path, "number") as app:
        app.put(5)
        app.aws.control(advance_s=20 * HOUR_S)
        read_to_its_tip(app, 5, count=10)
        row = app.items()[shard_id(0)]
        app.put(5)
        app.dynamodb.update_item(
            TableName=app.name,
            Key={"leaseKey": {"S": shard_id(0)}},
            UpdateExpression="SET checkpoint = :between REMOVE kclMldReadUntil",
            ExpressionAttributeValues={":between": {"S": str(int(row["checkpoint"]) + A_SECOND)}},
        )
        app.aws.control(
            advance_s=10 * HOUR_S
        )  # the stream is 30 h old, the records behind it are not
        run = app.start()
        run.wait_for_actions("checkpoint")
        assert run.stop() == 0
        assert said(run) == []


@pytest.mark.parametrize("mode", MODES)
def test_a_shard_that_vanished_is_an_error_and_its_children_are_read_at_once(
    tmp_path: Path, mode: str
) -> None:
    with application(tmp_path, "vanished", initialPositionInStream="LATEST", **MODES[mode]) as app:
        read_to_its_tip(app, 5, initialPositionInStream="TRIM_HORIZON")
        app.put(3)
        app.split(0)
        app.aws.control(advance_s=30 * HOUR_S)
        sent = app.put(20)
        run = app.start()
        run.wait_for_log("MAY BE LOST")
        assert run.wait_for(lambda one: len(one.records()) == len(sent), 60), run.output
        # The records of its children may have expired, too.
        assert run.wait_for(lambda one: len(said(one)) == 3, 60), run.output
        line, *of_children = said(run)
        assert '"level": "ERROR"' in line
        assert "those after 4" in line
        assert "of which no record is left" in line
        assert all("those between TRIM_HORIZON" in one for one in of_children)
        rows = app.items()
        assert rows[shard_id(0)]["checkpoint"] == "SHARD_END"
        assert rows[shard_id(0)]["childShardIds"] == [shard_id(1), shard_id(2)]
        assert json.loads(rows[shard_id(0)]["kclMldLoss"])["cause"] == "vanished"
        assert run.stop() == 0
        assert "deleted" not in run.output
        assert run.output.count('"level": "ERROR"') == 1
