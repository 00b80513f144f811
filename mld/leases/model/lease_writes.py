"""Every conditional write to a lease: its condition, its update, and the resulting row.

The counter is the fence: a write names the counter that the writer read and raises it by one. Our
conditions also name the owner, which is stricter than Java's and therefore safe beside Java
workers. Rows are updated, never put, so that attributes of others survive.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kcl_mld.leases.model.containment import FAILURE, SKIP, skipped_behind
from kcl_mld.leases.model.lease_item import (
    LEASE_KEY,
    STREAM_MARK,
    THROUGHPUT,
    checkpoint_attributes,
    hash_range_attributes,
    is_plausible,
    stream_attributes,
)
from kcl_mld.leases.model.lease_request import HOLDER, REQUEST
from kcl_mld.leases.model.newcomer import NEWCOMER
from kcl_mld.leases.model.reading import COARSE_S, LOSS, READ_UNTIL
from kcl_mld.leases.model.table_item import decimal, integer, rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.containment import FailureNote, PositionRange
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.newcomer import NewcomerMark
    from kcl_mld.leases.model.reading import RowNotes
    from kcl_mld.streams.model.shard import HashRange


if TYPE_CHECKING:
    #: From the row that a holder's write leaves, the additional notes for that write.
    FindNotes = Callable[[Lease], RowNotes]

#: The first half of a two-phase checkpoint of a Java application.
PENDING = (
    "pendingCheckpoint",
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
)


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """One UpdateItem on a lease.

    Attributes:
        before: the row that the condition expects.
        after: the row when the write has happened.
        request: the request but for ``TableName``.
    """

    before: Lease
    after: Lease
    request: Mapping[str, Any] = field(repr=False)


def renewal(lease: Lease, throughput_kbps: float | None = None) -> LeaseWrite:
    """The heartbeat.

    Args:
        lease: the row as its holder last wrote it.
        throughput_kbps: what the holder read recently, stored with at most six decimals. None and
            implausible values are not stored, because a heartbeat must not fail for them.

    Source: DynamoDBLeaseRefresher.renewLease (3.5.1).
    """
    after = replace(lease, lease_counter=lease.lease_counter + 1)
    after, attributes = _with_throughput(after, throughput_kbps)
    return _heartbeat(lease, after, attributes, ())


def gaining(lease: Lease) -> LeaseWrite:
    """The first heartbeat of a holder that was assigned the lease by a leader.

    Removes an old request: a previous holder may get the lease back before the request expires, and
    would carry out a request whose command no longer waits.

    Args:
        lease: the row, which names the holder.
    """
    after = replace(lease, lease_counter=lease.lease_counter + 1, request=None)
    return _heartbeat(lease, after, {}, (REQUEST,))


def taking(lease: Lease, worker_id: str) -> LeaseWrite:
    """Make ``worker_id`` the owner, whatever the present owner.

    Removes ``checkpointOwner``, which ends a hand-off that a 3.x leader began. Removes an old
    request, as :func:`gaining` does.

    Source: DynamoDBLeaseRefresher.takeLease, DynamoDBLeaseSerializer.getDynamoTakeLeaseUpdate.
    """
    switches = _is_switch(lease, worker_id)
    after = replace(_given_to(worker_id, lease), request=None)
    values = {":n": integer(lease.lease_counter), ":next": integer(after.lease_counter)}
    values[":me"] = {"S": worker_id}
    condition = "leaseCounter = :n AND " + _owner_condition(lease, values)
    update = f"SET leaseOwner = :me, leaseCounter = :next REMOVE checkpointOwner, {REQUEST}"
    if switches:
        update += " ADD ownerSwitchesSinceCheckpoint :one"
        values[":one"] = integer(1)
    return LeaseWrite(lease, after, _update(lease.lease_key, update, condition, values))


def checkpointing(
    lease: Lease,
    position: ExtendedSequenceNumber,
    child_shard_ids: tuple[str, ...] = (),
    throughput_kbps: float | None = None,
) -> LeaseWrite:
    """Store a checkpoint; also a heartbeat.

    Args:
        lease: the row as its holder last wrote it.
        position: the new checkpoint; the caller guarantees that it does not go back.
        child_shard_ids: written too unless empty.
        throughput_kbps: as in :func:`renewal`. Java's checkpoints never store it, but they don't
            replace a renewal either.

    Source: DynamoDBLeaseRefresher.updateLease, getDynamoUpdateLeaseUpdate (3.5.1).
    """
    after = replace(
        lease,
        lease_counter=lease.lease_counter + 1,
        checkpoint=position,
        owner_switches_since_checkpoint=0,
        pending_checkpoint=None,
        child_shard_ids=tuple(sorted(child_shard_ids)) or lease.child_shard_ids,
        failure=lease.failure.behind(position),
        skipped=skipped_behind(lease.skipped, position),
    )
    attributes: dict[str, dict[str, Any]] = {
        **checkpoint_attributes(position),
        "ownerSwitchesSinceCheckpoint": integer(0),
        **hash_range_attributes(lease.hash_range),
        **stream_attributes(lease),
    }
    if child_shard_ids:
        attributes["childShardIds"] = {"SS": list(after.child_shard_ids)}
    after, throughput = _with_throughput(after, throughput_kbps)
    contained, settled = _containment(lease, after)
    return _heartbeat(lease, after, attributes | contained | throughput, (*PENDING, *settled))


def containing(
    lease: Lease,
    failure: FailureNote,
    skipped: tuple[PositionRange, ...],
    throughput_kbps: float | None = None,
) -> LeaseWrite:
    """Store failures of children; also a heartbeat.

    Args:
        lease: the row as its holder last wrote it.
        skipped: dead-lettered records; those that its checkpoint covers are left out.
        throughput_kbps: as in :func:`renewal`.
    """
    after = replace(
        lease,
        lease_counter=lease.lease_counter + 1,
        failure=failure.behind(lease.checkpoint),
        skipped=skipped_behind(skipped, lease.checkpoint),
    )
    attributes, removed = _containment(lease, after)
    after, throughput = _with_throughput(after, throughput_kbps)
    return _heartbeat(lease, after, attributes | throughput, removed)


def _containment(lease: Lease, after: Lease) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Attributes that a write sets and removes; none if the row already has them."""
    attributes: dict[str, dict[str, Any]] = {}
    removed = []
    if after.failure != lease.failure:
        if (text := after.failure.text()) is None:
            removed.append(FAILURE)
        else:
            attributes[FAILURE] = {"S": text}
    if after.skipped != lease.skipped:
        if after.skipped:
            attributes[SKIP] = {"SS": [str(one) for one in after.skipped]}
        else:
            removed.append(SKIP)
    return attributes, tuple(removed)


