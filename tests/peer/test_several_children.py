"""Workers of ours with several children a shard, and Java's, take a shard over from each other."""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from tests.fakes.aggregate import aggregate
from tests.peer import fetched
from tests.process.siblings import DATA, faults, siblings, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peer.fleet import Fleet, Worker

KEYS = [f"key-{number}" for number in range(20)]
PROGRAM = f"{sys.executable} {DATA / 'kclpy' / 'sibling.py'} each"
OURS = {"executableName": PROGRAM, "childrenPerShard": "4"}
SHARD = "shardId-000000000000"


class Aggregates:
    """What is put into a stream of one shard instead of the feeder's records.

    Attributes:
        last: the sequence number of the last one.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        (self.stream,) = fleet.streams
        self.put: dict[str, list[str]] = defaultdict(list)
        self.last = ""

    def add(self, count: int) -> None:
        """So many, each with one record of each key."""
        for _ in range(count):
            for key in KEYS:
                self.put[key].append(f"{key}/{len(self.put[key])}")
            data = aggregate(*((key, self.put[key][-1].encode()) for key in KEYS))
            answer = self.fleet.kinesis.put_record(
                StreamName=self.stream, Data=data, PartitionKey=KEYS[0]
            )
            self.last = str(answer["SequenceNumber"])

    def until_read(self, *workers: Worker) -> None:
        """Programs saw all that was put."""
        wanted = set(itertools.chain(*self.put.values()))
        self.fleet.until(lambda: wanted <= set(texts(*workers)), f"all {len(wanted)} are read")


@pytest.mark.peer
@pytest.mark.parametrize("version", fetched.MULTILANG)
def test_a_shard_goes_from_four_children_to_java_and_back(
    new_fleet: Callable[..., Fleet], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """At first within an aggregate, when ours is killed; then at orderly stops."""
    try:
        fetched.multilang(version)
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    fleet = new_fleet({"orders": 1})
    fleet.feeder.stop()
    records = Aggregates(fleet)
    monkeypatch.setenv("LOCKS", str(fleet.folder))
    # Of the keys that its child has it is the third in each aggregate.
    monkeypatch.setenv("HANG", f"{KEYS[15]}/3")
    first = fleet.ours("ours-1", **OURS)
    monkeypatch.delenv("HANG")
    records.add(6)

    def mark() -> tuple[str, str]:
        row = fleet.rows()[SHARD]
        return row["checkpoint"]["S"], row["checkpointSubSequenceNumber"]["N"]

    def hangs() -> bool:
        return f"{KEYS[15]}/3" in texts(first) and mark()[1] == "7"

    fleet.until(hangs, "the mark is within an aggregate")
    stored = mark()
    first.kill_dash_9()
    theirs = fleet.multilang("theirs", version, executableName=PROGRAM)
    records.add(3)
    records.until_read(first, theirs)
    fleet.until_all_is_owned_by(theirs)
    seen_by_java = [sight.position for one in siblings(theirs) for sight in one.sights]
    assert min(seen_by_java) == (int(stored[0]), int(stored[1]) + 1)

    fleet.until(lambda: mark() == (records.last, str(len(KEYS) - 1)), "all is confirmed")
    theirs.leave()
    second = fleet.ours("ours-2", **OURS)
    records.add(3)
    records.until_read(first, theirs, second)
    second.leave()
    last = fleet.multilang("theirs-2", version, executableName=PROGRAM)
    records.add(3)
    everybody = (first, theirs, second, last)
    records.until_read(*everybody)
    found = siblings(*everybody)
    killed = [one.pid for one in siblings(first)]
    assert faults(records.put, found, killed_workers=killed) == []
    children = {one.pid: one.children for one in found}
    assert {children[one.pid] for one in siblings(second)} == {"4"}
    assert {children[one.pid] for one in siblings(theirs, last)} == {None}
    last.leave()
