"""``kcl-mld leases list`` and ``describe`` over looks that are made up."""

import json
from dataclasses import replace

import pytest

import kcl_mld.cli.fleet_access
from kcl_mld.cli import dispatch
from kcl_mld.cli.fleet_access import observe
from kcl_mld.cli.loading import read_config
from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber
from kcl_mld.leases.model.containment import FailureNote, PositionRange
from kcl_mld.leases.model.lease_item import lease_from_item
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.observe.model.fleet_snapshot import FleetItems, StreamSnapshot
from kcl_mld.observe.model.worker_page import ChildOnPage, ShardOnPage, WorkerPage
from tests.fakes.fleet_looks import BEGINS_S, Looks
from tests.fakes.lease_rows import ORDERS, multi
from tests.fakes.lease_world import lease

PARENT = lease(
    0, lease_owner="blue-1", checkpoint=SHARD_END, child_shard_ids=("shardId-000000000002", "b")
)
HANDED = lease(1, lease_owner="blue-2", checkpoint_owner="red-1", lease_counter=12)
FREE = lease(
    2, checkpoint=ExtendedSequenceNumber("49", 3), parent_shard_ids=("shardId-000000000000",)
)
ROWS = (PARENT, HANDED, FREE)


@pytest.fixture
def opened(monkeypatch):
    def open_looks(*steps, **fields):
        looks = Looks(*steps, **fields)
        monkeypatch.setattr(kcl_mld.cli.fleet_access, "open_fleet", looks.open)
        return looks

    return open_looks


@pytest.fixture
def printed(properties, capsys):
    """Prints what a command prints, which must succeed."""

    def typed(*words, code=0):
        assert dispatch(["leases", words[0], properties, *words[1:]]) == code
        return capsys.readouterr().out

    return typed


def test_leases_are_listed_by_worker(opened, printed):
    looks = opened(ROWS, living=("blue-1", "red-1"))
    lines = printed("list").splitlines()
    assert lines[0] == "app: 3 leases"
    assert [line for line in lines if line.endswith(": 1")] == [
        "blue-1: 1",
        "blue-2: 1",
        "(nobody): 1",
    ]
    (heading, *_) = [line.split() for line in lines if line.startswith("shard ")]
    assert heading == [
        "shard", "owner", "verdict", "state", "renewed", "checkpoint", "lag", "parents", "children",
    ]  # fmt: skip
    (first,) = [line.split() for line in lines if line.startswith("shardId-000000000000")]
    assert first[1:4] == ["blue-1", "FINISHED", "finished"]
    assert first[-4:] == ["SHARD_END", "-", "-", "shardId-000000000002,b"]
    (second,) = [line for line in lines if line.startswith("shardId-000000000001")]
    assert "red-1 > blue-2" in second
    assert "HANDING_OVER  handed over  < 1 s" in second
    (third,) = [line.split() for line in lines if line.startswith("shardId-000000000002")]
    assert third[1:6] == ["-", "UNOWNED", "free", "-", "49/3"]
    assert (looks.tips, looks.urls) == (False, ())


def test_it_ends_when_all_owners_were_seen_to_live_and_waits_for_the_others(opened, printed):
    looks = opened((HANDED,), living=("red-1",))
    printed("list")
    assert len(looks.fresh) == 2
    looks = opened((HANDED,))
    (row,) = json.loads(printed("list", "-o", "json"))["leases"]
    assert len(looks.fresh) > 2
    assert (row["state"], row["verdict"]) == ("expired", "OWNER_SILENT")
    assert row["still_s"] >= 0.1
    assert row["renewed_within_s"] is None
    looks = opened((HANDED,))
    (row,) = json.loads(printed("list", "-o", "json", "--once"))["leases"]
    assert looks.fresh == [True]
    assert (row["state"], row["verdict"], row["still_s"]) == ("handed over", "HANDING_OVER", None)
    assert "unknown" in printed("list", "--once")