def releasing(lease: Lease, *, to_nobody: bool = False) -> LeaseWrite:
    """Give the lease up so that others may take it at once.

    Without a hand-off, the owner is removed. In a hand-off of a 3.x leader, the row already names
    the next owner, and only ``checkpointOwner`` is removed, which completes the hand-off.

    Args:
        lease: the row as its holder last wrote it.
        to_nobody: the next owner of a hand-off has left the fleet: remove both.

    Source: DynamoDBLeaseRefresher.evictLease, assignLease (3.5.1).
    """
    counter = lease.lease_counter + 1
    if lease.checkpoint_owner is None:
        after = replace(lease, lease_counter=counter, lease_owner=None)
        return own_write(lease, after, {}, ("leaseOwner",))
    if to_nobody:
        after = replace(lease, lease_counter=counter, lease_owner=None, checkpoint_owner=None)
        return own_write(lease, after, {}, ("leaseOwner", "checkpointOwner"))
    after = replace(lease, lease_counter=counter, checkpoint_owner=None)
    return own_write(lease, after, {}, ("checkpointOwner",))


def marking(write: LeaseWrite, stream_mark: str | None) -> LeaseWrite:
    """Add the stream's mark to a holder's write, unless the row has it.

    Args:
        write: one of the above but :func:`taking`.
        stream_mark: ``account:region:name``; None = unknown, or the row's key names the stream.
    """
    if stream_mark is None or write.before.stream_mark is not None:
        return write
    request = _with_attributes(write.request, {STREAM_MARK: {"S": stream_mark}})
    return replace(write, after=replace(write.after, stream_mark=stream_mark), request=request)


def noting(write: LeaseWrite, notes: RowNotes) -> LeaseWrite:
    """Add new read and loss notes to a holder's write.

    Args:
        write: one of the above but :func:`taking`.
        notes: of the resulting row; a time close to the stored one is left out.
    """
    after, attributes = write.after, {}
    read, before = notes.read, write.before.read
    if read is not None and read.holds_at(after.checkpoint) and not after.is_finished:
        known_s = (
            None if before is None or not before.holds_at(after.checkpoint) else before.until_s
        )
        if known_s is None or read.until_s - known_s >= COARSE_S:
            after = replace(after, read=read)
            attributes[READ_UNTIL] = {"S": read.text()}
    if notes.loss is not None and notes.loss != write.before.loss:
        after = replace(after, loss=notes.loss)
        attributes[LOSS] = {"S": notes.loss.text()}
    if not attributes:
        return write
    return replace(write, after=after, request=_with_attributes(write.request, attributes))


