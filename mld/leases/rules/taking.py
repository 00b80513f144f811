"""Which leases a worker should try to take now, by the rules of the Java 2.x workers.

A 2.x fleet has no leader that assigns leases: every worker scans the whole table, computes a fair
share and takes leases. The table holds no times either. A worker regards a lease as expired when
*it* has not seen the counter change for longer than the failover time.

All workers of a fleet must use similar rules, or they steal from each other forever.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.leases.model.lease import Lease

#: Leases whose counter has not changed for this many failover times are taken beyond the target.
#: Source: DynamoDBLeaseTaker.java:62 and DynamoDBLeaseCoordinator.java:163-167 (3.5.1).
VERY_OLD_FACTOR = 3

#: A new row without owner counts as never changed.
NEVER = -math.inf


@dataclass(frozen=True, slots=True)
class Sighting:
    """A counter, and when this process first saw it.

    Attributes:
        counter: ``leaseCounter``.
        seen_at: reading of ``Clock.monotonic`` after the scan that showed it first, or
            :data:`NEVER`.
    """

    counter: int
    seen_at: float


class TakeReason(StrEnum):
    """Why leases are taken in a cycle, or why none is."""

    EMPTY = "the table has no leases"
    UNOWNED = "they have no owner"
    VERY_OLD = "nobody has renewed them for a long time"
    FULL = "this worker holds as many as maxLeasesForWorker allows"
    AVAILABLE = "they have no owner or have expired"
    STEAL = "another worker has more than its share"
    NO_SURPLUS = "no other worker has more than its share"
    BALANCED = "this worker has its share"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeLimits:
    """The part of the configuration that applies to taking.

    Attributes:
        failover_s: > 0; a counter unchanged for longer than this means expired.
        max_leases: upper bound of unfinished leases of this worker, >= 1. Java also counts those of
            finished shards: where they fill a worker, it never takes the child shards that it waits
            for (awslabs/amazon-kinesis-client#202).
        max_steal: leases stolen in one cycle, >= 0.
        prefer_very_old: take very old leases first and beyond the target.
    """

    failover_s: float
    max_leases: int
    max_steal: int
    prefer_very_old: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TakePlan:
    """The decision after one scan.

    Attributes:
        leases: rows to take, in this order.
        reason: why these, or why none.
        workers: number of owners of live leases, including this worker.
        target: fair share, limited by ``max_leases``.
        spillover: how much larger the fair share was before that limit.
        mine: live leases of this worker.
        available: leases without owner or expired.
        very_old: leases whose counter has not changed for very long.
    """

    leases: tuple[Lease, ...]
    reason: TakeReason
    total: int
    workers: int = 1
    target: int = 0
    spillover: int = 0
    mine: int = 0
    available: int = 0
    very_old: int = 0

    @property
    def needed(self) -> int:
        """Leases missing to the target; negative when there are too many."""
        return self.target - self.mine


def look(seen: Mapping[str, Sighting], leases: Iterable[Lease], now: float) -> dict[str, Sighting]:
    """What this worker knows after a scan.

    Args:
        seen: what it knew before, by lease key.
        now: reading of ``Clock.monotonic`` after the scan.

    Returns:
        One sighting per row; leases that disappeared are left out.

    Source: DynamoDBLeaseTaker.updateAllLeases (3.5.1).
    """
    return {lease.lease_key: _sight(seen.get(lease.lease_key), lease, now) for lease in leases}


def _sight(known: Sighting | None, lease: Lease, now: float) -> Sighting:
    if known is not None and known.counter == lease.lease_counter:
        return known
    is_new_and_free = known is None and lease.lease_owner is None
    return Sighting(lease.lease_counter, NEVER if is_new_and_free else now)


def plan_taking(
    leases: Collection[Lease],
    seen: Mapping[str, Sighting],
    now: float,
    worker_id: str,
    held: Collection[str],
    limits: TakeLimits,
    rng: random.Random,
) -> TakePlan:
    """Leases that this worker should try to take now.

    Args:
        leases: every row of one scan, finished ones included, sorted by key.
        seen: the result of :func:`look` for that scan.
        now: reading of ``Clock.monotonic`` after the scan.
        held: keys of leases that this worker holds by its own clock; they count as its own and
            live, whatever an outdated scan shows.
        limits: see :class:`TakeLimits`; Java workers expect that a worker steals at most
            ``max_steal`` leases per interval, so a cycle in between steals none.
        rng: shuffles the candidates, so that workers don't compete for the same ones.

    Source: DynamoDBLeaseTaker.computeLeasesToTake and chooseLeasesToSteal (3.5.1).
    """
    free: list[Lease] = []
    live: dict[str, list[Lease]] = {worker_id: []}
    for lease in leases:
        if lease.lease_key in held:
            live[worker_id].append(lease)
        elif lease.lease_owner is None or _has_expired(lease, seen, now, limits):
            free.append(lease)
        else:
            live.setdefault(lease.lease_owner, []).append(lease)
    share = _share(len(leases), len(live))
    finished = sum(lease.is_finished for lease in live[worker_id])
    limits = replace(limits, max_leases=limits.max_leases + finished)
    target = share if len(live) >= len(leases) else min(share, limits.max_leases)
    very_old = [
        lease
        for lease in free
        if seen[lease.lease_key].seen_at < now - VERY_OLD_FACTOR * limits.failover_s
    ]
    chosen, reason = _choose(free, very_old, live, target, worker_id, limits, rng)
    return TakePlan(
        leases=tuple(chosen),
        reason=reason if leases else TakeReason.EMPTY,
        total=len(leases),
        workers=len(live),
        target=target,
        spillover=share - target,
        mine=len(live[worker_id]),
        available=len(free),
        very_old=len(very_old),
    )


def _has_expired(
    lease: Lease, seen: Mapping[str, Sighting], now: float, limits: TakeLimits
) -> bool:
    return now - seen[lease.lease_key].seen_at > limits.failover_s


def _share(leases: int, workers: int) -> int:
    """Number of leases that a worker should hold, before limits."""
    if leases == 0:
        return 0
    return 1 if workers >= leases else math.ceil(leases / workers)


def _choose(
    free: list[Lease],
    very_old: list[Lease],
    live: Mapping[str, list[Lease]],
    target: int,
    worker_id: str,
    limits: TakeLimits,
    rng: random.Random,
) -> tuple[list[Lease], TakeReason]:
    mine = len(live[worker_id])
    if limits.prefer_very_old and very_old:
        # Beyond the target, and instead of everything else: a lease must not stay unread because
        # the workers that could read it are at their target.
        return _take_very_old(very_old, limits.max_leases - mine, rng)
    needed = target - mine
    if needed <= 0:
        return [], TakeReason.BALANCED
    if free:
        return _open_first(free, needed, rng), TakeReason.AVAILABLE
    victim_leases = live[_fullest(live, rng)]
    count = _steal_count(len(victim_leases), target, needed, limits)
    chosen = _steal(victim_leases, live[worker_id], count, rng)
    return chosen, TakeReason.STEAL if chosen else TakeReason.NO_SURPLUS


def _take_very_old(
    very_old: list[Lease], room: int, rng: random.Random
) -> tuple[list[Lease], TakeReason]:
    chosen = _open_first(very_old, room, rng)
    if not chosen:
        return [], TakeReason.FULL
    is_unowned = all(lease.lease_owner is None for lease in chosen)
    return chosen, TakeReason.UNOWNED if is_unowned else TakeReason.VERY_OLD


def _open_first(leases: list[Lease], limit: int, rng: random.Random) -> list[Lease]:
    """Random leases, those of finished shards last: they have no records to read.

    They are taken nevertheless, because they count in every worker's fair share and their owner
    deletes them.
    """
    shuffled = rng.sample(leases, len(leases))
    return sorted(shuffled, key=lambda lease: lease.is_finished)[: max(0, limit)]


def _steal(
    victim_leases: list[Lease], own: list[Lease], count: int, rng: random.Random
) -> list[Lease]:
    """Random leases: enough of unfinished shards to even those out, the rest of finished ones."""
    unfinished = [lease for lease in victim_leases if not lease.is_finished]
    finished = [lease for lease in victim_leases if lease.is_finished]
    surplus = len(unfinished) - sum(not lease.is_finished for lease in own)
    # What the finished ones can't make up is taken from the others, so that counts become even.
    open_count = min(count, max(surplus // 2, count - len(finished)))
    chosen = rng.sample(unfinished, max(0, open_count))
    return chosen + rng.sample(finished, count - len(chosen))


def _steal_count(victim_has: int, target: int, needed: int, limits: TakeLimits) -> int:
    """How many to steal from the worker with the most leases, which has at least ``target``.

    It has at least ``target`` because no lease is free: some worker must hold a fair share.
    """
    count = min(needed, victim_has - target)
    if count == 0 and needed > 1:
        # All are at the target but this worker lacks more than one: take one nevertheless.
        count = 1
    return min(count, limits.max_steal)


def _fullest(live: Mapping[str, list[Lease]], rng: random.Random) -> str:
    """One of the workers with the most leases; random, so that stealing workers spread."""
    most = max(len(leases) for leases in live.values())
    return rng.choice(sorted(worker for worker, leases in live.items() if len(leases) == most))
