"""In which table each kind of item lives, and conditional writes of items.

Names in expressions always have placeholders: ``key``, the primary key of a table of 3.0 to 3.4, is a
word of DynamoDB's own.

Source: CoordinatorStateDAO, WorkerMetricStatsDAO, TableMigrationStateMachineImpl (3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.fleet.model.state_history import TableStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from kcl_mld.config.config import Config
    from kcl_mld.leases.model.table_item import Item


@dataclass(frozen=True, slots=True)
class Place:
    """A table that holds items of some kind.

    Attributes:
        key_name: its primary key: ``leaseKey``, ``key`` or ``wid``.
    """

    table: str
    key_name: str


@dataclass(frozen=True, slots=True)
class Layout:
    """One table, or three on the way to one.

    An application that was made by 3.5 or later has one table. One of 3.0 to 3.4 has two more, and
    moves their items into the lease table when its leader does.

    Attributes:
        coordinator_table: name, ``<application>-CoordinatorState`` unless configured.
        metrics_table: name, ``<application>-WorkerMetricStats`` unless configured.
        status: the live status; with :attr:`TableStatus.TABLE_MIGRATION_STATUS_COMPLETE` there is
            one table.
        writes_to_lease_table: decided at the start of the process, for its whole life.
    """

    lease_table: str
    coordinator_table: str
    metrics_table: str
    status: TableStatus = TableStatus.TABLE_MIGRATION_STATUS_COMPLETE
    writes_to_lease_table: bool = True

    @classmethod
    def named(
        cls,
        application_name: str,
        lease_table: str | None = None,
        coordinator_table: str | None = None,
        metrics_table: str | None = None,
    ) -> Self:
        """The single-table layout with names by default."""
        return cls(
            lease_table or application_name,
            coordinator_table or f"{application_name}-CoordinatorState",
            metrics_table or f"{application_name}-WorkerMetricStats",
        )

    @classmethod
    def of(cls, config: Config) -> Self:
        """The tables that a file names, as if all were in one."""
        fleet = config.fleet
        return cls.named(
            config.application_name,
            config.leases.table_name,
            fleet.coordinator_table,
            fleet.metrics_table,
        )

    @property
    def is_single_table(self) -> bool:
        """True when everything is in the lease table, permanently."""
        return self.status is TableStatus.TABLE_MIGRATION_STATUS_COMPLETE

    @property
    def leases(self) -> Place:
        """The lease table."""
        return Place(self.lease_table, "leaseKey")

    @property
    def legacy_coordinator(self) -> Place:
        """The coordinator table of 3.0 to 3.4, whether it exists or not."""
        return Place(self.coordinator_table, "key")

    @property
    def legacy_metrics(self) -> Place:
        """The metrics table of 3.0 to 3.4, whether it exists or not."""
        return Place(self.metrics_table, "wid")

    @property
    def lock(self) -> Place:
        """Where the leader lock is: in the lease table only after everything else is there permanently."""
        return self.leases if self.is_single_table else self.legacy_coordinator

    @property
    def table_migration(self) -> Place:
        """Where ``TableMigration3.5`` is asked for: the legacy table until the end."""
        return self.lock

    @property
    def coordinator(self) -> Place:
        """Where coordinator items are written."""
        return self.leases if self.writes_to_lease_table else self.legacy_coordinator

    @property
    def metrics(self) -> Place:
        """Where this worker writes its metrics."""
        return self.leases if self.writes_to_lease_table else self.legacy_metrics

    @property
    def coordinator_reads(self) -> tuple[Place, ...]:
        """Where coordinator items are searched, in this order."""
        return (self.leases,) if self.is_single_table else (self.legacy_coordinator, self.leases)

    @property
    def metrics_reads(self) -> tuple[Place, ...]:
        """Where the metrics of workers are; a worker may have an item in both."""
        return (self.leases,) if self.is_single_table else (self.legacy_metrics, self.leases)


def key_of(place: Place, key: str) -> dict[str, dict[str, str]]:
    """The primary key of an item."""
    return {place.key_name: {"S": key}}


def creation(place: Place, item: Item) -> dict[str, Any]:
    """A Put that happens only where no item has that key."""
    return {
        "TableName": place.table,
        "Item": dict(item),
        "ConditionExpression": "attribute_not_exists(#k)",
        "ExpressionAttributeNames": {"#k": place.key_name},
    }


def change(place: Place, key: str, attributes: Item, expected: Item) -> dict[str, Any]:
    """An Update of an item that has the expected attributes; its others stay."""
    request = {
        "TableName": place.table,
        "Key": key_of(place, key),
        **condition(place, expected),
    }
    return _with_sets(request, attributes)


def upsert(
    place: Place, key: str, attributes: Item, unless_other: tuple[str, str] | None = None
) -> dict[str, Any]:
    """An Update that makes the item where there is none.

    Args:
        unless_other: name and text of an attribute that an existing item must have.
    """
    request: dict[str, Any] = {"TableName": place.table, "Key": key_of(place, key)}
    if unless_other is not None:
        name, text = unless_other
        request |= {
            "ConditionExpression": "attribute_not_exists(#k) OR #c0 = :c0",
            "ExpressionAttributeNames": {"#k": place.key_name, "#c0": name},
            "ExpressionAttributeValues": {":c0": {"S": text}},
        }
    return _with_sets(request, attributes)


def deletion(place: Place, key: str, expected: Item) -> dict[str, Any]:
    """A Delete of an item that has the expected attributes."""
    return {"TableName": place.table, "Key": key_of(place, key), **condition(place, expected)}


def condition(place: Place, expected: Item) -> dict[str, Any]:
    """The part of a request that makes it happen only where the item is as expected.

    Args:
        place: names the primary key; the item has to exist.
        expected: attributes with their values.
    """
    names, values, terms = {"#k": place.key_name}, {}, ["attribute_exists(#k)"]
    for number, (name, value) in enumerate(expected.items()):
        names[f"#c{number}"], values[f":c{number}"] = name, value
        terms.append(f"#c{number} = :c{number}")
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": names,
        **({"ExpressionAttributeValues": values} if values else {}),
    }


def _with_sets(request: dict[str, Any], attributes: Item) -> dict[str, Any]:
    names: dict[str, str] = {**request.get("ExpressionAttributeNames", {})}
    values: dict[str, Mapping[str, Any]] = {**request.get("ExpressionAttributeValues", {})}
    sets = []
    for number, (name, value) in enumerate(attributes.items()):
        names[f"#s{number}"], values[f":s{number}"] = name, value
        sets.append(f"#s{number} = :s{number}")
    return {
        **request,
        "UpdateExpression": "SET " + ", ".join(sets),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