def marking_newcomer(write: LeaseWrite, mark: NewcomerMark) -> LeaseWrite:
    """Add the mark of a newcomer to a write."""
    request = _with_attributes(write.request, {NEWCOMER: {"S": mark.text()}})
    return replace(write, after=replace(write.after, newcomer=mark), request=request)


def without_newcomer(write: LeaseWrite) -> LeaseWrite:
    """Let a write also remove the mark of a newcomer; unchanged if the row has none."""
    if write.before.newcomer is None:
        return write
    sets, add, added = str(write.request["UpdateExpression"]).partition(" ADD ")
    head, remove, removed = sets.partition(" REMOVE ")
    names = f"{NEWCOMER}, {removed}" if remove else NEWCOMER
    request = {**write.request, "UpdateExpression": f"{head} REMOVE {names}{add}{added}"}
    return replace(write, after=replace(write.after, newcomer=None), request=request)


def unmarking(lease_key: str, mark: NewcomerMark) -> dict[str, Any]:
    """The arguments of ``UpdateItem`` that remove a mark from a row of any owner."""
    return {
        "Key": {LEASE_KEY: {"S": lease_key}},
        "UpdateExpression": f"REMOVE {NEWCOMER}",
        "ConditionExpression": f"{NEWCOMER} = :mark",
        "ExpressionAttributeValues": {":mark": {"S": mark.text()}},
    }


