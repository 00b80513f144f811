"""Upgrades a running fleet to a later generation; the leader takes each step.

A fleet that is upgraded from 2.x works as 3.x when all of its workers support it, and its table has
the index by which they find their leases. The items of a fleet with three tables are moved into
one. While they are in two places, the lock stays in the old table, and every step that moves or
completes something is a transaction that checks it. The old tables are never deleted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, MldError
from kcl_mld.fleet.model.state_history import StateChange, StateItem
from kcl_mld.fleet.model.worker_metrics import metrics_in
from kcl_mld.fleet.rules.client_version import FlipReadiness, Mode, VersionChange, unready
from kcl_mld.fleet.rules.table_migration import (
    TRANSITIONS,
    MoveFacts,
    TableStep,
    next_step,
    waits_for,
)
from kcl_mld.signals.rules.remedies import table_remedy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.config.fleet import FleetConfig
    from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
    from kcl_mld.fleet.fleet_state import FleetState
    from kcl_mld.fleet.leader_elector import LeaderElector
    from kcl_mld.fleet.leader_lock import LeaderLock
    from kcl_mld.fleet.model.state_history import TableMigrationState, TableStatus
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.fleet")

#: Seconds between two checks of the reports (MigrationReadyMonitor, 3.5.1).
READY_LOOK_S = 60.0
#: Seconds between two checks of a missing index. A worker that doesn't create it waits as long,
#: before it creates it as the leader: a Java worker that is starting does not survive the creation
#: of the index by another worker.
INDEX_LOOK_S = 15.0
INDEX_PATIENCE = 4
#: Seconds between two checks of an existing index: if it is deleted by hand, the Java workers of
#: the fleet find no leases.
INDEX_LATER_S = 300.0
#: Seconds between two checks of a fleet with three tables. Java checks about once a second, for
#: items that change within minutes at the soonest.
TABLE_LOOK_S = 30.0


class MigrationReadyMonitor:
    """Switches a fleet that is upgraded from 2.x to 3.x when all of its workers support it.

    Only the leader checks the reports; a worker that does not lead starts over.

    Args:
        is_leader: whether this worker leads the fleet now.
    """

    def __init__(
        self,
        state: FleetState,
        items: CoordinatorStateStore,
        store: LeaseStore,
        is_leader: Callable[[], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        self._state = state
        self._items = items
        self._store = store
        self._is_leader = is_leader
        self._clock = clock
        #: The last logged reason against the switch; "" = none was logged.
        self._logged: str | None = ""

    async def run(self) -> None:
        """Check each minute until cancelled."""
        seen = FlipReadiness()
        while True:
            await asyncio.sleep(READY_LOOK_S)
            try:
                seen = await self._look(seen)
            except MldError as error:
                log.warning("Could not check whether the fleet is ready for KCL 3.x: %s", error)
                seen = FlipReadiness()

    async def _look(self, seen: FlipReadiness) -> FlipReadiness:
        if not await self._is_leader():
            return FlipReadiness()
        scan = await self._store.scan()
        metrics = await self._items.worker_metrics()
        has_index = await self._store.table.index_can_be_asked()
        why_not = unready(scan.leases, metrics, self._clock.earliest(), has_index=has_index)
        now = self._clock.monotonic()
        if why_not != self._logged:
            if why_not is None:
                log.info("The fleet is ready for KCL 3.x; it switches in ten minutes")
            else:
                log.info("The fleet is not ready for KCL 3.x: %s", why_not)
            self._logged = why_not
        seen = seen.seen(why_not, now)
        if seen.is_long_enough(now) and await self._state.flip(VersionChange.READY):
            log.warning(
                "All lease owners have reported for ten minutes: the leader assigns leases from now on"
            )
        return seen


class IndexKeeper:
    """Creates the index by which workers of a 3.x fleet find their leases; nothing waits for it.

    Args:
        lock: leadership where leases are assigned.
        elected: leadership where they are taken.
        state: whether this worker began the generation that has the index.
    """

    def __init__(
        self, store: LeaseStore, lock: LeaderLock, elected: LeaderElector, state: FleetState
    ) -> None:
        self._store = store
        self._lock = lock
        self._elected = elected
        self._state = state
        self._logged = ""

    async def run(self) -> None:
        """Create the index where it is missing; runs until cancelled."""
        looks = 0
        while True:
            try:
                is_there = await self._look(looks)
            except AwsError as error:
                is_there = False
                self._say(error)
            looks = 0 if is_there else looks + 1
            await asyncio.sleep(INDEX_LATER_S if is_there else INDEX_LOOK_S)

    def _say(self, error: AwsError) -> None:
        """Log once per kind of error."""
        if error.code != self._logged:
            self._logged = error.code
            text = (
                "The index of leases by owner could not be looked at or created. Workers of kcl-mld "
                "scan the table instead; Java workers find no leases without it: %s%s"
            )
            log.warning(text, error, table_remedy(error))

    async def _look(self, looks: int) -> bool:
        if self._state.has_begun or (looks >= INDEX_PATIENCE and await self._is_leader()):
            return await self._store.table.ensure_index()
        return await self._store.table.index_can_be_asked()

    async def _is_leader(self) -> bool:
        is_assigned = self._state.behaviour.mode is Mode.ASSIGNED
        return await (self._lock if is_assigned else self._elected).is_leader()


#: Steps at which items move; before them only the state of the move changes.
_MOVING = {TableStep.MOVE, TableStep.TAKE_BACK, TableStep.COMPLETE}


class TableMigrator:
    """Moves the items of a fleet with three tables into one, one step at a time.

    Args:
        state: is refreshed after the last step.
        config: section ``fleet``.
    """

    def __init__(
        self,
        state: FleetState,
        items: CoordinatorStateStore,
        store: LeaseStore,
        lock: LeaderLock,
        config: FleetConfig,
        worker_id: str,
        runtime: Runtime,
    ) -> None:
        self._state = state
        self._items = items
        self._store = store
        self._lock = lock
        self._config = config
        self._worker_id = worker_id
        self._clock = runtime.clock
        self._logged: str | None = None

    async def run(self) -> None:
        """Check periodically while there are old tables, until cancelled."""
        while True:
            await asyncio.sleep(TABLE_LOOK_S)
            try:
                await self.look()
            except MldError as error:
                log.warning(
                    "The items of the fleet could not be moved into the lease table: %s", error
                )

    async def look(self) -> TableStep | None:
        """Find the step that is due, and take it; None = none is due.

        Raises:
            AwsError: the state is unknown, or a step was not taken.
            MalformedData: an item can't be read; it stays where it is.
        """
        if self._items.layout.is_single_table or not await self._lock.is_leader():
            return None
        stored = await self._items.table_migration()
        facts = await self._facts()
        step = next_step(stored, facts)
        self._say(waits_for(stored, facts))
        if step is None or not await self._lock.is_leader():
            return None
        if await self._take(step, stored):
            level = logging.WARNING if step in _MOVING else logging.INFO
            log.log(level, "Move of the fleet's items into the lease table: %s", step.value)
            return step
        return None

    def _say(self, why: str | None) -> None:
        if why != self._logged and why is not None:
            text = "The items of the fleet stay in three tables for now: %s. Is its clock right?"
            log.info(text, why)
        self._logged = why

    async def _facts(self) -> MoveFacts:
        scan = await self._store.scan()
        new, _broken = metrics_in(scan.foreign.values(), self._items.layout.leases.key_name)
        return MoveFacts(
            now_s=self._clock.earliest(),
            owners=frozenset(one.lease_owner for one in scan.leases if one.lease_owner is not None),
            old=(await self._items.legacy_metrics())[0],
            new=new,
            is_old_empty=not await self._items.items_to_move(),
            migrates=self._config.migrates_tables,
            bake_s=self._config.bake_s,
        )

    async def _take(self, step: TableStep, stored: TableMigrationState | None) -> bool:
        """False when another worker changed the state meanwhile."""
        following = TRANSITIONS[None if stored is None else stored.state][step]
        if stored is None:
            assert following is not None, "what begins has a state"
            return await self._items.create_table_migration(StateItem(self._now(following)))
        if following is None:
            return await self._items.delete_table_migration(stored)
        after = stored.changed(following, self._worker_id, self._now(following).modified_ms)
        if step is TableStep.COMPLETE:
            # Once it is stored, others lead by the lock at the new place, even if we don't know
            # yet.
            async with self._lock.standing_aside():
                await self._items.complete_table_migration(stored, after, self._worker_id)
                await self._state.look()
            return True
        if step is TableStep.MOVE:
            await self._items.move_items(self._worker_id)
            if await self._items.items_to_move():
                return False  # written meanwhile: moved at the next check
        return await self._items.change_table_migration(stored, after)

    def _now(self, status: TableStatus) -> StateChange[TableStatus]:
        return StateChange(status, self._worker_id, int(self._clock.service() * 1000))
