"""kill -9 of children and workers, stops and reshards in any order, with several children a shard."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.process.siblings import faults, siblings
from tests.process.test_several_children import Feed, living, start

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running
    from tests.process.siblings import Sibling

pytestmark = [pytest.mark.process, pytest.mark.proof]

TURNS = 14
#: Until a child that was killed has been replaced and given its records again, on a busy machine.
REPLACED_S = 20.0
#: What may happen in a turn, beside records.
KILL_CHILD, KILL_WORKER, STOP, SPLIT, MERGE = "kill child", "kill worker", "stop", "split", "merge"


class Chaos:
    """Two workers, of which each may have another number of children and another program."""

    def __init__(self, app: Application, seed: int) -> None:
        self.feed = Feed(app)
        self.rng = random.Random(seed)
        self.names = itertools.count(1)
        self.running: list[Running] = []
        self.all: list[Running] = []
        #: Children that were killed alone, and when, in epoch seconds.
        self.killed: dict[int, float] = {}
        self.killed_workers: list[Running] = []

    def start(self) -> None:
        when = self.rng.choice(["timer", "each"])
        children = self.rng.choice([1, 2, 4, 7])
        run = start(self.feed, when, children=children, worker=f"w{next(self.names)}")
        self.running.append(run)
        self.all.append(run)

    def happens(self, what: str) -> None:
        match what:
            case "kill child":
                alive = [one for run in self.running for one in living(run)]
                if alive:
                    victim = self.rng.choice(alive)
                    self.killed[victim.pid] = time.time()
                    os.kill(victim.pid, signal.SIGKILL)
            case "kill worker":
                run = self.running.pop(self.rng.randrange(len(self.running)))
                os.kill(run.pid, signal.SIGKILL)
                self.killed_workers.append(run)
                self.start()
            case "stop":
                run = self.running.pop(self.rng.randrange(len(self.running)))
                self.stop(run)
                self.start()
            case "split":
                self.feed.app.split(self.rng.choice(self.open_shards()))
            case "merge":
                shards = self.open_shards()
                if len(shards) > 1:
                    at = self.rng.randrange(len(shards) - 1)
                    self.feed.app.merge(*shards[at : at + 2])

    def stop(self, run: Running) -> None:
        """In order, unless it has not started yet."""
        is_starting = not siblings(run)
        assert run.stop() == 0 or is_starting, run.output

    def open_shards(self) -> list[int]:
        """Their numbers, in the order of their keys."""
        app = self.feed.app
        shards = [
            (int(one["HashKeyRange"]["StartingHashKey"]), int(one["ShardId"].rpartition("-")[2]))
            for one in app.kinesis.list_shards(StreamName=app.name)["Shards"]
            if "EndingSequenceNumber" not in one["SequenceNumberRange"]
        ]
        return [number for _, number in sorted(shards)]

    def faults(self) -> list[str]:
        of_workers = {one.pid for one in siblings(*self.killed_workers)}
        found = siblings(*self.all)
        alone = set(self.killed) - of_workers
        # On a busy machine a lease may be lost, too.
        robbed = {
            one.pid
            for one in found
            if one.heard("lease_lost") and not one.heard("shutdown_requested")
        }
        behind_mark = of_workers | (robbed | self._held_up(found)) - alone
        return faults(self.feed.put, found, alone, behind_mark)

    def _held_up(self, found: list[Sibling]) -> set[int]:
        """Children that a stop reached while one beside them was being replaced.

        The mark is where that one was, so what the others confirmed behind it may come again.
        """
        shard_of = {one.pid: one.shard for one in found}
        return {
            one.pid
            for one in found
            for pid, at_s in self.killed.items()
            if shard_of.get(pid) == one.shard
            and one.heard("shutdown_requested")
            and one.entries[0]["at"] <= at_s <= one.entries[-1]["at"] <= at_s + REPLACED_S
        }


@pytest.mark.parametrize("seed", range(4))
def test_no_record_is_lost_or_out_of_order_whatever_happens(
    new_app: Callable[..., Application], seed: int
) -> None:
    app = new_app(
        2,
        failoverTimeMillis="2000",
        leaseAssignmentIntervalMillis="500",
        parentShardPollIntervalMillis="500",
        shardSyncIntervalMillis="500",
    )
    chaos = Chaos(app, seed)
    chaos.start()
    chaos.start()
    rng = chaos.rng
    for _ in range(TURNS):
        chaos.feed.records(rng.randrange(1, 8))
        time.sleep(rng.uniform(0.0, 2.0))  # where it is then is what differs
        kinds = [KILL_CHILD] * 6 + [KILL_WORKER, STOP, SPLIT, MERGE]
        chaos.happens(rng.choice(kinds))
    chaos.feed.wait(*chaos.all)
    chaos.feed.records(1)
    chaos.feed.wait(*chaos.all)
    for run in chaos.running:
        chaos.stop(run)
    assert chaos.faults() == []
