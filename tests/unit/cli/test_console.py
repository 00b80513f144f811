"""What ``kcl-mld console`` keeps and shows, over looks that are made up."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs

from kcl_mld.cli import dispatch
from kcl_mld.cli.console import EVENTS, VERSION, ConsoleWatch
from kcl_mld.cli.fleet_documents import as_json
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot, StreamSnapshot, TipSnapshot
from kcl_mld.observe.model.worker_page import ShardOnPage, WorkerPage
from kcl_mld.observe.rules.explain import explain
from kcl_mld.observe.rules.watching import ExplainRules
from kcl_mld.streams.model.shard import HashRange, Shard
from tests.fakes.lease_world import lease

RULES = ExplainRules(failover_s=10.0)
CONFIG = SimpleNamespace(leases=SimpleNamespace(table_name="app-leases"), application_name="app")
KEY = "shardId-000000000000"
LISTED = StreamSnapshot(name="s", shards=(Shard(KEY, HashRange(0, 99), "1"),))


def look(at_s, *leases):
    rows = {one.lease_key: one for one in leases}
    return FleetSnapshot(began_at=at_s, at=at_s, wall_s=1000 + at_s, leases=rows, streams=(LISTED,))


def watch(rules=RULES):
    return ConsoleWatch(CONFIG, rules, 5.0)


def owned(owner, counter=0, **fields):
    return lease(0, lease_owner=owner, lease_counter=counter, **fields)


def test_the_document_is_that_of_explain_and_more():
    looks = [look(0, owned("a", 1)), look(5, owned("b", 2, checkpoint_owner="a"))]
    console = watch()
    console.add(looks[0])
    published = console.add(looks[1])
    document = json.loads(published.fleet)
    told = as_json("app-leases", explain(looks, RULES))
    for shown, said in zip(document.pop("shards"), told.pop("shards"), strict=True):
        assert {name: shown[name] for name in said} == said
        more = {name: value for name, value in shown.items() if name not in said}
        assert more == {
            "lives": True,
            "next_owner": "b",
            "counter": 2,
            "pending_checkpoint": None,
            "owner_switches": 0,
            "throughput_kbps": None,
            "records_per_s": None,
            "worker_page": None,
        }
    assert {name: document[name] for name in told} == told
    more = {name: value for name, value in document.items() if name not in told}
    events = [one["kind"] for one in more.pop("events") if one["subject"] == KEY]
    assert events == ["HAND_OFF_BEGUN"]
    assert [one["worker"] for one in more.pop("workers")] == ["a"]
    assert [one["subject"] for one in more.pop("lineage")] == [KEY]
    assert [one["at_s"] for one in more.pop("history")] == [1000, 1005]
    assert more == {
        "version": VERSION,
        "application": "app",
        "at_s": 1005,
        "since_s": 1000,
        "look": 2,
        "interval_s": 5.0,
        "failover_s": 10.0,
        "error": None,
    }


def test_what_tips_and_pages_say_is_shown_with_its_age():
    page = ShardOnPage(
        KEY, "PROCESSING", processing_lag_s=7.0, records=5, restarts=2, child_silent_s=31.0
    )

    def seen(at_s, records, **fields):
        shards = {KEY: structs.replace(page, records=records)}
        pages = (WorkerPage(url="http://h:1/leases", asked_at=at_s, worker="a", shards=shards),)
        return replace(look(at_s, owned("a", at_s)), pages=pages, **fields)

    console = watch()
    console.add(seen(0, 5))
    document = json.loads(console.add(seen(20, 45)).fleet)
    (shard,) = document["shards"]
    assert (shard["behind_s"], shard["behind_age_s"], shard["lag_s"]) == (None, None, 7.0)
    assert shard["records_per_s"] == 2.0
    assert (shard["worker_page"]["call"], shard["worker_page"]["restarts"]) == ("processRecords", 2)
    assert "the child was restarted 2 times" in shard["cause"]
    assert document["history"][-1]["lag_s"] == 7.0
    tips = {KEY: TipSnapshot(asked_at=15.0, position=TRIM_HORIZON, behind_s=3.0)}
    (shard,) = json.loads(console.add(seen(40, 45, tips=tips)).fleet)["shards"]
    assert (shard["behind_s"], shard["behind_age_s"], shard["lag_s"]) == (3.0, 25.0, 3.0)


def test_a_look_that_fails_leaves_what_is_known_and_says_so():
    console = watch()
    before = json.loads(console.add(look(0, owned("a"))).fleet)
    failed = console.failed("Scan: ThrottlingException")
    assert json.loads(failed.fleet) == before | {"error": "Scan: ThrottlingException"}
    assert json.loads(failed.summary) == {
        "version": VERSION,
        "look": 1,
        "at_s": 1000,
        "severity": "info",
        "needs_a_person": False,
        "error": "Scan: ThrottlingException",
    }
    assert json.loads(console.add(look(5, owned("a"))).fleet)["error"] is None


def test_a_row_that_can_not_be_read_has_no_position():
    broken = replace(look(0), broken=((KEY, "no checkpoint"),), streams=())
    (shard,) = json.loads(watch().add(broken).fleet)["shards"]
    assert (shard["verdict"], shard["counter"], shard["lives"]) == ("UNREADABLE_ROW", None, False)


def test_a_shard_has_its_past_and_its_events():
    console = watch()
    console.add(look(0, owned("a")))
    shard = console.add(look(5, owned("b", 1))).shard
    past = json.loads(shard(KEY))
    assert (past["version"], past["subject"]) == (VERSION, KEY)
    assert [one["owner"] for one in past["changes"]] == ["a", "b"]
    assert [one["at_s"] for one in past["samples"]] == [1000, 1005]
    assert [one["kind"] for one in past["events"]] == ["LEASE_TAKEN"]
    assert shard("shardId-9") is None


def test_memory_is_bounded_and_what_stands_still_is_still_seen():
    console = watch(ExplainRules(failover_s=10.0, stalled_after_s=300.0))
    sizes = set()
    for number in range(1200):
        published = console.add(look(number, owned(f"w{number % 7}", number)))
        sizes.add((console.looks, len(published.fleet) // 20_000))
    assert max(looks for looks, _size in sizes) < 85
    document = json.loads(published.fleet)
    assert len(document["events"]) == EVENTS
    assert document["span_s"] >= 310
    assert len(published.fleet) < 250_000
    (shard,) = document["shards"]
    assert (shard["verdict"], shard["since_s"] is not None) == ("THRASHING", False)


@pytest.mark.parametrize("address", ["0.0.0.0:80", "[::]:80", "10.1.2.3:80", "example.org:80"])
def test_others_can_not_be_listened_to(capsys, tmp_path, address):
    assert dispatch(["console", str(tmp_path / "x"), "--listen", address]) == 2
    assert "is not a loopback address" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1", "[::1]:1", "127.0.0.2:1"])
def test_this_machine_can(capsys, tmp_path, address):
    assert dispatch(["console", str(tmp_path / "x"), "--listen", address]) == 2
    assert "loopback" not in capsys.readouterr().err
