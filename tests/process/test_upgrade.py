"""Workers of an older version and of this one share a table while a fleet is upgraded, and back."""

from __future__ import annotations

import itertools
import signal
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE
from tests.process.daemon import wait_until
from tests.process.siblings import DATA, faults, siblings
from tests.process.stand_in import by_shell
from tests.process.test_several_children import Feed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running
    from tests.process.siblings import Sibling

pytestmark = [
    pytest.mark.process,
    pytest.mark.proof,
    pytest.mark.xdist_group("upgrade"),  # fetches the older version once
]

SHARDS = 4
OLDER, OURS = "older", "ours"


@pytest.fixture(scope="module")
def older_version() -> str:
    """A folder to put on ``PYTHONPATH``."""
    try:
        return fetched.older()
    except fetched.Unavailable as error:
        pytest.skip(str(error))


class Fleet:
    """Workers of both versions, and records that are put while anything is waited for.

    Attributes:
        living: by worker id, which is the version and a number.
        all: likewise, those that have ended, too.
        killed: workers that were killed, and when, in epoch seconds.
    """

    def __init__(self, app: Application, older: str) -> None:
        self.app = app
        self.feed = Feed(app)
        self.living: dict[str, Running] = {}
        self.all: dict[str, Running] = {}
        self.killed: dict[str, float] = {}
        self._older = older

    def until(self, condition: Callable[[], Any], what: str) -> None:
        def fed() -> Any:
            self.feed.records(1)
            return condition()

        try:
            wait_until(fed, what)
        except AssertionError:
            print(self.owners(), *(run.output[-3000:] for run in self.living.values()), sep="\n")
            raise

    def owners(self) -> list[str | None]:
        """Of the leases with records to come."""
        rows = self.app.items().values()
        return [row.get("leaseOwner") for row in rows if row["checkpoint"] != "SHARD_END"]

    def start(self, version: str) -> None:
        """A worker, until it has a lease and its program has seen records."""
        name = f"{version}{len(self.all)}"
        is_older = version == OLDER
        command = f'PYTHONPATH={self._older} exec {sys.executable} -m mld --properties "$FILE"'
        run = self.app.start(
            executable=(sys.executable, str(DATA / "kclpy" / "sibling.py"), "timer"),
            worker=name,
            environment={"LOCKS": str(self.app.folder)},
            launcher=by_shell(command) if is_older else (),
        )
        self.living[name] = self.all[name] = run
        self.until(lambda: name in self.owners(), f"{name} has a lease")
        self.until(lambda: any(one.sights for one in siblings(run)), f"{name} reads")

    def stop(self, name: str) -> None:
        run = self.living.pop(name)
        assert run.stop() == 0, run.output
        self._is_replaced(name)

    def kill(self, name: str) -> None:
        run = self.living.pop(name)
        run.signal(signal.SIGKILL)
        self.killed[name] = time.time()
        self._is_replaced(name)

    def _is_replaced(self, gone: str) -> None:
        def all_are_owned() -> bool:
            return set(self.owners()) <= set(self.living)

        self.until(all_are_owned, f"the leases of {gone} have new owners")

    def roll(self, new: str, reshard: Callable[[], None]) -> None:
        """From two workers of a version to two of the other: one is killed, one hands over."""
        first, second = self.living
        self.start(new)
        if self.app.properties["clientVersionConfig"] == NATIVE:
            # Nobody has been told to stop: the leader moved a lease to it.
            assert self.passages()[f"{_version(first)} to {new}, handed over"], self.passages()
        reshard()
        self.kill(first)
        self.start(new)
        self.stop(second)

    def cut_off(self) -> dict[int, float]:
        """Processes that handed nothing over, and when they or their worker knew: that the lease was
        taken, perhaps just before its shard ended or was to be handed over, or by a kill."""
        found = {
            one.pid: one.entries[-1]["at"]
            for one in siblings(*self.all.values())
            if (one.heard("lease_lost") or one.heard("refused")) and not _handed_over(one)
        }
        for name, at_s in self.killed.items():
            found |= {one.pid: at_s for one in siblings(self.all[name]) if one.pid not in found}
        return found

    def successions(self) -> list[tuple[Sibling, Sibling]]:
        """Each process with the next one of its shard."""
        every = sorted(siblings(*self.all.values()), key=lambda one: one.entries[0]["at"])
        shards = {one.shard: [each for each in every if each.shard == one.shard] for one in every}
        return [pair for of_shard in shards.values() for pair in itertools.pairwise(of_shard)]

    def passages(self) -> Counter[str]:
        """How often a shard went from one version to the other, and how."""
        worker = {one.pid: name for name, run in self.all.items() for one in siblings(run)}
        found: Counter[str] = Counter()
        for before, after in self.successions():
            is_taken = before.heard("lease_lost") or before.heard("refused")
            cut = "taken" if is_taken else "killed"
            how = "handed over" if _handed_over(before) else cut
            found[f"{_version(worker[before.pid])} to {_version(worker[after.pid])}, {how}"] += 1
        return found

    def faults(self) -> list[str]:
        """Records may come again after a kill, and where a lease was taken: then both may see them."""
        cut_off = self.cut_off()
        at_once = {
            frozenset((before.pid, after.pid))
            for before, after in self.successions()
            if after.entries[0]["at"] <= cut_off.get(before.pid, 0.0)
        }
        found = siblings(*self.all.values())
        return faults(self.feed.put, found, cut_off, at_once=at_once)

    def __str__(self) -> str:
        sights = [sight.text for one in siblings(*self.all.values()) for sight in one.sights]
        put = sum(map(len, self.feed.put.values()))
        return f"{put} records, {len(sights) - len(set(sights))} seen again; {self.passages()}"


def _handed_over(one: Sibling) -> bool:
    """Whether it made its last checkpoint when it was asked to."""
    words = [entry["saw"] for entry in one.entries]
    return (
        "shutdown_requested" in words and "checkpoint" in words[words.index("shutdown_requested") :]
    )


def _version(worker: str) -> str:
    return worker.rstrip("0123456789")


# A fleet of 2.x takes leases from living workers. One of 3.x hands them over, but on a busy machine
# a lease may be lost there, too.
@pytest.mark.parametrize("client_version", [NATIVE, f"{COMPATIBLE}_PHASE1"], ids=["3x", "2x"])
def test_a_fleet_is_upgraded_and_rolled_back(
    new_app: Callable[..., Application], older_version: str, client_version: str
) -> None:
    app = new_app(
        SHARDS,
        clientVersionConfig=client_version,
        failoverTimeMillis="3000",
        leaseAssignmentIntervalMillis="500",
        parentShardPollIntervalMillis="500",
        shardSyncIntervalMillis="500",
        # In a fleet of 2.x those of finished shards count, so a worker might have no other.
        leaseCleanupIntervalMillis="1000",
        completedLeaseCleanupIntervalMillis="1000",
        retrievalMode="POLLING",
    )
    fleet = Fleet(app, older_version)
    fleet.start(OLDER)
    fleet.start(OLDER)
    fleet.roll(OURS, lambda: app.split(0))
    assert {_version(name) for name in fleet.living} == {OURS}
    fleet.roll(OLDER, lambda: app.merge(4, 5))
    fleet.feed.wait(*fleet.all.values())
    for run in fleet.living.values():
        assert run.stop() == 0, run.output
    print(fleet)
    found = fleet.faults()
    for run in fleet.all.values() if found else ():
        print(run.output)
    assert found == []
