"""Flips a fleet that is upgraded from 2.x to 3.x when all of its workers can follow."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.fleet.client_version import FlipReadiness, VersionChange, unready
from mld.errors import MldError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mld.ports.clock import Clock
    from mld.services.fleet.coordinator_state import CoordinatorStateStore
    from mld.services.fleet.fleet_state import FleetState
    from mld.services.leases.lease_store import LeaseStore

log = logging.getLogger(__name__)

#: Distance of two looks (MigrationReadyMonitor, 3.5.1).
LOOK_S = 60.0


class FlipWatch:
    """The leader's look at who reports; one that does not lead begins anew."""

    def __init__(
        self,
        state: FleetState,
        items: CoordinatorStateStore,
        store: LeaseStore,
        is_leader: Callable[[], Awaitable[bool]],
        clock: Clock,
    ) -> None:
        """Look at nothing yet.

        Args:
            state: is flipped.
            items: metrics of the workers.
            store: leases.
            is_leader: whether this worker leads the fleet as it is now.
            clock: both clocks.
        """
        self._state = state
        self._items = items
        self._store = store
        self._is_leader = is_leader
        self._clock = clock
        #: Why not, as it was said last; "" = nothing was said yet.
        self._said: str | None = ""

    async def run(self) -> None:
        """Look each minute until cancelled."""
        seen = FlipReadiness()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                seen = await self._look(seen)
            except MldError as error:
                log.warning("Could not check whether the fleet is ready for KCL 3.x: %s", error)
                seen = FlipReadiness()

    async def _look(self, seen: FlipReadiness) -> FlipReadiness:
        if not await self._is_leader():
            return FlipReadiness()
        scan = await self._store.scan()
        metrics = [one for found in await self._items.worker_metrics() for one in found.metrics]
        has_index = await self._store.index_can_be_asked()
        why_not = unready(scan.leases, metrics, self._clock.wall(), has_index=has_index)
        now = self._clock.monotonic()
        if why_not != self._said:
            if why_not is None:
                log.info("The fleet is ready for KCL 3.x; it flips in ten minutes")
            else:
                log.info("The fleet is not ready for KCL 3.x: %s", why_not)
            self._said = why_not
        seen = seen.seen(why_not, now)
        if seen.is_long_enough(now) and await self._state.flip(VersionChange.READY):
            log.warning(
                "All lease owners have reported for ten minutes: the leader assigns leases from now on"
            )
        return seen
