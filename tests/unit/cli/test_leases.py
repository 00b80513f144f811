"""``kcl-mld leases list``."""

import json
from dataclasses import replace

import pytest

import mld.cli.leases
from mld.cli import dispatch
from mld.decide.fleet.fleet_report import FleetReport
from mld.errors import NotFound, ResourceMissing
from mld.model.fleet.leader_lock_item import LockItem
from mld.model.fleet.state_history import ClientVersion
from mld.model.leases.lease_item import lease_from_item
from mld.model.leases.lease_move import staged
from mld.model.sequence import SHARD_END, ExtendedSequenceNumber
from mld.services.leases.lease_scan import TableScan
from tests.fakes.lease_rows import ORDERS, multi, single
from tests.fakes.lease_world import lease

PROPERTIES = """executableName=app.py
applicationName=app
streamName=s
regionName=us-east-1
AwsCredentialsProvider=EnvironmentVariableCredentialsProvider
dynamoDBEndpoint=http://127.0.0.1:1
"""
SCAN = TableScan(
    leases=(
        lease(0, lease_owner="blue-1", checkpoint=SHARD_END, child_shard_ids=("shardId-2", "b")),
        lease(1, lease_owner="blue-2", checkpoint_owner="red-1", lease_counter=12),
        lease(2, checkpoint=ExtendedSequenceNumber("49", 3), parent_shard_ids=("shardId-0",)),
    ),
    foreign={"Leader": {}},
    broken=(("bad\x1b", "leaseCounter is missing"),),
)


