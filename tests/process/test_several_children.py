"""Daemons with ``childrenPerShard``: real processes that are killed, shards that end or move."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import zlib
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.aggregate import aggregate
from tests.kclpy_cache import aws_kcl
from tests.process.daemon import shard_id, wait_until
from tests.process.siblings import DATA, faults, siblings, texts
from tests.process.test_daemon_life import library

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running
    from tests.process.siblings import Sibling

pytestmark = pytest.mark.process

CHILDREN = 4
KEYS = [f"key-{number}" for number in range(20)]
REPLACED = {
    "childFailurePolicy": "restart",
    "childRestartBackoffMillis": "50",
    "childRestartMaxAttempts": "100",
}


def index(key: str, children: int = CHILDREN) -> int:
    """The child that has a key."""
    return zlib.crc32(key.encode()) % children


class Feed:
    """An application whose records are ``key/number``, and all that was put by key."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.put: dict[str, list[str]] = defaultdict(list)

    def _text(self, key: str) -> str:
        self.put[key].append(f"{key}/{len(self.put[key])}")
        return self.put[key][-1]

    def records(self, rounds: int) -> None:
        """One of each key so many times."""
        for _ in range(rounds):
            answer = self.app.kinesis.put_records(
                StreamName=self.app.name,
                Records=[{"Data": self._text(key).encode(), "PartitionKey": key} for key in KEYS],
            )
            assert answer["FailedRecordCount"] == 0

    def aggregates(self, rounds: int) -> None:
        """One of all keys so many times, as the KPL packs them."""
        for _ in range(rounds):
            data = aggregate(*((key, self._text(key).encode()) for key in KEYS))
            self.app.kinesis.put_record(StreamName=self.app.name, Data=data, PartitionKey=KEYS[0])

    def are_seen(self, *runs: Running) -> bool:
        wanted = set(itertools.chain(*self.put.values()))
        return wanted <= set(texts(*runs))

    def wait(self, *runs: Running) -> None:
        """Until programs saw all that was put."""
        wait_until(lambda: self.are_seen(*runs), f"all are seen: {runs[-1].output[-3000:]}")


def start(
    feed: Feed,
    when: str = "timer",
    *,
    children: int = CHILDREN,
    kind: str = "real",
    hang: str = "",
    **options: Any,
) -> Running:
    count = {} if children == 1 else {"childrenPerShard": str(children)}
    return feed.app.start(
        executable=(sys.executable, str(DATA / "kclpy" / "sibling.py"), when),
        environment={**library(kind), "LOCKS": str(feed.app.folder), "HANG": hang},
        **{**REPLACED, **count, **options},
    )


def living(run: Running) -> list[Sibling]:
    return [one for one in siblings(run) if one.is_alive]


def kill_some(run: Running, feed: Feed, put: Callable[[int], None], turns: int) -> list[int]:
    """Kill a child each time that some records were put; their pids."""
    rng, killed = random.Random(44), []
    for turn in range(turns):
        put(3)
        if turn % 2:
            feed.wait(run)  # children are idle, or owe a confirmation
        victims = wait_until(
            lambda: [one for one in living(run) if one.pid not in killed],  # which takes a moment
            "a child lives",
        )
        victim = rng.choice(victims)
        os.kill(victim.pid, signal.SIGKILL)
        killed.append(victim.pid)
        put(1)
    feed.wait(run)
    return killed


def assert_ended_in_order(feed: Feed, *runs: Running) -> None:
    """Every child that lived at the stop confirmed all, so the lease has the last position."""
    found = siblings(*runs)
    last = max(sight.position for one in found for sight in one.sights)
    row = feed.app.items()[shard_id(0)]
    assert (int(row["checkpoint"]), row["checkpointSubSequenceNumber"]) == last
    assert not any(one.heard("refused") for one in found)


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("real", {"retrievalMode": "POLLING"}),
        ("real", {"retrievalMode": "FANOUT", "idleTimeBetweenReadsInMillis": None}),
        pytest.param(
            "shim",
            {"childPrefork": "true"},
            marks=pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux"),
        ),
    ],
    ids=["polling", "fan-out", "prefork"],
)
def test_children_that_are_killed_are_replaced_alone(
    new_app: Callable[..., Application], kind: str, properties: dict[str, str | None]
) -> None:
    feed = Feed(new_app())
    run = start(feed, kind=kind, **properties)
    # Each subscribes again, which the service takes only after 5 s.
    turns = 3 if properties.get("retrievalMode") == "FANOUT" else 8
    killed = kill_some(run, feed, feed.records, turns)
    assert run.stop() == 0, run.output
    found = siblings(run)
    assert faults(feed.put, found, killed) == []
    assert {one.child for one in found} == {str(number) for number in range(CHILDREN)}
    assert {one.children for one in found} == {str(CHILDREN)}
    assert all(index(s.key) == int(one.child or -1) for one in found for s in one.sights)
    assert_ended_in_order(feed, run)


