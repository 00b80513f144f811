"""The leader's periodic audit of a stream's leases: holes, missing ranges, recreated streams.

Source of the rules: PeriodicShardSyncManager.java (KCL 3.5.1): 344-523. Intended differences: a
hole is a range that no lease covers (Java identifies it by the leases around it), the upper bound
is tested on the running maximum (Java uses the last lease in sorted order and reports a hole in
``[0..MAX] + [500..600]``), and a recreated stream is detected.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcl_mld.streams.model.shard import MAX_HASH_KEY, MIN_HASH_KEY, HashRange

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.streams.model.shard import Shard


def active(leases: Iterable[Lease]) -> tuple[Lease, ...]:
    """Leases that still have something to read: a checkpoint, and not SHARD_END."""
    return tuple(
        lease for lease in leases if lease.checkpoint is not None and not lease.is_finished
    )


def first_hole(ranges: Iterable[HashRange]) -> HashRange | None:
    """The lowest hash keys that no range covers, or None when all are covered; overlaps are fine.

    Args:
        ranges: of the active leases, in any order.
    """
    uncovered = MIN_HASH_KEY
    for covered in sorted(ranges):
        if covered.start > uncovered:
            return HashRange(uncovered, covered.start - 1)
        uncovered = max(uncovered, covered.end + 1)
    return HashRange(uncovered, MAX_HASH_KEY) if uncovered <= MAX_HASH_KEY else None


def fill_hash_ranges(
    leases: Iterable[Lease], shards: Iterable[Shard]
) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """Give leases without hash range that of their shard.

    Args:
        leases: the active ones.
        shards: the unfiltered list.

    Returns:
        The leases to check (those whose shard is no longer listed are dropped), and those among
        them that were filled and are to be written.
    """
    listed = {shard.shard_id: shard for shard in shards}
    checked: list[Lease] = []
    filled: list[Lease] = []
    for lease in leases:
        if lease.hash_range is not None:
            checked.append(lease)
        elif lease.shard_id in listed:
            filled.append(replace(lease, hash_range=listed[lease.shard_id].hash_range))
            checked.append(filled[-1])
    return tuple(checked), tuple(filled)


@dataclass(frozen=True, slots=True)
class HoleTracker:
    """How often in a row the same hole was seen.

    A reshard in progress shows holes for a moment, so a sync needs several audits with the same
    result. The count continues after a sync: a hole that remains requests one at every later audit.
    """

    hole: HashRange | None = None
    count: int = 0

    def see(self, hole: HashRange | None) -> HoleTracker:
        """The tracker after one more audit."""
        if hole is None:
            return HoleTracker()
        return HoleTracker(hole, self.count + 1 if hole == self.hole else 1)


#: Other workers wait for the leader twice as long as the leader waits for a hole to close by
#: itself.
PATIENCE = 2


def is_overdue(count: int, confidence: int) -> bool:
    """Whether a worker that does not lead repairs a hole itself.

    A leader repairs a hole that it saw ``confidence`` times. It may fail to do so for many reasons:
    elections that name different workers while leases move, a leader that can't list shards, a Java
    leader, which never restores a lost child. Each worker tries only once per several audits, so
    that a permanent hole does not cost a large fleet one list of shards per worker and audit.

    Args:
        count: audits in a row at which this worker saw the same hole; 1 or more.
        confidence: audits that a leader requires.
    """
    return count % (PATIENCE * confidence) == 0


def signs_of_recreation(leases: Iterable[Lease], shards: Iterable[Shard]) -> tuple[str, ...]:
    """Sentences about leases that belong to an earlier stream of the same name; usually none.

    Lease keys of a single stream carry no generation and shard ids start again at 0, so rows of a
    deleted stream hide the shards of its successor. A row can't belong to the listed shard when
    hash range or parents differ, when its checkpoint is before the shard's first record, or when it
    is finished while the shard is open.

    Args:
        shards: the unfiltered list.
    """
    listed = {shard.shard_id: shard for shard in shards}
    found = []
    for lease in leases:
        shard = listed.get(lease.shard_id)
        why = None if shard is None else _mismatch(lease, shard)
        if why is not None:
            found.append(f"{lease.lease_key}: {why}")
    return tuple(found)


def _mismatch(lease: Lease, shard: Shard) -> str | None:
    if lease.hash_range is not None and lease.hash_range != shard.hash_range:
        return "its hash range is not that of the shard"
    if lease.parent_shard_ids != shard.parent_shard_ids:
        return "its parents are not those of the shard"
    if lease.is_finished and shard.is_open:
        return "it is at SHARD_END while the shard is open"
    position = lease.checkpoint
    if (
        position is not None
        and position.sentinel is None
        and int(position.sequence_number) < int(shard.starting_sequence_number)
    ):
        return "its checkpoint lies before the first record of the shard"
    return None


@dataclass(frozen=True, slots=True)
class Standstill:
    """A finished lease at one counter value, and when that value was first seen (monotonic, s)."""

    lease_counter: int
    since: float


def abandoned(
    leases: Collection[Lease], seen: Mapping[str, Standstill], now: float, after_s: float
) -> tuple[tuple[Lease, ...], dict[str, Standstill]]:
    """Finished leases that no live worker holds and that no worker would clean up.

    Java loses its cleanup queue at a restart, and such a lease waits until a worker gets it again.

    Args:
        seen: the second result of the previous audit.
        now: reading of the monotonic clock.
        after_s: a counter unchanged for this long has no live owner; above the failover time.

    Returns:
        The abandoned leases, and the value of ``seen`` for the next audit.
    """
    standstills: dict[str, Standstill] = {}
    found = []
    for lease in leases:
        if not lease.is_finished:
            continue
        standstill = seen.get(lease.lease_key)
        if standstill is None or standstill.lease_counter != lease.lease_counter:
            standstill = Standstill(lease.lease_counter, now)
        standstills[lease.lease_key] = standstill
        if lease.lease_owner is None or now - standstill.since >= after_s:
            found.append(lease)
    return tuple(found), standstills
