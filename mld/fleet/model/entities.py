"""What lives in the tables of an application besides leases, and the item of the leader lock.

The lock is the item ``Leader``, in the format of the DynamoDB lock client.

Source: EntityType, CoordinatorStateDAODelegate.resolveEntityType, LeaderLock,
DynamoDBLockBasedLeaderDecider (3.5.1), AmazonDynamoDBLockClient 1.4.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mld.errors import MalformedData
from mld.leases.model.attributes import required, text_of

if TYPE_CHECKING:
    from mld.leases.model.attributes import Item

OWNER_NAME = "ownerName"
RECORD_VERSION = "recordVersionNumber"
LEASE_DURATION = "leaseDuration"
IS_RELEASED = "isReleased"
#: Attribute that tells what an item is; 3.0 to 3.4 write none.
ENTITY_TYPE = "entityType"
#: Primary keys of items of which there is one.
LEADER_KEY = "Leader"
MIGRATION_KEY = "Migration3.0"
TABLE_MIGRATION_KEY = "TableMigration3.5"
RESERVED_KEYS = frozenset({LEADER_KEY, MIGRATION_KEY, TABLE_MIGRATION_KEY})
#: Beginning of the keys of items of ours beside the metrics of workers, see
#: :mod:`mld.fleet.model.worker_life`.
FAILED_LIFE = "kclMldFailedLife:"
_SHARD_ID = re.compile(r"shardId-[0-9]+\Z")
_STREAM_KEY = re.compile(r"[0-9]+:[^:]+:[0-9]+(:[^:]+)?\Z")


class Entity(StrEnum):
    """Kinds of items; the values are those of ``entityType``. Others are never invented."""

    LEASE = "LEASE"
    LEADER = "LEADER"
    CLIENT_VERSION_MIGRATION = "CLIENT_VERSION_MIGRATION"
    TABLE_MIGRATION = "TABLE_MIGRATION"
    STREAM = "STREAM"
    WORKER_METRIC_STATS = "WORKER_METRIC_STATS"


_BY_KEY = {
    LEADER_KEY: Entity.LEADER,
    MIGRATION_KEY: Entity.CLIENT_VERSION_MIGRATION,
    TABLE_MIGRATION_KEY: Entity.TABLE_MIGRATION,
}


def entity_of(item: Item, key_name: str) -> Entity | None:
    """What an item is, by its ``entityType``, else by its key.

    Returns:
        None for a type that is not known. Without a type, what has no reserved key is a lease in
        the lease table and the metrics of a worker in theirs (key ``wid``).
    """
    stored = item.get(ENTITY_TYPE, {}).get("S")
    if stored is not None:
        return Entity(stored) if stored in Entity.__members__ else None
    by_key = _BY_KEY.get(str(item.get(key_name, {}).get("S", "")))
    if by_key is not None:
        return by_key
    return {"leaseKey": Entity.LEASE, "wid": Entity.WORKER_METRIC_STATS}.get(key_name)


def key_taken_by_others(worker_id: str, stream_names: tuple[str, ...] = ()) -> str | None:
    """Why a worker may not have this id where its metrics are an item of the lease table.

    Args:
        worker_id: would be the primary key of that item.
        stream_names: of this worker's streams; in single-stream mode an item of that key tells of
            the stream.

    Returns:
        What else has such a key, for people; None = nothing.
    """
    if worker_id in RESERVED_KEYS:
        return "the key of an item that KCL 3.x keeps in the lease table"
    if _SHARD_ID.match(worker_id):
        return "the form of the key of a lease"
    if worker_id.startswith(FAILED_LIFE):
        return "the form of the key of an item that kcl-mld keeps in the lease table"
    if _STREAM_KEY.match(worker_id):
        return "the form of the key of a stream or of a lease of several streams"
    if worker_id in stream_names:
        return "the name of the stream, which KCL 3.x may use as a key in the lease table"
    return None


@dataclass(frozen=True, slots=True)
class LockItem:
    """Who leads.

    Attributes:
        duration_s: an observer may take the lock when it has seen the same ``record_version`` for
            longer than this, on its own monotonic clock. Stored as text, in milliseconds.
        record_version: new at every acquisition and heartbeat.
        is_released: given up without being deleted; free to take.
    """

    owner: str
    duration_s: float
    record_version: str
    is_released: bool = False


def lock_from_item(item: Item) -> LockItem:
    """Read the item.

    Raises:
        MalformedData: an attribute is missing, or the duration is not a text of digits.
    """
    duration = required(text_of(item, LEASE_DURATION), LEASE_DURATION)
    if not (duration.isascii() and duration.isdigit()):
        raise MalformedData(f"{LEASE_DURATION} is {duration!r}, not milliseconds")
    return LockItem(
        owner=required(text_of(item, OWNER_NAME), OWNER_NAME),
        duration_s=int(duration) / 1000,
        record_version=required(text_of(item, RECORD_VERSION), RECORD_VERSION),
        is_released=text_of(item, IS_RELEASED) == "1",
    )


def heartbeat_attributes(lock: LockItem) -> dict[str, dict[str, Any]]:
    """What a heartbeat sets."""
    return {
        LEASE_DURATION: {"S": str(round(lock.duration_s * 1000))},
        RECORD_VERSION: {"S": lock.record_version},
    }


def lock_to_item(lock: LockItem, key_name: str) -> dict[str, dict[str, Any]]:
    """The complete item.

    Args:
        lock: as it is to be; a released one can't be written, it is deleted.
        key_name: ``leaseKey`` or ``key``.
    """
    return {
        key_name: {"S": LEADER_KEY},
        ENTITY_TYPE: {"S": Entity.LEADER.value},
        OWNER_NAME: {"S": lock.owner},
        **heartbeat_attributes(lock),
    }
