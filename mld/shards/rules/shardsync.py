"""Which leases a shard sync creates, in which order, and what makes a shard list unusable.

A sync never deletes and never moves a lease. Two algorithms exist. On an empty table every shard
that the filtered ListShards returns gets a lease (:func:`leases_for_empty_table`). On a table with
leases only what no lease covers is filled in, as high up in the family tree as the initial
position asks for (:func:`leases_to_create`); everything below follows at shard end.

Source: HierarchicalShardSyncer.java (KCL 3.5.1): 162-222, 275-286, 322-423, 512-659, 687-699,
858-1001. Java recurses once per generation; here the walks keep their own stack.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from kcl_mld.kernel.model.sequence import (
    TRIM_HORIZON,
    ExtendedSequenceNumber,
    InitialPosition,
    Sentinel,
)
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.reading import ReadNote
from kcl_mld.streams.model.shard import (
    MAX_HASH_KEY,
    MIN_HASH_KEY,
    ChildShard,
    Shard,
    creation_in_id,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.config.stream import Stream


def shard_filter(position: InitialPosition) -> dict[str, Any]:
    """The ``ShardFilter`` that lists the shards open at the initial position.

    Source: HierarchicalShardSyncer.java:322-340.
    """
    if position.sentinel is Sentinel.AT_TIMESTAMP:
        return {"Type": "AT_TIMESTAMP", "Timestamp": position.timestamp_s}
    return {"Type": f"AT_{position.sentinel}"}


def incompleteness(shards: Iterable[Shard]) -> str | None:
    """Why the shards do not divide the hash-key space exactly, or None when they do.

    An overlap is as incomplete as a hole: parent and child listed together mean that a reshard is
    in flight. Source: HierarchicalShardSyncer.java:390-423.

    Args:
        shards: at least one.
    """
    ordered = sorted(shards, key=lambda shard: shard.hash_range.start)
    if ordered[0].hash_range.start != MIN_HASH_KEY:
        return f"nothing covers the keys below {ordered[0].shard_id}"
    if ordered[-1].hash_range.end != MAX_HASH_KEY:
        return f"nothing covers the keys above {ordered[-1].shard_id}"
    for left, right in pairwise(ordered):
        distance = right.hash_range.start - left.hash_range.end
        if distance != 1:
            kind = "a hole" if distance > 1 else "an overlap"
            return f"{kind} between {left.shard_id} and {right.shard_id}"
    return None


def unexpected_children(shards: Collection[Shard]) -> tuple[str, ...]:
    """Ids of the direct children of every listed shard that is still open, sorted.

    Kinesis closes a shard before its children appear, so they show a list that was read while
    resharding. Closed children count too, grandchildren do not.
    Source: HierarchicalShardSyncer.java:275-286.
    """
    still_open = {shard.shard_id for shard in shards if shard.is_open}
    return tuple(
        sorted(
            shard.shard_id
            for shard in shards
            if any(parent in still_open for parent in shard.parent_shard_ids)
        )
    )


def lease_of_shard(stream: Stream, shard: Shard, checkpoint: ExtendedSequenceNumber) -> Lease:
    """The row of a shard's new lease: no owner, counter 0, both parents whether listed or not."""
    return Lease(
        lease_key=stream.lease_key(shard.shard_id),
        shard_id=shard.shard_id,
        stream_identifier=stream.identifier,
        checkpoint=checkpoint,
        parent_shard_ids=shard.parent_shard_ids,
        hash_range=shard.hash_range,
    )


def lease_of_child(parent: Lease, child: ChildShard) -> Lease:
    """The row of a child's new lease at shard end of one of its parents.

    The checkpoint is TRIM_HORIZON, regardless of the configured initial position: everything in a
    child comes after what was just read. Source: HierarchicalShardSyncer.java:701-747. So no record
    in it is older than the time until which its parent was read.
    """
    until_s = parent.read_until_s
    return Lease(
        lease_key=parent.key_of(child.shard_id),
        shard_id=child.shard_id,
        stream_identifier=parent.stream_identifier,
        checkpoint=TRIM_HORIZON,
        parent_shard_ids=child.parent_shard_ids,
        hash_range=child.hash_range,
        read=None if until_s is None else ReadNote(until_s, TRIM_HORIZON),
    )


def never_read(lease: Lease) -> Lease:
    """The row of a shard that should have had a lease earlier: records that expired were not read.

    Not if it starts at LATEST or at a time, for which this is unknown.
    """
    if lease.checkpoint != TRIM_HORIZON:
        return lease
    return replace(lease, read=ReadNote(0.0, TRIM_HORIZON))


def is_unused(lease: Lease, initial: ExtendedSequenceNumber) -> bool:
    """True for a row as a first sync writes it: it never had an owner or a stored position."""
    return lease.lease_owner is None and lease.lease_counter == 0 and lease.checkpoint == initial


