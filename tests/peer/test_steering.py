"""Commands that change leases beside Java workers: theirs are left alone, and read on from them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.leases.model.lease_request import LeaseRequest, SteerVerb
from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE

if TYPE_CHECKING:
    from tests.peer.fleet import Fleet, Worker
    from tests.peer.judge import Hold, Shard

POISONED = Path(__file__).resolve().parents[1] / "data" / "poisoned_child.py"
TRIM_HORIZON = -2
#: What a Java worker must not stumble over in a row; the second one can't be read by ours either.
OURS_ALONE = {
    "kclMldHolder": "ours",
    "kclMldRequest": "{",
    "kclMldSteered": '{"request_id":"r","verb":"release"}',
    "kclMldFailure": '{"attempts":2}',
    "kclMldSkip": "12/0",
}


def steered(fleet: Fleet, worker: Worker, code: int, *words: str) -> dict[str, Any]:
    """JSON of a command with the file of a worker; it ends with that code."""
    file = str(fleet.folder / worker.name / "app.properties")
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "leases", *words, "-o", "json", "-p", file],
        env=fleet.aws.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, (done.stderr, done.stdout)
    fleet.note(" ".join(words))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def again(fleet: Fleet, worker: Worker, key: str) -> bool:
    """Whether a worker has begun a shard at its oldest record, and seen that one."""
    oldest = {shard.shard_id: numbers[0] for shard, numbers in fleet.feeder.put().items()}
    return any(
        hold.shard.shard_id == key and oldest[key] in {number for _at, number in hold.seen}
        for hold in fleet.holds(worker)
    )


@pytest.mark.peer
@pytest.mark.parametrize(("version", "client_version"), [("2.5.4", COMPATIBLE), ("3.1.3", NATIVE)])
def test_leases_are_changed_beside_java_workers(new_fleet, version, client_version):
    try:
        fetched.multilang(version)
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet({"orders": 2}, client_version)
    theirs = fleet.multilang("theirs", version)
    fleet.until_it_holds(theirs, 2)
    ours = fleet.ours("ours")
    fleet.until_it_holds(ours, 1)
    (mine,), (foreign,) = fleet.owned(ours), fleet.owned(theirs)
    fleet.until(lambda: "kclMldHolder" in fleet.rows()[mine], "ours says that it holds it")

    for words in (("reset", "--to-trim-horizon"), ("release",), ("pause",)):
        told = steered(fleet, ours, 5, words[0], foreign, *words[1:], "--execute")
        assert "theirs renews it and is not a kcl-mld worker" in told["leases"][0]["why"]
    told = steered(fleet, ours, 5, "pause", mine, "--execute")
    is_led = client_version == NATIVE
    reader = (
        "theirs leads, and may give the lease to theirs" if is_led else "theirs is not a kcl-mld"
    )
    assert reader in told["leases"][0]["why"]
    assert not {"kclMldRequest", "kclMldSteered"} & fleet.rows()[foreign].keys()
    assert fleet.owned(theirs) == [foreign]

    assert not again(fleet, ours, mine)
    told = steered(fleet, ours, 0, "reset", mine, "--to-trim-horizon", "--execute")
    assert told["leases"][0]["done"]
    fleet.until(lambda: again(fleet, ours, mine), "ours reads its shard from the beginning")
    told = steered(fleet, ours, 0, "release", mine, "--execute")
    assert told["leases"][0]["done"]
    fleet.until_all_is_read()

    fleet.until(lambda: fleet.owned(ours) == [mine], "ours has its lease again")
    steered(fleet, ours, 0, "release", mine, "--execute")
    ours.leave()
    (shard,) = (one for one in fleet.feeder.put() if one.shard_id == mine)
    fleet.until_all_is_owned_by(theirs)
    confirmed = last_confirmed(fleet, ours, shard)
    until_it_reads_from(fleet, theirs, shard, confirmed, fleet.feeder.put()[shard])
    theirs.leave()
    told = steered(fleet, ours, 0, "reset", "--all", "--to-trim-horizon", "--execute")
    assert [one["done"] for one in told["leases"]] == [True, True]
    withdrawn_and_made_again(fleet, ours, mine)
    for name, text in OURS_ALONE.items():
        fleet.dynamodb.update_item(
            TableName=fleet.application,
            Key={"leaseKey": {"S": mine}},
            UpdateExpression=f"SET {name} = :text",
            ExpressionAttributeValues={":text": {"S": text}},
        )
    newer = fleet.multilang("newer", version)
    fleet.until_all_is_owned_by(newer)
    for key in (mine, foreign):
        fleet.until(
            lambda key=key: again(fleet, newer, key), f"Java reads {key} from its beginning"
        )
    assert {name: fleet.rows()[mine][name]["S"] for name in OURS_ALONE} == OURS_ALONE
    fleet.until_all_is_read()


def withdrawn_and_made_again(fleet: Fleet, worker: Worker, key: str) -> None:
    """What a command that was killed left in a row is withdrawn; the row is deleted and made again."""
    asked = LeaseRequest(
        request_id="r",
        verb=SteerVerb.RELEASE,
        holder=worker.name,
        expires_s=time.time() + 600.0,
        by="a-command-that-is-gone",
    )
    fleet.dynamodb.update_item(
        TableName=fleet.application,
        Key={"leaseKey": {"S": key}},
        UpdateExpression="SET kclMldRequest = :asked",
        ExpressionAttributeValues={":asked": {"S": asked.text}},
    )
    told = steered(fleet, worker, 0, "withdraw", key, "--execute")
    assert told["leases"][0]["done"], told
    assert "kclMldRequest" not in fleet.rows()[key]
    before = fleet.rows()[key]
    fleet.dynamodb.delete_item(TableName=fleet.application, Key={"leaseKey": {"S": key}})
    told = steered(fleet, worker, 0, "reset", key, "--to-trim-horizon", "--create", "--execute")
    assert told["leases"][0]["done"], told
    made = fleet.rows()[key]
    assert made["checkpoint"] == before["checkpoint"] == {"S": "TRIM_HORIZON"}
    assert "leaseOwner" not in made


def last_hold(fleet: Fleet, worker: Worker, shard: Shard) -> Hold | None:
    """The newest of a worker's programs for a shard that has seen records."""
    found = [one for one in fleet.holds(worker) if one.shard == shard and one.seen]
    return max(found, key=lambda one: one.begun_s, default=None)


