"""Leases as DynamoDB items, both ways.

An item that is not a lease (the leader lock, worker metrics, migration state of 3.x fleets) is
*foreign*; a lease that can't be read is *broken*. Neither may stop the others from being read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kcl_mld.config.reserved_keys import RESERVED_KEYS
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.containment import FAILURE, NO_FAILURE, SKIP, failure_of, skipped_of
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.lease_request import (
    HOLDER,
    PAUSED_UNTIL,
    REQUEST,
    STEERED,
    LeaseRequest,
    request_from,
)
from kcl_mld.leases.model.newcomer import NEWCOMER, newcomer_mark_of
from kcl_mld.leases.model.reading import LOSS, READ_UNTIL, loss_note_of, read_note_of
from kcl_mld.leases.model.table_item import (
    ENTITY_TYPE,
    Entity,
    decimal,
    decimal_of,
    integer,
    integer_of,
    required,
    text_of,
    texts_of,
)
from kcl_mld.streams.model.shard import HashRange

if TYPE_CHECKING:
    from kcl_mld.leases.model.table_item import Item

#: Partition key of the table.
LEASE_KEY = "leaseKey"
#: ``account:region:name`` of the stream, in single-stream rows. The attribute is ours alone; Java's
#: writes keep it. It prevents two applications of one name from using each other's checkpoints.
STREAM_MARK = "kclMldStream"
#: KiB/s that the shard's holder reads; in 3.x fleets.
THROUGHPUT = "throughputKBps"
#: More KiB/s than any shard delivers, and less than what DynamoDB refuses to store.
_MOST_KBPS = 1e12
_MULTI_STREAM_KEY = re.compile(r"[0-9]+:[^:]+:[0-9]+:[^:]+\Z")
#: In a row that ``kcl-mld leases migrate`` has copied and not yet made valid: its ``leaseCounter``,
#: which the row itself lacks. Without a counter, no worker of any version can take or write it.
MOVING = "kclMldMoving"


def is_lease_item(item: Item) -> bool:
    """True for a lease, readable or not; False for other items of 3.x fleets.

    Also False for a row that is being migrated to other keys, see :func:`is_moving`.
    """
    return is_lease_entity(item) and not is_moving(item)


def is_lease_entity(item: Item) -> bool:
    """True for a lease, and for a row that is being migrated to other keys."""
    entity = item.get(ENTITY_TYPE, {}).get("S", Entity.LEASE)
    return entity == Entity.LEASE and item_key(item) not in RESERVED_KEYS


def is_moving(item: Item) -> bool:
    """True for a row that ``kcl-mld leases migrate`` has written and not yet made valid."""
    return MOVING in item


def is_multi_stream_item(item: Item) -> bool:
    """True for a row of a multi-stream worker, by its key or by its attributes."""
    return "streamName" in item or _MULTI_STREAM_KEY.match(item_key(item)) is not None


def item_key(item: Item) -> str:
    """The primary key of an item of the lease table, ``""`` when it has none."""
    return str(item.get(LEASE_KEY, {}).get("S", ""))


def lease_from_item(item: Item) -> Lease:
    """The lease of an item for which :func:`is_lease_item` holds.

    Unknown attributes are ignored; they stay in the table because we only ever update.

    Raises:
        MalformedData: a mandatory attribute (``leaseKey``, ``leaseCounter``, ``checkpoint``,
            ``ownerSwitchesSinceCheckpoint``) is absent, or one can't be read, or the attributes
            name another stream or shard than the key. Report the row and continue with the others.

    Source: DynamoDBLeaseSerializer.fromDynamoRecord, DynamoDBMultiStreamLeaseSerializer (3.5.1).
    """
    lease_key = required(text_of(item, LEASE_KEY), LEASE_KEY)
    stream_identifier, shard_id = _names(item, lease_key)
    lease_counter = required(integer_of(item, "leaseCounter"), "leaseCounter")
    checkpoint = required(
        _position(item, "checkpoint", "checkpointSubSequenceNumber"), "checkpoint"
    )
    return Lease(
        lease_key=lease_key,
        shard_id=shard_id,
        stream_identifier=stream_identifier,
        lease_owner=text_of(item, "leaseOwner"),
        lease_counter=lease_counter,
        checkpoint=checkpoint,
        owner_switches_since_checkpoint=required(
            integer_of(item, "ownerSwitchesSinceCheckpoint"), "ownerSwitchesSinceCheckpoint"
        ),
        pending_checkpoint=_position(
            item, "pendingCheckpoint", "pendingCheckpointSubSequenceNumber"
        ),
        parent_shard_ids=texts_of(item, "parentShardId"),
        child_shard_ids=texts_of(item, "childShardIds"),
        hash_range=_hash_range(item),
        checkpoint_owner=text_of(item, "checkpointOwner"),
        throughput_kbps=_throughput(item),
        stream_mark=text_of(item, STREAM_MARK),
        failure=failure_of(text_of(item, FAILURE)) if FAILURE in item else NO_FAILURE,
        skipped=skipped_of(texts_of(item, SKIP)) if SKIP in item else (),
        holder=_own_text(item, HOLDER),
        request=request_in(item),
        steered=note_in(item),
        paused_until_s=_paused_until_s(item),
        newcomer=newcomer_mark_of(_own_text(item, NEWCOMER)) if NEWCOMER in item else None,
        read=read_note_of(_own_text(item, READ_UNTIL)) if READ_UNTIL in item else None,
        loss=loss_note_of(_own_text(item, LOSS)) if LOSS in item else None,
    )


def request_in(item: Item) -> LeaseRequest | None:
    """The pending request to the holder of a row; None = none that can be read."""
    return request_from(_own_text(item, REQUEST))


def note_in(item: Item) -> LeaseRequest | None:
    """The note of the last request that was carried out on a row; None = none that can be read."""
    return request_from(_own_text(item, STEERED))


def _own_text(item: Item, name: str) -> str | None:
    """The text of an attribute of ours; a wrong type must not make the row unreadable."""
    text = item.get(name, {}).get("S")
    return text if isinstance(text, str) else None


def _paused_until_s(item: Item) -> float | None:
    try:
        until_s = decimal_of(item, PAUSED_UNTIL)
    except MalformedData:
        return None
    return until_s if until_s is not None and is_plausible(until_s) else None


def lease_to_item(lease: Lease) -> dict[str, dict[str, Any]]:
    """The complete item of a new lease; absent values have no attribute.

    Source: DynamoDBLeaseSerializer.toDynamoRecord (3.5.1).
    """
    item: dict[str, dict[str, Any]] = {
        LEASE_KEY: {"S": lease.lease_key},
        "leaseCounter": integer(lease.lease_counter),
        "ownerSwitchesSinceCheckpoint": integer(lease.owner_switches_since_checkpoint),
        ENTITY_TYPE: {"S": Entity.LEASE.value},
    }
    if lease.lease_owner:
        item["leaseOwner"] = {"S": lease.lease_owner}
    if lease.checkpoint is not None:
        item |= checkpoint_attributes(lease.checkpoint)
    if lease.parent_shard_ids:
        item["parentShardId"] = {"SS": list(lease.parent_shard_ids)}
    if lease.child_shard_ids:
        item["childShardIds"] = {"SS": list(lease.child_shard_ids)}
    if lease.checkpoint_owner:
        item["checkpointOwner"] = {"S": lease.checkpoint_owner}
    if lease.throughput_kbps is not None:
        item[THROUGHPUT] = decimal(lease.throughput_kbps)
    if lease.stream_mark is not None:
        item[STREAM_MARK] = {"S": lease.stream_mark}
    if lease.holder is not None:
        item[HOLDER] = {"S": lease.holder}
    if lease.read is not None:
        item[READ_UNTIL] = {"S": lease.read.text()}
    return item | hash_range_attributes(lease.hash_range) | stream_attributes(lease)


def checkpoint_attributes(position: ExtendedSequenceNumber) -> dict[str, dict[str, str]]:
    """The two attributes of a checkpoint."""
    return {
        "checkpoint": {"S": str(position.sequence_number)},
        "checkpointSubSequenceNumber": {"N": str(position.sub_sequence_number)},
    }


def hash_range_attributes(hash_range: HashRange | None) -> dict[str, dict[str, str]]:
    """Both attributes of a hash range, or none.

    A range of one key is left out: Java ignores the whole row if ``start == end``.
    """
    if hash_range is None or hash_range.start >= hash_range.end:
        return {}
    return {
        "startingHashKey": {"S": str(hash_range.start)},
        "endingHashKey": {"S": str(hash_range.end)},
    }


def stream_attributes(lease: Lease) -> dict[str, dict[str, str]]:
    """The additional attributes of a multi-stream lease: stream identifier and bare shard id."""
    if lease.stream_identifier is None:
        return {}
    return {"streamName": {"S": lease.stream_identifier}, "shardId": {"S": lease.shard_id}}


def is_plausible(throughput_kbps: float) -> bool:
    """True for a throughput that a shard can have, in KiB/s.

    Other values are ignored: one row with 10^100 or a negative number would make a leader move
    leases of the whole fleet back and forth.
    """
    return 0 <= throughput_kbps < _MOST_KBPS


def _throughput(item: Item) -> float | None:
    kbps = decimal_of(item, THROUGHPUT)
    return kbps if kbps is not None and is_plausible(kbps) else None


def _names(item: Item, lease_key: str) -> tuple[str | None, str]:
    """The stream identifier, None in a row of a single stream, and the shard id.

    A row whose attributes contradict its key is refused: its shard would be read from the
    checkpoint of another.
    """
    identifier, shard_id = text_of(item, "streamName"), text_of(item, "shardId")
    bare = lease_key if identifier is None else lease_key.removeprefix(f"{identifier}:")
    if shard_id not in (None, bare) or (bare == lease_key and is_multi_stream_item(item)):
        names = (
            "shardId is not that" if identifier is None else "streamName and shardId are not those"
        )
        raise MalformedData(f"its {names} of its key")
    return identifier, bare


def _position(item: Item, name: str, sub_name: str) -> ExtendedSequenceNumber | None:
    text = text_of(item, name)
    return None if text is None else ExtendedSequenceNumber(text, integer_of(item, sub_name) or 0)


def _hash_range(item: Item) -> HashRange | None:
    start, end = text_of(item, "startingHashKey"), text_of(item, "endingHashKey")
    return None if start is None or end is None else _parsed_range(start, end)


#: Cached, because a shard's range never changes and every scan reads it again.
_parsed_range = lru_cache(maxsize=4096)(HashRange.parse)
