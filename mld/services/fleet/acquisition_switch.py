"""Changes, while the worker runs, how it gets its leases; what it holds stays held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mld.services.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mld.decide.fleet.client_version import Mode
    from mld.services.leases.lease_acquisition import LeaseAcquisition


class AcquisitionSwitch:
    """A :class:`~mld.services.leases.lease_acquisition.LeaseAcquisition` that is one of several.

    Each change begins with a new strategy: what an earlier one remembered of the table is as old as
    the last time that it looked. The one before is stopped and settled first, so no two strategies
    write to one lease.
    """

    def __init__(
        self, strategies: Mapping[Mode, Callable[[], LeaseAcquisition]], mode: Mode
    ) -> None:
        """Begin with one of them; it does nothing before :meth:`run`.

        Args:
            strategies: what makes the strategy of each mode.
            mode: the first one.
        """
        self._strategies = strategies
        self._mode = mode
        self._changed = Wakeup()
        self._is_stopped = False
        self._is_outdated = False
        #: The strategy in use.
        self.current = strategies[mode]()

    @property
    def mode(self) -> Mode:
        """How leases come now."""
        return self._mode

    def use(self, mode: Mode) -> None:
        """From now on get leases that way; nothing if it is so, or after :meth:`stop`."""
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
        """The current strategy, until it ends or is to be replaced; its failure is passed on."""
        try:
            async with asyncio.TaskGroup() as group:
                running = group.create_task(self.current.run())
                ending = group.create_task(self._end_when_changed(running))
                running.add_done_callback(lambda _: ending.cancel())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _end_when_changed(self, running: asyncio.Task[None]) -> None:
        await self._changed.wait()
        # Only then cancelled: what is under way is held or undone, and never forgotten.
        await self.current.settled()
        running.cancel()

    def wake(self) -> None:
        """Look now: leases were created."""
        self.current.wake()

    def stop(self) -> None:
        """Get nothing more, in any way; what is under way is undone."""
        self._is_stopped = True
        self.current.stop()
        self._changed.wake()

    async def settled(self) -> None:
        """After :meth:`stop`: return when nothing is under way any more."""
        await self.current.settled()
