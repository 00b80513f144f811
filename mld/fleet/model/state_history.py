"""The items of migrations, ``Migration3.0`` and ``TableMigration3.5``: a state and its history.

Source: ClientVersion, MigrationState, TableMigrationStatus, TableMigrationState (3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from kcl_mld.config.reserved_keys import MIGRATION_KEY, TABLE_MIGRATION_KEY
from kcl_mld.errors import MalformedData
from kcl_mld.leases.model.table_item import (
    ENTITY_TYPE,
    Entity,
    integer,
    integer_of,
    required,
    text_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.leases.model.table_item import Item

#: Attribute of the state.
TABLE_STATUS = "tm"
#: Attribute of the state.
CLIENT_VERSION = "cv"
#: Former states that are kept.
MAX_HISTORY = 10
S = TypeVar("S", bound=StrEnum)


# Without slots: typing stores the parameter of a generic class in its instances.
@dataclass(frozen=True)
class StateChange(Generic[S]):
    """A state and how it came about.

    Attributes:
        state: what holds, or held.
        modified_by: worker id, or the name of a tool.
        modified_ms: epoch milliseconds.
    """

    state: S
    modified_by: str
    modified_ms: int


@dataclass(frozen=True)
class StateItem(Generic[S]):
    """The present state and the former ones.

    Attributes:
        now: what holds.
        history: at most ten, newest first.
    """

    now: StateChange[S]
    history: tuple[StateChange[S], ...] = ()

    @property
    def state(self) -> S:
        """What holds."""
        return self.now.state

    def changed(self, state: S, modified_by: str, modified_ms: int) -> StateItem[S]:
        """The item after a change; what held becomes the newest of the history."""
        history = (self.now, *self.history)[:MAX_HISTORY]
        return StateItem(StateChange(state, modified_by, modified_ms), history)


def changes_from(item: Item, name: str, states: type[S]) -> StateItem[S]:
    """Read an item.

    Args:
        item: present state at its top, former ones in ``h``.
        name: attribute of the state, ``cv`` or ``tm``.

    Raises:
        MalformedData: an attribute is missing or unknown, so the state is unknown.
    """
    history = value_of(item, "h", "L") or ()
    return StateItem(
        _change(item, name, states),
        tuple(_change(_required_map(entry), name, states) for entry in history),
    )


def change_attributes(stored: StateItem[S], name: str) -> dict[str, dict[str, Any]]:
    """Attributes of an item but its key and ``entityType``; an empty history has none."""
    attributes = _attributes(stored.now, name)
    if stored.history:
        attributes["h"] = {"L": [{"M": _attributes(change, name)} for change in stored.history]}
    return attributes


def state_item(
    stored: StateItem[S], name: str, key: str, entity: Entity, key_name: str
) -> dict[str, dict[str, Any]]:
    """A complete item.

    Args:
        name: attribute of the state.
        key_name: primary key of its table, ``leaseKey`` or ``key``.
    """
    return {
        key_name: {"S": key},
        ENTITY_TYPE: {"S": entity.value},
        **change_attributes(stored, name),
    }


def _attributes(change: StateChange[S], name: str) -> dict[str, dict[str, Any]]:
    return {
        name: {"S": change.state.value},
        "mb": {"S": change.modified_by},
        "mts": integer(change.modified_ms),
    }


def _change(item: Item, name: str, states: type[S]) -> StateChange[S]:
    stored = required(text_of(item, name), name)
    if stored not in states.__members__:
        raise MalformedData(f"{name} is {stored!r}, which is not known")
    return StateChange(
        states[stored],
        required(text_of(item, "mb"), "mb"),
        required(integer_of(item, "mts"), "mts"),
    )


def _required_map(entry: Mapping[str, Any]) -> Item:
    content: Item = required(value_of({"h": entry}, "h", "M"), "h")
    return content


class ClientVersion(StrEnum):
    """States; names and values are as stored."""

    #: Only in the history of a new item.
    CLIENT_VERSION_INIT = "CLIENT_VERSION_INIT"
    #: Works as 2.x, and reports metrics until all workers do.
    CLIENT_VERSION_UPGRADE_FROM_2X = "CLIENT_VERSION_UPGRADE_FROM_2X"
    #: Rolled back: works as 2.x.
    CLIENT_VERSION_2X = "CLIENT_VERSION_2X"
    #: Works as 3.x, and may be rolled back.
    CLIENT_VERSION_3X_WITH_ROLLBACK = "CLIENT_VERSION_3X_WITH_ROLLBACK"
    #: Works as 3.x permanently.
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
        key_name: ``leaseKey`` or ``key``.
    """
    entity = Entity.CLIENT_VERSION_MIGRATION
    return state_item(state, CLIENT_VERSION, MIGRATION_KEY, entity, key_name)


class TableStatus(StrEnum):
    """States; the values are as stored."""

    #: All workers must be able to move first.
    TABLE_MIGRATION_STATUS_INIT = "TABLE_MIGRATION_STATUS_INIT"
    #: All can; it waits for ``migrateAllEntitiesToLeaseTable``.
    TABLE_MIGRATION_STATUS_DEPLOYED = "TABLE_MIGRATION_STATUS_DEPLOYED"
    #: Items are in the lease table, the lock is not; may be taken back.
    TABLE_MIGRATION_STATUS_PENDING = "TABLE_MIGRATION_STATUS_PENDING"
    #: Everything is in the lease table, permanently.
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
        key_name: ``leaseKey`` or ``key``.
    """
    entity = Entity.TABLE_MIGRATION
    return state_item(state, TABLE_STATUS, TABLE_MIGRATION_KEY, entity, key_name)
