"""What ``--http`` and ``kcl-mld leases list`` show of a running daemon."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import CHECKPOINT, STATUS, child_pids, shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application

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
    assert body["unreadable"] == []
    assert f'"stream": "{app.name}", "shard": "{shard_id(0)}"' in run.output
    assert get(address, "/other")[0] == 404
    assert run.stop() == 0, run.output
    assert get(address, "/livez") == (0, {})


def test_a_worker_is_ready_only_while_it_works(new_app: Callable[..., Application]) -> None:
    app = new_app(shards=0)
    address = free_address()
    run = app.start(
        {"processRecords": [[CHECKPOINT, STATUS]], "shutdownRequested": [[["sleep", 3], STATUS]]},
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
    assert run.ends() == 0, run.output


def test_a_worker_whose_children_crash_or_that_lags_is_not_ready_and_says_why(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=2)
    app.put(20)
    address = free_address()
    run = app.start(
        {"processRecords": [[["stderr", "no database"], ["exit", 7]]]},
        arguments=("--http", address),
        childFailurePolicy="restart",
        childRestartBackoffMillis="100",
    )
    wait_until(lambda: get(address, "/readyz")[0] == 200, "it is ready at first")
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
        [sys.executable, "-m", "mld", "leases", "list", str(file)],
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
