"""The state of a 3.x fleet beside its leases, and its conditional changes, in any table layout.

The leader lock is not here: see :class:`~kcl_mld.fleet.lock_store.LockStore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.config.reserved_keys import (
    LEADER_KEY,
    MIGRATION_KEY,
    TABLE_MIGRATION_KEY,
    key_taken_by_others,
)
from kcl_mld.errors import (
    ConfigError,
    MalformedData,
    NotFound,
)
from kcl_mld.fleet.model.lock_item import OWNER_NAME
from kcl_mld.fleet.model.state_history import (
    CLIENT_VERSION,
    TABLE_STATUS,
    migration_attributes,
    migration_from_item,
    migration_to_item,
    table_migration_attributes,
    table_migration_from_item,
    table_migration_to_item,
)
from kcl_mld.fleet.model.table_layout import change, condition, creation, deletion, key_of
from kcl_mld.fleet.model.worker_life import failed_life_to_item
from kcl_mld.fleet.model.worker_metrics import metrics_attributes, metrics_from_item, metrics_in
from kcl_mld.fleet.state_items import StateItems
from kcl_mld.leases.model.table_item import ENTITY_TYPE, Entity, entity_of

if TYPE_CHECKING:
    import random

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.fleet.model.state_history import MigrationState, TableMigrationState
    from kcl_mld.fleet.model.table_layout import Layout, Place
    from kcl_mld.fleet.model.worker_life import FailedLife
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.kernel.ports import IdSource
    from kcl_mld.leases.model.table_item import Item

#: Items moved in one transaction (TableMigrationStateMachineImpl, 3.5.1).
BATCH = 25
_STAY = frozenset({LEADER_KEY, TABLE_MIGRATION_KEY})


class CoordinatorStateStore:
    """Migration items and metrics, found where the layout has them.

    Every method raises the errors of the port (:class:`~kcl_mld.errors.AwsError`) beside its own; a
    table of 3.0 to 3.4 that does not exist is empty.

    Args:
        layout: of the start; later ones are put into :attr:`layout`.
    """

    def __init__(
        self, dynamodb: DynamoDb, layout: Layout, ids: IdSource, rng: random.Random
    ) -> None:
        self._dynamodb = dynamodb
        self._items = StateItems(dynamodb, rng)
        self._ids = ids
        #: The current layout; replaced when another status of the table migration is read.
        self.layout = layout

    async def has_legacy_table(self) -> bool:
        """Whether the coordinator table of 3.0 to 3.4 exists.

        Raises:
            Denied: it is unknown; joining as if the table did not exist could split the fleet.
        """
        try:
            await self._dynamodb.describe_table(TableName=self.layout.coordinator_table)
        except NotFound:
            return False
        return True

    # -- client version ---------------------------------------------------------------------------

    async def client_version(self) -> MigrationState | None:
        """The generation of the fleet; None = not stored.

        Raises:
            MalformedData: the item can't be read; the generation is unknown.
        """
        found = await self._find(MIGRATION_KEY)
        return None if found is None else migration_from_item(found[1])

    async def create_client_version(self, state: MigrationState) -> bool:
        """Store the generation for the first time; False when another worker was faster."""
        place = self.layout.coordinator
        return await self._items.create(place, migration_to_item(state, place.key_name))

    async def change_client_version(self, before: MigrationState, after: MigrationState) -> bool:
        """Change the generation; False when it is no longer as it was read."""
        found = await self._find(MIGRATION_KEY)
        if found is None:
            return False
        attributes = migration_attributes(after)
        expected = _identity(migration_attributes(before), CLIENT_VERSION)
        return await self._items.change(found[0], MIGRATION_KEY, attributes, expected)

    # -- table migration --------------------------------------------------------------------------

    async def table_migration(self) -> TableMigrationState | None:
        """The status of the table migration, by the table that drives it; None = it has not begun.

        Raises:
            MalformedData: the item can't be read; the status is unknown.
        """
        item = await self._get(self.layout.table_migration, TABLE_MIGRATION_KEY)
        return None if item is None else table_migration_from_item(item)

    async def create_table_migration(self, state: TableMigrationState) -> bool:
        """Begin the table migration; False when another worker was faster."""
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
        """Undo the start of the migration; False when it is no longer as it was read."""
        expected = _identity(table_migration_attributes(before), TABLE_STATUS)
        return await self._items.delete(self.layout.table_migration, TABLE_MIGRATION_KEY, expected)

    async def items_to_move(self) -> list[Item]:
        """Items of the legacy coordinator table that belong in the lease table."""
        place = self.layout.legacy_coordinator
        items = await self._list(place)
        return [item for item in items if item[place.key_name]["S"] not in _STAY]

    async def move_items(self, worker_id: str) -> int:
        """Move them, while ``worker_id`` has the lock of the legacy table.

        An item that a worker of 3.0 to 3.4 wrote into the old table again at its start replaces the
        moved one: every worker reads the old table first.

        Returns:
            Number of items moved.

        Raises:
            MalformedData: an item would not be recognized in the lease table, or its key is used by
                another item there; it stays.
            TransactionCanceled: another worker has the lock, or an item was written meanwhile; what
                was moved before stays moved.
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
        """Mark the migration as complete in both tables, while ``worker_id`` has the lock.

        Raises:
            TransactionCanceled: another worker has the lock, or the state is no longer as it was
                read.
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

    async def report(self, metrics: WorkerMetrics) -> WorkerMetrics | None:
        """Write this worker's metrics, replacing its previous ones.

        Returns:
            The previous item; None = none that can be read, or it is unknown.

        Raises:
            ConfigError: the worker's id is, or has the form of, the key of another item of the
                lease table.
        """
        place = self.layout.metrics
        is_shared = place == self.layout.leases
        why = key_taken_by_others(metrics.worker_id) if is_shared else None
        if why is not None:
            raise ConfigError(f"{metrics.worker_id} is {why}; choose another id", key="workerId")
        done, replaced = await self._items.put_over(
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
        return None if replaced is None else _metrics_or_none(replaced, place.key_name)

    async def worker_metrics(self) -> tuple[WorkerMetrics, ...]:
        """The metrics of all workers in all tables that the layout reads; a worker may occur twice.

        A leader that scans the lease table anyhow finds them there: see
        :func:`~kcl_mld.fleet.model.worker_metrics.metrics_in`.
        """
        found: tuple[WorkerMetrics, ...] = ()
        for place in self.layout.metrics_reads:
            # In their own table items of old versions have no type.
            entity = Entity.WORKER_METRIC_STATS if place == self.layout.leases else None
            found += metrics_in(await self._list(place, entity), place.key_name)[0]
        return found

    async def metrics_of(self, worker_id: str) -> WorkerMetrics | None:
        """The item where this worker reports to, read consistently.

        None = there is none to read.
        """
        place = self.layout.metrics
        item = await self._get(place, worker_id)
        return None if item is None else _metrics_or_none(item, place.key_name)

    async def has_metrics(self, worker_id: str) -> bool:
        """Whether a worker has a metrics item, read consistently; a worker that left has none."""
        for place in self.layout.metrics_reads:
            item = await self._get(place, worker_id)
            if item is not None and entity_of(item, place.key_name) is Entity.WORKER_METRIC_STATS:
                return True
        return False

    async def legacy_metrics(
        self,
    ) -> tuple[tuple[WorkerMetrics, ...], tuple[tuple[str, str], ...]]:
        """Metrics in the metrics table of 3.0 to 3.4 only; returns as ``metrics_in``."""
        place = self.layout.legacy_metrics
        return metrics_in(await self._list(place), place.key_name)

    async def delete_metrics(self, place: Place, metrics: WorkerMetrics) -> bool:
        """Remove a worker's metrics unless it wrote newer ones; False when it did."""
        expected = {"lut": metrics_attributes(metrics)["lut"]}
        return await self._items.delete(place, metrics.worker_id, expected)

    async def note_failed_life(self, life: FailedLife) -> None:
        """Store an item of a process that failed, in the lease table.

        Does nothing if there is one.
        """
        place = self.layout.leases
        await self._items.create(place, failed_life_to_item(life, place.key_name))

    async def forget_failed_life(self, life: FailedLife) -> None:
        """Delete that item; does nothing if it is gone."""
        await self._items.delete(self.layout.leases, life.key, {})

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


def _metrics_or_none(item: Item, key_name: str) -> WorkerMetrics | None:
    try:
        return metrics_from_item(item, key_name)
    except MalformedData:
        return None


def _identity(attributes: Item, name: str) -> Item:
    """The attributes that distinguish a state from a later equal one; Java compares the first only."""
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
