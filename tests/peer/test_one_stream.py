"""One stream, one table: workers of ours and of others, each with the same kind of program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.peer import fetched, rows
from tests.peer.fleet import COMPATIBLE, NATIVE
from tests.peer.judge import Shard

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.fleet import Fleet, Worker

PEERS = [
    *(f"java-{version}" for version in fetched.MULTILANG),
    "java-3.1.3-native",
    "kcl-rs",
    "kcl-rs-native",
]


@dataclass(frozen=True)
class Peer:
    """A kind of foreign worker.

    Attributes:
        start: one of a name in a fleet.
        client_version: of the fleet that it is tried in.
    """

    start: Callable[[Fleet, str], Worker]
    client_version: str


@pytest.fixture(params=PEERS)
def peer(request: pytest.FixtureRequest) -> Peer:
    """``native`` = by KCL 3.x from the start."""
    kind, _, rest = request.param.partition("-")
    version, _, native = rest.partition("-")
    try:
        if kind == "java":
            fetched.multilang(version)
        else:
            fetched.kcl_rs()
    except fetched.Unavailable as error:
        pytest.skip(f"{request.param}: {error}")

    def start(fleet: Fleet, name: str) -> Worker:
        return fleet.multilang(name, version) if kind == "java" else fleet.kcl_rs(name)

    return Peer(start, NATIVE if native else COMPATIBLE)


@pytest.mark.peer
@pytest.mark.short
def test_a_java_worker_joins(new_fleet):
    try:
        fetched.multilang("2.5.4")
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet({"orders": 2})
    ours = fleet.ours("ours")
    fleet.until_it_holds(ours, 2)
    theirs = fleet.multilang("theirs", "2.5.4")
    fleet.until_it_holds(theirs, 1)
    fleet.until_all_is_read()
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=False) == []
    assert verdict.faults == []
    assert verdict.by_worker.keys() == {"ours", "theirs"}


@pytest.mark.peer
def test_a_canary_comes_and_goes(new_fleet, peer):
    """Theirs; one of ours takes its share and gives it back; mixed again, then ours, then theirs."""
    fleet = new_fleet({"orders": 4}, peer.client_version)
    theirs = peer.start(fleet, "theirs-1")
    fleet.until_it_holds(theirs, 4)
    fleet.until_all_is_read()
    canary = fleet.ours("ours-1")
    fleet.until_it_holds(canary, fleet.share)
    fleet.until_all_is_read()
    assert rows.faults(fleet.rows(), many=False) == []
    canary.leave()
    fleet.until_all_is_owned_by(theirs)
    fleet.until_all_is_read()
    ours = fleet.ours("ours-2")
    fleet.until_it_holds(ours, fleet.share)
    theirs.leave()
    fleet.until_all_is_owned_by(ours)
    fleet.until_all_is_read()
    assert rows.faults(fleet.rows(), many=False) == []
    again = peer.start(fleet, "theirs-2")
    fleet.until_it_holds(again, fleet.share)
    ours.leave()
    fleet.until_all_is_owned_by(again)
    fleet.until_all_is_read()
    verdict = fleet.verdict()
    again.leave()
    assert verdict.faults == []
    assert verdict.by_worker.keys() == {"theirs-1", "ours-1", "ours-2", "theirs-2"}


@pytest.mark.peer
def test_both_die_while_shards_are_split_and_merged(new_fleet, peer, request):
    if "native" in request.node.name:
        pytest.skip(
            "ours begins with a table of 3.5, which 3.1.3 can't join; kcl-rs reports no load"
        )
    # So many that a worker's share has more than finished ones.
    fleet = new_fleet({"orders": 6}, peer.client_version)
    (stream,) = fleet.streams
    first, second = (Shard(stream, f"shardId-00000000000{number}") for number in range(2))
    ours = fleet.ours("ours-1")
    fleet.until_it_holds(ours, 6)
    theirs = peer.start(fleet, "theirs-1")
    fleet.until_it_holds(theirs, 1)
    left, right = fleet.split(first)
    fleet.until_read_by_anybody(left, right, second)
    ours.kill_dash_9()
    fleet.note("ours-1 is killed")
    fleet.until_all_is_owned_by(theirs)
    fleet.until_all_is_read()
    back = fleet.ours("ours-2")
    fleet.until_it_holds(back, 1)
    (merged,) = fleet.merge(left, right)
    fleet.until_read_by_anybody(merged, second)
    theirs.kill_dash_9()
    fleet.note("theirs-1 is killed")
    fleet.until_all_is_owned_by(back)
    fleet.until_all_is_read()
    again = peer.start(fleet, "theirs-2")
    fleet.until_it_holds(again, 1)
    assert rows.faults(fleet.rows(), many=False) == []
    again.leave()
    fleet.until_all_is_owned_by(back)
    verdict = fleet.verdict()
    back.leave()
    assert verdict.faults == []
    assert verdict.edges == 4
    assert verdict.by_worker.keys() == {"ours-1", "ours-2", "theirs-1", "theirs-2"}


@pytest.mark.peer
@pytest.mark.parametrize("peer", ["java-2.5.4", "java-3.1.3-native"], indirect=True)
def test_a_foreign_row_stops_nobody(new_fleet, peer):
    fleet = new_fleet({"orders": 4}, peer.client_version)
    theirs = peer.start(fleet, "theirs")
    fleet.until_it_holds(theirs, 4)
    ours = fleet.ours("ours")
    fleet.until_it_holds(ours, fleet.share)
    key, row = next(iter(fleet.rows().items()))
    identifier = "123456789012:other:1"
    ours_alone = {"leaseOwner", "kclMldHolder", "kclMldStream"}
    foreign = {name: value for name, value in row.items() if name not in ours_alone} | {
        "leaseKey": {"S": f"{identifier}:{key}"},
        "streamName": {"S": identifier},
        "shardId": {"S": key},
        "checkpoint": {"S": "SHARD_END"},
    }
    dynamodb = fleet.aws.client("dynamodb")
    dynamodb.put_item(TableName=fleet.application, Item=foreign)
    fleet.until(lambda: "rows of a multi-stream application" in ours.output, "ours says so")
    held = set(fleet.owned(ours))
    fleet.until_all_is_read()
    assert ours.exit_code(0) is None
    assert held <= set(fleet.owned(ours))
    dynamodb.delete_item(TableName=fleet.application, Key={"leaseKey": foreign["leaseKey"]})
    fleet.until(lambda: "Resolved" in ours.output, "ours recovers")
    fleet.until_all_is_read()
    verdict = fleet.verdict()
    ours.leave()
    theirs.leave()
    assert verdict.faults == []
    assert verdict.by_worker.keys() == {"ours", "theirs"}
