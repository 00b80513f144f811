"""What happened between the last two snapshots of a fleet: who took, released or finished what.

Two snapshots show the difference, not the way: of two changes of one row between them only the sum is
seen. A row that can't be read, and a part of the fleet that was not known, are no events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING

from kcl_mld.fleet.rules.client_version import ALIVE_S
from kcl_mld.observe.rules.watching import Snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot


class FleetEventKind(StrEnum):
    """Kinds of events; the comments explain ``subject``, ``before`` and ``after``."""

    #: Lease key; owners. ``before`` is None if it had no owner.
    LEASE_TAKEN = "LEASE_TAKEN"
    #: Lease key; its owner, None.
    LEASE_RELEASED = "LEASE_RELEASED"
    #: Lease key; the owner that still reads, the next owner.
    HAND_OFF_BEGUN = "HAND_OFF_BEGUN"
    #: Lease key; the old owner, the new one.
    HANDED_OVER = "HANDED_OVER"
    #: Lease key; its owner, None.
    SHARD_FINISHED = "SHARD_FINISHED"
    #: Lease key of a shard that Kinesis lists; None, None.
    SHARD_APPEARED = "SHARD_APPEARED"
    #: Lease key; None, its owner.
    LEASE_CREATED = "LEASE_CREATED"
    #: Lease key; its last owner, None.
    LEASE_DELETED = "LEASE_DELETED"
    #: Lease key; checkpoints.
    CHECKPOINT_REWOUND = "CHECKPOINT_REWOUND"
    #: Worker id; None, None. It is new, or no longer silent.
    WORKER_APPEARED = "WORKER_APPEARED"
    #: Worker id; None, None. It renews none of its leases, or writes no metrics.
    WORKER_SILENT = "WORKER_SILENT"
    #: "fleet"; the workers that led, None = there was none.
    LEADER_CHANGED = "LEADER_CHANGED"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """One thing that happened.

    Attributes:
        time_s: epoch seconds of the snapshot that shows it, by the clock of the service where known.
        subject: lease key, worker id or ``fleet``, see the kinds.
        before: owner or checkpoint before; None = none.
        after: the same after it.
        checkpoint: of a row that was deleted, as it was seen last; None = of none, or it has none.
    """

    time_s: float
    kind: FleetEventKind
    subject: str
    before: str | None = None
    after: str | None = None
    checkpoint: str | None = None


def fleet_events(snapshots: Sequence[FleetSnapshot], failover_s: float) -> tuple[FleetEvent, ...]:
    """What the last snapshot shows that the one before it does not.

    Args:
        snapshots: in the order of time, at least one. Those before the last two tell which workers
            are silent, so they should span more than the failover time.
        failover_s: a living owner moves its counters within it.

    Returns:
        By subject, in the order of the kinds; nothing of the first snapshot.
    """
    if len(snapshots) < 2:
        return ()
    before, after = snapshots[-2], snapshots[-1]
    found = chain(
        _rows(before, after),
        _shards(before, after),
        _workers(snapshots, failover_s),
        _leader(before, after),
    )
    order = {kind: number for number, kind in enumerate(FleetEventKind)}
    return tuple(sorted(found, key=lambda one: (one.subject, order[one.kind])))


def silent_workers(snapshots: Sequence[FleetSnapshot], failover_s: float) -> frozenset[str]:
    """Workers that seem to be dead, stand still, or can't write the table.

    Args:
        snapshots: in the order of time, at least one.
        failover_s: see above.

    Returns:
        Owners that have renewed no lease for the failover time, and workers without leases whose
        metrics are older than a leader accepts.
    """
    watch = Snapshots(tuple(snapshots))
    last = watch.last
    still_s: dict[str, float] = {}
    for key, lease in last.leases.items():
        if (owner := lease.actual_owner) is not None:
            known_s = still_s.get(owner, float("inf"))
            if known_s >= failover_s:  # one that moves is enough to know that it lives
                still_s[owner] = min(known_s, watch.still_s(key))
    owners = {owner for owner, seconds in still_s.items() if seconds >= failover_s}
    written = last.items.written_at_s if last.items is not None else {}
    idle = {
        worker
        for worker, at_s in written.items()
        if worker not in still_s and last.wall_s - at_s > ALIVE_S
    }
    return frozenset(owners | idle)


def _rows(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[FleetEvent]:
    at_s, kinds = after.wall_s, FleetEventKind
    unreadable = {key for key, _why in (*before.broken, *after.broken)}
    for key, row in after.leases.items():
        old = before.leases.get(key)
        if old is not None:
            yield from _changes(old, row, at_s)
        elif key not in unreadable:
            yield FleetEvent(
                time_s=at_s, kind=kinds.LEASE_CREATED, subject=key, after=row.actual_owner
            )
    for key, row in before.leases.items():
        if key not in after.leases and key not in unreadable:
            yield FleetEvent(
                time_s=at_s,
                kind=kinds.LEASE_DELETED,
                subject=key,
                before=row.actual_owner,
                checkpoint=None if row.checkpoint is None else str(row.checkpoint),
            )


def _changes(old: Lease, new: Lease, at_s: float) -> Iterator[FleetEvent]:
    kinds = FleetEventKind

    def event(kind: FleetEventKind, before: str | None, after: str | None) -> FleetEvent:
        return FleetEvent(time_s=at_s, kind=kind, subject=new.lease_key, before=before, after=after)

    lost, gained = old.actual_owner, new.actual_owner
    if lost != gained:
        if gained is None:
            kind = kinds.LEASE_RELEASED
        elif old.is_handed_over and gained == old.lease_owner:
            kind = kinds.HANDED_OVER
        else:
            kind = kinds.LEASE_TAKEN
        yield event(kind, lost, gained)
    if new.is_handed_over and (not old.is_handed_over or old.lease_owner != new.lease_owner):
        yield event(kinds.HAND_OFF_BEGUN, new.checkpoint_owner, new.lease_owner)
    if new.is_finished and not old.is_finished:
        yield event(kinds.SHARD_FINISHED, gained, None)
    if old.checkpoint and new.checkpoint and new.checkpoint < old.checkpoint:
        yield event(kinds.CHECKPOINT_REWOUND, str(old.checkpoint), str(new.checkpoint))


def _shards(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[FleetEvent]:
    known = {stream.identifier: stream.shards for stream in before.streams}
    for stream in after.streams:
        old, new = known.get(stream.identifier), stream.shards
        if old is None or new is None or old is new:
            continue
        ids = {shard.shard_id for shard in old}
        for shard in new:
            if shard.shard_id not in ids:
                yield FleetEvent(
                    time_s=after.wall_s,
                    kind=FleetEventKind.SHARD_APPEARED,
                    subject=stream.lease_key(shard.shard_id),
                )


def _workers(snapshots: Sequence[FleetSnapshot], failover_s: float) -> Iterator[FleetEvent]:
    before, after = snapshots[-2], snapshots[-1]
    if before.items is None or after.items is None:  # an unknown value did not change
        snapshots = [replace(snapshot, items=None) for snapshot in snapshots]
        before, after = snapshots[-2], snapshots[-1]
    was_silent = silent_workers(snapshots[:-1], failover_s)
    is_silent = silent_workers(snapshots, failover_s)
    known = _named(before)
    now = _named(after)
    appeared = (now - known - is_silent) | ((was_silent & now) - is_silent)
    for kind, workers in (
        (FleetEventKind.WORKER_APPEARED, appeared),
        (FleetEventKind.WORKER_SILENT, is_silent - was_silent),
    ):
        for worker in workers:
            yield FleetEvent(time_s=after.wall_s, kind=kind, subject=worker)


def _named(snapshot: FleetSnapshot) -> set[str]:
    """Workers that own leases, are to own one, or write metrics."""
    names = {
        name for row in snapshot.leases.values() for name in (row.actual_owner, row.lease_owner)
    }
    metrics = () if snapshot.items is None else snapshot.items.metrics
    return {name for name in names if name is not None} | {one.worker_id for one in metrics}


def _leader(before: FleetSnapshot, after: FleetSnapshot) -> Iterator[FleetEvent]:
    if before.items is None or after.items is None:
        return
    old, new = before.items.leader, after.items.leader
    if old != new:
        yield FleetEvent(
            time_s=after.wall_s,
            kind=FleetEventKind.LEADER_CHANGED,
            subject="fleet",
            before=old,
            after=new,
        )
