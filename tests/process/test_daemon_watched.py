"""What ``--http`` and ``kcl-mld leases list`` show of a running daemon."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from tests.process.daemon import CHECKPOINT, STATUS, Application, child_pids, shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.process.daemon import Running

pytestmark = pytest.mark.process


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def get(address: str, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body; (0, {}) while nobody listens."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(f"http://{address}{path}", timeout=10) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def ready(address: str) -> tuple[int, str]:
    """Status and state of ``/readyz``."""
    status, body = get(address, "/readyz")
    return status, body["state"]


def test_health_and_leases_over_http(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=2)
    app.put(20)
    address = free_address()
    run = app.start(arguments=("--http", address))
    run.wait_for_actions("checkpoint", 2)
    assert get(address, "/livez") == (200, {"state": "running"})
    assert ready(address) == (200, "running")
    status, body = get(address, "/leases")
    assert status == 200
    assert (body["worker_id"], body["application"], body["stream"]) == ("w1", app.name, app.name)
    assert [lease["shard_id"] for lease in body["leases"]] == [shard_id(0), shard_id(1)]
    for lease in body["leases"]:
        assert lease["state"] == "PROCESSING"
        assert lease["stream"] == app.name
        assert lease["millis_behind_latest"] == 0
        assert lease["last_batch_age_s"] >= 0
        assert lease["checkpoint"] == app.items()[lease["lease_key"]]["checkpoint"]
        assert (lease["restarts"], lease["blocked_by"], lease["last_error"]) == (0, None, None)
    assert {lease["child_pid"] for lease in body["leases"]} == set(child_pids(run))
    assert all(lease["child_resident_bytes"] > 2**20 for lease in body["leases"])
    assert body["unreadable"] == []
    assert f'"stream": "{app.name}", "shard": "{shard_id(0)}"' in run.output
    assert get(address, "/other")[0] == 404
    assert run.stop() == 0, run.output
    assert get(address, "/livez") == (0, {})


def test_a_worker_is_ready_only_while_it_works(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=0)
    address = free_address()
    run = app.start(
        {"processRecords": [[CHECKPOINT, STATUS]], "shutdownRequested": [[["gate"], STATUS]]},
        arguments=("--http", address),
    )
    run.wait_for_log("waiting 5 s for it")
    assert ready(address) == (503, "starting")
    assert get(address, "/livez")[0] == 200
    app.create_stream(1)
    app.put(1)
    run.wait_for_actions("processRecords")
    assert ready(address) == (200, "running")
    run.signal(signal.SIGTERM)
    run.wait_for_actions("shutdownRequested")
    assert ready(address) == (503, "stopping")
    assert get(address, "/livez")[0] == 200
    run.open_gate()
    assert run.ends() == 0, run.output


def test_a_worker_whose_children_crash_or_that_lags_is_not_ready_and_says_why(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    address = free_address()
    run = app.start(
        {"processRecords": [[["stderr", "no database"], ["exit", 7]]]},
        arguments=("--http", address),
        childFailurePolicy="restart",
        childRestartBackoffMillis="100",
    )
    wait_until(lambda: get(address, "/readyz")[0] == 200, "it is ready at first")
    app.put(20)
    wait_until(lambda: get(address, "/readyz")[0] == 503, "the crash loop is seen")
    body = get(address, "/readyz")[1]
    assert body["state"] == "running"
    assert [one["reason"] for one in body["reasons"]] == ["all_shards_fail"]
    assert [(one["shard_id"], one["health"]) for one in body["failing"]] == [
        (shard_id(0), "child_fails"),
        (shard_id(1), "child_fails"),
    ]
    assert "no database" in body["failing"][0]["message"]
    status, body = get(address, "/readyz?maxAge=0.001")
    assert status == 503
    assert "too_old" in [one["reason"] for one in body["reasons"]]
    assert get(address, "/readyz?maxAge=soon")[0] == 400
    assert get(address, "/livez")[0] == 200
    assert run.stop() == 0, run.output


def test_a_standby_is_ready_and_holds_nothing(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=1)
    app.put(1)
    first = app.start(worker="w1")
    first.wait_for_actions("checkpoint")
    address = free_address()
    second = app.start(worker="w2", arguments=("--http", address))
    wait_until(lambda: get(address, "/readyz")[0] == 200, "the standby is ready")
    assert get(address, "/leases")[1]["leases"] == []
    assert second.stop() == 0, second.output
    assert first.stop() == 0, first.output


def test_the_table_can_be_listed_beside_a_running_daemon(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(20)
    run = app.start(worker="blue-1")
    run.wait_for_actions("checkpoint", 2)
    file = run.folder / "app.properties"
    listed = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "leases", "list", str(file)],
        env=app.aws.environment_for_child(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    for shard in (0, 1):
        (line,) = [line for line in listed.splitlines() if shard_id(shard) in line]
        assert "blue-1" in line
    assert run.stop() == 0, run.output


@pytest.mark.parametrize("attribute", ["streamName", "kclMldMoving"])
def test_a_row_of_others_ends_no_worker_that_runs_and_starts_none(
    new_app: Callable[..., Application], attribute: str
) -> None:
    app = new_app(2, failoverTimeMillis="3000")
    app.put(10)
    address = free_address()
    run = app.start(arguments=("--http", address))
    wait_until(lambda: len(run.records()) == 10, "all is read")
    app.change("shardId-000000000007", **{attribute: "1:s:2"})
    run.wait_for_log("until these rows are gone")
    code, answer = get(address, "/readyz")
    (reason,) = (one for one in answer["reasons"] if one["reason"] == "foreign_rows")
    assert code == 503
    assert "shardId-000000000007" in reason["message"]
    app.put(10)
    wait_until(lambda: len(run.records()) == 20, "held leases are read on")
    second = app.start(worker="w2")
    assert second.ends() == 5, second.output
    app.dynamodb.delete_item(TableName=app.name, Key={"leaseKey": {"S": "shardId-000000000007"}})
    run.wait_for_log("Resolved, so leases are created and taken again")
    wait_until(lambda: ready(address) == (200, "running"), "it is ready again")
    assert run.stop() == 0, run.output


def states(app: Application, run: Running) -> list[str]:
    """State of each lease by ``kcl-mld leases list``."""
    file = str(run.folder / "app.properties")
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "leases", "list", file, "-o", "jsonl"],
        env=app.aws.environment_for_child(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line)["state"] for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "says", [None, "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"], ids=["3.x", "2.x"]
)
def test_a_worker_that_cannot_write_leases_is_not_ready_and_recovers(
    new_app: Callable[..., Application], says: str | None
) -> None:
    generation = {"clientVersionConfig": says} if says else {}
    app = new_app(shards=2, failoverTimeMillis="4000", **generation)
    address = free_address()
    run = app.start(arguments=("--http", address))
    wait_until(
        lambda: len(get(address, "/leases")[1].get("leases", ())) == 2, "both leases are held"
    )
    wait_until(lambda: get(address, "/readyz")[0] == 200, "it is ready")
    denied = {"service": "dynamodb", "code": "AccessDeniedException", "contains": app.name}
    writes = ("UpdateItem", "PutItem", "DeleteItem")
    app.aws.control(faults=[{**denied, "operation": name} for name in writes])

    def reasons() -> dict[str, str]:
        body = get(address, "/readyz")[1]
        return {one["reason"]: one["message"] for one in body["reasons"]}

    wait_until(lambda: "lease_writes_fail" in reasons(), "it is not ready")
    message = reasons()["lease_writes_fail"]
    assert "UpdateItem" in message
    assert "AccessDeniedException" in message
    for _ in range(24):  # three times as long as the lock is held
        assert "lease_writes_fail" in reasons()
        time.sleep(0.5)
    if says is None:
        wait_until(lambda: "leader_lock_fails" in reasons(), "the lock that flaps is told")
    assert states(app, run) == ["expired"] * 2
    app.aws.control(faults=[])
    wait_until(lambda: get(address, "/readyz")[0] == 200, "it recovers")
    wait_until(lambda: states(app, run) == ["owned"] * 2, "the leases are owned again")
    app.aws.control(faults=[{**denied, "operation": name} for name in writes])
    wait_until(lambda: get(address, "/leases")[1]["leases"] == [], "the leases expire")
    assert run.stop() == 0, run.output
    assert "leases released" not in run.output
    assert "Stopped: all children were notified, but 2 leases had expired" in run.output


def test_a_child_that_hangs_has_a_growing_lag_whatever_the_clock_says(tmp_path: Path) -> None:
    # A server of its own: a clock that was put forward stays so.
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as aws:
        app = Application(aws, "late", tmp_path)
        app.create_stream(1)
        app.put(3)
        address = free_address()
        run = app.start(
            {"processRecords": [[["sleep", 600], STATUS]]},
            arguments=("--http", address),
            timeoutInSeconds="600",
        )
        run.wait_for_actions("processRecords")
        aws.control(advance_s=100)  # as if the clock of this machine were that late

        def shard() -> dict[str, Any]:
            (lease,) = get(address, "/leases")[1]["leases"]
            return dict(lease)

        wait_until(lambda: shard()["processing_lag_s"] > 100, "the lag by the dates of AWS")
        assert shard()["reading_lag_s"] < 100
        before, _ = shard(), time.sleep(2)
        after = shard()
        for name in ("processing_lag_s", "reading_lag_s", "child_silent_s"):
            assert after[name] >= before[name] + 1.5
        assert get(address, "/readyz?maxAge=100")[0] == 503
        app.kill_all()


def test_logs_that_cannot_be_written_are_counted(new_app: Callable[..., Application]) -> None:
    app = new_app()
    app.put(1)
    address = free_address()
    launcher = ("sh", "-c", 'exec "$@" 2>/dev/full', "sh")
    run = app.start(arguments=("--http", address), launcher=launcher)
    wait_until(lambda: get(address, "/livez")[0] == 200, "it runs")
    wait_until(lambda: get(address, "/leases")[1]["log_messages_dropped"] > 0, "they are counted")
    assert run.stop() == 0


def test_a_start_that_fails_says_why_and_how_often(new_app: Callable[..., Application]) -> None:
    app = new_app()
    address = free_address()
    app.aws.control(
        faults=[
            {"service": "dynamodb", "operation": "DescribeTable", "code": "AccessDeniedException"}
        ]
    )
    run = app.start(arguments=("--http", address))
    wait_until(
        lambda: "start_fails" in str(get(address, "/readyz")[1].get("reasons")), "the reason"
    )
    body = get(address, "/readyz")[1]
    (message,) = [r["message"] for r in body["reasons"] if r["reason"] == "start_fails"]
    assert re.match(r"attempt \d+ of 20 to start failed: ", message)
    assert "DescribeTable" in message
    app.aws.control(faults=[])
    wait_until(lambda: get(address, "/readyz")[0] == 200, "it starts after all")
    assert run.stop() == 0, run.output
