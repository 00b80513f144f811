"""Notices when the lease table belongs to a fleet that this worker can't serve, or changes.

It looks at every scan of the lease table and, at least once a minute, at what the fleet has written
about itself: another worker may flip the fleet while we run.

When :meth:`FleetWatch.run` raises, the worker stops taking, drains and releases its leases and
exits. Until then renewals go on, also of leases that a new leader hands over: the holder's
conditions then name both owners, and a release finishes the hand-off.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.fleet import check_not_moving, check_stream_mode
from mld.errors import AwsError

if TYPE_CHECKING:
    from mld.ports.clock import Clock
    from mld.services.fleet.fleet_state import FleetState
    from mld.services.leases.lease_scan import TableScan
    from mld.services.leases.lease_store import LeaseStore

log = logging.getLogger(__name__)

#: Java's own version monitor looks as often (ClientVersionChangeMonitor, 3.5.1).
LOOK_S = 60.0


class FleetWatch:
    """Looks for the marks of the other stream mode and of other generations."""

    def __init__(
        self,
        store: LeaseStore,
        state: FleetState,
        clock: Clock,
        *,
        is_multi_stream: bool = False,
    ) -> None:
        """Watch the table of ``store`` and what ``state`` reads.

        Args:
            store: whose scans are looked at.
            state: of the fleet.
            clock: measures the minute.
            is_multi_stream: the keys of this worker's leases name their stream.
        """
        self._store = store
        self._state = state
        self._clock = clock
        self._is_multi_stream = is_multi_stream
        self._items_due_at = 0.0
        self._has_joined = False

    async def check(self) -> None:
        """Look once, everywhere; with a fresh scan unless there is one. The first time, join.

        Raises:
            UnservableFleet: don't take leases; the message names versions and ways out.
            AwsError: a table could not be read, so nothing is known; try again.
        """
        scan = self._store.last_scan or await self._store.scan()
        self._look_at(scan)
        self._items_due_at = self._clock.monotonic() + LOOK_S
        if self._has_joined:
            await self._state.look()
        else:
            await self._state.join(is_new=not (scan.leases or scan.broken))
            self._has_joined = True

    async def run(self) -> None:
        """Look at every scan and at least once a minute, until cancelled.

        Raises:
            UnservableFleet: as :meth:`check`.
        """
        while True:
            await self._store.scanned.wait(self._items_due_at - self._clock.monotonic())
            if self._store.last_scan is not None:
                self._look_at(self._store.last_scan)
            if self._clock.monotonic() >= self._items_due_at:
                self._items_due_at = self._clock.monotonic() + LOOK_S
                try:
                    await self._state.look()
                except AwsError as error:
                    log.warning(
                        "Could not check whether the fleet uses KCL 3.x; next try in %.0f s: %s",
                        LOOK_S,
                        error,
                    )

    def _look_at(self, scan: TableScan) -> None:
        check_not_moving(scan.foreign, self._store.table_name)
        check_stream_mode(scan.leases, is_multi_stream=self._is_multi_stream)
        if self._state.is_outdated(scan):
            self._items_due_at = 0.0
