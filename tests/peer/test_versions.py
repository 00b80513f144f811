"""This version and an older one share a table: as leader, holder, leaving worker and command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests import kclpy_cache
from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE
from tests.peer.test_fleet_commands import WELL, shown
from tests.peer.test_steering import steered

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.fleet import Fleet, Worker

SHARDS = 4
#: A leader is calm, and reads seldom, after a minute without a change.
CALM_S = 100.0


@pytest.fixture(autouse=True)
def older_is_there() -> None:
    try:
        fetched.older()
    except fetched.Unavailable as error:
        pytest.skip(str(error))


def listed_by_older(fleet: Fleet, worker: Worker) -> dict[str, str | None]:
    """Owner of each lease, by the older version's command."""
    file = str(fleet.folder / worker.name / "app.properties")
    done = subprocess.run(
        [sys.executable, "-m", "mld", "leases", "list", "--json", file],
        env=fleet.aws.environment | {"PYTHONPATH": f"{kclpy_cache.kclpy()}:{fetched.older()}"},
        cwd=fleet.folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return {
        lease["lease"]: lease["owner"] for group in answer["workers"] for lease in group["leases"]
    }


def owners(fleet: Fleet, *workers: Worker) -> dict[str, str]:
    return {key: worker.name for worker in workers for key in fleet.owned(worker)}


@pytest.mark.peer
@pytest.mark.parametrize("client_version", [NATIVE, COMPATIBLE], ids=["3x", "2x"])
@pytest.mark.parametrize("first", ["older", "ours"])
def test_each_leads_holds_dies_and_leaves(
    new_fleet: Callable[..., Fleet], client_version: str, first: str
) -> None:
    fleet = new_fleet({"orders": SHARDS}, client_version)
    start: dict[str, Callable[[str], Worker]] = {"older": fleet.older, "ours": fleet.ours}
    second = "ours" if first == "older" else "older"
    leads = start[first]("first")
    fleet.until_it_holds(leads, SHARDS)
    joins = start[second]("second")
    fleet.until_it_holds(joins, fleet.share)
    if client_version == NATIVE:
        assert fleet.leader == leads.name
    fleet.note("calm")
    time.sleep(CALM_S)
    # Nobody moved anything meanwhile, and both commands see both.
    before = owners(fleet, leads, joins)
    assert listed_by_older(fleet, leads) == before
    _code, shown_now = shown(fleet, leads, "leases", "list")
    assert {one["lease"]: one["owner"] for one in shown_now["leases"]} == before
    assert {one["verdict"] for one in shown_now["leases"]} <= WELL
    older, ours = (leads, joins) if first == "older" else (joins, leads)
    foreign = fleet.owned(older)[0]
    refused = steered(fleet, ours, 5, "release", foreign, "--execute")
    assert f"{older.name} renews it and is not a kcl-mld worker" in refused["leases"][0]["why"]
    # The leader of a calm fleet dies, and the other one takes all; a split comes on top.
    leads.kill_dash_9()
    fleet.until_all_is_owned_by(joins)
    (shard,) = {one for one in fleet.feeder.put() if one.shard_id == foreign}
    children = fleet.split(shard)
    fleet.until_read_by_anybody(*children)
    third = start[first]("third")
    fleet.until_it_holds(third, fleet.share)
    joins.leave()
    fleet.until_all_is_owned_by(third)
    assert "failed soon after" not in third.output  # the first one had run for minutes
    fourth = start[second]("fourth")
    fleet.until_it_holds(fourth, fleet.share)
    third.leave()
    fleet.until_all_is_owned_by(fourth)
    assert fleet.verdict().faults == []
