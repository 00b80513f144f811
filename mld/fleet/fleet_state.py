"""What fleet this worker is one of: where its items are, and which generation it works as.

The item ``Migration3.0`` is looked for in the lease table, and in the coordinator table where
workers of 3.0 to 3.4 keep it. It is written only at a start, and never in a hurry: a Java worker of
3.5.1 that loses the race for it while it starts does not recover, so a new application's item is
created a moment later, after another read. The faster worker is joined.

:class:`FleetWatch` decides when to read: at every scan of the lease table, and at least once a minute,
because another worker may change the fleet while we run. It also refuses rows of another stream
mode, of another stream, or on their way to other keys, at a start. While the worker runs they end
nothing: what is held is read on, and the rest waits until they are gone
(:class:`~kcl_mld.errors.MixedTable`).

When :meth:`FleetWatch.run` raises, the worker stops taking, drains and releases its leases and
exits. Until then renewals go on, also of leases that a new leader hands over: the holder's
conditions then name both owners, and a release finishes the hand-off.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.config.reserved_keys import MIGRATION_KEY, TABLE_MIGRATION_KEY
from kcl_mld.errors import AwsError, Denied, MalformedData, UnservableFleet
from kcl_mld.fleet.model.state_history import (
    ClientVersion,
    StateChange,
    StateItem,
    migration_from_item,
)
from kcl_mld.fleet.rules.client_version import (
    BEHAVIOUR,
    TRANSITIONS,
    Mode,
    VersionChange,
    change_at_start,
    followed,
)
from kcl_mld.fleet.rules.table_migration import COMPLETE, INIT, PENDING, status_at_start
from kcl_mld.fleet.rules.unservable import refuse_two_fleets, refuse_unreadable
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.signals.model.conditions import Conditions, Reason

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from kcl_mld.config.fleet import FleetConfig
    from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
    from kcl_mld.fleet.model.state_history import MigrationState, TableStatus
    from kcl_mld.fleet.model.table_layout import Layout
    from kcl_mld.fleet.rules.client_version import Behaviour
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore

log = logging.getLogger("mld.fleet")

#: A new application's item is created after a random pause between these two, in seconds. Java
#: writes it 60 ms after its read, so a worker that read before us has written by then.
CREATION_PAUSE_S = (0.1, 0.3)
#: Attempts at a start until other workers' changes are left to the next start.
START_LOOKS = 5
#: Java's version monitor has the same interval (ClientVersionChangeMonitor, 3.5.1).
LOOK_S = 60.0
#: The same of a follower whose leader shows its work: before the fleet works otherwise, that one
#: gives up the lock.
LED_LOOK_S = 180.0

_INIT = ClientVersion.CLIENT_VERSION_INIT
_NOT_BEGUN = (
    "Working as a KCL 2.x worker: it could not be checked whether a KCL 3.0-3.4 fleet uses table "
    "%s, and a fleet of KCL 3.x must not begin beside another one"
)
_BEGUN = (
    "This new application is one of KCL 3.5 (%s). Java workers older than 3.5 cannot join it; where "
    "they are to, begin with clientVersionConfig = CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"
)
_UPGRADING = (
    "Beginning the upgrade to KCL 3.x: Java workers older than 3.0 can't list table %s from now on. "
    "Owners of leases that may be such workers: %s. The way back, and what they need: "
    "docs/migrating.md#beside-a-3x-fleet"
)


class FleetState:
    """The fleet as last read; :class:`FleetWatch` decides when to read it.

    Args:
        store: of the fleet's items; its layout is set here.
        config: section ``fleet``.
        rng: draws the pause before a creation.
    """

    def __init__(
        self,
        store: CoordinatorStateStore,
        config: FleetConfig,
        worker_id: str,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._worker_id = worker_id
        self._clock = clock
        self._rng = rng
        self._store = store
        self._names = store.layout
        self._is_denied = False
        self._stored: MigrationState | None = None
        self._complaint: str | None = None
        #: The generation; INIT = there is no item.
        self.version = _INIT
        #: This worker began the generation, and so creates what belongs to it.
        self.has_begun = False
        #: Set when the generation or the layout changes; the fleet's member waits for it.
        self.changed = Wakeup()

    @property
    def layout(self) -> Layout:
        """Where everything is."""
        return self._store.layout

    @property
    def behaviour(self) -> Behaviour:
        """What the generation means for a worker."""
        return BEHAVIOUR[self.version]

    async def join(
        self, on_beginning: Callable[[], None], *, is_new: bool, others: Iterable[str] = ()
    ) -> None:
        """At a start: find the fleet.

        Begin or change a generation if the configuration requests it.

        Args:
            on_beginning: called during the pause before a creation; loads what the new fleet needs.
            is_new: there are no leases.
            others: owners of leases that are not kcl-mld workers.

        Raises:
            UnservableFleet: this worker can't serve the fleet.
            AwsError: the state is unknown; try again.
        """
        await self._find_layout()
        await self._refuse_two_fleets()
        version = _INIT
        for _ in range(START_LOOKS):
            stored = await self._read()
            version = _INIT if stored is None else stored.state
            change = self._change(version, is_new=is_new)
            if change is None:
                break
            if stored is None:
                await self._pause(on_beginning)
                if await self._read() is not None:
                    continue
            if change is VersionChange.COMPATIBLE and (names := ", ".join(sorted(others))):
                log.warning(_UPGRADING, self.layout.lease_table, names)
            if await self._write(stored, change):
                version = TRANSITIONS[version][change]
                self.has_begun = stored is None
                break
        self._enter(version)

    async def _pause(self, on_beginning: Callable[[], None]) -> None:
        """Give a worker that read before us the time to write, and use what it wrote."""
        until = self._clock.monotonic() + self._rng.uniform(*CREATION_PAUSE_S)
        on_beginning()
        await asyncio.sleep(until - self._clock.monotonic())

    async def look(self, scan: TableScan | None = None) -> None:
        """Later: check whether another worker or a person has changed the fleet.

        Args:
            scan: a recent one, which saves a read if it shows nothing new.

        Raises:
            UnservableFleet: the fleet became one that this worker can't serve.
            AwsError: nothing is known; ask again.
        """
        try:
            if self.version is _INIT or not self.layout.is_single_table:
                await self._find_layout()
            if scan is not None and self.is_shown(scan):
                return
            stored = await self._read()
        except UnservableFleet as error:
            if self.behaviour.mode is Mode.TAKES:
                raise
            # A leader assigns leases: its state is kept, whatever happened to the item.
            if self._complaint != str(error):
                log.error("Continuing as before, although %s", error)  # noqa: TRY400 - the text says it all
            self._complaint = str(error)
            return
        self._complaint = None
        self._enter(followed(self.version, None if stored is None else stored.state))

    def is_shown(self, scan: TableScan) -> bool:
        """Whether a scan of the lease table shows the item as it was read last."""
        if not self.layout.is_single_table or self._complaint is not None:
            return False
        item = scan.foreign.get(MIGRATION_KEY)
        try:
            return (None if item is None else migration_from_item(item)) == self._stored
        except MalformedData:
            return False

    def is_outdated(self, scan: TableScan) -> bool:
        """Whether a scan of the lease table shows a newer item than the last one read.

        The scan itself decides nothing, because it may be older than the last read.
        """
        item = scan.foreign.get(MIGRATION_KEY)
        if item is None:
            return False
        try:
            return migration_from_item(item) != self._stored
        except MalformedData:
            return self._complaint is None

    async def _refuse_two_fleets(self) -> None:
        """An item in the lease table before any was moved there is that of another fleet."""
        layout = self.layout
        if layout.status is not INIT:
            return
        self._store.layout = self._names
        try:
            in_lease_table = await self._read()
        finally:
            self._store.layout = layout
        if in_lease_table and BEHAVIOUR[in_lease_table.state].mode is Mode.ASSIGNED:
            raise refuse_two_fleets([layout.coordinator_table, layout.lease_table])

    # -- the version ------------------------------------------------------------------------------

    def _change(self, version: ClientVersion, *, is_new: bool) -> VersionChange | None:
        change = change_at_start(version, self._config.client_version, is_new=is_new)
        if change is None:
            return None
        if self._is_denied and version is _INIT:
            # There may be a fleet of 3.0 to 3.4, and then a second one must not begin.
            log.warning(_NOT_BEGUN, self.layout.coordinator_table)
            return None
        return change

    async def _read(self) -> MigrationState | None:
        """The stored item, from any table."""
        try:
            self._stored = await self._store.client_version()
        except MalformedData as error:
            raise refuse_unreadable(MIGRATION_KEY, str(error)) from error
        return self._stored

    async def _write(self, stored: MigrationState | None, change: VersionChange) -> bool:
        now_ms = int(self._clock.service() * 1000)
        before = stored or StateItem(StateChange(_INIT, self._worker_id, now_ms))
        after = before.changed(TRANSITIONS[before.state][change], self._worker_id, now_ms)
        written = await (
            self._store.create_client_version(after)
            if stored is None
            else self._store.change_client_version(stored, after)
        )
        if written:
            self._stored = after
            text = "The generation of the fleet is %s from now on: %s"
            if change is VersionChange.NEW:
                log.info(_BEGUN, after.state.value)
            else:
                log.warning(text, after.state.value, change.value)
        return written

    async def flip(self, change: VersionChange) -> bool:
        """As the leader: change the generation; False when another worker did so before."""
        stored = await self._read()
        if stored is None or change not in TRANSITIONS[stored.state]:
            return False
        if not await self._write(stored, change):
            return False
        self._enter(TRANSITIONS[stored.state][change])
        return True

    def _enter(self, version: ClientVersion) -> None:
        if version is self.version:
            return
        log.info("The fleet works as %s (before: %s)", version.value, self.version.value)
        self.version = version
        self.changed.wake()

    # -- the layout -------------------------------------------------------------------------------

    async def _find_layout(self) -> None:
        """Find the tables of 3.0 to 3.4, and how much of them is still in use."""
        known = self.layout
        try:
            has_table = await self._store.has_legacy_table()
        except Denied as error:
            # Permissions written for a 2.x fleet don't cover this table, and such a fleet has none.
            if not self._is_denied:
                log.warning(
                    "Cannot detect KCL 3.0-3.4 workers: allow dynamodb:DescribeTable and GetItem on "
                    "table %s (%s)",
                    known.coordinator_table,
                    error,
                )
            self._is_denied = True
            return
        self._is_denied = False
        if not has_table:
            return
        status = await self._status(replace(known, status=INIT))
        if status is known.status:
            return
        # Where this process writes is decided when it first sees the old table.
        to_leases = status is COMPLETE or (
            status is PENDING if known.is_single_table else known.writes_to_lease_table
        )
        log.info("Table %s is in use: %s", known.coordinator_table, status.value)
        self._store.layout = replace(known, status=status, writes_to_lease_table=to_leases)
        self.changed.wake()

    async def _status(self, legacy: Layout) -> TableStatus:
        known = self._store.layout
        self._store.layout = legacy  # the status is read from there
        try:
            stored = await self._store.table_migration()
        except MalformedData as error:
            raise refuse_unreadable(TABLE_MIGRATION_KEY, str(error)) from error
        finally:
            self._store.layout = known
        return status_at_start(
            None if stored is None else stored.state,
            legacy.coordinator_table,
            migrates=self._config.migrates_tables and known.is_single_table,
        )


class FleetWatch:
    """Watches for rows of the other stream mode and for other generations.

    Args:
        is_led: whether a leader of kcl-mld leads this worker.
    """

    def __init__(
        self,
        store: LeaseStore,
        state: FleetState,
        clock: Clock,
        conditions: Conditions,
        is_led: Callable[[], bool],
    ) -> None:
        self._store = store
        self._state = state
        self._is_led = is_led
        self._clock = clock
        self._conditions = conditions
        self._conflict: str | None = None
        self._reported_at = 0.0
        self._items_due_at = 0.0
        self._has_joined = False

    async def check(self, on_beginning: Callable[[], None]) -> None:
        """Check once, at a start; with a new scan unless there is one.

        The first call joins the fleet.

        Args:
            on_beginning: see :meth:`FleetState.join`.

        Raises:
            UnservableFleet: don't take leases; the message names versions and options.
            AwsError: a table could not be read, so the state is unknown; try again.
        """
        scan = self._store.last_scan or await self._store.scan()
        if scan.conflict is not None:
            raise UnservableFleet(scan.conflict)
        self._items_due_at = self._clock.monotonic() + LOOK_S
        if self._has_joined:
            await self._state.look()
        else:
            others = {
                lease.lease_owner
                for lease in scan.leases
                if lease.lease_owner is not None and lease.holder != lease.lease_owner
            }
            is_new = not (scan.leases or scan.broken)
            await self._state.join(on_beginning, is_new=is_new, others=others)
            self._has_joined = True

    def look_soon(self) -> None:
        """The leader has ceased to lead: perhaps because the fleet works otherwise now."""
        self._items_due_at = 0.0
        self._store.scanned.wake()

    async def run(self) -> None:
        """Check at every scan and at least once a minute, until cancelled.

        Raises:
            UnservableFleet: as :meth:`check`.
        """
        while True:
            await self._store.scanned.wait(self._items_due_at - self._clock.monotonic())
            if self._store.last_scan is not None:
                self._look_at(self._store.last_scan)
                if self._state.is_outdated(self._store.last_scan):
                    self._items_due_at = 0.0
            now = self._clock.monotonic()
            if now >= self._items_due_at:
                self._items_due_at = now + (LED_LOOK_S if self._is_led() else LOOK_S)
                scan = self._store.last_scan
                is_recent = scan is not None and now - scan.started_at < LOOK_S
                try:
                    await self._state.look(scan if is_recent else None)
                except AwsError as error:
                    log.warning(
                        "Could not check whether the fleet uses KCL 3.x; next try in %.0f s: %s",
                        LOOK_S,
                        error,
                    )

    def _look_at(self, scan: TableScan) -> None:
        """Report rows of other applications; this worker keeps its leases meanwhile."""
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
