"""Wires the lease services, for fleets of 2.x (leases are taken) and of 3.x (assigned)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
from kcl_mld.fleet.fleet_member import AcquisitionSwitch, FleetMember, FleetServices
from kcl_mld.fleet.fleet_state import FleetState, FleetWatch
from kcl_mld.fleet.leader_elector import LeaderElector
from kcl_mld.fleet.lease_coordinator import LeaseCoordinator, watch_table
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.fleet.rules.client_version import Mode
from kcl_mld.leases.holder import Holder
from kcl_mld.leases.lease_discoverer import LeaseDiscoverer
from kcl_mld.leases.lease_renewer import LeaseRenewer
from kcl_mld.leases.lease_scan import UnreadableRows
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.lease_taker import LeaseTaker
from kcl_mld.leases.newcomer import Newcomer
from kcl_mld.leases.rules.discovery import Informed
from kcl_mld.leases.rules.own_rows import OwnRows
from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Conditions, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.config.config import Config
    from kcl_mld.fleet.leader_lock import LeaderLock
    from kcl_mld.fleet.lease_assigner import LeaseAssigner
    from kcl_mld.fleet.model.worker_metrics import WorstLag
    from kcl_mld.fleet.own_process import OwnProcess
    from kcl_mld.fleet.twin_watch import TwinWatch
    from kcl_mld.fleet.worker_metrics import (
        FindLoad,
        WorkerMetricsReader,
        WorkerMetricsReporter,
    )
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_writes import FindNotes
    from kcl_mld.signals.runtime import Runtime
    from kcl_mld.streams.identified_stream import IdentifiedStream


class LeaseWiring:
    """The services of one worker's leases; :meth:`coordinator` joins them."""

    def __init__(  # noqa: PLR0913 - what surrounds it
        self,
        dynamodb: DynamoDb,
        config: Config,
        runtime: Runtime,
        conditions: Conditions,
        *,
        stream: IdentifiedStream | None,
        find_notes: FindNotes,
        is_read: Callable[[Lease], bool],
        find_load: FindLoad | None,
        find_worst_lag: Callable[[], WorstLag | None],
    ) -> None:
        """Create what every fleet needs.

        Args:
            stream: the only one; None = there are several.
            find_notes: what the lease's consumer adds to the holder's writes.
            is_read: which leases are taken, and count in elections.
            find_load: finds what measures this worker's load, for the leader of a 3.x fleet.
            find_worst_lag: which lease that is read is furthest behind, for ``explain``.
        """
        self._dynamodb = dynamodb
        self._config = config
        self._runtime = runtime
        self._conditions = conditions
        self._is_read = is_read
        self._find_load = find_load
        self._find_worst_lag = find_worst_lag
        worker, leases = config.worker_id, config.leases
        clock, rng, metrics = runtime.clock, runtime.rng, runtime.metrics
        unreadable = UnreadableRows(leases.table_name, conditions, clock, metrics)
        holder = Holder(
            stream=stream,
            find_notes=find_notes,
            newcomer=Newcomer(worker, runtime.ids.new_id(), clock),
            own_rows=OwnRows(worker, leases.failover_s),
        )
        self._store = LeaseStore(
            dynamodb,
            leases,
            clock,
            rng,
            unreadable,
            holder,
            is_multi_stream=stream is None or stream.stream.identifier is not None,
        )
        self._items = CoordinatorStateStore(dynamodb, Layout.of(config), runtime.ids, rng)
        self._state = FleetState(self._items, config.fleet, worker, clock, rng)
        self._renewer = LeaseRenewer(
            self._store, leases, worker, runtime, self._failing("renewing"), self._has_left
        )
        self._taking = self._failing("taking")
        self._elector = LeaderElector(self._store, worker, clock, is_read)
        strategies = {Mode.TAKES: self._taker, Mode.ASSIGNED: self._discoverer}
        self._switch = AcquisitionSwitch(strategies, Mode.TAKES)
        self._made_lock: LeaderLock | None = None
        self._watch = FleetWatch(self._store, self._state, clock, conditions, self._is_led)

    def coordinator(self) -> LeaseCoordinator:
        """The coordinator.

        Parts that only a 3.x fleet needs are created when its generation requires it.
        """
        clock, rng = self._runtime.clock, self._runtime.rng
        return LeaseCoordinator(
            self._store,
            self._renewer,
            self._switch,
            self._elector,
            self._watch,
            watch_table(self._store, self._renewer, self._conditions, clock, rng),
            FleetMember(
                self._state, self._switch, self._elector, self._services, self._write_throughput
            ),
        )

    def _failing(self, subject: str) -> FailingCondition:
        # Short, repeated outages cost leases just as well. The callers that meet them log them.
        failover_s = self._config.leases.failover_s
        return FailingCondition(
            Reason.LEASE_WRITES_FAIL,
            self._conditions,
            self._runtime.clock,
            subject,
            lasting_s=failover_s,
            calm_s=failover_s,
            is_logged=False,
        )

    async def _has_left(self, worker_id: str) -> bool:
        """By its metrics, which all workers have in a fleet whose leases are assigned."""
        is_assigned = self._state.behaviour.mode is Mode.ASSIGNED
        return is_assigned and not await self._items.has_metrics(worker_id)

    # -- how leases come --------------------------------------------------------------------------

    def _taker(self) -> LeaseTaker:
        config, runtime = self._config, self._runtime
        return LeaseTaker(
            self._store,
            self._renewer,
            config.leases,
            config.worker_id,
            runtime.clock,
            runtime.rng,
            runtime.metrics,
            self._is_read,
            failing=self._taking,
            conditions=self._conditions,
        )

    def _discoverer(self) -> LeaseDiscoverer:
        config, runtime = self._config, self._runtime
        return LeaseDiscoverer(
            self._store,
            self._renewer,
            config.leases,
            config.worker_id,
            runtime.clock,
            runtime.metrics,
            self._is_read,
            failing=self._taking,
            find_informed=self._informed,
        )

    def _informed(self) -> Informed:
        """How this worker learns, without a read of the table, that a lease was assigned to it."""
        return Informed.NO if self._made_lock is None else self._made_lock.informed

    def _look(self) -> None:
        """The leader has assigned leases, or this worker's role has changed."""
        if isinstance(self._switch.current, LeaseDiscoverer):
            self._switch.current.wake()
        if not self._is_led():
            self._watch.look_soon()

    def _is_led(self) -> bool:
        return self._informed() is Informed.ANNOUNCED

    def _expect(self, lease_key: str) -> None:
        if isinstance(self._switch.current, LeaseDiscoverer):
            self._switch.current.expect(lease_key)

    def _write_throughput(self, mode: Mode) -> None:
        self._renewer.write_throughput(is_written=mode is Mode.ASSIGNED)

    # -- a 3.x fleet: a fleet whose leases are taken needs none of these modules -------------------

    def _services(self) -> FleetServices:
        from kcl_mld.fleet.fleet_upgrade import (  # noqa: PLC0415
            IndexKeeper,
            MigrationReadyMonitor,
            TableMigrator,
        )
        from kcl_mld.fleet.standby_leader import StandbyLeader  # noqa: PLC0415
        from kcl_mld.fleet.worker_metrics import WorkerMetricsReader  # noqa: PLC0415

        fleet, worker, runtime = self._config.fleet, self._config.worker_id, self._runtime
        store, items, state = self._store, self._items, self._state
        metrics = WorkerMetricsReader(items, store, runtime.clock)
        assigner = self._assigner(metrics)
        process = self._process()
        twins = self._twins(process)
        reporter = self._reporter(metrics, assigner, process, twins)
        lock = self._lock(assigner, twins)
        index = IndexKeeper(store, lock, self._elector, state)
        ready = MigrationReadyMonitor(state, items, store, self._elector.is_leader, runtime.clock)
        standby = StandbyLeader(store, items, lock, assigner, worker, fleet, runtime)
        migrator = TableMigrator(state, items, store, lock, fleet, worker, runtime)
        return FleetServices(
            lock=lock,
            assigner=assigner,
            process=process,
            twins=twins,
            reporting=(reporter.run, index.run),
            upgrading=(ready.run,),
            assigning=(standby.run, migrator.run),
        )

    def _assigner(self, metrics: WorkerMetricsReader) -> LeaseAssigner:
        from kcl_mld.fleet.lease_assigner import LeaseAssigner  # noqa: PLC0415
        from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits  # noqa: PLC0415

        return LeaseAssigner(
            self._store,
            self._renewer,
            metrics,
            AssignmentLimits.of(self._config),
            self._config.worker_id,
            self._runtime,
            self._expect,
            self._is_read,
            conditions=self._conditions,
        )

    def _process(self) -> OwnProcess:
        from kcl_mld.fleet.own_process import OwnProcess  # noqa: PLC0415

        runtime, state = self._runtime, self._state
        return OwnProcess(
            self._items,
            self._config.worker_id,
            runtime.clock,
            runtime.ids,
            lambda: state.behaviour.mode is Mode.ASSIGNED,
        )

    def _reporter(
        self,
        metrics: WorkerMetricsReader,
        assigner: LeaseAssigner,
        process: OwnProcess,
        twins: TwinWatch,
    ) -> WorkerMetricsReporter:
        from kcl_mld.fleet.worker_metrics import WorkerMetricsReporter  # noqa: PLC0415

        def on_first() -> None:
            assigner.wake()
            if self._made_lock is not None:
                self._made_lock.call_leader()

        return WorkerMetricsReporter(
            self._items,
            self._config.fleet,
            self._config.worker_id,
            self._runtime,
            find_load=self._find_load,
            others=metrics,
            conditions=self._conditions,
            on_first=on_first,
            failover_s=self._config.leases.failover_s,
            lapses=self._renewer.lapses,
            find_most=self._renewer.heartbeat.report.most_renewable,
            find_worst_lag=self._find_worst_lag,
            process=process,
            twins=twins,
        )

    def _twins(self, process: OwnProcess) -> TwinWatch:
        from kcl_mld.fleet.rules.assignment.fleet import REPORTS_MISSED  # noqa: PLC0415
        from kcl_mld.fleet.twin_watch import TwinWatch  # noqa: PLC0415

        return TwinWatch(
            self._items,
            self._config.worker_id,
            process.instance,
            REPORTS_MISSED * self._config.fleet.report_s,
            self._runtime.clock,
            self._renewer,
            self._conditions,
        )

    def _lock(self, assigner: LeaseAssigner, twins: TwinWatch) -> LeaderLock:
        from kcl_mld.fleet.leader_lock import LeaderLock  # noqa: PLC0415
        from kcl_mld.fleet.lock_store import LockStore  # noqa: PLC0415
        from kcl_mld.fleet.rules.leader_lock import LockTiming  # noqa: PLC0415

        fleet, store, items = self._config.fleet, self._store, self._items

        async def confirm_place() -> None:
            if not items.layout.is_single_table:
                await self._state.look()

        def scanned() -> TableScan | None:
            return store.last_scan if items.layout.lock == items.layout.leases else None

        self._made_lock = LeaderLock(
            LockStore(self._dynamodb),
            lambda: items.layout.lock,
            self._config.worker_id,
            LockTiming(
                fleet.lock_duration_s, fleet.lock_heartbeat_s, self._config.leases.failover_s
            ),
            self._runtime,
            on_gain=assigner.lead,
            on_loss=self._renewer.lapses.wake,
            confirm_place=confirm_place,
            scanned=scanned,
            may_lead=lambda: not twins.stands_aside,
            on_call=assigner.wake,
            on_news=self._look,
            conditions=self._conditions,
        )
        return self._made_lock
