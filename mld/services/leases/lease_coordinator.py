"""Everything about leases in one place: wiring, start, the two loops, the end of taking."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from mld.services.leases.fleet_watch import FleetWatch
from mld.services.leases.leader_elector import LeaderElector
from mld.services.leases.lease_renewer import LeaseRenewer
from mld.services.leases.lease_store import LeaseStore
from mld.services.leases.lease_taker import LeaseTaker

if TYPE_CHECKING:
    import random

    from mld.model.config import Config
    from mld.model.stream import Stream
    from mld.ports.aws import DynamoDb
    from mld.ports.clock import Clock, IdSource
    from mld.ports.metrics import Metrics
    from mld.services.leases.lease_scan import TableScan


class LeaseCoordinator:
    """Store, renewer, taker, elector and fleet watch of one worker.

    The Scheduler runs :meth:`run` to the very end, because draining shards need heartbeats, and
    ``fleet.run()`` beside it, whose :class:`~mld.errors.UnservableFleet` begins a graceful stop.
    """

    def __init__(
        self,
        store: LeaseStore,
        renewer: LeaseRenewer,
        taker: LeaseTaker,
        elector: LeaderElector,
        fleet: FleetWatch,
    ) -> None:
        """Join the parts; see :meth:`wire`."""
        self.store = store
        self.renewer = renewer
        self.taker = taker
        self.elector = elector
        self.fleet = fleet

    @classmethod
    def wire(
        cls,
        dynamodb: DynamoDb,
        config: Config,
        stream: Stream,
        clock: Clock,
        rng: random.Random,
        ids: IdSource,
        metrics: Metrics,
    ) -> LeaseCoordinator:
        """Build all parts for a worker."""
        worker, leases = config.worker_id, config.leases
        store = LeaseStore(dynamodb, leases, stream, clock)
        renewer = LeaseRenewer(store, leases, worker, clock, rng, ids, metrics)
        return cls(
            store,
            renewer,
            LeaseTaker(store, renewer, leases, worker, clock, rng, metrics),
            LeaderElector(store, worker, clock),
            FleetWatch(
                dynamodb, store, config.application_name, clock, config.client_version_config
            ),
        )

    @property
    def last_scan(self) -> TableScan | None:
        """The latest scan of the lease table, whoever asked for it."""
        return self.store.last_scan

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
        await self.renewer.adopt_own(scan.leases)
        return created

    async def run(self) -> None:
        """Renew and take until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.renewer.run())
            group.create_task(self.taker.run())

    def stop_taking(self) -> None:
        """From now on the number of held leases only falls; renewals go on."""
        self.taker.stop()
        self.renewer.stop_adding()

    async def settled(self) -> None:
        """After :meth:`stop_taking`: wait until it is known what is held."""
        await self.taker.settled()