def test_owners_of_finished_leases_are_waited_for_where_those_rows_are_written(opened, properties):
    config = read_config(properties)
    looks = opened((PARENT, HANDED), living=("red-1",))
    observe(config)
    assert len(looks.fresh) == 2
    looks = opened((PARENT, HANDED), living=("red-1",))
    observe(config, finished=True)
    assert len(looks.fresh) > 2


def test_looks_that_take_long_see_a_silent_owner_all_the_same(opened, printed):
    opened((HANDED,), takes_s=0.07)
    (row,) = json.loads(printed("list", "-o", "json"))["leases"]
    assert (row["state"], row["verdict"]) == ("expired", "OWNER_SILENT")


def test_json_has_every_field(opened, printed):
    opened((HANDED,), living=("red-1",))
    listed = json.loads(printed("list", "--json"))
    (row,) = listed.pop("leases")
    assert listed.pop("span_s") > 0
    assert listed == {
        "version": 1,
        "table": "app",
        "looks": 2,
        "facts": [
            "Fleet: works as 2.x",
            "The table has no lag of red-1: --tip asks Kinesis for it",
            "Gaps and trends take longer looks: --for 0.3",
        ],
        "fleet": [],
        "without_lease": [],
        "moving": [],
    }
    assert 0 < row.pop("renewed_within_s") < 1
    assert row == {
        "lease": HANDED.lease_key,
        "stream": None,
        "stream_identifier": None,
        "shard": HANDED.shard_id,
        "owner": "red-1",
        "next_owner": "blue-2",
        "host": None,
        "group": None,
        "state": "handed over",
        "verdict": "HANDING_OVER",
        "severity": "info",
        "cause": "red-1 finishes its batch, then blue-2 has it",
        "still_s": 0.0,
        "counter": 1,
        "checkpoint": "TRIM_HORIZON",
        "sub_sequence_number": 0,
        "pending_checkpoint": None,
        "lag_s": None,
        "throughput_kbps": None,
        "switches": 0,
        "parents": [],
        "children": [],
        "hash_keys": "100-199",
        "asked": None,
        "changed_by": None,
        "records_per_s": None,
        "worker_page": None,
    }
    line = json.loads(printed("list", "-o", "jsonl"))
    assert line.pop("table") == "app"
    assert line.keys() == {*row, "renewed_within_s"}


def test_by_cluster_the_workers_of_a_cluster_are_together(opened, printed):
    opened((lease(0, lease_owner="blue-1"), lease(1, lease_owner="blue-2"), lease(2)))
    lines = printed("list", "--by", "cluster", "--once").splitlines()
    assert [line for line in lines if ": " in line and line[-1].isdigit()] == [
        "blue: 2",
        "(nobody): 1",
    ]


def test_only_those_that_are_asked_for(opened, printed):
    items = FleetItems(metrics=(WorkerMetrics("blue-1", int(BEGINS_S), group="g"),))
    streams = (StreamSnapshot(name="s"),)
    opened(ROWS, items=items, streams=streams)

    def keys(*options):
        rows = json.loads(printed("list", "--once", "--json", *options))["leases"]
        return [row["lease"] for row in rows]

    assert keys("--worker", "red-1") == [HANDED.lease_key]
    assert keys("--worker", "blue-2", "--worker", "blue-1") == [PARENT.lease_key, HANDED.lease_key]
    assert keys("--group", "g") == [PARENT.lease_key]
    assert len(keys("--stream", "s")) == 3
    assert keys("--stream", "t") == []
    assert (
        printed("list", "--once", "--stream", "t").splitlines()[0]
        == "app: 0 of 3 leases (--stream t)"
    )


def test_rows_of_several_streams_have_a_column_for_it(opened, printed):
    rows = (lease_from_item(multi(0)), lease_from_item(multi(1)))
    opened(rows)
    lines = [line.split() for line in printed("list", "--once").splitlines()]
    heading = next(line for line in lines if line[:1] == ["stream"])
    assert heading[:3] == ["stream", "shard", "owner"]
    assert lines[lines.index(heading) + 1][:3] == ["orders", "shardId-000000000000", "-"]
    listed = json.loads(printed("list", "--once", "--json"))["leases"][1]
    assert (listed["stream"], listed["stream_identifier"]) == ("orders", ORDERS.identifier)


