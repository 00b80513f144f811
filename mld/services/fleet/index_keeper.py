"""Has the index created by which workers of a 3.x fleet find their leases."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.client_version import Mode
from mld.errors import AwsError

if TYPE_CHECKING:
    from mld.services.fleet.fleet_state import FleetState
    from mld.services.fleet.leadership import Leadership
    from mld.services.leases.lease_store import LeaseStore

log = logging.getLogger(__name__)

#: Distance of two looks at an index that is not there yet. Whoever doesn't have to create it waits
#: as often, before it does so as the leader: a Java worker that starts does not survive another's
#: creation of the index.
LOOK_S = 15.0
PATIENCE = 4


class IndexKeeper:
    """Looks until the index can be asked; nothing waits for it."""

    def __init__(
        self, store: LeaseStore, lock: Leadership, elected: Leadership, state: FleetState
    ) -> None:
        """Ask nothing yet.

        Args:
            store: the lease table.
            lock: who leads where leases are assigned.
            elected: who leads where they are taken.
            state: whether this worker began the generation that has the index.
        """
        self._store = store
        self._lock = lock
        self._elected = elected
        self._state = state

    async def run(self) -> None:
        """Until it is there; then wait to be cancelled."""
        looks = 0
        while True:
            try:
                if await self._look(looks):
                    break
            except AwsError as error:
                if looks == 0:
                    log.warning("Could not create the index of leases by owner: %s", error)
            looks += 1
            await asyncio.sleep(LOOK_S)
        await asyncio.Event().wait()

    async def _look(self, looks: int) -> bool:
        if self._state.has_begun or (looks >= PATIENCE and await self._is_leader()):
            return await self._store.ensure_index()
        return await self._store.index_can_be_asked()

    async def _is_leader(self) -> bool:
        is_assigned = self._state.behaviour.mode is Mode.ASSIGNED
        return await (self._lock if is_assigned else self._elected).is_leader()
