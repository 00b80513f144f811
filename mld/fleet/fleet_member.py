"""A worker's part in its fleet, beside reading: it follows the fleet's generation.

In a fleet with assigned leases, the worker competes for the lock only while it can assign; both
start and end together, so that every leader assigns.

The generation also decides how the worker gets leases; held leases stay held when it changes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.rules.client_version import Mode
from kcl_mld.kernel.concurrency import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from kcl_mld.fleet.fleet_state import FleetState
    from kcl_mld.fleet.leader_elector import LeaderElector
    from kcl_mld.fleet.leader_lock import LeaderLock
    from kcl_mld.fleet.lease_assigner import LeaseAssigner
    from kcl_mld.fleet.own_process import OwnProcess
    from kcl_mld.fleet.twin_watch import TwinWatch
    from kcl_mld.leases.lease_acquisition import LeaseAcquisition
    from kcl_mld.leases.model.lease import Lease

    #: Runs until cancelled.
    FleetLoop = Callable[[], Coroutine[Any, Any, None]]

log = logging.getLogger("mld.fleet")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetServices:
    """The services of a worker in a 3.x fleet; a fleet whose leases are taken loads none of them.

    Attributes:
        process: this process; stores a failure.
        twins: knows whether another process uses this worker's id.
        reporting: runs where workers report, whether leases are taken or assigned.
        upgrading: additionally runs while a fleet is upgraded from 2.x.
        assigning: runs beside lock and assigner while leases are assigned.
    """

    lock: LeaderLock
    assigner: LeaseAssigner
    process: OwnProcess
    twins: TwinWatch
    reporting: tuple[FleetLoop, ...]
    upgrading: tuple[FleetLoop, ...]
    assigning: tuple[FleetLoop, ...]


class FleetMember:
    """Runs the services for the current generation, and switches when the generation changes.

    Args:
        elected: the leader election where leases are taken.
        make_services: called once, when the generation needs the services.
        on_mode: called with the way in which the worker gets leases.
    """

    def __init__(
        self,
        state: FleetState,
        switch: AcquisitionSwitch,
        elected: LeaderElector,
        make_services: Callable[[], FleetServices],
        on_mode: Callable[[Mode], None],
    ) -> None:
        self._state = state
        self._switch = switch
        self._elected = elected
        self._make_services = make_services
        self._made: FleetServices | None = None
        self._on_mode = on_mode
        self._is_leaving = False
        #: Set while nothing runs for the fleet: no competition for the lead, no reports of metrics.
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def leadership(self) -> LeaderElector | LeaderLock:
        """The current way of leader election."""
        if self._state.behaviour.mode is Mode.ASSIGNED:
            return self._services().lock
        return self._elected

    def _services(self) -> FleetServices:
        if self._made is None:
            self._made = self._make_services()
        return self._made

    def prepare(self) -> None:
        """Create the services before they are needed.

        Loading their modules takes a tenth of a second.
        """
        self._services()

    def wake(self) -> None:
        """Leases were created or released: the leader scans now."""
        if self._made is not None:
            self._made.assigner.wake()
            self._made.lock.call_leader()

    def follow(self) -> None:
        """Get leases in the way of the current generation."""
        mode = self._state.behaviour.mode
        self._switch.use(mode)
        self._on_mode(mode)

    def leave(self, failure: BaseException | None = None, lease: Lease | None = None) -> None:
        """The worker stops: give up the lead, and leave the fleet.

        Args:
            failure: why it stops by itself; None = on request.
            lease: whose child failed.
        """
        if failure is not None and self._made is not None:
            self._made.process.fail(failure, lease)
        self._is_leaving = True
        self._changed.wake()

    def waiting(self) -> Mapping[str, float]:
        """Worker id -> seconds until it may get leases; known to the leader only."""
        return {} if self._made is None else self._made.assigner.waiting()

    @property
    def may_have_twin(self) -> bool:
        """Another process with this worker's id may hold rows that name this worker."""
        return self._made is not None and self._made.twins.may_have_twin

    @property
    def is_assigned(self) -> bool:
        """Leases are assigned by a leader, not taken."""
        return self._state.behaviour.mode is Mode.ASSIGNED

    async def start_hand_offs(self) -> frozenset[str]:
        """At a stop, where leases are assigned: name the next owners of held leases.

        Returns the keys.

        First, this worker's own metrics must be deleted: otherwise workers that stop at the same
        time would name each other.
        """
        await self._idle.wait()
        if self._made is None or not self.is_assigned:
            return frozenset()
        named = await self._made.assigner.start_hand_offs()
        if named:
            await self._made.lock.call()
        return named

    @property
    def _changed(self) -> Wakeup:
        return self._state.changed

    async def run(self) -> None:
        """Run until cancelled; after :meth:`leave` it only waits for that.

        Raises:
            MldError: a part failed; the worker has to stop.
        """
        while not self._is_leaving:
            self.follow()
            before = self._state.behaviour
            self._idle.clear()
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(_for_ever(loop)) for loop in self._loops()]
                    while self._state.behaviour == before and not self._is_leaving:
                        await self._changed.wait()
                    for task in tasks:
                        task.cancel()
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
            finally:
                self._idle.set()
        await asyncio.Event().wait()

    def _loops(self) -> list[FleetLoop]:
        behaviour = self._state.behaviour
        if not behaviour.reports:
            return []
        services = self._services()
        loops = list(services.reporting)
        if behaviour.mode is Mode.ASSIGNED:
            loops += [services.lock.run, lambda: services.assigner.run(services.lock)]
            loops += services.assigning
        elif self._state.version is ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X:
            loops += services.upgrading
        return loops