def test_what_is_wrong_beside_the_rows_is_said(opened, printed):
    lock = LockItem("blue-1", 0.05, "1")
    items = FleetItems(version=ClientVersion.CLIENT_VERSION_3X, lock=lock)
    opened(
        (lease(0, lease_owner="a"), lease(1)),
        items=items,
        broken=(("bad\x1b", "leaseCounter is missing"),),
        moving=("1:s:2:shardId-0",),
    )
    out = printed("list")
    assert "Leader: blue-1 (its lock is good for 0.05 s)\n" in out
    assert "go on with kcl-mld leases migrate: 1:s:2:shardId-0\n" in out
    assert "WARNING LEADER_SILENT fleet: blue-1 leads" in out
    assert "CRITICAL UNREADABLE_ROW bad\\x1b: the row can't be read" in out
    assert out.endswith("kcl-mld explain says what to do\n")
    listed = json.loads(printed("list", "--json"))
    assert listed["moving"] == ["1:s:2:shardId-0"]
    assert [one["verdict"] for one in listed["without_lease"]] == ["UNREADABLE_ROW"]


@pytest.mark.parametrize(("most", "is_told"), [(1, True), (2, False)])
def test_leases_that_no_worker_may_take_are_told(properties, opened, printed, most, is_told):
    with open(properties, "a") as file:
        file.write(f"maxLeasesForWorker={most}\n")
    opened((lease(0, lease_owner="a"), lease(1)))
    why = "1 lease has no owner, because each worker holds maxLeasesForWorker = 1"
    assert (why in printed("list", "--once").splitlines()) == is_told


def test_an_empty_table_is_said_to_be_empty(opened, printed):
    opened(())
    assert printed("list").startswith("app: 0 leases\n")


def test_what_owners_serve_is_shown_beside_their_rows(opened, printed):
    url = "http://10.0.0.7:8080"
    shard = ShardOnPage(
        HANDED.lease_key,
        "PROCESSING",
        processing_lag_s=120.0,
        child_silent_s=42.0,
        restarts=2,
        last_error="it ended",
        unconfirmed_s=61.0,
        children=(ChildOnPage(1, pid=7, silent_s=3.0, unanswered=5, confirmed="9", owes=True),),
    )
    page = WorkerPage(
        url=f"{url}/leases", asked_at=0.0, worker="red-1", shards={HANDED.lease_key: shard}
    )
    failed = WorkerPage(url="http://x/leases", asked_at=0.0, failure="no answer within 5 s")
    looks = opened((HANDED, FREE), pages=(page, failed))
    out = printed("list", "--once", "--scrape", url, "--scrape", f"{url}/leases")
    assert looks.urls == (f"{url}/leases",)
    assert "Can't be read: http://x/leases: no answer within 5 s\n" in out
    (line,) = [line for line in out.splitlines() if line.startswith(HANDED.shard_id)]
    assert "2 min          -  processRecords 42 s         2  10.0.0.7" in line
    (row,) = json.loads(printed("list", "--once", "--json", "--worker", "red-1"))["leases"]
    assert (row["lag_s"], row["host"]) == (120.0, "10.0.0.7")
    assert row["worker_page"] == {
        "state": "PROCESSING",
        "call": "processRecords",
        "call_s": 42.0,
        "restarts": 2,
        "child_exceptions": 0,
        "child_exception_age_s": None,
        "reading_fails_s": None,
        "reading_error": None,
        "reading_todo": None,
        "last_error": "it ended",
        "unconfirmed_s": 61.0,
        "children": [
            {
                "child": 1,
                "pid": 7,
                "silent_s": 3.0,
                "unanswered": 5,
                "confirmed": "9",
                "owes": True,
                "is_left_out": False,
                "restarts": 0,
            }
        ],
    }
    out = printed("describe", HANDED.shard_id, "--once")
    assert "  call        processRecords 42 s\n  restarts    2\n  last error  it ended\n" in out