def leases_for_empty_table(
    stream: Stream, shards: Iterable[Shard], position: InitialPosition
) -> tuple[Lease, ...]:
    """A lease for every listed shard, open or closed, in order of creation.

    Source: HierarchicalShardSyncer.java:948-1001.
    """
    return tuple(
        lease_of_shard(stream, shard, position.checkpoint)
        for shard in sorted(shards, key=_creation_order)
    )


def leases_to_create(
    stream: Stream,
    shards: Collection[Shard],
    leased: Collection[str],
    position: InitialPosition,
    *,
    unexpected: Collection[str] = (),
) -> tuple[Lease, ...]:
    """The leases that a table with leases lacks, in order of creation.

    Starting from each open shard without a lease: under LATEST the shard itself when no ancestor is
    leased, else every uncovered parent met on the way up through unleased covered shards; under
    TRIM_HORIZON and AT_TIMESTAMP every unleased ancestor that has no listed parent. A lease counts
    whatever its checkpoint is. Source: HierarchicalShardSyncer.java:512-659, 1065-1146. Different
    on purpose: under LATEST a closed shard begins at TRIM_HORIZON, because LATEST skips all of it.

    Args:
        shards: the unfiltered list, open and closed.
        leased: bare ids of shards that have a lease.
        position: initial position; the checkpoint of every other lease returned.
        unexpected: ids that :func:`unexpected_children` found and that are to be left out.
    """
    graph = ShardGraph(shards, leased)
    candidates = [
        shard.shard_id
        for shard in shards
        if shard.is_open and shard.shard_id not in graph.leased and shard.shard_id not in unexpected
    ]
    if position.sentinel is Sentinel.LATEST:
        chosen = _uncovered(graph, candidates)
    else:
        chosen = _unleased_roots(graph, candidates)
    planned = leases_for_empty_table(stream, (graph.shards[key] for key in chosen), position)
    if position.sentinel is not Sentinel.LATEST:
        return planned
    return tuple(
        lease if graph.shards[lease.shard_id].is_open else replace(lease, checkpoint=TRIM_HORIZON)
        for lease in planned
    )


#: A shard whose parent is not listed waits so long for it, from its creation on.
PARENT_PATIENCE_S = 3600.0


def listed_before_parents(
    shards: Collection[Shard], leased: Collection[str], now_s: float
) -> dict[str, str]:
    """Shards that are listed although their parent is not yet, with that parent.

    A parent ends when its child begins, and its records stay for a day. So the parent of a child that
    was made a short time ago exists; read before it, the child's records would be out of order. Java's
    adapter takes it for expired.

    Args:
        shards: the unfiltered list of a stream whose shards are listed late.
        leased: bare ids of shards that have a lease.
        now_s: epoch seconds.
    """
    known = {shard.shard_id for shard in shards}.union(leased)
    return {
        shard.shard_id: parent
        for shard in shards
        for parent in shard.parent_shard_ids
        if parent not in known and shard.shard_id not in leased
        if now_s - (creation_in_id(shard.shard_id) or 0.0) < PARENT_PATIENCE_S
    }


def leases_of_lineage(
    stream: Stream,
    shards: Collection[Shard],
    leased: Collection[str],
    position: InitialPosition,
    waiting: Collection[str] = (),
) -> tuple[Lease, ...]:
    """The leases that a table lacks, of a stream whose shards are listed late; in creation order.

    From each open shard without a lease up to the nearest ancestor that has one, or that another
    shard with a lease descends from, whose own was cleaned up: all of them at TRIM_HORIZON, because
    what comes behind a leased shard is to be read. Where no ancestor has one, under LATEST the open
    shard alone, else all of them at the initial position. The last shards count as open at the
    first sync, as their children may be listed late, and where no shard is open, because the stream
    was disabled.

    Source: DynamoDBStreamsShardSyncer:357-500 (dynamodb-streams-kinesis-adapter 2.3.0).

    Args:
        shards: the unfiltered list, in which no shard has more than one parent.
        leased: bare ids of shards that have a lease.
        position: initial position.
        waiting: see :func:`listed_before_parents`; neither they nor what is below them get a lease,
            unless the table is empty and they begin at LATEST.
    """
    listed = {shard.shard_id: shard for shard in shards}
    parents = {parent for shard in shards for parent in shard.parent_shard_ids}
    leaves = [shard for shard in shards if shard.is_open]
    if not leaves or not leased:
        leaves = [shard for shard in shards if shard.is_open or shard.shard_id not in parents]
    is_at_latest = position.sentinel is Sentinel.LATEST
    passed = {*leased, *_ancestors(leased, listed)}
    chosen: dict[str, ExtendedSequenceNumber] = {}
    for leaf in leaves:
        line: list[str] = []
        walked: str | None = leaf.shard_id
        while walked in listed and walked not in passed and walked not in line:
            line.append(walked)
            walked = next(iter(listed[walked].parent_shard_ids), None)
        if walked in passed:
            chosen |= dict.fromkeys(line, TRIM_HORIZON)
        elif line[-1] in waiting and (leased or not is_at_latest):
            continue
        elif is_at_latest:
            chosen[leaf.shard_id] = position.checkpoint
        else:
            chosen |= dict.fromkeys(line, position.checkpoint)
    ordered = sorted((listed[shard_id] for shard_id in chosen), key=_creation_order)
    return tuple(lease_of_shard(stream, shard, chosen[shard.shard_id]) for shard in ordered)


