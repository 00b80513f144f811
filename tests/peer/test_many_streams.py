"""Many streams, one table: workers of ours beside others that have a mode for it."""

from __future__ import annotations

import json

import pytest

from tests.peer import fetched, rows
from tests.peer.fleet import COMPATIBLE, NATIVE, PROGRAM
from tests.peer.judge import Shard


def streams_of(fleet) -> dict[str, str]:
    """Properties of a worker of ours that reads all."""
    return {"multiStream": "true", "streams": ", ".join(fleet.streams)}


def programs(worker) -> dict[str, list[str]]:
    """Arguments of the programs by stream, as these noted them."""
    first = [path.read_text().partition("\n")[0] for path in worker.folder.glob("journal-*")]
    return {entry["stream"]: entry["program"][1:] for entry in map(json.loads, first)}


@pytest.fixture(params=[*fetched.CLIENTS, "3.5.1-native"])
def library(request) -> tuple[str, str]:
    """Version of the Java library, and of its fleet; ``native`` = by KCL 3.x from the start."""
    version, _, native = request.param.partition("-")
    try:
        fetched.many_streams(version)
    except fetched.Unavailable as error:
        pytest.skip(f"Java library {version}: {error}")
    return version, NATIVE if native else COMPATIBLE


@pytest.fixture
def needs_kcl_rs():
    try:
        fetched.kcl_rs()
    except fetched.Unavailable as error:
        pytest.skip(f"kcl-rs: {error}")


@pytest.mark.peer
def test_the_rows_of_each_alone_are_alike(new_fleet, library):
    """Each makes the leases of the same streams in a table of its own."""
    version, client_version = library
    fleet = new_fleet({"orders": 2, "clicks": 1, "views": 3}, client_version)
    theirs = fleet.many_streams("theirs", version, map(fleet.identifier, fleet.streams))
    fleet.until_it_holds(theirs, 6)
    theirs.leave()
    of_theirs = fleet.rows()
    fleet.application += "-ours"
    ours = fleet.ours("ours", **streams_of(fleet))
    fleet.until_it_holds(ours, 6)
    ours.leave()
    of_ours = fleet.rows()
    assert rows.faults(of_theirs, many=True) == []
    assert rows.faults(of_ours, many=True) == []
    if version < "3.5":
        of_theirs = {key: row | rows.SINCE_3_5 for key, row in of_theirs.items()}
    assert rows.lasting(of_ours) == rows.lasting(of_theirs)


@pytest.mark.peer
def test_both_come_and_go_and_die(new_fleet, library):
    version, client_version = library
    fleet = new_fleet({"orders": 2, "clicks": 1, "views": 1}, client_version)
    orders = fleet.streams[0]
    theirs = fleet.many_streams("theirs-1", version, map(fleet.identifier, fleet.streams))
    fleet.until_it_holds(theirs, 4)
    ours = fleet.ours("ours-1", **streams_of(fleet))
    fleet.until_it_holds(ours, fleet.share)
    assert rows.faults(fleet.rows(), many=True) == []
    children = fleet.split(Shard(orders, "shardId-000000000000"))
    fleet.until_read_by_anybody(*children)
    ours.kill_dash_9()
    fleet.note("ours-1 is killed")
    fleet.until_all_is_owned_by(theirs)
    fleet.until_all_is_read()
    back = fleet.ours("ours-2", **streams_of(fleet))
    fleet.until_it_holds(back, fleet.share)
    theirs.kill_dash_9()
    fleet.note("theirs-1 is killed")
    fleet.until_all_is_owned_by(back)
    fleet.until_all_is_read()
    more = fleet.split(Shard(orders, "shardId-000000000001"))
    fleet.until_read_by_anybody(*more)
    again = fleet.many_streams("theirs-2", version, map(fleet.identifier, fleet.streams))
    fleet.until_it_holds(again, fleet.share)
    back.leave()
    fleet.until_all_is_owned_by(again)
    fleet.until_all_is_read()
    last = fleet.ours("ours-3", **streams_of(fleet))
    fleet.until_it_holds(last, fleet.share)
    again.leave()
    fleet.until_all_is_owned_by(last)
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=True) == []
    last.leave()
    assert verdict.faults == []
    assert verdict.edges == 4
    assert len(verdict.by_worker) == 5


@pytest.mark.peer
@pytest.mark.usefixtures("needs_kcl_rs")
def test_kcl_rs_beside_streams_that_come_and_go(new_fleet):
    """Three streams with a program each; one more by its tag, and one is deleted."""
    fleet = new_fleet({"orders": 2, "clicks": 1, "views": 1})
    orders, clicks, views = fleet.streams
    for stream in fleet.streams:
        fleet.tag(stream, team="peer")
    theirs = fleet.kcl_rs("theirs", map(fleet.identifier, fleet.streams))
    fleet.until_it_holds(theirs, 4)
    of_theirs = fleet.rows()
    properties = {
        "multiStream": "true",
        "streamTags": "team=peer",
        "streamDiscoveryIntervalMillis": "2000",
    } | {
        f"stream.*{name}.executableName": f"{PROGRAM} batch {name} {{streamName}}"
        for name in ("orders", "clicks", "views", "added")
    }
    ours = fleet.ours("ours", **properties)
    fleet.until_it_holds(ours, 2)
    assert rows.faults(of_theirs, many=True) == []
    added = fleet.create_stream("added", 2)
    fleet.tag(added, team="peer")
    shards = [Shard(added, f"shardId-00000000000{number}") for number in range(2)]
    fleet.until_read_by_anybody(*shards)
    children = fleet.split(Shard(orders, "shardId-000000000000"))
    fleet.until_read_by_anybody(*children)
    assert rows.faults(fleet.rows(), many=True) == []
    fleet.until_all_is_read()
    fleet.delete_stream(views)
    fleet.until(lambda: "does not exist" in ours.output, f"ours notices that {views} is gone")
    theirs.leave()
    fleet.until(
        lambda: {key.split(":")[1] for key in fleet.owned(ours)} == {orders, clicks, added},
        "ours holds the leases of all three that are there",
    )
    verdict = fleet.verdict(views)
    assert rows.faults(fleet.rows(), many=True) == []
    ours.leave()
    assert verdict.faults == []
    assert verdict.edges == 2
    ran = programs(ours)
    assert ran.keys() - {views} == {orders, clicks, added}  # kcl-rs may have held that of views
    assert ran == {stream: [stream.rpartition("-")[2], stream] for stream in ran}
