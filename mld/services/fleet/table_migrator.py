"""As the leader of a fleet with three tables, moves its items into one when all workers can follow.

While the items are in two places the lock stays in the old table, and every step that moves or ends
something is a transaction that checks it. The old tables are never deleted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.fleet.table_migration import TRANSITIONS, MoveFacts, TableStep, next_step, waits_for
from mld.errors import MldError
from mld.model.fleet.state_history import StateChange, StateItem
from mld.model.fleet.worker_metrics import metrics_in

if TYPE_CHECKING:
    from mld.model.config.fleet import FleetConfig
    from mld.model.fleet.table_migration import TableMigrationState, TableStatus
    from mld.services.fleet.coordinator_state import CoordinatorStateStore
    from mld.services.fleet.fleet_state import FleetState
    from mld.services.fleet.leader_lock import LeaderLock
    from mld.services.leases.lease_store import LeaseStore
    from mld.services.runtime import Runtime

log = logging.getLogger(__name__)

#: Distance of two looks of a leader. Java looks at each of its questions whether it leads, about
#: once a second, at items that change within minutes at the soonest.
LOOK_S = 30.0


class TableMigrator:
    """Takes one step at a time."""

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
        """Do nothing before :meth:`run`.

        Args:
            state: is told to look after the last step.
            items: that are moved.
            store: says who owns leases.
            lock: of the old table.
            config: section ``fleet``.
            worker_id: ours.
            runtime: for the time that is noted.
        """
        self._state = state
        self._items = items
        self._store = store
        self._lock = lock
        self._config = config
        self._worker_id = worker_id
        self._clock = runtime.clock
        self._said: str | None = None

    async def run(self) -> None:
        """Look now and then, for as long as there are old tables, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look()
            except MldError as error:
                log.warning(
                    "The items of the fleet could not be moved into the lease table: %s", error
                )

    async def look(self) -> TableStep | None:
        """See what is due, and do it; None = nothing.

        Raises:
            AwsError: nothing is known, or a step was not taken.
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
            log.warning("Moving the items of the fleet into the lease table: %s", step.value)
            return step
        return None

    def _say(self, why: str | None) -> None:
        if why != self._said and why is not None:
            text = "The items of the fleet stay in three tables for now: %s. Is its clock right?"
            log.info(text, why)
        self._said = why

    async def _facts(self) -> MoveFacts:
        scan = await self._store.scan()
        new, _broken = metrics_in(scan.foreign.values(), self._items.layout.leases.key_name)
        return MoveFacts(
            now_s=self._clock.wall(),
            owners=frozenset(one.lease_owner for one in scan.leases if one.lease_owner is not None),
            old=(await self._items.legacy_metrics()).metrics,
            new=new,
            is_old_empty=not await self._items.items_to_move(),
            migrates=self._config.migrates_tables,
            bake_s=self._config.bake_s,
        )

    async def _take(self, step: TableStep, stored: TableMigrationState | None) -> bool:
        """False when somebody else changed the state meanwhile."""
        following = TRANSITIONS[None if stored is None else stored.state][step]
        if stored is None:
            assert following is not None, "what begins has a state"
            return await self._items.create_table_migration(StateItem(self._now(following)))
        if following is None:
            return await self._items.delete_table_migration(stored)
        after = stored.changed(following, self._worker_id, self._now(following).modified_ms)
        if step is TableStep.COMPLETE:
            # As soon as it is said, others lead by the lock at the new place, whether we know or not.
            async with self._lock.standing_aside():
                await self._items.complete_table_migration(stored, after, self._worker_id)
                await self._state.look()
            return True
        if step is TableStep.MOVE:
            await self._items.move_items(self._worker_id)
            if await self._items.items_to_move():
                return False  # written meanwhile: the next look moves it
        return await self._items.change_table_migration(stored, after)

    def _now(self, status: TableStatus) -> StateChange[TableStatus]:
        return StateChange(status, self._worker_id, int(self._clock.wall() * 1000))
