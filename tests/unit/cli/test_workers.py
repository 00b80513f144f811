"""``kcl-mld workers list`` over looks that are made up."""

import json

import pytest

import kcl_mld.cli.fleet_access
from kcl_mld.cli import dispatch
from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.observe.model.fleet_snapshot import FleetItems
from kcl_mld.observe.model.worker_page import ShardOnPage, WorkerPage
from tests.fakes.fleet_looks import BEGINS_S, PROPERTIES, Looks
from tests.fakes.lease_world import lease

JAVA = "host7.example.org:0b1c8f8e-0000-4000-8000-00000000abcd"
ROWS = (
    lease(0, lease_owner="w1", throughput_kbps=2.5),
    lease(1, lease_owner="w1"),
    lease(2, lease_owner=JAVA),
)
ITEMS = FleetItems(
    version=ClientVersion.CLIENT_VERSION_3X,
    lock=LockItem("w1", 120.0, "1"),
    metrics=(
        WorkerMetrics("w1", int(BEGINS_S) - 5, samples={"C": (12.0, 31.4)}, group="g"),
        WorkerMetrics("idle", int(BEGINS_S) - 90),
    ),
)


@pytest.fixture
def printed(tmp_path, monkeypatch, capsys):
    path = tmp_path / "app.properties"
    path.write_text(PROPERTIES)

    def typed(*words, **fields):
        looks = Looks(ROWS, living=("w1",), items=ITEMS, **fields)
        monkeypatch.setattr(kcl_mld.cli.fleet_access, "open_fleet", looks.open)
        assert dispatch(["workers", "list", str(path), *words]) == 0
        return capsys.readouterr().out

    return typed


def test_each_worker_has_a_line(printed):
    lines = [line.split() for line in printed().splitlines()]
    assert lines[0] == ["app:", "3", "leases"]
    assert lines[4] == [
        "worker", "lives", "leads", "leases", "host", "group", "CPU", "KiB/s", "metrics",
    ]  # fmt: skip
    rows = {line[0]: line[1:] for line in lines[5:8]}
    assert rows[JAVA][:4] == ["silent", "-", "1", "host7.example.org"]
    assert rows["idle"][:3] == ["silent", "-", "0"]
    assert rows["w1"][:8] == ["alive", "leads", "2", "-", "g", "31", "%", "2.5"]


def test_json_has_every_field_and_groups_are_chosen(printed):
    listed = json.loads(printed("-o", "json", "--group", "g"))
    assert listed["version"] == 1
    (worker,) = listed["workers"]
    assert worker.pop("metrics_age_s") > 5
    assert worker == {
        "worker": "w1",
        "host": None,
        "lives": True,
        "leads": True,
        "group": "g",
        "leases": 2,
        "silent_leases": 0,
        "cpu_percent": 31.4,
        "throughput_kbps": 2.5,
        "records_per_s": None,
        "lag_s": None,
        "call_s": None,
        "restarts": None,
    }
    lines = [json.loads(line) for line in printed("-o", "jsonl").splitlines()]
    assert {line["worker"] for line in lines} == {"idle", JAVA, "w1"}
    assert {line["table"] for line in lines} == {"app"}
    assert printed("--group", "none").splitlines()[0] == "app: 0 of 3 leases (--group none)"


def test_what_workers_serve_is_added(printed):
    shards = {
        ROWS[0].lease_key: ShardOnPage(
            ROWS[0].lease_key, "PROCESSING", reading_lag_s=3.0, child_silent_s=61.0, restarts=1
        ),
        ROWS[1].lease_key: ShardOnPage(ROWS[1].lease_key, "PROCESSING", restarts=1),
    }
    page = WorkerPage(url="http://h:1/leases", asked_at=0.0, worker="w1", shards=shards)
    out = printed("--once", "--scrape", "http://h:1", pages=(page,))
    (line,) = [line.split() for line in out.splitlines() if line.startswith("w1 ")]
    assert line[4] == "h"
    assert line[-6:] == ["-", "3", "s", "61", "s", "2"]