@pytest.mark.parametrize(
    "url",
    ["10.0.0.7:8080", "ftp://a", "http://", "http://a:x", "http://a/x", "http://a?b", "http://[a"],
)
def test_an_address_that_is_none_is_refused(properties, opened, capsys, url):
    opened(())
    assert dispatch(["leases", "list", properties, "--scrape", url]) == 2
    assert "is not http://HOST:PORT" in capsys.readouterr().err


def test_a_password_in_an_address_is_not_repeated(properties, opened, capsys):
    opened(())
    assert dispatch(["leases", "list", properties, "--scrape", "http://u:hidden@a"]) == 2
    assert "hidden" not in capsys.readouterr().err


def test_a_lease_is_described_with_its_relatives(opened, printed):
    child = replace(FREE, lease_owner="blue-1", throughput_kbps=12.34)
    suspects, skipped = PositionRange.parse("70..71"), (PositionRange.parse("60"),)
    child = replace(child, failure=FailureNote(suspects, 2), skipped=skipped)
    opened((PARENT, child), living=("blue-1",))
    lines = printed("describe", PARENT.shard_id, child.lease_key).splitlines()
    assert lines[0] == PARENT.lease_key
    assert "  verdict     FINISHED (ok): read to its end" in lines
    assert "  children    shardId-000000000002 (NO_PROGRESS), b (no row)" in lines
    assert "  parents     shardId-000000000000 (FINISHED)" in lines
    assert "  checkpoint  49/3" in lines
    assert "  KiB/s       12.3" in lines
    assert "  fails at    70..71, 2 attempts" in lines
    assert "  skipped     60" in lines
    assert "  hash keys   200-299" in lines
    (row,) = json.loads(printed("describe", child.shard_id, "-o", "json"))["leases"]
    assert [kin["lease"] for kin in row["parent_leases"]] == [PARENT.lease_key]
    assert row["child_leases"] == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {"reason": "replay of Monday", "before": "70", "at_s": 1795644156.128},
            "ann@ops: reset at 2026-11-25T22:02:36+00:00, from 70: replay of Monday",
        ),
        ({"at_s": 1e300, "by": ""}, "somebody: reset at 1e+300, from no row"),
        ({"verb": "release", "sequence_number": None}, "ann@ops: release"),
    ],
)
def test_who_changed_a_lease_last_is_said(opened, printed, fields, said):
    note = {"request_id": "r1", "verb": "reset", "sequence_number": "7", "by": "ann@ops"} | fields
    opened((replace(FREE, steered=LeaseRequest(**note)),))
    assert f"  changed by  {said}\n" in printed("describe", FREE.shard_id, "--once")
    (row,) = json.loads(printed("describe", FREE.shard_id, "--once", "-o", "json"))["leases"]
    assert row["changed_by"] == {
        "by": note["by"],
        "verb": note["verb"],
        "at_s": note.get("at_s"),
        "before": note.get("before"),
        "reason": note.get("reason", ""),
        "request": "r1",
    }


def test_what_cannot_be_described_is_said(properties, opened, capsys):
    opened((PARENT,), broken=(("bad", "no counter"),))
    assert dispatch(["leases", "describe", properties]) == 2
    assert "Name a shard id or a lease key" in capsys.readouterr().err
    assert dispatch(["leases", "describe", properties, "shardId-9", "--once"]) == 2
    assert "shardId-9 is neither" in capsys.readouterr().err
    assert dispatch(["leases", "describe", "-p", properties, "bad", "--once"]) == 2
    assert "bad: UNREADABLE_ROW: " in capsys.readouterr().err


def test_a_table_that_does_not_exist_is_named_and_exits_with_4(properties, opened, capsys):
    opened()
    assert dispatch(["leases", "list", properties]) == 4
    assert "the lease table app does not exist" in capsys.readouterr().err


def test_a_wrong_file_is_refused(tmp_path, capsys):
    assert dispatch(["leases", "list", str(tmp_path / "none")]) == 2
