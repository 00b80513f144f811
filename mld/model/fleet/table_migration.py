"""How far a fleet has moved its items from three tables into one: the item ``TableMigration3.5``.

Source: TableMigrationStatus, TableMigrationState (3.5.1).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from mld.model.fleet.entities import TABLE_MIGRATION_KEY, Entity
from mld.model.fleet.state_history import StateItem, change_attributes, changes_from, state_item

if TYPE_CHECKING:
    from mld.model.attributes import Item

#: Attribute of the state.
TABLE_STATUS = "tm"


class TableStatus(StrEnum):
    """States; the values are what is stored."""

    #: All workers must be able to move first.
    TABLE_MIGRATION_STATUS_INIT = "TABLE_MIGRATION_STATUS_INIT"
    #: All can; it waits for ``migrateAllEntitiesToLeaseTable``.
    TABLE_MIGRATION_STATUS_DEPLOYED = "TABLE_MIGRATION_STATUS_DEPLOYED"
    #: Items are in the lease table, the lock is not; may be taken back.
    TABLE_MIGRATION_STATUS_PENDING = "TABLE_MIGRATION_STATUS_PENDING"
    #: Everything is in the lease table, for good.
    TABLE_MIGRATION_STATUS_COMPLETE = "TABLE_MIGRATION_STATUS_COMPLETE"


TableMigrationState: TypeAlias = StateItem[TableStatus]


def table_migration_from_item(item: Item) -> TableMigrationState:
    """Read the item; of either table.

    Raises:
        MalformedData: it can't be read, or names a status that is not known.
    """
    return changes_from(item, TABLE_STATUS, TableStatus)


def table_migration_attributes(state: TableMigrationState) -> dict[str, dict[str, Any]]:
    """What a change of the item sets; its key and ``entityType`` stay."""
    return change_attributes(state, TABLE_STATUS)


def table_migration_to_item(state: TableMigrationState, key_name: str) -> dict[str, dict[str, Any]]:
    """The complete item.

    Args:
        state: as it is to be.
        key_name: ``leaseKey`` or ``key``.
    """
    entity = Entity.TABLE_MIGRATION
    return state_item(state, TABLE_STATUS, TABLE_MIGRATION_KEY, entity, key_name)
