"""Fleets of KCL 3.x: who leads, how leases are handed over, how a fleet becomes one and back.

A flip takes ten minutes, as in Java.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.config.reserved_keys import FAILED_LIFE
from kcl_mld.fleet.model.worker_life import FailedLife, failed_life_to_item
from tests.peer import fetched, rows
from tests.peer.fleet import NATIVE
from tests.peer.judge import Shard

if TYPE_CHECKING:
    from tests.peer.fleet import Fleet, Worker

#: Ten minutes, the looks before and after, and a machine that is busy.
FLIP_S = 1200.0
#: Every worker looks at the generation once a minute, a Java worker after 90 s at first.
FOLLOWED_S = 180.0
#: A Java leader that died is replaced when its lock has expired.
LEADER_S = 400.0


@dataclass(frozen=True)
class Java:
    """A kind of Java worker for fleets of 3.x.

    Attributes:
        version: of the daemon, or of the library under our program.
        is_daemon: the MultiLangDaemon, for one stream.
    """

    version: str
    is_daemon: bool

    def start(self, fleet: Fleet, name: str) -> Worker:
        """One of theirs."""
        if self.is_daemon:
            return fleet.multilang(name, self.version)
        return fleet.many_streams(name, self.version, map(fleet.identifier, fleet.streams))

    def ours(self, fleet: Fleet, name: str) -> Worker:
        """One of ours, of as many streams."""
        if self.is_daemon:
            return fleet.ours(name)
        return fleet.ours(name, multiStream="true", streams=", ".join(fleet.streams))


@pytest.fixture(params=["3.1.3", "3.5.1"])
def java(request: pytest.FixtureRequest) -> Java:
    """3.1.3 has three tables, 3.5.1 one."""
    one = Java(request.param, is_daemon=request.param in fetched.MULTILANG)
    fetch = fetched.multilang if one.is_daemon else fetched.many_streams
    try:
        fetch(one.version)
    except fetched.Unavailable as error:
        pytest.skip(f"Java {one.version}: {error}")
    return one


@pytest.fixture
def java_3_1_3() -> Java:
    try:
        fetched.multilang("3.1.3")
    except fetched.Unavailable as error:
        pytest.skip(f"Java MultiLangDaemon 3.1.3: {error}")
    return Java("3.1.3", is_daemon=True)


def shapes(states: dict[str, Any], java: Java, of: str, leads: str) -> dict[str, Any]:
    """Items that a worker wrote, as 3.5 has them.

    Args:
        states: of the fleet at one moment.
        java: of the fleet, which says how many tables there are.
        of: the worker's id.
        leads: who had the lock at that moment.
    """
    found = {"WORKER_METRIC_STATS": states[of]}
    if leads == of:
        found["LEADER"] = states["Leader"]
    if java.version >= "3.5":
        return {kind: rows.shape(item) for kind, item in found.items()}
    return {kind: rows.shape(rows.of_3_5(item, kind)) for kind, item in found.items()}


@pytest.mark.peer
def test_leases_are_handed_over_both_ways(new_fleet, java):
    """Ours leads and hands leases to theirs; theirs leads and hands leases to ours."""
    fleet = new_fleet({"orders": 4}, NATIVE)
    theirs = java.start(fleet, "theirs-1")
    fleet.until_it_holds(theirs, 4)
    theirs.leave()
    ours = java.ours(fleet, "ours-1")
    fleet.until_it_holds(ours, 4)
    fleet.until(lambda: fleet.leader == ours.name, "ours-1 leads", LEADER_S)
    back = java.start(fleet, "theirs-2")
    fleet.until_it_holds(back, 1)
    fleet.until_all_is_read()
    assert fleet.leader == ours.name
    # Beside a Java worker that measures nothing here, from the next report on.
    fleet.until(lambda: not fleet.states()[ours.name]["opr"]["M"], "ours-1 keeps its figures back")
    ours_led = fleet.states()
    ours.leave()
    fleet.until_all_is_owned_by(back)
    fleet.until(lambda: fleet.leader == back.name, "theirs-2 leads", LEADER_S)
    again = java.ours(fleet, "ours-2")
    fleet.until_it_holds(again, 1)
    fleet.until_all_is_read()
    assert fleet.leader == back.name
    theirs_led = fleet.states()
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=not java.is_daemon) == []
    again.leave()
    assert verdict.faults == []
    # Each lease that went from a live worker to another went with a checkpoint; the first Java
    # worker stopped without one.
    sights = Counter(
        (hold.shard, number)
        for hold in fleet.holds(ours, back, again)
        for _at_s, number in hold.seen
    )
    assert [sight for sight, count in sights.items() if count > 1] == []
    of_ours = shapes(ours_led, java, ours.name, ours.name)
    of_theirs = shapes(theirs_led, java, back.name, back.name)
    assert of_ours == of_theirs


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["java-3.5.1", "kcl-rs"])
def test_a_new_application_of_ours_is_joined_and_taken_over(new_fleet, kind):
    """Ours begins the fleet, another joins and leaves, comes again and goes on alone.

    kcl-rs takes leases in any fleet, as 2.x workers do, and never leads.
    """
    java = Java("3.5.1", is_daemon=False)
    is_java = kind.startswith("java")
    try:
        fetched.many_streams(java.version) if is_java else fetched.kcl_rs()
    except fetched.Unavailable as error:
        pytest.skip(f"{kind}: {error}")
    fleet = new_fleet({"orders": 4}, NATIVE)
    ours = java.ours(fleet, "ours-1") if is_java else fleet.ours("ours-1")
    fleet.until_it_holds(ours, 4)
    first = java.start(fleet, "theirs-1") if is_java else fleet.kcl_rs("theirs-1")
    fleet.until_it_holds(first, 1)
    fleet.until_all_is_read()
    assert fleet.leader == ours.name
    first.leave()
    fleet.until_all_is_owned_by(ours)
    second = java.start(fleet, "theirs-2") if is_java else fleet.kcl_rs("theirs-2")
    fleet.until_it_holds(second, 1)
    ours.leave()
    fleet.until_all_is_owned_by(second)
    if is_java:
        fleet.until(lambda: fleet.leader == second.name, "theirs-2 leads", LEADER_S)
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=is_java) == []
    second.leave()
    assert verdict.faults == []
    assert verdict.by_worker.keys() == {"ours-1", "theirs-1", "theirs-2"}


@pytest.mark.peer
def test_all_java_then_mixed_then_all_ours_then_all_java(new_fleet, java):
    fleet = new_fleet({"orders": 6}, NATIVE)
    first = java.start(fleet, "theirs-1")
    fleet.until_it_holds(first, 6)
    canary = java.ours(fleet, "ours-1")
    fleet.until_it_holds(canary, 1)
    fleet.until_all_is_read()
    second = java.ours(fleet, "ours-2")
    first.leave()
    fleet.until_all_is_owned_by(canary, second)
    fleet.until_all_is_read()
    fleet.note("all are ours")
    third = java.start(fleet, "theirs-2")
    fleet.until_it_holds(third, 1)
    canary.leave()
    fleet.until_all_is_owned_by(second, third)
    second.leave()
    fleet.until_all_is_owned_by(third)
    fleet.until_all_is_read()
    fleet.note("all are theirs")
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=not java.is_daemon) == []
    third.leave()
    assert verdict.faults == []
    assert verdict.by_worker.keys() >= {"theirs-1", "ours-1", "theirs-2"}


@pytest.mark.peer
def test_a_fleet_of_2x_flips_to_3x_and_is_rolled_back(new_fleet, java_3_1_3):
    """While it runs; after each change a worker dies, and a shard is split."""
    fleet = new_fleet({"orders": 4})
    (stream,) = fleet.streams
    first, second = (Shard(stream, f"shardId-00000000000{number}") for number in range(2))
    theirs = java_3_1_3.start(fleet, "theirs-1")
    fleet.until_it_holds(theirs, 4)
    ours = fleet.ours("ours-1")
    fleet.until_it_holds(ours, 1)
    assert fleet.generation == "UPGRADE_FROM_2X"
    fleet.until(lambda: fleet.generation == "3X_WITH_ROLLBACK", "the fleet has flipped", FLIP_S)
    fleet.until(lambda: fleet.leader is not None, "somebody leads by the lock", FOLLOWED_S)
    fleet.until_read_by_anybody(*fleet.split(first))
    ours.kill_dash_9()
    fleet.note("ours-1 is killed")
    fleet.until(lambda: fleet.leader == theirs.name, "theirs-1 leads", LEADER_S)
    fleet.until_all_is_owned_by(theirs)
    back = fleet.ours("ours-2")
    fleet.until_it_holds(back, 1)
    fleet.until_all_is_read()
    fleet.roll_back()
    fleet.until(
        lambda: "The fleet works as CLIENT_VERSION_2X " in back.output,
        "ours-2 follows",
        FOLLOWED_S,
    )
    again = java_3_1_3.start(fleet, "theirs-2")
    fleet.until_it_holds(again, 1)
    theirs.kill_dash_9()
    fleet.note("theirs-1 is killed")
    fleet.until_all_is_owned_by(back, again)
    fleet.delete_index()
    fleet.until_read_by_anybody(*fleet.split(second))
    fleet.until_all_is_read()
    assert fleet.generation == "2X"
    back.leave()
    fleet.until_all_is_owned_by(again)
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=False) == []
    again.leave()
    assert verdict.faults == []
    assert verdict.edges == 4
    assert verdict.by_worker.keys() == {"theirs-1", "ours-1", "ours-2", "theirs-2"}


@pytest.mark.peer
def test_a_java_2x_worker_takes_nothing_from_a_table_of_3_5(new_fleet):
    """Somebody starts one by mistake: it can't read the lock as a lease, tries 20 times and ends."""
    try:
        fetched.multilang("2.5.4")
    except fetched.Unavailable as error:
        pytest.skip(f"Java MultiLangDaemon 2.5.4: {error}")
    fleet = new_fleet({"orders": 4}, NATIVE)
    first = fleet.ours("ours-1")
    fleet.until_it_holds(first, 4)
    second = fleet.ours("ours-2")
    fleet.until_it_holds(second, 2)
    theirs = fleet.multilang("theirs-1", "2.5.4")
    owners = set()

    def has_ended() -> bool:
        owners.update(row.get("leaseOwner", {}).get("S") for row in fleet.rows().values())
        return theirs.exit_code(0) is not None

    fleet.until(has_ended, "theirs-1 has ended")
    assert owners == {first.name, second.name}
    assert "leaseCounter is marked non-null but is null" in theirs.output
    assert "Unable to initialize after 20 attempts" in theirs.output
    fleet.until_all_is_read()
    verdict = fleet.verdict()
    assert rows.faults(fleet.rows(), many=False) == []
    assert verdict.faults == []
    assert (verdict.doubled, verdict.by_worker.keys()) == (0, {first.name, second.name})