def last_confirmed(fleet: Fleet, worker: Worker, shard: Shard) -> int:
    """Sequence number of the newest checkpoint that a worker's programs made of a shard."""
    made = [pair for one in fleet.holds(worker) if one.shard == shard for pair in one.confirmed]
    return max(made)[1]


def until_it_reads_from(
    fleet: Fleet, worker: Worker, shard: Shard, position: int, put: list[int]
) -> None:
    """A program begins behind the position, with the next record, and gets these to the last."""
    wanted = [number for number in put if number > position]

    def reads() -> bool:
        hold = last_hold(fleet, worker, shard)
        if hold is None or hold.position != position:
            return False
        seen = [number for _at_s, number in hold.seen]
        assert seen[: len(wanted)] == wanted[: len(seen)]
        return len(seen) >= len(wanted)

    fleet.until(reads, f"{worker.name} reads {shard.shard_id} from {position}")


@pytest.mark.peer
@pytest.mark.parametrize("version", fetched.MULTILANG)
def test_java_delivers_a_record_that_was_skipped(new_fleet, tmp_path, version):
    try:
        fetched.multilang(version)
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet({"orders": 1})
    (stream,) = fleet.streams
    child = f"{sys.executable} {POISONED} exit {stream}/7"  # it checkpoints nothing
    ours = fleet.ours(
        "ours",
        executableName=child,
        childFailurePolicy="deadletter",
        onFailureDestination=f"file:{tmp_path / 'letters'}",
        childRestartBackoffMillis="10",
        childRestartMaxAttempts="1",
    )

    def row() -> dict[str, Any]:
        (found,) = fleet.rows().values() or ({},)
        return dict(found)

    fleet.until(lambda: "kclMldSkip" in row(), "ours skips a record")
    processed = fleet.folder / "ours" / "processed"
    fleet.until(lambda: f"{stream}/8" in processed.read_text().split(), "ours reads on")
    ours.kill_dash_9()
    assert f"{stream}/7" not in processed.read_text().split()
    ((shard, put),) = fleet.feeder.put().items()
    skipped = row()["kclMldSkip"]
    assert skipped == {"SS": [str(put[7])]}
    theirs = fleet.multilang("theirs", version)
    until_it_reads_from(fleet, theirs, shard, TRIM_HORIZON, put)
    fleet.until(lambda: int(row()["checkpoint"]["S"]) > put[7], "Java's checkpoint is behind it")
    assert row()["kclMldSkip"] == skipped
    fleet.until_all_is_read()
    assert " ERROR " not in theirs.output
    theirs.leave()
    # What Java's checkpoint covers is no longer kept.
    later = fleet.ours("ours-2")
    fleet.until_it_holds(later, 1)
    fleet.until(lambda: "kclMldSkip" not in row(), "ours has forgotten it")
    verdict = fleet.verdict()
    later.leave()
    assert (verdict.faults, verdict.doubled) == ([], 0)
