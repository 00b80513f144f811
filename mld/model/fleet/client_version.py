"""Which generation of KCL a fleet works as: the item ``Migration3.0``.

Source: ClientVersion, MigrationState (3.5.1).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from mld.model.fleet.entities import MIGRATION_KEY, Entity
from mld.model.fleet.state_history import StateItem, change_attributes, changes_from, state_item

if TYPE_CHECKING:
    from mld.model.attributes import Item

#: Attribute of the state.
CLIENT_VERSION = "cv"


class ClientVersion(StrEnum):
    """States; name and value are what is stored."""

    #: Only in the history of a new item.
    CLIENT_VERSION_INIT = "CLIENT_VERSION_INIT"
    #: Works as 2.x, and reports metrics until all workers do.
    CLIENT_VERSION_UPGRADE_FROM_2X = "CLIENT_VERSION_UPGRADE_FROM_2X"
    #: Rolled back: works as 2.x.
    CLIENT_VERSION_2X = "CLIENT_VERSION_2X"
    #: Works as 3.x, and may be rolled back.
    CLIENT_VERSION_3X_WITH_ROLLBACK = "CLIENT_VERSION_3X_WITH_ROLLBACK"
    #: Works as 3.x for good.
    CLIENT_VERSION_3X = "CLIENT_VERSION_3X"


MigrationState: TypeAlias = StateItem[ClientVersion]


def migration_from_item(item: Item) -> MigrationState:
    """Read the item; of either table.

    Raises:
        MalformedData: it can't be read, or names a version that is not known.
    """
    return changes_from(item, CLIENT_VERSION, ClientVersion)


def migration_attributes(state: MigrationState) -> dict[str, dict[str, Any]]:
    """What a change of the item sets; its key and ``entityType`` stay."""
    return change_attributes(state, CLIENT_VERSION)


def migration_to_item(state: MigrationState, key_name: str) -> dict[str, dict[str, Any]]:
    """The complete item.

    Args:
        state: as it is to be.
        key_name: ``leaseKey`` or ``key``.
    """
    entity = Entity.CLIENT_VERSION_MIGRATION
    return state_item(state, CLIENT_VERSION, MIGRATION_KEY, entity, key_name)
