"""Leases as DynamoDB items, both ways.

An item that is not a lease (the leader lock, worker metrics, migration state of 3.x fleets) is
*foreign*; a lease that can't be read is *broken*. Neither may stop the reading of the others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

from mld.errors import MalformedData
from mld.model.intent import INTENT, LeaseIntent, intent_attribute, intent_from
from mld.model.lease import Lease
from mld.model.sequence import ExtendedSequenceNumber
from mld.model.shard import HashRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    Item = Mapping[str, Mapping[str, Any]]

#: Partition key of the table.
LEASE_KEY = "leaseKey"
#: Value of ``entityType`` of a lease; an absent attribute means the same.
LEASE_ENTITY = "LEASE"
#: Of a row that ``kcl-mld leases migrate`` has copied and not yet made valid: its ``leaseCounter``,
#: which the row itself lacks. Without a counter no worker of any version can take or write it.
MOVING = "kclMldMoving"
#: Items of 3.x fleets that are known by their key, should their ``entityType`` be missing.
RESERVED_KEYS = frozenset({"Leader", "Migration3.0", "TableMigration3.5"})

T = TypeVar("T")

_INTEGER = re.compile(r"-?[0-9]+\Z")


def is_lease_item(item: Item) -> bool:
    """True for a lease, readable or not; False for what 3.x fleets keep beside them.

    Also False for a row on its way to the other kind of keys, see :func:`is_moving`.
    """
    return is_lease_entity(item) and not is_moving(item)


def is_lease_entity(item: Item) -> bool:
    """True for a lease and for a row that is to become one."""
    entity = item.get("entityType", {}).get("S", LEASE_ENTITY)
    return entity == LEASE_ENTITY and item_key(item) not in RESERVED_KEYS


def is_moving(item: Item) -> bool:
    """True for a row that ``kcl-mld leases migrate`` has written and not yet made valid."""
    return MOVING in item


def item_key(item: Item) -> str:
    """The primary key of an item of the lease table, ``""`` when it has none."""
    return str(item.get(LEASE_KEY, {}).get("S", ""))


def lease_from_item(item: Item) -> Lease:
    """The lease of an item for which :func:`is_lease_item` holds.

    Unknown attributes are ignored; they stay in the table because we only ever update.

    Raises:
        MalformedData: a mandatory attribute (``leaseKey``, ``leaseCounter``,
            ``ownerSwitchesSinceCheckpoint``) is absent, or one can't be read. Report the row and
            go on with the others.

    Source: DynamoDBLeaseSerializer.fromDynamoRecord, DynamoDBMultiStreamLeaseSerializer (3.5.1).
    """
    lease_key = _required(_text(item, LEASE_KEY), LEASE_KEY)
    stream_identifier = _text(item, "streamName")
    return Lease(
        lease_key=lease_key,
        shard_id=_text(item, "shardId") or _bare(lease_key, stream_identifier),
        stream_identifier=stream_identifier,
        lease_owner=_text(item, "leaseOwner"),
        lease_counter=_required(_number(item, "leaseCounter"), "leaseCounter"),
        checkpoint=_position(item, "checkpoint", "checkpointSubSequenceNumber"),
        owner_switches_since_checkpoint=_required(
            _number(item, "ownerSwitchesSinceCheckpoint"), "ownerSwitchesSinceCheckpoint"
        ),
        pending_checkpoint=_position(
            item, "pendingCheckpoint", "pendingCheckpointSubSequenceNumber"
        ),
        parent_shard_ids=_texts(item, "parentShardId"),
        child_shard_ids=_texts(item, "childShardIds"),
        hash_range=_hash_range(item),
        checkpoint_owner=_text(item, "checkpointOwner"),
        intent=intent_from(item.get(INTENT)),
    )


def lease_to_item(lease: Lease) -> dict[str, dict[str, Any]]:
    """The complete item of a new lease; absent values have no attribute.

    Source: DynamoDBLeaseSerializer.toDynamoRecord (3.5.1).
    """
    item: dict[str, dict[str, Any]] = {
        LEASE_KEY: {"S": lease.lease_key},
        "leaseCounter": {"N": str(lease.lease_counter)},
        "ownerSwitchesSinceCheckpoint": {"N": str(lease.owner_switches_since_checkpoint)},
        "entityType": {"S": LEASE_ENTITY},
    }
    if lease.lease_owner:
        item["leaseOwner"] = {"S": lease.lease_owner}
    if lease.checkpoint is not None:
        item |= checkpoint_attributes(lease.checkpoint)
    if lease.parent_shard_ids:
        item["parentShardId"] = {"SS": list(lease.parent_shard_ids)}
    if lease.child_shard_ids:
        item["childShardIds"] = {"SS": list(lease.child_shard_ids)}
    if isinstance(lease.intent, LeaseIntent):
        item[INTENT] = intent_attribute(lease.intent)
    return item | hash_range_attributes(lease.hash_range) | stream_attributes(lease)


def checkpoint_attributes(position: ExtendedSequenceNumber) -> dict[str, dict[str, str]]:
    """The two attributes of a checkpoint."""
    return {
        "checkpoint": {"S": str(position.sequence_number)},
        "checkpointSubSequenceNumber": {"N": str(position.sub_sequence_number)},
    }


def hash_range_attributes(hash_range: HashRange | None) -> dict[str, dict[str, str]]:
    """Both attributes of a hash range, or none.

    A range of one key is left out: Java throws the whole row away when it reads ``start == end``.
    """
    if hash_range is None or hash_range.start >= hash_range.end:
        return {}
    return {
        "startingHashKey": {"S": str(hash_range.start)},
        "endingHashKey": {"S": str(hash_range.end)},
    }


def stream_attributes(lease: Lease) -> dict[str, dict[str, str]]:
    """What a multi-stream lease has besides: the whole stream identifier, the bare shard id."""
    if lease.stream_identifier is None:
        return {}
    return {"streamName": {"S": lease.stream_identifier}, "shardId": {"S": lease.shard_id}}


def _bare(lease_key: str, stream_identifier: str | None) -> str:
    return lease_key.removeprefix(f"{stream_identifier}:") if stream_identifier else lease_key


def _value(item: Item, name: str, kind: str) -> Any:
    attribute = item.get(name)
    if attribute is None or "NULL" in attribute:
        return None
    if kind not in attribute:
        raise MalformedData(f"{name} is of type {'/'.join(attribute)}, not {kind}")
    return attribute[kind]


def _text(item: Item, name: str) -> str | None:
    value = _value(item, name, "S")
    return None if value is None else str(value)


def _number(item: Item, name: str) -> int | None:
    value = _value(item, name, "N")
    if value is None:
        return None
    if not _INTEGER.match(str(value)):
        raise MalformedData(f"{name} is {value!r}, not an integer")
    return int(value)


def _texts(item: Item, name: str) -> tuple[str, ...]:
    return tuple(sorted(str(text) for text in _value(item, name, "SS") or ()))


def _position(item: Item, name: str, sub_name: str) -> ExtendedSequenceNumber | None:
    text = _text(item, name)
    return None if text is None else ExtendedSequenceNumber(text, _number(item, sub_name) or 0)


def _hash_range(item: Item) -> HashRange | None:
    start, end = _text(item, "startingHashKey"), _text(item, "endingHashKey")
    return None if start is None or end is None else HashRange.parse(start, end)


def _required(value: T | None, name: str) -> T:
    if value is None:
        raise MalformedData(f"{name} is missing")
    return value