async def _for_ever(loop: FleetLoop) -> None:
    await loop()
    raise RuntimeError(f"{loop} ended, which it must not")


class AcquisitionSwitch:
    """Gets leases by one of several strategies.

    Each change creates a new strategy, because what an earlier one knows of the table is out of
    date. The previous one is stopped and settled first, so no two strategies write to one lease.
    """

    def __init__(
        self, strategies: Mapping[Mode, Callable[[], LeaseAcquisition]], mode: Mode
    ) -> None:
        self._strategies = strategies
        self._mode = mode
        self._changed = Wakeup()
        self._is_stopped = False
        self._is_outdated = False
        #: The strategy in use.
        self.current = strategies[mode]()

    @property
    def mode(self) -> Mode:
        """How leases are obtained now."""
        return self._mode

    def use(self, mode: Mode) -> None:
        """Switch to a mode; does nothing if it is current, or after :meth:`stop`."""
        if mode is not self._mode and not self._is_stopped:
            self._mode = mode
            self._is_outdated = True
            self.current.stop()
            self._changed.wake()

    async def run(self) -> None:
        """Get leases until cancelled, or until :meth:`stop`."""
        while not self._is_stopped:
            if self._is_outdated:
                self._is_outdated = False
                self.current = self._strategies[self._mode]()
                await self._changed.wait(0)
            await self._run_until_changed()

    async def _run_until_changed(self) -> None:
        """Run the current strategy until it ends or is to be replaced; raises its failure."""
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self.current.run())
                ending = group.create_task(self._end_when_changed(running))
                running.add_done_callback(lambda _: ending.cancel())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _end_when_changed(self, running: asyncio.Task[None]) -> None:
        await self._changed.wait()
        # Cancelled only after that: gains in progress are held or undone, and never forgotten.
        await self.current.settled()
        running.cancel()

    def wake(self) -> None:
        """Start the next cycle now, because leases were created."""
        self.current.wake()

    def stop(self) -> None:
        """Gain no more leases, by any strategy; a gain in progress is undone."""
        self._is_stopped = True
        self.current.stop()
        self._changed.wake()

    async def settled(self) -> None:
        """After :meth:`stop`: wait until no gain is in progress."""
        await self.current.settled()
