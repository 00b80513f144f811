"""Coordinates all lease services of a worker: start, loops, and the end of taking."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, Denied, NotFound
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.streams.existence_watch import ExistenceWatch

if TYPE_CHECKING:
    import random

    from kcl_mld.fleet.fleet_member import AcquisitionSwitch, FleetMember
    from kcl_mld.fleet.fleet_state import FleetWatch
    from kcl_mld.fleet.leader_elector import LeaderElector
    from kcl_mld.fleet.leader_lock import LeaderLock
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.lease_store import LeaseStore

log = logging.getLogger("mld.fleet")

#: How often a stopped worker checks at most for leases that others hand over to it, and the seconds
#: between two checks.
LAST_LOOKS = 11
LAST_LOOK_PAUSE_S = 0.5
#: Mean seconds between two checks of the table itself. A worker that holds leases sees sooner that it
#: was deleted, and one that creates rows checks before.
TABLE_LOOK_S = 180.0


class LeaseCoordinator:
    """Store, renewer, elector and the two watches of one worker, and its way to get leases.

    The Scheduler runs :meth:`run` to the very end, because draining shards need heartbeats, and
    ``fleet.run()`` and ``table_watch.run()`` beside it: their errors
    (:class:`~kcl_mld.errors.UnservableFleet`, :class:`~kcl_mld.errors.ResourceMissing`) start a graceful
    stop.
    """

    def __init__(
        self,
        store: LeaseStore,
        renewer: LeaseRenewer,
        acquisition: AcquisitionSwitch,
        elector: LeaderElector,
        fleet: FleetWatch,
        table_watch: ExistenceWatch,
        member: FleetMember,
    ) -> None:
        self.store = store
        self.renewer = renewer
        self.acquisition = acquisition
        self.elector = elector
        self.fleet = fleet
        self.table_watch = table_watch
        self.member = member

    async def start(self) -> bool:
        """Set up the table, check that this worker can serve it, continue with rows that name it.

        Returns:
            True when the table was created here, so there are no leases yet.

        Raises:
            UnservableFleet: a 3.x fleet's table, or one of the other stream mode.
            ResourceMissing: the table doesn't become usable.
            AwsError: try again.
        """
        created = await self.store.table.ensure()
        scan = await self.store.scan()
        await self.fleet.check(self.member.prepare)
        self.member.follow()
        await self.renewer.adopt_own(scan.leases)
        return created

    @property
    def leadership(self) -> LeaderElector | LeaderLock:
        """The current way of leader election."""
        return self.member.leadership

    async def is_leader(self) -> bool:
        """Whether this worker does the fleet's common work.

        Raises:
            ResourceMissing: the table is not the one of the start: nothing may be created in it.
            AwsError: it is unknown whether it is.
        """
        if not await self.leadership.is_leader():
            return False
        await self.check_table()
        return True

    async def check_table(self) -> None:
        """Check that the table is the one of the start.

        Raises:
            ResourceMissing: it is not: nothing may be created in it.
            AwsError: it is unknown whether it is.
        """
        await self.table_watch.check()

    async def run(self) -> None:
        """Renew and get leases until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.renewer.heartbeat.run())
            group.create_task(self.acquisition.run())

    def leases_created(self) -> None:
        """There are new leases: start the next cycle now."""
        self.acquisition.wake()
        self.member.wake()

    def stop_taking(
        self, failure: BaseException | None = None, lease_key: str | None = None
    ) -> None:
        """Gain no more leases and give up the lead; renewals continue.

        Args:
            failure: why the worker stops by itself; None = on request.
            lease_key: of the lease whose child failed.
        """
        held = None if lease_key is None else self.renewer.get(lease_key)
        newcomer = self.store.holder.newcomer
        if failure is not None and newcomer is not None:
            newcomer.fail(lease_key)
        self.member.leave(failure, None if held is None else held.lease)
        self.acquisition.stop()
        self.renewer.stop_regaining()

    async def start_hand_offs(self) -> frozenset[str]:
        """After :meth:`stop_taking`: keys of held leases whose next owners know, or soon will.

        They are read for a while longer, then handed over; others are released.
        """
        return await self.member.start_hand_offs()

    async def last_look(self) -> None:
        """After all leases were released.

        Release those that were assigned to this worker meanwhile.

        There are none in a fleet whose leases are taken. Leases of another process with this
        worker's id are left to it.
        """
        if not self.member.is_assigned or self.member.may_have_twin:
            return
        for number in range(LAST_LOOKS):
            if number:
                await asyncio.sleep(LAST_LOOK_PAUSE_S)
            # Not cut short: a write that is cut off may be stored, and would not be counted.
            if await self._has_left():
                return

    async def _has_left(self) -> bool:
        """Check once; True when no other check is needed."""
        try:
            return not await self.renewer.release_left()
        except AwsError as error:
            log.debug("Could not look for leases that name this worker: %s", error)
            return isinstance(error, NotFound | Denied)

    async def settled(self) -> None:
        """After :meth:`stop_taking`: wait until the held leases are final."""
        await self.acquisition.settled()


def watch_table(
    store: LeaseStore,
    renewer: LeaseRenewer,
    conditions: Conditions,
    clock: Clock,
    rng: random.Random,
) -> ExistenceWatch:
    """The watch over the lease table: without it nothing is held, and every child is notified."""
    return ExistenceWatch(
        store.table.look,
        store.table_check_wanted,
        Reason.TABLE_DELETED,
        conditions,
        clock,
        rng,
        on_gone=renewer.lose_all,
        every_s=TABLE_LOOK_S,
    )
