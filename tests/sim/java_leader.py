"""What a Java-like worker does as the leader of a 2.x fleet: it finds holes and fills them.

A second formulation of the rules, written beside ``kcl_mld.fleet.rules`` and sharing nothing with it, so
that the scripted worker does not repeat a mistake of ours.

Source: DeterministicShuffleShardSyncLeaderDecider, PeriodicShardSyncManager and
HierarchicalShardSyncer (KCL 3.5.1), for streams that are read from TRIM_HORIZON.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from kcl_mld.errors import AwsError
from tests.sim.rows import text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Item = Mapping[str, Any]
    Shard = Mapping[str, Any]
    Range = tuple[int, int]

#: From the start to the first audit and to the second election.
FIRST_S = 60
ELECTION_S = 300
AUDIT_S = 120
#: Audits in a row that must see the same hole.
CONFIDENCE = 3
_LAST_KEY = 2**128 - 1
_NO_RANGES = ((-1, -1), (-1, -1))


class JavaRandom:
    """``java.util.Random``."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) % 2**48

    def _next31(self) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) % 2**48
        return self._state >> 17

    def below(self, bound: int) -> int:
        """``nextInt(bound)``."""
        drawn = self._next31()
        if bound & (bound - 1) == 0:
            return bound * drawn >> 31
        while drawn - drawn % bound + bound - 1 >= 2**31:
            drawn = self._next31()
        return drawn % bound


def leader_of(owners: Iterable[str]) -> str | None:
    """Who leads; None = everybody, for there is no owner yet."""
    names = sorted(set(owners), key=lambda name: name.encode("utf-16-be"))
    random = JavaRandom(1947)
    for size in range(len(names), 1, -1):
        drawn = random.below(size)
        names[size - 1], names[drawn] = names[drawn], names[size - 1]
    return names[0] if names else None


def first_hole(items: Iterable[Item]) -> tuple[Range, Range] | None:
    """The two ranges beside the first gap that the unfinished leases leave, None = no gap."""
    ranges = sorted(
        (int(text_of(item, "startingHashKey") or -1), int(text_of(item, "endingHashKey") or -1))
        for item in items
        if text_of(item, "checkpoint") != "SHARD_END"
    )
    if not ranges:
        return _NO_RANGES
    if ranges[0][0] != 0 or ranges[-1][1] != _LAST_KEY:
        return ranges[0], ranges[-1]
    left, reach = ranges[0], ranges[0][1]
    for span in ranges[1:]:
        if span[0] > reach + 1:
            return left, span
        if span[0] == reach + 1:
            left = span
        reach = max(reach, span[1])
    return None


def parents_of(shard: Shard) -> list[str]:
    """Ids of both parents, as far as there are any."""
    return [shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if name in shard]


def is_open(shard: Shard) -> bool:
    """Whether records can still come."""
    return "EndingSequenceNumber" not in shard["SequenceNumberRange"]


def to_create(shards: Sequence[Shard], leased: set[str]) -> list[Shard]:
    """Shards that get a lease in a table that is not empty, in the order of their creation.

    From every open shard without a lease the way leads up through shards without one; it ends at
    the oldest that are listed.
    """
    listed = {shard["ShardId"]: shard for shard in shards}
    chosen: dict[str, Shard] = {}
    for shard in shards:
        way = [shard] if is_open(shard) else []
        while way:
            here = way.pop()
            if here["ShardId"] in leased:
                continue
            above = [listed[parent] for parent in parents_of(here) if parent in listed]
            way += above
            if not above:
                chosen[here["ShardId"]] = here
    return sorted(
        chosen.values(),
        key=lambda shard: (
            int(shard["SequenceNumberRange"]["StartingSequenceNumber"]),
            shard["ShardId"],
        ),
    )


class Follower(Protocol):
    """What a worker lets its leader part do."""

    worker_id: str

    async def scan(self) -> list[dict[str, Any]]:
        """All leases."""

    async def list_shards(self) -> list[dict[str, Any]]:
        """All shards that are listed."""

    async def create_lease(self, shard: Shard) -> None:
        """A lease at the horizon, unless there is one."""


class JavaLeader:
    """Elections, audits and repairs of one worker."""

    def __init__(self, worker: Follower) -> None:
        self._worker = worker
        self._leader: str | None = None
        self._hole: tuple[Range, Range] | None = None
        self._seen = 0

    @property
    def leads(self) -> bool:
        """As of the last election."""
        return self._leader in {None, self._worker.worker_id}

    async def elections(self) -> None:
        """At once, after a minute, then each five minutes; one that fails changes nothing."""
        pause_s = FIRST_S
        while True:
            with suppress(AwsError):
                items = await self._worker.scan()
                owners = [text_of(item, "leaseOwner") for item in items]
                self._leader = leader_of(owner for owner in owners if owner)
            await asyncio.sleep(pause_s)
            pause_s = ELECTION_S

    async def audits(self) -> None:
        """After a minute, then each two minutes."""
        pause_s = FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = AUDIT_S
            if self.leads:
                with suppress(AwsError):
                    await self._audit()

    async def _audit(self) -> None:
        items = await self._worker.scan()
        hole = first_hole(items)
        self._seen = self._seen + 1 if hole == self._hole else 1
        self._hole = hole
        if not items or (hole is not None and self._seen >= CONFIDENCE):
            await self._repair()

    async def _repair(self) -> None:
        shards = await self._worker.list_shards()
        open_ids = {shard["ShardId"] for shard in shards if is_open(shard)}
        if any(open_ids & set(parents_of(shard)) for shard in shards):
            return  # a reshard is on its way: the next audit comes back to it
        leased = {item["leaseKey"]["S"] for item in await self._worker.scan()}
        for shard in to_create(shards, leased):
            await self._worker.create_lease(shard)
