"""When the lease of a finished shard may be deleted.

Source: LeaseCleanupManager.java (KCL 3.5.1): 169-400. Different on purpose: a row is deleted only
while it is at SHARD_END, and a row whose children were never told by the service waits for the
leases of its listed children, so that no child is ever started at LATEST for lack of a parent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mld.model.sequence import Sentinel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mld.model.leases.lease import Lease
    from mld.model.streams.shard import Shard

_NOT_STARTED = frozenset({Sentinel.TRIM_HORIZON, Sentinel.AT_TIMESTAMP})


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
    """What a pass did.

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
            f"deleted {len(self.completed)} leases of finished shards and {len(self.garbage)} of "
            f"shards past retention, kept {len(self.waiting)}"
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
        lease: its row as just read.
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