@pytest.fixture
def properties(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    path = tmp_path / "app.properties"
    path.write_text(PROPERTIES)
    return str(path)


def answer(monkeypatch, scan, fleet=None, expired=()):
    async def scanned(config, *, once):
        assert not once
        assert config.leases.table_name == "app"
        if isinstance(scan, Exception):
            raise scan
        return scan, frozenset(expired), fleet

    monkeypatch.setattr(mld.cli.leases, "_scan", scanned)


def test_leases_are_listed_by_worker(properties, monkeypatch, capsys):
    answer(monkeypatch, SCAN)
    assert dispatch(["leases", "list", properties]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "app: 3 leases"
    assert [line for line in lines if line.endswith(": 1")] == [
        "blue-1: 1",
        "blue-2: 1",
        "(nobody): 1",
    ]
    (first,) = [line.split() for line in lines if "shardId-000000000000" in line]
    assert first == [
        "shardId-000000000000", "blue-1", "0", "SHARD_END", "0", "-", "shardId-2,b", "finished",
    ]  # fmt: skip
    (second,) = [line for line in lines if "shardId-000000000001" in line]
    assert "red-1 > blue-2" in second
    assert second.endswith("handed over")
    (third,) = [line.split() for line in lines if "shardId-000000000002" in line]
    assert third[3:6] == ["49/3", "0", "shardId-0"]
    assert "Items that are no leases: Leader" in lines
    assert "Can't be read: bad\\x1b: leaseCounter is missing" in lines


def test_a_lease_whose_owner_does_not_renew_it_is_not_owned(properties, monkeypatch, capsys):
    row = lease(1, lease_owner="blue-2")
    answer(monkeypatch, TableScan(leases=(row,)), expired=[row.lease_key])
    assert dispatch(["leases", "list", properties]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("expired")
    assert dispatch(["leases", "list", properties, "--json"]) == 0
    assert '"state": "expired"' in capsys.readouterr().out


@pytest.mark.parametrize(("most", "is_told"), [(1, True), (2, False)])
def test_leases_that_no_worker_may_take_are_told(properties, monkeypatch, capsys, most, is_told):
    with open(properties, "a") as file:
        file.write(f"maxLeasesForWorker={most}\n")
    first = lease(0, lease_owner="blue-1")  # a finished one would leave its owner room
    answer(monkeypatch, replace(SCAN, leases=(first, *SCAN.leases[1:])))
    assert dispatch(["leases", "list", properties]) == 0
    why = "1 lease has no owner, because each worker holds maxLeasesForWorker = 1"
    assert (why in capsys.readouterr().out.splitlines()) == is_told


def test_of_a_fleet_of_3x_it_says_who_leads_and_who_gets_nothing(properties, monkeypatch, capsys):
    lock = LockItem("blue-1", 8.0, "1")
    version = ClientVersion.CLIENT_VERSION_3X
    answer(monkeypatch, SCAN, FleetReport(version, lock, (("blue-1", 12), ("red-1", 95))))
    assert dispatch(["leases", "list", properties]) == 0
    shown = capsys.readouterr().out
    assert "Fleet: CLIENT_VERSION_3X\n" in shown
    assert "Leader: blue-1 (others may take over after 8 s without a heartbeat)" in shown
    assert "Worker red-1: wrote no metrics for 95 s, so it gets no leases" in shown
    assert dispatch(["leases", "list", properties, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fleet"] == {
        "version": "CLIENT_VERSION_3X",
        "leader": "blue-1",
        "lock_s": 8.0,
        "workers": [
            {"worker": "blue-1", "metrics_age_s": 12},
            {"worker": "red-1", "metrics_age_s": 95},
        ],
    }


def test_a_fleet_that_cannot_be_told_is_said_beside_its_leases(properties, monkeypatch, capsys):
    answer(monkeypatch, SCAN, "What the fleet does can't be told: no")
    assert dispatch(["leases", "list", properties]) == 0
    shown = capsys.readouterr().out
    assert "app: 3 leases" in shown
    assert "What the fleet does can't be told: no" in shown
    assert dispatch(["leases", "list", properties, "--json"]) == 0
    assert "error" in json.loads(capsys.readouterr().out)["fleet"]


def test_by_cluster_the_workers_of_a_cluster_are_together(properties, monkeypatch, capsys):
    answer(monkeypatch, SCAN)
    assert dispatch(["leases", "list", properties, "--by", "cluster", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(group["cluster"], len(group["leases"])) for group in listed["clusters"]] == [
        ("blue", 2),
        (None, 1),
    ]
    assert listed["other_items"] == ["Leader"]
    assert listed["unreadable"] == [{"lease": "bad\x1b", "why": "leaseCounter is missing"}]


def test_json_has_every_field(properties, monkeypatch, capsys):
    answer(monkeypatch, TableScan((lease(7, lease_owner="w", checkpoint=None),)))
    assert dispatch(["leases", "list", properties, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == {
        "table": "app",
        "workers": [
            {
                "worker": "w",
                "leases": [
                    {
                        "lease": "shardId-000000000007",
                        "stream": None,
                        "shard": "shardId-000000000007",
                        "owner": "w",
                        "checkpoint_owner": None,
                        "counter": 0,
                        "checkpoint": None,
                        "sub_sequence_number": None,
                        "switches": 0,
                        "parents": [],
                        "children": [],
                        "state": "owned",
                    }
                ],
            }
        ],
        "other_items": [],
        "moving": [],
        "unreadable": [],
        "fleet": None,
    }


def test_rows_of_several_streams_have_a_column_for_it(properties, monkeypatch, capsys):
    rows = [lease_from_item(multi(0)), lease_from_item(multi(1)), lease(2)]
    answer(monkeypatch, TableScan(tuple(rows)))
    assert dispatch(["leases", "list", properties]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[3][:3] == ["stream", "shard", "owner"]
    assert lines[4][:3] == [ORDERS.identifier, "shardId-000000000000", "-"]
    assert lines[6][:2] == ["-", "shardId-000000000002"]
    assert dispatch(["leases", "list", properties, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["workers"][0]["leases"][1]
    assert (listed["stream"], listed["shard"]) == (ORDERS.identifier, "shardId-000000000001")


def test_rows_on_their_way_to_other_keys_are_told(properties, monkeypatch, capsys):
    copy = staged(single(0), "1:s:2:shardId-0")
    answer(monkeypatch, TableScan((), foreign={"1:s:2:shardId-0": copy, "Leader": {}}))
    assert dispatch(["leases", "list", properties]) == 0
    out = capsys.readouterr().out
    assert "go on with kcl-mld leases migrate: 1:s:2:shardId-0\n" in out
    assert "Items that are no leases: Leader\n" in out
    assert dispatch(["leases", "list", properties, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["moving"] == ["1:s:2:shardId-0"]


def test_an_empty_table_is_said_to_be_empty(properties, monkeypatch, capsys):
    answer(monkeypatch, TableScan(()))
    assert dispatch(["leases", "list", properties]) == 0
    assert capsys.readouterr().out == "app: 0 leases\n"


def test_a_table_that_does_not_exist_is_named_and_exits_with_4(properties, monkeypatch, capsys):
    class NoTable:
        def __init__(self, *_):
            pass

        async def scan(self):
            raise NotFound("Scan", "ResourceNotFoundException")

    monkeypatch.setattr(mld.cli.leases, "LeaseStore", NoTable)
    assert dispatch(["leases", "list", properties]) == ResourceMissing.exit_code
    assert "the lease table app does not exist" in capsys.readouterr().err


def test_a_wrong_file_is_refused(tmp_path, capsys):
    assert dispatch(["leases", "list", str(tmp_path / "none")]) == 2
