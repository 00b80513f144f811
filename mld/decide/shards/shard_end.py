"""Rules at the end of a shard: the merge check, and who waits for whom.

Source: ShutdownTask.java:284-325 and BlockOnParentShardTask.java:56-94 (KCL 3.5.1).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from mld.model.leases.lease import Lease
    from mld.model.streams.shard import ChildShard

#: One in this many attempts of a worker that may hold no more leases gives this one up when a merge
#: parent is missing.
GIVE_UP_ONE_IN = 30


class MergeVerdict(Enum):
    """What a shard end that has only one child may do."""

    GO_ON = "create the child"
    WAIT = "keep the lease, wait, repeat"
    GIVE_UP = "drop the lease, to have room for the one that is waited for"


def merge_parents(children: Sequence[ChildShard]) -> tuple[str, ...] | None:
    """Bare ids of the parents of a merge's only child; None when the shard was split.

    A merge is recognized by its single child; anything but two ids contradicts that and the caller
    refuses it.
    """
    return children[0].parent_shard_ids if len(children) == 1 else None


def judge_merge(
    rng: random.Random, *, has_first: bool, has_second: bool, has_room: bool
) -> MergeVerdict:
    """May the merge's child be created, given which of its two parents have rows?

    With both rows the child is created by whichever parent ends first; with neither nothing is left
    to wait for. Exactly one row means that the other is about to be created (or was lost): creating
    the child now could let it start before that parent was read.

    Java gives up one in thirty times. Whoever takes the lease then finds the same rows: its child
    gets records again, and where leases go round among workers, so does the leadership that would
    bring a lost row back. It helps only a fleet whose workers are full: they hold leases that wait
    for one that nobody can take.

    Args:
        rng: chooses when to give up.
        has_first: the first parent has a row.
        has_second: the second parent has a row.
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


def blocks(parent: Lease | None) -> bool:
    """True while a parent's row keeps its child from starting.

    A missing row does not: the parent was trimmed or cleaned up. It cannot mean "not yet created",
    because leases are created in order of the shards' starting sequence numbers, and a merge's
    child only when the rows of both parents are there or both are gone.
    """
    return parent is not None and not parent.is_finished
