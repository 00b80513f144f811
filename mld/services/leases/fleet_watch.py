"""Notices when the lease table belongs to a fleet that this worker can't serve, or changes.

It looks at every scan of the lease table and, at least once a minute, at what the fleet has written
about itself: another worker may flip the fleet while we run.

Rows of another stream mode, of another stream, or on their way to other keys are refused at a start.
While the worker runs they end nothing: what is held is read on, and the rest waits until they are
gone (:class:`~mld.errors.MixedTable`).

When :meth:`FleetWatch.run` raises, the worker stops taking, drains and releases its leases and
exits. Until then renewals go on, also of leases that a new leader hands over: the holder's
conditions then name both owners, and a release finishes the hand-off.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.readiness import Reason
from mld.errors import AwsError, UnservableFleet

if TYPE_CHECKING:
    from mld.ports.clock import Clock
    from mld.services.conditions import Conditions
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
        conditions: Conditions,
    ) -> None:
        """Watch the table of ``store`` and what ``state`` reads.

        Args:
            store: whose scans are looked at.
            state: of the fleet.
            clock: measures the minute.
            conditions: for ``/readyz``.
        """
        self._store = store
        self._state = state
        self._clock = clock
        self._conditions = conditions
        self._conflict: str | None = None
        self._reported_at = 0.0
        self._items_due_at = 0.0
        self._has_joined = False

    async def check(self) -> None:
        """Look once, at a start; with a fresh scan unless there is one. The first time, join.

        Raises:
            UnservableFleet: don't take leases; the message names versions and ways out.
            AwsError: a table could not be read, so nothing is known; try again.
        """
        scan = self._store.last_scan or await self._store.scan()
        if scan.conflict is not None:
            raise UnservableFleet(scan.conflict)
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
                if self._state.is_outdated(self._store.last_scan):
                    self._items_due_at = 0.0
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
        """Report rows of other applications, beside which this worker holds on to what it has."""
        before, self._conflict = self._conflict, scan.conflict
        if scan.conflict is None:
            if before is not None:
                self._conditions.clear(Reason.FOREIGN_ROWS)
                log.warning("Resolved, so leases are created and taken again: %s", before)
            return
        self._conditions.report(Reason.FOREIGN_ROWS, scan.conflict)
        now = self._clock.monotonic()
        if scan.conflict != before or now - self._reported_at >= LOOK_S:
            self._reported_at = now
            log.error(
                "No lease is created, taken, assigned or deleted until these rows are gone; leases "
                "that are held are read on: %s",
                scan.conflict,
            )