def _ancestors(shard_ids: Collection[str], listed: Mapping[str, Shard]) -> set[str]:
    found: set[str] = set()
    stack = [shard_id for shard_id in shard_ids if shard_id in listed]
    while stack:
        parents = listed[stack.pop()].parent_shard_ids
        stack.extend(one for one in parents if one in listed and one not in found)
        found.update(parents)
    return found


class ShardGraph:
    """Listed shards by id, their listed parents, and which of them a lease covers.

    Args:
        leased: bare shard ids that have a lease.
    """

    def __init__(self, shards: Iterable[Shard], leased: Collection[str]) -> None:
        self.shards: Mapping[str, Shard] = {shard.shard_id: shard for shard in shards}
        self.leased = frozenset(leased)
        self._covered: dict[str, bool] = {}

    def parents(self, shard_id: str) -> tuple[str, ...]:
        """Parents that are listed themselves; trimmed ones do not exist."""
        return tuple(
            parent for parent in self.shards[shard_id].parent_shard_ids if parent in self.shards
        )

    def is_covered(self, shard_id: str) -> bool:
        """True when the shard or any listed ancestor has a lease."""
        known = self._covered
        entered: set[str] = (
            set()
        )  # a list that names a shard its own ancestor must not cause an endless loop
        stack = [shard_id]
        while stack:
            current = stack[-1]
            if current in known:
                stack.pop()
            elif current in self.leased:
                known[current] = True
            else:
                parents = self.parents(current)
                entered.add(current)
                waiting = [key for key in parents if key not in known and key not in entered]
                if waiting:
                    stack.extend(waiting)
                else:
                    known[current] = any(known.get(parent, False) for parent in parents)
        return known[shard_id]


def _uncovered(graph: ShardGraph, candidates: Iterable[str]) -> list[str]:
    chosen: dict[str, None] = {}
    walked: set[str] = set()
    stack = list(candidates)
    while stack:
        shard_id = stack.pop()
        if not graph.is_covered(shard_id):
            chosen[shard_id] = None
        elif shard_id not in graph.leased and shard_id not in walked:
            walked.add(shard_id)
            stack.extend(graph.parents(shard_id))
    return list(chosen)


def _unleased_roots(graph: ShardGraph, candidates: Iterable[str]) -> list[str]:
    chosen: dict[str, None] = {}
    walked: set[str] = set()
    stack = list(candidates)
    while stack:
        shard_id = stack.pop()
        if shard_id in graph.leased or shard_id in walked:
            continue
        walked.add(shard_id)
        parents = graph.parents(shard_id)
        if parents:
            stack.extend(parents)
        else:
            chosen[shard_id] = None
    return list(chosen)


def lost_children(
    stream: Stream,
    shards: Collection[Shard],
    leases: Mapping[str, Lease],
    *,
    unexpected: Collection[str] = (),
) -> tuple[Lease, ...]:
    """Leases that a shard end must have created and that are gone, in order of creation.

    A child's row can be cleaned up only after its parents' rows. So a shard without a row, all of
    whose listed parents have one and all of whose parents' rows are at SHARD_END, was lost; no sync
    of the Java daemon ever restores it while an ancestor's row exists. The nearest such shards above
    the unleased open shards are returned at TRIM_HORIZON, which is what the shard end wrote.

    Args:
        shards: the unfiltered list, open and closed.
        leases: the stream's leases by bare shard id.
        unexpected: ids to be left out.
    """
    graph = ShardGraph(shards, leases)
    lost: dict[str, None] = {}
    walked: set[str] = set()
    stack = [
        shard.shard_id
        for shard in shards
        if shard.is_open and shard.shard_id not in leases and shard.shard_id not in unexpected
    ]
    while stack:
        shard_id = stack.pop()
        if shard_id in leases or shard_id in walked:
            continue
        walked.add(shard_id)
        if _ended_above(graph, shard_id, leases):
            lost[shard_id] = None
        stack.extend(graph.parents(shard_id))
    chosen = sorted((graph.shards[shard_id] for shard_id in lost), key=_creation_order)
    return tuple(lease_of_shard(stream, shard, TRIM_HORIZON) for shard in chosen)


def _ended_above(graph: ShardGraph, shard_id: str, leases: Mapping[str, Lease]) -> bool:
    parents = graph.shards[shard_id].parent_shard_ids
    rows = [leases[parent] for parent in parents if parent in leases]
    return (
        bool(rows)
        and all(row.is_finished for row in rows)
        and all(parent in leases for parent in graph.parents(shard_id))
    )


def _creation_order(shard: Shard) -> tuple[int, str]:
    # Parents come before children: an interrupted run never leaves a descendant without its
    # ancestor (source: lines 858-897).
    return (int(shard.starting_sequence_number), shard.shard_id)
