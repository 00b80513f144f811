"""Commands that change leases beside Java workers: theirs are left alone, and read on from them."""

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
        [sys.executable, "-m", "mld", "leases", *words, "-o", "json", "-p", file],
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
    assert "theirs is not a kcl-mld worker" in told["leases"][0]["why"]
    assert not {"kclMldRequest", "kclMldSteered"} & fleet.rows()[foreign].keys()
    assert fleet.owned(theirs) == [foreign]

    assert not again(fleet, ours, mine)
    told = steered(fleet, ours, 0, "reset", mine, "--to-trim-horizon", "--execute")
    assert told["leases"][0]["done"]
    fleet.until(lambda: again(fleet, ours, mine), "ours reads its shard from the beginning")
    told = steered(fleet, ours, 0, "release", mine, "--execute")
    assert told["leases"][0]["done"]
    fleet.until_all_is_read()

    ours.leave()
    fleet.until_all_is_owned_by(theirs)
    theirs.leave()
    told = steered(fleet, ours, 0, "reset", "--all", "--to-trim-horizon", "--execute")
    assert [one["done"] for one in told["leases"]] == [True, True]
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
