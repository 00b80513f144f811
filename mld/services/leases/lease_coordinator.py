"""Everything about leases in one place: wiring, start, the two loops, the end of taking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mld.decide.fleet.client_version import Mode
from mld.decide.readiness import Reason
from mld.services.conditions import FailingCondition
from mld.services.fleet.acquisition_switch import AcquisitionSwitch
from mld.services.fleet.coordinator_state import CoordinatorStateStore
from mld.services.fleet.fleet_member import FleetMember
from mld.services.fleet.fleet_state import FleetState
from mld.services.leases.fleet_watch import FleetWatch
from mld.services.leases.leader_elector import LeaderElector
from mld.services.leases.lease_discoverer import LeaseDiscoverer
from mld.services.leases.lease_renewer import LeaseRenewer
from mld.services.leases.lease_scan import UnreadableRows, every
from mld.services.leases.lease_store import LeaseStore
from mld.services.leases.lease_taker import LeaseTaker
from mld.services.presence_watch import PresenceWatch

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mld.model.config.config import Config
    from mld.model.leases.lease import Lease
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import Clock
    from mld.services.conditions import Conditions
    from mld.services.fleet.fleet_member import FleetParts
    from mld.services.fleet.leadership import Leadership
    from mld.services.fleet.worker_metrics_reporter import FindLoad
    from mld.services.leases.lease_acquisition import LeaseAcquisition
    from mld.services.runtime import Runtime


class LeaseCoordinator:
    """Store, renewer, elector and the two watches of one worker, and how it gets its leases.

    The Scheduler runs :meth:`run` to the very end, because draining shards need heartbeats, and
    ``fleet.run()`` and ``table_watch.run()`` beside it: what they raise
    (:class:`~mld.errors.UnservableFleet`, :class:`~mld.errors.ResourceMissing`) begins a graceful
    stop.
    """

    def __init__(
        self,
        store: LeaseStore,
        renewer: LeaseRenewer,
        acquisition: LeaseAcquisition,
        elector: LeaderElector,
        fleet: FleetWatch,
        table_watch: PresenceWatch,
        member: FleetMember | None = None,
    ) -> None:
        """Join the parts; see :meth:`wire`. Without a member the generation never changes."""
        self.store = store
        self.renewer = renewer
        self.acquisition = acquisition
        self.elector = elector
        self.fleet = fleet
        self.table_watch = table_watch
        self.member = member

    @classmethod
    def wire(
        cls,
        dynamodb: DynamoDb,
        config: Config,
        runtime: Runtime,
        conditions: Conditions,
        *,
        is_multi_stream: bool = False,
        is_read: Callable[[Lease], bool] = every,
        find_load: FindLoad | None = None,
    ) -> LeaseCoordinator:
        """Build all parts, for fleets whose workers take leases and for such that assign them.

        Args:
            dynamodb: where the table is.
            config: the effective configuration.
            runtime: clock, chance, ids, metrics.
            conditions: for ``/readyz``.
            is_multi_stream: lease keys name their stream.
            is_read: which leases are taken, and count in elections.
            find_load: finds what measures this worker's load, for the leader of a 3.x fleet.
        """
        worker, leases = config.worker_id, config.leases
        clock, rng, metrics = runtime.clock, runtime.rng, runtime.metrics
        unreadable = UnreadableRows(leases.table_name, conditions, clock, metrics)
        store = LeaseStore(dynamodb, leases, clock, unreadable, is_multi_stream=is_multi_stream)

        def failing(subject: str) -> FailingCondition:
            # What comes and goes costs leases just as well. Those who meet it log it.
            return FailingCondition(
                Reason.LEASE_WRITES_FAIL,
                conditions,
                clock,
                subject,
                lasting_s=leases.failover_s,
                calm_s=leases.failover_s,
                is_logged=False,
            )

        renewer = LeaseRenewer(
            store, leases, worker, clock, rng, runtime.ids, metrics, failing("renewing")
        )
        taking = failing("taking")
        elector = LeaderElector(store, worker, clock, is_read)
        layout = config.fleet.layout(config.application_name, leases.table_name)
        items = CoordinatorStateStore(dynamodb, layout, runtime.ids)
        state = FleetState(items, config.fleet, worker, clock, rng)

        def taker() -> LeaseAcquisition:
            made = LeaseTaker(store, renewer, leases, worker, clock, rng, metrics, is_read)
            made.failing = taking
            return made

        def discoverer() -> LeaseAcquisition:
            made = LeaseDiscoverer(store, renewer, leases, worker, clock, metrics, is_read)
            made.failing = taking
            return made

        def expect(lease_key: str) -> None:
            if isinstance(switch.current, LeaseDiscoverer):
                switch.current.expect(lease_key)

        def tell_throughput(mode: Mode) -> None:
            renewer.tell_throughput(is_told=mode is Mode.ASSIGNED)

        strategies = {Mode.TAKES: taker, Mode.ASSIGNED: discoverer}
        switch = AcquisitionSwitch(strategies, Mode.TAKES)

        def parts() -> FleetParts:
            # A fleet whose leases are taken needs none of these modules.
            from mld.services.fleet.fleet_wiring import FleetNeeds, fleet_parts  # noqa: PLC0415

            needs = FleetNeeds(
                dynamodb=dynamodb,
                config=config,
                runtime=runtime,
                store=store,
                renewer=renewer,
                items=items,
                state=state,
                elected=elector,
                expect=expect,
                is_read=is_read,
                find_load=find_load,
                conditions=conditions,
            )
            return fleet_parts(needs)

        return cls(
            store,
            renewer,
            switch,
            elector,
            FleetWatch(store, state, clock, conditions),
            watch_table(store, renewer, conditions, clock, rng),
            FleetMember(state, switch, elector, parts, tell_throughput),
        )

    async def start(self) -> bool:
        """Make the table usable, see that we may serve it, go on with rows that name us.

        Returns:
            True when the table was created here, so there are no leases yet.

        Raises:
            UnservableFleet: a 3.x fleet's table, or one of the other stream mode.
            ResourceMissing: the table doesn't become usable.
            AwsError: try again.
        """
        created = await self.store.ensure_table()
        scan = await self.store.scan()
        await self.fleet.check()
        if self.member is not None:
            self.member.follow()
        await self.renewer.adopt_own(scan.leases)
        return created

    @property
    def leadership(self) -> Leadership:
        """Who leads the fleet, and how that is settled now."""
        return self.elector if self.member is None else self.member.leadership

    async def is_leader(self) -> bool:
        """Whether this worker does the fleet's common chores.

        Raises:
            ResourceMissing: the table is not the one of the start: nothing may be created in it.
            AwsError: it is not known whether it is.
        """
        if not await self.leadership.is_leader():
            return False
        await self.check_table()
        return True

    async def check_table(self) -> None:
        """Return if the table is the one of the start.

        Raises:
            ResourceMissing: it is not: nothing may be created in it.
            AwsError: it is not known whether it is.
        """
        await self.table_watch.check()

    async def run(self) -> None:
        """Renew and get leases until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.renewer.run())
            group.create_task(self.acquisition.run())

    def leases_created(self) -> None:
        """There are new leases: look for them now."""
        self.acquisition.wake()
        if self.member is not None:
            self.member.wake()

    def stop_taking(self) -> None:
        """From now on the number of held leases only falls, and others lead; renewals go on."""
        if self.member is not None:
            self.member.leave()
        self.acquisition.stop()
        self.renewer.stop_regaining()

    async def name_successors(self) -> frozenset[str]:
        """After :meth:`stop_taking`: keys of held leases whose next owners know, or soon will.

        They are read on for a while, then handed over; others are released.
        """
        return frozenset() if self.member is None else await self.member.name_successors()

    async def settled(self) -> None:
        """After :meth:`stop_taking`: wait until it is known what is held."""
        await self.acquisition.settled()


def watch_table(
    store: LeaseStore,
    renewer: LeaseRenewer,
    conditions: Conditions,
    clock: Clock,
    rng: random.Random,
) -> PresenceWatch:
    """The watch over the lease table: without it nothing is held, and every child is told so."""
    return PresenceWatch(
        store.look_at_table,
        store.table_doubted,
        Reason.TABLE_DELETED,
        conditions,
        clock,
        rng,
        on_gone=renewer.lose_all,
    )
