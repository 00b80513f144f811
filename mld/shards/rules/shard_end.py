"""Rules at the end of a shard: the merge check, waiting for parents, and the deletion of its lease.

Intended differences from Java: a row is deleted only while it is at SHARD_END, and a row whose
children the service never returned waits for the leases of its listed children, so that no child
starts at LATEST for lack of a parent.

Source: ShutdownTask.java:284-325, BlockOnParentShardTask.java:56-94 and
LeaseCleanupManager.java:169-400 (KCL 3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.kernel.model.text import counted
from kcl_mld.streams.model.shard import ChildShard

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping, Sequence

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.streams.model.shard import Shard

#: One in this many attempts of a worker that may hold no more leases gives this one up when a merge
#: parent is missing.
GIVE_UP_ONE_IN = 30

_NOT_STARTED = frozenset({Sentinel.TRIM_HORIZON, Sentinel.AT_TIMESTAMP})


class MergeVerdict(Enum):
    """The decision at the end of a shard with a single child."""

    GO_ON = "create the child"
    WAIT = "keep the lease, wait, repeat"
    GIVE_UP = "drop the lease, to have room for the one that is waited for"


def merge_parents(
    children: Sequence[ChildShard], *, rolls_over: bool = False
) -> tuple[str, ...] | None:
    """Bare ids of the parents of a merge's only child; None when the shard was split.

    A single child means a merge; the caller refuses any number of ids other than two.

    Args:
        rolls_over: of the traits of the stream: a single child may have this shard alone for a
            parent.
    """
    if len(children) != 1:
        return None
    parents = children[0].parent_shard_ids
    return None if rolls_over and len(parents) == 1 else parents


def judge_merge(
    rng: random.Random, *, has_first: bool, has_second: bool, has_room: bool
) -> MergeVerdict:
    """Whether to create the child of a merge, given which of its two parents have rows.

    With both rows the child is created by whichever parent ends first; with neither there is
    nothing left to wait for. Exactly one row means that the other is about to be created (or was
    lost): creating the child now could let it start before that parent was read.

    Java gives the lease up once in thirty times. The next owner then finds the same rows, its child
    gets records again, and where leases move among workers, so does the leadership that would
    restore a lost row. This helps only a fleet whose workers are full: their leases wait for one
    that no worker can take.

    Args:
        has_room: this worker may hold more leases.
    """
    if has_first == has_second:
        return MergeVerdict.GO_ON
    if has_room:
        return MergeVerdict.WAIT
    return MergeVerdict.GIVE_UP if rng.randrange(GIVE_UP_ONE_IN) == 0 else MergeVerdict.WAIT


def child_without_parents(children: Sequence[ChildShard]) -> str | None:
    """Id of the first child that names no parent (an invalid answer), or None."""
    return next((child.shard_id for child in children if not child.parent_shard_ids), None)


def heirs(
    lease: Lease, shards: Iterable[Shard], *, has_hash_ranges: bool = True
) -> tuple[ChildShard, ...]:
    """The shards that continue the keys of a shard past retention, in order of their ids.

    Its children; if these are past retention, too, the oldest listed shards of its keys.

    Args:
        lease: of the shard that no list contains any more.
        shards: the unfiltered list.
        has_hash_ranges: of the traits of the stream; without them there are only children.
    """
    listed = {shard.shard_id: shard for shard in shards}
    found = [one for one in listed.values() if lease.shard_id in one.parent_shard_ids]
    keys = lease.hash_range if has_hash_ranges else None
    if not found and keys is not None:
        found = [
            one
            for one in listed.values()
            if one.parent_shard_ids
            and not listed.keys() & set(one.parent_shard_ids)
            and one.hash_range.start <= keys.end
            and keys.start <= one.hash_range.end
        ]
    return tuple(
        ChildShard(one.shard_id, one.parent_shard_ids, one.hash_range)
        for one in sorted(found, key=lambda one: one.shard_id)
    )


def blocks(parent: Lease | None) -> bool:
    """True while a parent's row keeps its child from starting.

    A missing row does not: the parent was trimmed or cleaned up. It cannot mean "not yet created",
    because leases are created in order of the shards' starting sequence numbers, and a merge's
    child only when the rows of both parents are there or both are gone.
    """
    return parent is not None and not parent.is_finished


@dataclass(frozen=True, slots=True)
class CleanupTimes:
    """When each kind of cleanup last did something (readings of the monotonic clock, s)."""

    completed: float
    garbage: float

    def after(self, outcome: CleanupOutcome, now: float) -> CleanupTimes:
        """The times after a pass: only a kind that deleted something starts its interval again."""
        times = self
        if outcome.completed:
            times = replace(times, completed=now)
        if outcome.garbage:
            times = replace(times, garbage=now)
        return times


@dataclass(frozen=True, slots=True)
class CleanupOutcome:
    """The result of a pass.

    Attributes:
        completed: keys of leases of finished shards that are gone now.
        garbage: keys of leases of shards that no longer exist in Kinesis.
        waiting: keys that stay in the queue.
    """

    completed: tuple[str, ...] = ()
    garbage: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"deleted {counted(len(self.completed), 'lease', 'leases')} of finished shards and "
            f"{len(self.garbage)} of shards past retention, kept {len(self.waiting)}"
        )


def is_due(last: float, interval_s: float, now: float) -> bool:
    """True when the interval has passed since ``last``."""
    return now - last >= interval_s


def obstacle(
    lease: Lease, children: Mapping[str, Lease | None], parents: Mapping[str, Lease | None]
) -> str | None:
    """Why the completed lease must stay for now, or None when it may be deleted.

    Source: LeaseCleanupManager.java:287-320.

    Args:
        children: rows of its children by bare shard id, None where there is no row.
        parents: rows of its own parents likewise.
    """
    if not lease.is_finished:
        return "it is not at SHARD_END"
    for shard_id, child in children.items():
        if child is None:
            return f"child {shard_id} has no lease"
        if not has_started(child):
            return f"child {shard_id} has not started"
    for shard_id, parent in parents.items():
        if parent is not None:
            return f"parent {shard_id} still has a lease"
    return None


def has_started(lease: Lease) -> bool:
    """True once a checkpoint shows that the shard is being read; LATEST counts, as in Java."""
    return lease.checkpoint is not None and lease.checkpoint.sentinel not in _NOT_STARTED


def listed_children(shard_id: str, shards: Iterable[Shard]) -> tuple[str, ...]:
    """Ids of the listed shards that name this one as a parent, sorted."""
    return tuple(sorted(shard.shard_id for shard in shards if shard_id in shard.parent_shard_ids))


def noted_children(lease: Lease) -> tuple[str, ...]:
    """Ids of the children that a row names; none where it names them wrongly.

    Java's adapter for DynamoDB Streams notes all shards of the stream, this one among them, where a
    server lists all of them when it is asked for the children.
    """
    noted = tuple(lease.child_shard_ids)
    return () if lease.shard_id in noted else noted