def test_children_of_node_that_are_killed_are_replaced_alone(
    new_app: Callable[..., Application],
) -> None:
    folder, node = aws_kcl(), shutil.which("node")
    if folder is None or node is None:
        pytest.skip("aws-kcl cannot be fetched here")
    feed = Feed(new_app())
    run = feed.app.start(
        executable=(node, str(DATA / "node" / "sibling.js"), "{childIndex}"),
        environment={"NODE_PATH": str(folder)},
        **REPLACED,
        childrenPerShard=str(CHILDREN),
    )
    killed = kill_some(run, feed, feed.records, 6)
    assert run.stop() == 0, run.output
    found = siblings(run)
    assert faults(feed.put, found, killed) == []
    assert all(one.arguments == [one.child] for one in found)
    assert_ended_in_order(feed, run)


@pytest.mark.parametrize("when", ["timer", "each"])
def test_user_records_of_aggregates_go_to_the_children_of_their_own_keys(
    new_app: Callable[..., Application], when: str
) -> None:
    feed = Feed(new_app())
    run = start(feed, when)
    killed = kill_some(run, feed, feed.aggregates, 6)
    assert run.stop() == 0, run.output
    found = siblings(run)
    assert faults(feed.put, found, killed) == []
    assert all(index(s.key) == int(one.child or -1) for one in found for s in one.sights)
    assert_ended_in_order(feed, run)


def test_shards_are_split_and_merged(new_app: Callable[..., Application]) -> None:
    feed = Feed(new_app(2, parentShardPollIntervalMillis="500", shardSyncIntervalMillis="500"))
    run = start(feed)
    feed.records(10)
    feed.wait(run)
    victim = next(one for one in living(run) if one.shard == shard_id(0))
    os.kill(victim.pid, signal.SIGKILL)
    feed.app.split(0)
    feed.records(10)
    feed.wait(run)
    feed.app.merge(2, 3)
    feed.records(10)
    feed.wait(run)
    ended = [shard_id(0), shard_id(2), shard_id(3)]
    wait_until(
        lambda: all(
            feed.app.items().get(key, {}).get("checkpoint") in {"SHARD_END", None} for key in ended
        ),
        "three have ended",
    )
    assert run.stop() == 0, run.output
    found = siblings(run)
    assert faults(feed.put, found, [victim.pid]) == []
    told = {one.shard for one in found if one.heard("shard_ended")}
    assert told == set(ended)
    assert not any(one.heard("refused") for one in found)


@pytest.mark.parametrize(("first", "second"), [(4, 1), (1, 4), (4, 3)])
def test_a_shard_is_handed_over_without_a_record_twice(
    new_app: Callable[..., Application], first: int, second: int
) -> None:
    """Whatever number of children the next worker has."""
    feed = Feed(new_app(2, failoverTimeMillis="3000", leaseAssignmentIntervalMillis="500"))
    before = start(feed, children=first, worker="w1")
    feed.records(5)
    feed.wait(before)
    after = start(feed, children=second, worker="w2")

    def halves() -> bool:
        feed.records(1)
        return sorted(feed.app.owners().values(), key=str) == ["w1", "w2"]

    wait_until(halves, "each has one")
    feed.records(5)
    feed.wait(before, after)
    assert before.stop() == 0, before.output
    feed.records(5)
    feed.wait(before, after)
    assert after.stop() == 0, after.output
    found = siblings(before, after)
    assert faults(feed.put, found) == []
    assert not any(one.heard("refused") for one in found)


@pytest.mark.parametrize(("first", "second"), [(4, 1), (1, 4), (4, 3)])
def test_a_worker_goes_on_where_one_was_killed_within_an_aggregate(
    new_app: Callable[..., Application], first: int, second: int
) -> None:
    """A child hangs at a user record: its siblings go on, and the mark stands where it confirmed."""
    feed = Feed(new_app(failoverTimeMillis="2000"))
    feed.aggregates(6)
    stuck = feed.put[KEYS[7]][3]
    before = start(feed, "each", children=first, worker="w1", hang=stuck)
    (hanging,) = wait_until(
        lambda: [one for one in siblings(before) if stuck in {s.text for s in one.sights}],
        "it hangs",
    )
    (place,) = (sight.position for sight in hanging.sights if sight.text == stuck)
    number, sub = max(s.position for s in hanging.sights if s.position < place)
    assert number == place[0]  # of the same aggregate

    def stored() -> tuple[Any, Any]:
        row = feed.app.items()[shard_id(0)]
        return row["checkpoint"], row["checkpointSubSequenceNumber"]

    mark = (str(number), sub)
    wait_until(lambda: stored() == mark, "the mark is the child's own record before it")
    if first > 1:
        siblings_of = {
            text
            for key in KEYS
            if index(key, first) != index(KEYS[7], first)
            for text in feed.put[key]
        }
        wait_until(lambda: siblings_of <= set(texts(before)), "its siblings go on")
    assert stored() == mark
    before.kill()
    after = start(feed, "each", children=second, worker="w2")
    feed.aggregates(3)
    feed.wait(before, after)

    def rest() -> bool:
        wanted = {text for key in KEYS for text in feed.put[key][4:]}
        return wanted <= set(texts(after))

    wait_until(rest, "the next one read all behind the mark")
    assert after.stop() == 0, after.output
    old = siblings(before)
    found = [*old, *siblings(after)]
    assert faults(feed.put, found, killed_workers=[one.pid for one in old]) == []
    again = [sight.position for one in siblings(after) for sight in one.sights]
    assert min(again) == (number, sub + 1)
    assert all(one.begins == list(mark) for one in siblings(after))
