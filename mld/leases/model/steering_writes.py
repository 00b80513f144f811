"""Operators' changes to lease rows: written by the command, or by a living holder on request.

A command may write a row that no worker renews. Its condition is the counter and both owners, and
it raises the counter, so that a worker that is about to take the row as it was is refused. A row
with a living holder gets a request instead, which changes nothing that fences the holder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcl_mld.leases.model.containment import FAILURE, NO_FAILURE, SKIP
from kcl_mld.leases.model.lease_item import LEASE_KEY, checkpoint_attributes, lease_to_item
from kcl_mld.leases.model.lease_request import HOLDER, PAUSED_UNTIL, REQUEST, STEERED, SteerVerb
from kcl_mld.leases.model.lease_writes import PENDING, LeaseWrite, own_write, renewal
from kcl_mld.leases.model.table_item import integer

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_request import LeaseRequest


def carrying_out(lease: Lease, request: LeaseRequest, at_s: float) -> LeaseWrite:
    """The holder carries out a request and removes it, on condition that it is still in the row.

    Args:
        lease: the row as its holder last wrote it, with that request.
        at_s: epoch seconds, for the note.
    """
    write = _steering(lease, request, at_s, (REQUEST,))
    values = {**write.request["ExpressionAttributeValues"], ":request": {"S": request.text}}
    condition = f"{write.request['ConditionExpression']} AND {REQUEST} = :request"
    changed = {"ConditionExpression": condition, "ExpressionAttributeValues": values}
    return replace(write, request={**write.request, **changed})


def answering(lease: Lease, request: LeaseRequest, at_s: float) -> LeaseWrite:
    """The holder's write for a request: :func:`carrying_out`, or a renewal if the request is void.

    It is void when it was withdrawn, the shard is finished, or the lease is being handed over.
    """
    is_void = lease.request != request or lease.is_handed_over or lease.is_finished
    return renewal(lease) if is_void else carrying_out(lease, request, at_s)


def writing_at_rest(lease: Lease, note: LeaseRequest, at_s: float) -> LeaseWrite:
    """A command changes a row that no worker renews; the row has no owner afterwards.

    Args:
        lease: the row, unchanged for the failover time.
        note: what is done, by whom and why.
        at_s: epoch seconds, for the note.
    """
    write = _steering(replace(lease, request=None), note, at_s, (REQUEST, *_OWNERS))
    return replace(write, after=replace(write.after, lease_owner=None, checkpoint_owner=None))


_OWNERS = ("leaseOwner", "checkpointOwner")


def _steering(
    lease: Lease, request: LeaseRequest, at_s: float, removed: tuple[str, ...]
) -> LeaseWrite:
    note = request.done(lease.checkpoint, at_s)
    after = replace(lease, lease_counter=lease.lease_counter + 1, request=None, steered=note)
    attributes: dict[str, dict[str, Any]] = {STEERED: {"S": note.text}}
    match request.verb:
        case SteerVerb.RESET:
            position = request.position
            assert position is not None, "a reset has one"
            after = replace(
                after,
                checkpoint=position,
                owner_switches_since_checkpoint=0,
                pending_checkpoint=None,
                failure=NO_FAILURE,
                skipped=(),
            )
            attributes |= checkpoint_attributes(position)
            attributes["ownerSwitchesSinceCheckpoint"] = integer(0)
            removed += (*PENDING, FAILURE, SKIP)
        case SteerVerb.PAUSE:
            until_s = round(request.until_s or 0)
            after = replace(after, paused_until_s=float(until_s))
            attributes[PAUSED_UNTIL] = integer(until_s)
        case SteerVerb.RESUME:
            after = replace(after, paused_until_s=None)
            removed += (PAUSED_UNTIL,)
        case _ if "leaseOwner" not in removed:
            after = replace(after, lease_owner=None)
            removed += ("leaseOwner",)
        case _:  # a release
            pass  # without a holder, the owners are removed in any case
    return own_write(lease, after, attributes, tuple(dict.fromkeys(removed)))


def deleting_at_rest(lease: Lease) -> dict[str, Any]:
    """A command deletes a row that no worker renews; returns the request without ``TableName``."""
    request = own_write(lease, lease, {}, ()).request
    values = request["ExpressionAttributeValues"]
    return {
        "Key": request["Key"],
        "ConditionExpression": request["ConditionExpression"],
        "ExpressionAttributeValues": {k: v for k, v in values.items() if k != ":next"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def creating_at_rest(lease: Lease, note: LeaseRequest, at_s: float) -> dict[str, Any]:
    """A command creates a missing row.

    Args:
        lease: without an owner.
        note: a reset; its position is the checkpoint.
        at_s: epoch seconds, for the note.

    Returns:
        The PutItem request without ``TableName``.
    """
    row = replace(lease, checkpoint=note.position)
    return {
        "Item": {**lease_to_item(row), STEERED: {"S": note.done(None, at_s).text}},
        "ConditionExpression": f"attribute_not_exists({LEASE_KEY})",
    }


def requesting(lease: Lease, request: LeaseRequest, now_s: float) -> dict[str, Any]:
    """Add a request to a row; refused if another worker holds it or it already has a request.

    Args:
        lease: the row as it was read.
        request: addressed to its holder.
        now_s: epoch seconds.

    Returns:
        The request without ``TableName``.
    """
    condition = f"leaseOwner = :holder AND {HOLDER} = :holder AND attribute_not_exists(checkpointOwner) AND "
    values = {":holder": {"S": request.holder}, ":request": {"S": request.text}}
    pending = lease.request
    if pending is not None and (pending.expires_s <= now_s or pending.holder != request.holder):
        condition += f"(attribute_not_exists({REQUEST}) OR {REQUEST} = :void)"
        values[":void"] = {"S": pending.text}
    else:
        condition += f"attribute_not_exists({REQUEST})"
    return {
        "Key": {LEASE_KEY: {"S": lease.lease_key}},
        "UpdateExpression": f"SET {REQUEST} = :request",
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def withdrawing(lease_key: str, request: LeaseRequest) -> dict[str, Any]:
    """Withdraw a request unless it was carried out; returns as :func:`requesting`."""
    return {
        "Key": {LEASE_KEY: {"S": lease_key}},
        "UpdateExpression": f"REMOVE {REQUEST}",
        "ConditionExpression": f"{REQUEST} = :request",
        "ExpressionAttributeValues": {":request": {"S": request.text}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