def _with_attributes(
    request: Mapping[str, Any], attributes: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The request with these attributes set first."""
    values = dict(request["ExpressionAttributeValues"])
    update = request["UpdateExpression"].removeprefix("SET ")
    update = f"SET {_assignments(attributes, values, first=True)}, {update}"
    return {**request, "UpdateExpression": update, "ExpressionAttributeValues": values}


def assigning(lease: Lease, worker_id: str, *, only_unchanged: bool) -> LeaseWrite:
    """A leader assigns a lease to a worker without asking its owner.

    Ends a hand-off in progress.

    Args:
        lease: the row as the leader read it.
        only_unchanged: the condition also names the counter: for a lease without an owner or with
            late renewals, so that an owner who renews at the last moment keeps it. Java names the
            owners only. A lease that is renewed regularly can't be moved under such a condition.

    Source: DynamoDBLeaseRefresher.assignLease, DynamoDBLeaseSerializer (3.5.1).
    """
    switches = _is_switch(lease, worker_id)
    after = _given_to(worker_id, lease)
    values = {":new": {"S": worker_id}, ":one": integer(1)}
    condition = f"attribute_exists({LEASE_KEY}) AND " + _owners_condition(lease, values)
    if only_unchanged:
        condition += " AND leaseCounter = :n"
        values[":n"] = integer(lease.lease_counter)
    update = "SET leaseOwner = :new REMOVE checkpointOwner ADD leaseCounter :one"
    if switches:
        update += ", ownerSwitchesSinceCheckpoint :one"
    return LeaseWrite(lease, after, _leaders_update(lease.lease_key, update, condition, values))


def hand_off_start(lease: Lease, worker_id: str) -> LeaseWrite:
    """A leader asks the owner of a lease to finish and hand it over to another worker.

    The counter stays: the owner continues to renew and checkpoint, and sees the hand-off in the
    row.

    Args:
        lease: the row as the leader read it; owned, and in no hand-off.
        worker_id: the next owner, another than the present one.

    Raises:
        ValueError: the lease has no owner to ask, or is being handed over already.

    Source: DynamoDBLeaseRefresher.initiateGracefulLeaseHandoff (3.5.1).
    """
    if lease.lease_owner in (None, worker_id) or lease.checkpoint_owner is not None:
        raise ValueError(f"no hand-off of {lease.lease_key} to {worker_id}: {lease}")
    after = replace(lease, lease_owner=worker_id, checkpoint_owner=lease.lease_owner)
    values = {":new": {"S": worker_id}}
    condition = f"attribute_exists({LEASE_KEY}) AND " + _owners_condition(lease, values)
    update = "SET leaseOwner = :new, checkpointOwner = :owner"
    return LeaseWrite(lease, after, _leaders_update(lease.lease_key, update, condition, values))


def children_update(lease_key: str, child_shard_ids: tuple[str, ...]) -> dict[str, Any]:
    """Request that stores the children of a closed shard; it keeps the counter.

    Source: DynamoDBLeaseRefresher.updateLeaseWithMetaInfo (3.5.1).
    """
    return _metadata_update(lease_key, {"childShardIds": {"SS": sorted(child_shard_ids)}})


def hash_range_update(lease_key: str, hash_range: HashRange) -> dict[str, Any]:
    """Request that stores a hash range; it keeps the counter.

    Args:
        lease_key: of a row that must exist.
        hash_range: of more than one key; Java can't read others.
    """
    return _metadata_update(lease_key, hash_range_attributes(hash_range))


def deletion(lease_key: str, *, only_finished: bool) -> dict[str, Any]:
    """DeleteItem request that removes a lease, and no other item.

    Args:
        only_finished: only when its checkpoint is SHARD_END.
    """
    condition = "(attribute_not_exists(entityType) OR entityType = :lease)"
    values = {":lease": {"S": "LEASE"}}
    if only_finished:
        condition += " AND checkpoint = :end"
        values[":end"] = {"S": "SHARD_END"}
    return {
        "Key": {LEASE_KEY: {"S": lease_key}},
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def _is_switch(lease: Lease, worker_id: str) -> bool:
    """Whether taking counts as a change of owner (DynamoDBLeaseSerializer.java:283-294)."""
    changes_owner = lease.lease_owner is not None and lease.lease_owner != worker_id
    return changes_owner or (
        lease.checkpoint_owner is not None and lease.checkpoint_owner == worker_id
    )


def _given_to(worker_id: str, lease: Lease) -> Lease:
    """The row with that owner; a hand-off is ended."""
    switches = lease.owner_switches_since_checkpoint + _is_switch(lease, worker_id)
    return replace(
        lease,
        lease_owner=worker_id,
        lease_counter=lease.lease_counter + 1,
        checkpoint_owner=None,
        owner_switches_since_checkpoint=switches,
    )


def _heartbeat(
    lease: Lease, after: Lease, attributes: dict[str, dict[str, Any]], removed: tuple[str, ...]
) -> LeaseWrite:
    """A write that the holder may repeat: the condition names the holder."""
    owner = lease.actual_owner
    if owner is not None and lease.holder != owner:
        after = replace(after, holder=owner)
        attributes = {**attributes, HOLDER: {"S": owner}}
    write = own_write(lease, after, attributes, removed)
    return replace(write, request={**write.request, "ReturnValues": "ALL_NEW"})


def own_write(
    lease: Lease, after: Lease, attributes: dict[str, dict[str, Any]], removed: tuple[str, ...]
) -> LeaseWrite:
    """A write on a row as it was read: SET attributes and the next counter, REMOVE the others.

    Args:
        after: the resulting row.
    """
    values = {":n": integer(lease.lease_counter), ":next": integer(after.lease_counter)}
    condition = "leaseCounter = :n AND " + _owners_condition(lease, values)
    update = "SET leaseCounter = :next" + _assignments(attributes, values, first=False)
    if removed:
        update += " REMOVE " + ", ".join(removed)
    return LeaseWrite(lease, after, _update(lease.lease_key, update, condition, values))


def _owner_condition(lease: Lease, values: dict[str, dict[str, Any]]) -> str:
    if lease.lease_owner is None:
        return "attribute_not_exists(leaseOwner)"
    values[":owner"] = {"S": lease.lease_owner}
    return "leaseOwner = :owner"


def _owners_condition(lease: Lease, values: dict[str, dict[str, Any]]) -> str:
    condition = _owner_condition(lease, values)
    if lease.checkpoint_owner is None:
        return condition + " AND attribute_not_exists(checkpointOwner)"
    values[":holder"] = {"S": lease.checkpoint_owner}
    return condition + " AND checkpointOwner = :holder"


def _with_throughput(
    lease: Lease, throughput_kbps: float | None
) -> tuple[Lease, dict[str, dict[str, Any]]]:
    if throughput_kbps is None or not is_plausible(throughput_kbps):
        return lease, {}
    after = replace(lease, throughput_kbps=rounded(throughput_kbps))
    return after, {THROUGHPUT: decimal(throughput_kbps)}


def _leaders_update(
    lease_key: str, update: str, condition: str, values: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Returns the row as stored, because the counter may have changed since the leader read it."""
    return {**_update(lease_key, update, condition, values), "ReturnValues": "ALL_NEW"}


def _metadata_update(lease_key: str, attributes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    values: dict[str, dict[str, Any]] = {}
    update = "SET " + _assignments(attributes, values, first=True)
    return _update(lease_key, update, "attribute_exists(leaseKey)", values)


def _assignments(
    attributes: Mapping[str, dict[str, Any]], values: dict[str, dict[str, Any]], *, first: bool
) -> str:
    values |= {f":{name}": value for name, value in attributes.items()}
    text = ", ".join(f"{name} = :{name}" for name in attributes)
    return text if first or not text else f", {text}"


def _update(
    lease_key: str, update: str, condition: str, values: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    return {
        "Key": {LEASE_KEY: {"S": lease_key}},
        "UpdateExpression": update,
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
