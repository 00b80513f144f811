"""What lives in the tables of an application besides leases, and how kinds are recognized.

Source: EntityType, CoordinatorStateDAODelegate.resolveEntityType (3.5.1).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.attributes import Item

#: Attribute that tells what an item is; 3.0 to 3.4 write none.
ENTITY_TYPE = "entityType"
#: Primary keys of items of which there is one.
LEADER_KEY = "Leader"
MIGRATION_KEY = "Migration3.0"
TABLE_MIGRATION_KEY = "TableMigration3.5"
RESERVED_KEYS = frozenset({LEADER_KEY, MIGRATION_KEY, TABLE_MIGRATION_KEY})

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
    if _STREAM_KEY.match(worker_id):
        return "the form of the key of a stream or of a lease of several streams"
    if worker_id in stream_names:
        return "the name of the stream, which KCL 3.x may use as a key in the lease table"
    return None
