"""Kinds of items in an application's tables: leases, and the items that a fleet keeps beside them.

Source: EntityType, CoordinatorStateDAODelegate.resolveEntityType (3.5.1).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.config.reserved_keys import LEADER_KEY, MIGRATION_KEY, TABLE_MIGRATION_KEY

if TYPE_CHECKING:
    from kcl_mld.leases.model.attributes import Item

#: Attribute that holds the kind of an item; 3.0 to 3.4 don't write it.
ENTITY_TYPE = "entityType"


class Entity(StrEnum):
    """Kinds of items, with the values of ``entityType``."""

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
    """The kind of an item, by its ``entityType``, else by its key.

    Returns:
        None for an unknown type. An item without a type and without a reserved key is a lease in
        the lease table, and worker metrics in the table of worker metrics (key ``wid``).
    """
    stored = item.get(ENTITY_TYPE, {}).get("S")
    if stored is not None:
        return Entity(stored) if stored in Entity.__members__ else None
    by_key = _BY_KEY.get(str(item.get(key_name, {}).get("S", "")))
    if by_key is not None:
        return by_key
    return {"leaseKey": Entity.LEASE, "wid": Entity.WORKER_METRIC_STATS}.get(key_name)
