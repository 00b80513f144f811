"""What a worker does as one of its fleet, beside reading: it follows the fleet's generation.

In a fleet whose leases are assigned, the lock is sought only beside the assigning itself, and both
end together: nobody leads who does not assign.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.fleet.client_version import Mode
from mld.model.fleet.client_version import ClientVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping
    from typing import Any

    from mld.services.fleet.acquisition_switch import AcquisitionSwitch
    from mld.services.fleet.fleet_state import FleetState
    from mld.services.fleet.flip_watch import FlipWatch
    from mld.services.fleet.index_keeper import IndexKeeper
    from mld.services.fleet.leadership import LeaderDuty, Leadership
    from mld.services.fleet.worker_metrics_reporter import WorkerMetricsReporter
    from mld.services.wakeup import Wakeup

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetParts:
    """What it takes to be one of a 3.x fleet.

    Attributes:
        lock: who leads.
        duty: assigns; the leader's alone.
        reporter: this worker's metrics.
        flip: watches over an upgrade from 2.x.
        index: by which leases are found.
        loops: what else runs while the leases are assigned.
    """

    lock: Leadership
    duty: LeaderDuty
    reporter: WorkerMetricsReporter
    flip: FlipWatch
    index: IndexKeeper
    loops: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()


class FleetMember:
    """Runs what the present generation asks for, and changes it when the generation changes."""

    def __init__(
        self,
        state: FleetState,
        switch: AcquisitionSwitch,
        elected: Leadership,
        make_parts: Callable[[], FleetParts],
        on_mode: Callable[[Mode], None] | None = None,
    ) -> None:
        """Run nothing before :meth:`run`.

        Args:
            state: of the fleet.
            switch: how leases come.
            elected: who leads where leases are taken.
            make_parts: called once, when the generation asks for what is made.
            on_mode: told how leases come from now on.
        """
        self._state = state
        self._switch = switch
        self._elected = elected
        self._make_parts = make_parts
        self._made: FleetParts | None = None
        self._on_mode = on_mode
        state.on_beginning = self._prepare
        self._is_leaving = False

    @property
    def leadership(self) -> Leadership:
        """Who leads the fleet as it is now."""
        if self._state.behaviour.mode is Mode.ASSIGNED:
            return self._parts().lock
        return self._elected

    def _parts(self) -> FleetParts:
        if self._made is None:
            self._made = self._make_parts()
        return self._made

    def _prepare(self) -> None:
        """Make the parts before they are needed: their modules take a tenth of a second to load."""
        self._parts()

    def wake(self) -> None:
        """Leases were created or released: the leader looks now."""
        if self._made is not None:
            self._made.duty.wake()

    def follow(self) -> None:
        """Get leases as the fleet does now."""
        mode = self._state.behaviour.mode
        self._switch.use(mode)
        if self._on_mode is not None:
            self._on_mode(mode)

    def leave(self) -> None:
        """The worker stops: give the lead up, and take no part any more."""
        self._is_leaving = True
        self._changed.wake()

    def waiting(self) -> Mapping[str, float]:
        """Worker id -> seconds that it has to run until it gets leases; known to the leader alone."""
        return {} if self._made is None else self._made.duty.waiting()

    async def name_successors(self) -> frozenset[str]:
        """The worker stops: where leases are assigned, say who goes on with its own; their keys."""
        if self._made is None or self._state.behaviour.mode is not Mode.ASSIGNED:
            return frozenset()
        return await self._made.duty.name_successors()

    @property
    def _changed(self) -> Wakeup:
        return self._state.changed

    async def run(self) -> None:
        """Until cancelled; after :meth:`leave` it only waits for that.

        Raises:
            MldError: a part failed; the worker is to stop.
        """
        while not self._is_leaving:
            self.follow()
            before = self._state.behaviour
            try:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(_for_ever(loop)) for loop in self._loops()]
                    while self._state.behaviour == before and not self._is_leaving:
                        await self._changed.wait()
                    for task in tasks:
                        task.cancel()
            except ExceptionGroup as failed:
                raise failed.exceptions[0] from None
        await asyncio.Event().wait()

    def _loops(self) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        behaviour = self._state.behaviour
        if not behaviour.reports:
            return []
        parts = self._parts()
        loops = [parts.reporter.run, parts.index.run]
        if behaviour.mode is Mode.ASSIGNED:
            loops += [parts.lock.run, lambda: parts.duty.run(parts.lock), *parts.loops]
        elif self._state.version is ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X:
            loops.append(parts.flip.run)
        return loops


async def _for_ever(loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    await loop()
    raise RuntimeError(f"{loop} ended, which it must not")
