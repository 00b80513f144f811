"""Has the index created by which workers of a 3.x fleet find their leases."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.fleet.client_version import Mode
from mld.errors import AwsError
from mld.services.conditions import remedy

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
#: Distance of two looks at one that is there: somebody may delete it by hand, and the Java workers
#: of the fleet find no leases without it.
LATER_S = 300.0


class IndexKeeper:
    """Looks whether the index can be asked; nothing waits for it."""

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
        self._said = ""

    async def run(self) -> None:
        """Until cancelled; have it created where it is not there."""
        looks = 0
        while True:
            try:
                is_there = await self._look(looks)
            except AwsError as error:
                is_there = False
                self._say(error)
            looks = 0 if is_there else looks + 1
            await asyncio.sleep(LATER_S if is_there else LOOK_S)

    def _say(self, error: AwsError) -> None:
        """Once for each kind of error."""
        if error.code != self._said:
            self._said = error.code
            text = (
                "The index of leases by owner could not be looked at or created. Workers of kcl-mld "
                "scan the table instead; Java workers find no leases without it: %s%s"
            )
            log.warning(text, error, remedy(error))

    async def _look(self, looks: int) -> bool:
        if self._state.has_begun or (looks >= PATIENCE and await self._is_leader()):
            return await self._store.ensure_index()
        return await self._store.index_can_be_asked()

    async def _is_leader(self) -> bool:
        is_assigned = self._state.behaviour.mode is Mode.ASSIGNED
        return await (self._lock if is_assigned else self._elected).is_leader()
