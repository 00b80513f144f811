"""The state of a 3.x fleet beside its leases: what it is, and how it is changed, in any layout.

The leader lock is not here: see :mod:`mld.services.fleet.leader_lock`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.errors import ConfigError, MalformedData, NotFound
from mld.model.fleet.client_version import (
    CLIENT_VERSION,
    migration_attributes,
    migration_from_item,
    migration_to_item,
)
from mld.model.fleet.entities import (
    ENTITY_TYPE,
    LEADER_KEY,
    MIGRATION_KEY,
    TABLE_MIGRATION_KEY,
    Entity,
    entity_of,
    key_taken_by_others,
)
from mld.model.fleet.leader_lock_item import OWNER_NAME
from mld.model.fleet.table_migration import (
    TABLE_STATUS,
    table_migration_attributes,
    table_migration_from_item,
    table_migration_to_item,
)
from mld.model.fleet.worker_metrics import metrics_attributes, metrics_in
from mld.model.item_writes import change, condition, creation, deletion, key_of
from mld.services.fleet.state_items import StateItems

if TYPE_CHECKING:
    from mld.model.attributes import Item
    from mld.model.fleet.client_version import MigrationState
    from mld.model.fleet.table_migration import TableMigrationState
    from mld.model.fleet.worker_metrics import WorkerMetrics
    from mld.model.leases.table_layout import Layout, Place
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import IdSource

#: Items moved in one transaction (TableMigrationStateMachineImpl, 3.5.1).
BATCH = 25
_STAY = frozenset({LEADER_KEY, TABLE_MIGRATION_KEY})


@dataclass(frozen=True, slots=True)
class FoundMetrics:
    """The metrics of all workers of one table.

    Attributes:
        place: which table.
        metrics: of each worker, in order of their ids.
        broken: (worker id, why) of those that can't be read.
    """

    place: Place
    metrics: tuple[WorkerMetrics, ...]
    broken: tuple[tuple[str, str], ...] = ()


class CoordinatorStateStore:
    """Migration items and metrics, found where the layout has them.

    Every method raises the errors of the port (:class:`~mld.errors.AwsError`) beside its own; a
    table of 3.0 to 3.4 that does not exist is empty.

    Args:
        dynamodb: where the tables are.
        layout: of the start; later ones are put into :attr:`layout`.
        ids: tokens of transactions.
    """

    def __init__(self, dynamodb: DynamoDb, layout: Layout, ids: IdSource) -> None:
        self._dynamodb = dynamodb
        self._items = StateItems(dynamodb)
        self._ids = ids
        #: As of now; whoever learns of another status of the table migration replaces it.
        self.layout = layout

    async def has_legacy_table(self) -> bool:
        """Whether the coordinator table of 3.0 to 3.4 is there.

        Raises:
            Denied: it can't be known; joining as if it were not would split the fleet.
        """
        try:
            await self._dynamodb.describe_table(TableName=self.layout.coordinator_table)
        except NotFound:
            return False
        return True

    # -- client version ---------------------------------------------------------------------------

    async def client_version(self) -> MigrationState | None:
        """What the fleet works as; None = nobody has said so.

        Raises:
            MalformedData: the item can't be read; then nothing is known.
        """
        found = await self._find(MIGRATION_KEY)
        return None if found is None else migration_from_item(found[1])

    async def create_client_version(self, state: MigrationState) -> bool:
        """Say it for the first time; False when somebody else was faster."""
        place = self.layout.coordinator
        return await self._items.create(place, migration_to_item(state, place.key_name))

    async def change_client_version(self, before: MigrationState, after: MigrationState) -> bool:
        """Change it, where it is; False when it is no longer as it was read."""
        found = await self._find(MIGRATION_KEY)
        if found is None:
            return False
        attributes = migration_attributes(after)
        expected = _identity(migration_attributes(before), CLIENT_VERSION)
        return await self._items.change(found[0], MIGRATION_KEY, attributes, expected)

    # -- table migration --------------------------------------------------------------------------

    async def table_migration(self) -> TableMigrationState | None:
        """How far it is, as the table says that drives it; None = it has not begun.

        Raises:
            MalformedData: the item can't be read; then nothing is known.
        """
        item = await self._get(self.layout.table_migration, TABLE_MIGRATION_KEY)
        return None if item is None else table_migration_from_item(item)

    async def create_table_migration(self, state: TableMigrationState) -> bool:
        """Begin it; False when somebody else was faster."""
        place = self.layout.table_migration
        return await self._items.create(place, table_migration_to_item(state, place.key_name))

    async def change_table_migration(
        self, before: TableMigrationState, after: TableMigrationState
    ) -> bool:
        """Change it; False when it is no longer as it was read."""
        return await self._items.change(
            self.layout.table_migration,
            TABLE_MIGRATION_KEY,
            table_migration_attributes(after),
            _identity(table_migration_attributes(before), TABLE_STATUS),
        )

    async def delete_table_migration(self, before: TableMigrationState) -> bool:
        """Take it back; False when it is no longer as it was read."""
        expected = _identity(table_migration_attributes(before), TABLE_STATUS)
        return await self._items.delete(self.layout.table_migration, TABLE_MIGRATION_KEY, expected)

    async def items_to_move(self) -> list[Item]:
        """What of the legacy coordinator table belongs into the lease table."""
        place = self.layout.legacy_coordinator
        items = await self._list(place)
        return [item for item in items if item[place.key_name]["S"] not in _STAY]

    async def move_items(self, worker_id: str) -> int:
        """Move them, while ``worker_id`` has the lock of the legacy table.

        What was moved before and written into the old table again since, as a worker of 3.0 to 3.4
        does when it starts, replaces what was moved: everybody reads the old table first.

        Returns:
            How many.

        Raises:
            MalformedData: nobody would know one of them in the lease table, or something else has
                its key there; it stays.
            TransactionCanceled: the lock is another's, or an item was written meanwhile; what was
                moved before stays moved.
        """
        source, target = self.layout.legacy_coordinator, self.layout.leases
        items = await self.items_to_move()
        moved = [_renamed(item, source, target) for item in items]
        for start in range(0, len(items), BATCH):
            actions = [self._lock_check(worker_id)]
            for item, new in zip(
                items[start : start + BATCH], moved[start : start + BATCH], strict=True
            ):
                key = str(item[source.key_name]["S"])
                unchanged = {n: value for n, value in item.items() if n != source.key_name}
                actions += [await self._placed(new), {"Delete": deletion(source, key, unchanged)}]
            await self._items.transact(actions, self._ids.new_id())
        return len(items)

    async def _placed(self, new: Item) -> dict[str, Any]:
        """The write that has an item in the lease table; attributes that are only there stay."""
        target = self.layout.leases
        key = str(new[target.key_name]["S"])
        known = await self._items.get(target, key)
        if known is None:
            return {"Put": creation(target, new)}
        if known.get(ENTITY_TYPE) != new.get(ENTITY_TYPE):
            raise MalformedData(f"item {key} is in table {target.table} already, as something else")
        attributes, expected = (
            {name: value for name, value in item.items() if name != target.key_name}
            for item in (new, known)
        )
        return {"Update": change(target, key, attributes, expected)}

    async def complete_table_migration(
        self, before: TableMigrationState, after: TableMigrationState, worker_id: str
    ) -> None:
        """Say in both tables that it is done, while ``worker_id`` has the lock.

        Raises:
            TransactionCanceled: the lock is another's, or the state is no longer as it was read.
        """
        source, target = self.layout.legacy_coordinator, self.layout.leases
        expected = _identity(table_migration_attributes(before), TABLE_STATUS)
        over = change(source, TABLE_MIGRATION_KEY, table_migration_attributes(after), expected)
        new = creation(target, table_migration_to_item(after, target.key_name))
        actions = [self._lock_check(worker_id), {"Put": new}, {"Update": over}]
        await self._items.transact(actions, self._ids.new_id())

    def _lock_check(self, worker_id: str) -> dict[str, Any]:
        place = self.layout.legacy_coordinator
        return {
            "ConditionCheck": {
                "TableName": place.table,
                "Key": key_of(place, LEADER_KEY),
                **condition(place, {OWNER_NAME: {"S": worker_id}}),
            }
        }

    # -- worker metrics ---------------------------------------------------------------------------

    async def report(self, metrics: WorkerMetrics) -> None:
        """Write this worker's metrics, over those that it wrote before.

        Raises:
            ConfigError: the worker's id is, or has the form of, the key of another item of the
                lease table.
        """
        place = self.layout.metrics
        is_shared = place == self.layout.leases
        why = key_taken_by_others(metrics.worker_id) if is_shared else None
        if why is not None:
            raise ConfigError(f"{metrics.worker_id} is {why}; choose another id", key="workerId")
        done = await self._items.put_over(
            place,
            metrics.worker_id,
            metrics_attributes(metrics),
            (ENTITY_TYPE, Entity.WORKER_METRIC_STATS.value) if is_shared else None,
        )
        if not done:
            raise ConfigError(
                f"{metrics.worker_id} is the key of another item in table {place.table}; choose "
                "another id",
                key="workerId",
            )

    async def worker_metrics(self) -> tuple[FoundMetrics, ...]:
        """The metrics of all workers, table by table as the layout reads them.

        A leader that scans the lease table anyhow finds them there: see
        :func:`~mld.model.fleet.worker_metrics.metrics_in`.
        """
        return tuple(
            [
                _found(place, await self._list(place, self._metrics_filter(place)))
                for place in self.layout.metrics_reads
            ]
        )

    async def legacy_metrics(self) -> FoundMetrics:
        """Those of the metrics table of 3.0 to 3.4 only."""
        place = self.layout.legacy_metrics
        return _found(place, await self._list(place))

    async def delete_metrics(self, place: Place, metrics: WorkerMetrics) -> bool:
        """Remove a worker's metrics unless it wrote newer ones; False when it did."""
        expected = {"lut": metrics_attributes(metrics)["lut"]}
        return await self._items.delete(place, metrics.worker_id, expected)

    def _metrics_filter(self, place: Place) -> Entity | None:
        """In their own table items of old versions have no type."""
        return Entity.WORKER_METRIC_STATS if place == self.layout.leases else None

    # -- where things are -------------------------------------------------------------------------

    async def _find(self, key: str) -> tuple[Place, Item] | None:
        for place in self.layout.coordinator_reads:
            item = await self._get(place, key)
            if item is not None:
                return place, item
        return None

    async def _get(self, place: Place, key: str) -> Item | None:
        try:
            return await self._items.get(place, key)
        except NotFound:
            if place == self.layout.leases:
                raise
            return None

    async def _list(self, place: Place, entity: Entity | None = None) -> list[Item]:
        try:
            return await self._items.all(place, entity)
        except NotFound:
            if place == self.layout.leases:
                raise
            return []


def _found(place: Place, items: list[Item]) -> FoundMetrics:
    metrics, broken = metrics_in(items, place.key_name)
    return FoundMetrics(place, metrics, broken)


def _identity(attributes: Item, name: str) -> Item:
    """What tells a state from a later one that is the same again; Java names the first only."""
    return {one: attributes[one] for one in (name, "mts", "mb")}


def _renamed(item: Item, source: Place, target: Place) -> Item:
    """An item under the key name of another table, with its type."""
    key = item[source.key_name]
    entity = entity_of(item, source.key_name)
    if entity is None and ENTITY_TYPE not in item:
        raise MalformedData(f"item {key['S']} of table {source.table} has no {ENTITY_TYPE}")
    others = {name: value for name, value in item.items() if name != source.key_name}
    typed = {ENTITY_TYPE: {"S": entity.value}} if entity is not None else {}
    return {target.key_name: key, **others, **typed}
