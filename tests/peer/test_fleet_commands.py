"""``kcl-mld explain``, ``leases`` and ``workers`` say the truth of Java owners."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE

if TYPE_CHECKING:
    from tests.peer.fleet import Fleet, Worker

#: Of a shard whose owner lives and reads.
WELL = {"READING", "NO_PROGRESS", "IDLE", "CATCHING_UP"}


def shown(fleet: Fleet, worker: Worker, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command with the file of a worker."""
    file = str(fleet.folder / worker.name / "app.properties")
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", *words, "-o", "json", "-p", file],
        env=fleet.aws.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode in (0, 7), done.stderr
    fleet.note(" ".join(words))
    answer: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, answer


@pytest.mark.peer
@pytest.mark.parametrize(("version", "client_version"), [("2.5.4", COMPATIBLE), ("3.1.3", NATIVE)])
def test_what_commands_say_of_java_owners_is_true(new_fleet, version, client_version):
    try:
        fetched.multilang(version)
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet({"orders": 2}, client_version)
    theirs = fleet.multilang("theirs", version)
    fleet.until_it_holds(theirs, 2)
    ours = fleet.ours("ours")
    fleet.until_it_holds(ours, 1)
    fleet.until_all_is_read()
    _code, listed = shown(fleet, ours, "leases", "list", "--tip")
    owners = {key: worker.name for worker in (ours, theirs) for key in fleet.owned(worker)}
    assert {one["lease"]: one["owner"] for one in listed["leases"]} == owners
    for one in listed["leases"]:
        assert (one["state"], one["verdict"] in WELL) == ("owned", True), one
        assert one["renewed_within_s"] is not None
        assert one["lag_s"] is not None
    _code, workers = shown(fleet, ours, "workers", "list")
    assert {one["worker"]: one["lives"] for one in workers["workers"]} == {
        "ours": True,
        "theirs": True,
    }
    leaders = [one["worker"] for one in workers["workers"] if one["leads"]]
    assert leaders == ([fleet.leader] if fleet.leader else [])
    code, told = shown(fleet, theirs, "explain", "--tip")
    assert code == 0, told
    assert {one["verdict"] for one in told["shards"]} <= WELL
    ours.leave()
    fleet.until_all_is_owned_by(theirs)
    theirs.kill_dash_9()
    code, told = shown(fleet, theirs, "explain")
    assert code == 7
    assert {one["verdict"] for one in told["shards"]} == {"OWNER_SILENT"}
    _code, workers = shown(fleet, theirs, "workers", "list")
    assert {one["worker"]: one["lives"] for one in workers["workers"]}["theirs"] is False
