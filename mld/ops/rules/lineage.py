"""A rewind to before a split or a merge: a shard that was read to its end is read again.

A consumer that runs never reads the parents of its shard again. So all descendants of the shard
begin anew, behind it, and none of them may have a living owner. Rows that were deleted since are
made again: a child whose parent has no row would not wait for it. For the same reason no row is
made of a shard that no worker has begun: it would not wait for a parent that has no row yet either.
Workers make it when its parents end, or when they start: rows in an empty table would tell them
that the application is none of 3.x.

A Java worker ends a shard that was merged only beside a row of the other parent. Where that was
deleted, it is made again, as finished.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MoveRefused
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, Sentinel
from kcl_mld.ops.rules.steering import SteerStep, SteerWay, open_parents, way_of
from kcl_mld.shards.rules.shardsync import lease_of_shard

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.rules.watching import Snapshots

#: Writes of one transaction.
MOST_ROWS = 100


def missing_rows(watch: Snapshots) -> dict[str, Lease]:
    """Rows, by key, as they would be made for listed shards that have none."""
    marks = {one.stream_identifier: one.stream_mark for one in watch.last.leases.values()}
    found: dict[str, Lease] = {}
    for known in watch.last.streams:
        identifier = known.identifier
        stream = Stream(known.name) if identifier is None else Stream.parse_identifier(identifier)
        for shard in known.shards or ():
            if known.lease_key(shard.shard_id) not in watch.last.leases:
                row = lease_of_shard(stream, shard, TRIM_HORIZON)
                found[row.lease_key] = replace(row, stream_mark=marks.get(identifier))
    return found


def plan_lineage(
    watch: Snapshots,
    roots: Mapping[str, ExtendedSequenceNumber],
    failover_s: float,
    *,
    creates: bool = False,
) -> tuple[SteerStep, ...]:
    """What is written in one transaction so that shards are read again.

    Args:
        watch: looks over the failover time.
        roots: where each of these shards is to begin, by lease key.
        failover_s: ``failoverTimeMillis``, in seconds.
        creates: rows of shards that no worker has begun may be made, too: they were deleted.

    Returns:
        A step for each of them, for each descendant and for parents that were deleted, by key; those
        that can't be are refused.

    Raises:
        MoveRefused: they are more than a transaction takes.
    """
    rows = {**missing_rows(watch), **watch.last.leases}
    below = {
        key
        for root in roots
        for key in _descendants(rows, rows[root])
        if _has_begun(watch, rows, rows[key])
    }
    beside = _parents_beside(watch, rows, {*roots, *below}, below)
    keys = sorted({*roots, *below, *beside})
    if len(keys) > MOST_ROWS:
        raise MoveRefused(
            f"{len(keys)} leases have to change together, and a transaction takes {MOST_ROWS}: "
            "name shards that are nearer to their open descendants"
        )
    steps = []
    for key in keys:
        if key in beside:
            steps.append(_step(watch, beside[key], SHARD_END, failover_s))
            continue
        position = TRIM_HORIZON if key in below else roots[key]
        step = _step(watch, rows[key], position, failover_s)
        why = _why_not_first(watch, rows, rows[key], position, roots if creates else None)
        if key not in below and why:
            step = replace(step, way=SteerWay.REFUSED, why=why)
        steps.append(step)
    return tuple(steps)


def _parents_beside(
    watch: Snapshots, rows: Mapping[str, Lease], lineage: set[str], below: set[str]
) -> dict[str, Lease]:
    """Rows to make of the other parents of merged shards, by key."""
    found = {}
    for row in (rows[key] for key in below):
        for key in map(row.key_of, row.parent_shard_ids):
            if key in rows and key not in watch.last.leases and key not in lineage:
                found[key] = replace(rows[key], child_shard_ids=(row.shard_id,))
    return found


def _why_not_first(
    watch: Snapshots,
    rows: Mapping[str, Lease],
    lease: Lease,
    position: ExtendedSequenceNumber,
    created: Container[str] | None,
) -> str:
    """Why a shard can't begin there before the others of its lineage; "" = it can.

    Args:
        created: keys of the rows that are made, though no worker may have begun them; None = of none.
    """
    if not _has_begun(watch, rows, lease):
        if created is None:
            return (
                "no worker has begun it: they make its row when they start, or when its parents are "
                "finished. If its row was deleted, --create makes it"
            )
        if why := _why_not_created(watch, rows, lease, created):
            return why
    open_ = open_parents(watch, lease)
    known = watch.last.leases
    parents = map(lease.key_of, lease.parent_shard_ids)
    open_ += [key for key in parents if key in (created or ()) and key not in known]
    if not open_ or position.sentinel is Sentinel.TRIM_HORIZON:  # then it waits for them
        return ""
    return f"it begins when its parents are finished, and {', '.join(open_)} is not: reset that one"


def _why_not_created(
    watch: Snapshots, rows: Mapping[str, Lease], lease: Lease, created: Container[str]
) -> str:
    """Why the row of a shard of which no descendant has begun is not made; "" = it is."""
    known = watch.last.leases
    stream = lease.stream_identifier
    if not any(row.stream_identifier == stream for row in known.values()):
        return "the table has no row of its stream: workers make them all when they start"
    parents = [key for key in map(lease.key_of, lease.parent_shard_ids) if key in rows]
    missing = [key for key in parents if key not in known and key not in created]
    if missing:
        return (
            f"its parent {', '.join(missing)} has no row either, so it would not wait for it: name "
            "that one, too"
        )
    return ""


def _has_begun(watch: Snapshots, rows: Mapping[str, Lease], lease: Lease) -> bool:
    """Whether a shard has a row, or had one: those of its descendants are only made after it."""
    known = watch.last.leases
    return lease.lease_key in known or any(key in known for key in _descendants(rows, lease))


def _descendants(rows: Mapping[str, Lease], lease: Lease) -> Iterator[str]:
    seen: set[str] = set()
    left = [lease]
    while left:
        parent = left.pop()
        for key, row in rows.items():
            is_child = (
                parent.shard_id in row.parent_shard_ids
                and row.stream_identifier == parent.stream_identifier
            )
            if is_child and key not in seen:
                seen.add(key)
                left.append(row)
                yield key


def _step(
    watch: Snapshots, lease: Lease, position: ExtendedSequenceNumber, failover_s: float
) -> SteerStep:
    way, why = SteerWay.TOGETHER, ""
    listed = watch.listed.get(lease.stream_identifier, {})
    if lease.shard_id not in listed:
        way, why = SteerWay.REFUSED, "its shard is not listed: its records are past retention"
    elif lease.lease_key in watch.last.leases:
        found, why = way_of(watch, lease, failover_s)
        if found is SteerWay.ASK:
            why = f"{lease.lease_owner} renews it: stop all workers that own leases of this lineage"
        way = SteerWay.TOGETHER if found is SteerWay.WRITE else SteerWay.REFUSED
    note = "it begins again" if lease.lease_key in watch.last.leases else "its row is made again"
    if position.is_shard_end:
        note += ", as finished: a Java worker ends the other parent of a merge only beside it"
    return SteerStep(lease=lease, way=way, position=position, why=why, notes=(note,))