@pytest.fixture
def java_3_5_1() -> Java:
    try:
        fetched.many_streams("3.5.1")
    except fetched.Unavailable as error:
        pytest.skip(f"Java 3.5.1: {error}")
    return Java("3.5.1", is_daemon=False)


@pytest.mark.peer
def test_a_java_leader_gives_no_leases_to_processes_that_failed(new_fleet, java_3_5_1):
    """It lists the table with their items, and says nothing about them."""
    fleet = new_fleet({"orders": 4}, NATIVE)
    theirs = java_3_5_1.start(fleet, "theirs-1")
    fleet.until_it_holds(theirs, 4)
    fleet.until(lambda: fleet.leader == theirs.name, "theirs-1 leads", LEADER_S)
    lives = [
        FailedLife(
            instance=f"life-{number}",
            worker_id=f"gone-{number}",
            lived_s=5,
            failed_at_s=int(time.time()),
            why="its child failed at initialize (exit status 1)",
            lease_key="no lease" if number else None,
            position="1" if number else None,
        )
        for number in range(3)
    ]
    for life in lives:
        item = failed_life_to_item(life, "leaseKey")
        fleet.dynamodb.put_item(TableName=fleet.application, Item=item)
    second = java_3_5_1.start(fleet, "theirs-2")
    fleet.until_it_holds(second, 2)
    fleet.until_all_is_read()
    assert {one.key for one in lives} <= fleet.states().keys()
    assert {row["leaseOwner"]["S"] for row in fleet.rows().values()} == {"theirs-1", "theirs-2"}
    for worker in (theirs, second):
        assert [line for line in worker.output.splitlines() if FAILED_LIFE in line] == []
        assert [line for line in worker.output.splitlines() if "ERROR" in line] == []
    assert fleet.verdict().faults == []
