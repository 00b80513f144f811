"""A lease table with workers on it, in virtual time, for tests of the lease services."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, cast

from kcl_mld.config.config import LeaseConfig
from kcl_mld.config.fleet import ClientVersionConfig, FleetConfig
from kcl_mld.config.stream import Stream
from kcl_mld.errors import Throttled, UnknownOutcome, Unreachable
from kcl_mld.fleet.coordinator_state import CoordinatorStateStore
from kcl_mld.fleet.fleet_member import AcquisitionSwitch, FleetMember
from kcl_mld.fleet.fleet_state import FleetState, FleetWatch
from kcl_mld.fleet.leader_elector import LeaderElector
from kcl_mld.fleet.lease_coordinator import LeaseCoordinator, watch_table
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.fleet.own_process import OwnProcess
from kcl_mld.fleet.rules.client_version import Mode
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.leases.holder import Holder
from kcl_mld.leases.lease_renewer import LeaseRenewer
from kcl_mld.leases.lease_scan import UnreadableRows
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.lease_taker import LeaseTaker
from kcl_mld.leases.model.lease import Lease
from kcl_mld.leases.model.lease_item import lease_to_item
from kcl_mld.leases.model.owner_index import index_creation
from kcl_mld.leases.rules.own_rows import OwnRows
from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.ports import Metrics
from kcl_mld.signals.runtime import Runtime
from kcl_mld.streams.identified_stream import IdentifiedStream
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.sim.loop import run

if TYPE_CHECKING:
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.newcomer import Newcomer

TABLE = "app"
Match = Callable[[str, Mapping[str, Any]], bool]


async def nobody_has_left(_worker_id: str) -> bool:
    """No worker is known to have left the fleet."""
    return False


def every(_lease: Lease) -> bool:
    """Accepts all leases of the table."""
    return True


def load_nothing() -> None:
    """A new fleet needs nothing that is not loaded."""


class CountingMetrics(Metrics):
    """Keeps every value by (operation, name)."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[float]] = {}

    def add(self, metric, value, *, shard_id=None, stream_id=None) -> None:
        self.values.setdefault((metric.operation, metric.name), []).append(value)

    def total(self, operation: str, name: str) -> float:
        return sum(self.values.get((operation, name), ()))


class _OnTheSpot:
    """An Offload that does the work at once."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


@dataclass
class Fault:
    """Something that happens to the next matching requests."""

    kind: str
    operation: str
    times: float = 1
    seconds: float = 0.0
    worker: str | None = None
    error: Exception | None = None


class TakingWorker(LeaseCoordinator):
    """A worker whose taker can be made to take now."""

    @property
    def taker(self) -> LeaseTaker:
        return cast("LeaseTaker", self.acquisition.current)


@dataclass
class World:
    """One table; workers are made by :meth:`worker`."""

    config: LeaseConfig = field(default_factory=lambda: LeaseConfig(table_name=TABLE))
    stream: Stream = field(default_factory=lambda: Stream("s"))
    clock: Clock = field(default_factory=LoopClock)

    def __post_init__(self) -> None:
        self.model = DynamoDbModel(self.clock.wall)
        self.metrics = CountingMetrics()
        self.conditions = Conditions()
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str, Mapping[str, Any]]] = []
        self._processes = 0

    # -- the table --------------------------------------------------------------------------------

    def create_table(self) -> None:
        create_table(self.model, TABLE, "leaseKey")

    def create_index(self) -> None:
        """The index of 3.x fleets."""
        table = self.model.call("DescribeTable", {"TableName": TABLE})["Table"]
        self.model.call("UpdateTable", {"TableName": TABLE, **index_creation(table)})

    def delete_table(self) -> None:
        self.model.call("DeleteTable", {"TableName": TABLE})

    def put(self, *leases: Lease, **extra: Any) -> None:
        for lease in leases:
            self.put_item({**lease_to_item(lease), **extra})

    def put_item(self, item: Mapping[str, Any]) -> None:
        self.model.call("PutItem", {"TableName": TABLE, "Item": dict(item)})

    def row(self, key: str) -> dict[str, Any]:
        answer = self.model.call(
            "GetItem",
            {"TableName": TABLE, "Key": {"leaseKey": {"S": key}}, "ConsistentRead": True},
        )
        return dict(answer.get("Item", {}))

    def change(self, key: str, **attributes: Any) -> None:
        """Set attributes of a row behind everybody's back; None removes one."""
        item = self.row(key)
        for name, value in attributes.items():
            item.pop(name, None)
            if value is not None:
                item[name] = {"N": str(value)} if isinstance(value, int) else {"S": value}
        self.put_item(item)

    def owners(self) -> dict[str, str | None]:
        return {
            item["leaseKey"]["S"]: item.get("leaseOwner", {}).get("S")
            for item in self.model.items(TABLE)
            if "leaseCounter" in item
        }

    # -- workers ----------------------------------------------------------------------------------

    def dynamodb(self, worker: str) -> FakeDynamoDb:
        async def before(_service: str, operation: str, request: Mapping[str, Any]) -> None:
            self.requests.append((worker, operation, request))
            await self._strike(("slow", "throttle", "refuse", "lose request"), worker, operation)

        async def after(_service: str, operation: str, request: Mapping[str, Any]) -> None:
            await self._strike(("slow answer", "lose answer"), worker, operation)

        return FakeDynamoDb(self.model, before=before, after=after)

    def store(self, worker: str = "me") -> LeaseStore:
        holder = Holder(stream=IdentifiedStream(self.stream))
        rng = random.Random(worker)
        return LeaseStore(self.dynamodb(worker), self.config, self.clock, rng, holder=holder)

    def runtime(self, worker: str, seed: int = 0) -> Runtime:
        """Clock, chance, ids and metrics of a worker; long computations happen on the spot."""
        return Runtime(
            clock=self.clock,
            rng=random.Random(f"{worker} {seed}"),
            ids=CountingIds(worker),
            metrics=self.metrics,
            offload=_OnTheSpot(),
        )

    def fleet_items(self, worker: str) -> CoordinatorStateStore:
        """What the fleet has beside its leases, as a worker reads and writes it."""
        names = Layout.named(TABLE)
        return CoordinatorStateStore(
            self.dynamodb(worker), names, CountingIds(worker), random.Random(worker)
        )

    def own_process(
        self, worker: str, items: CoordinatorStateStore | None = None, *, is_assigned: bool = True
    ) -> OwnProcess:
        """A process of a worker, which notes how it ends."""
        where = items or self.fleet_items(worker)
        self._processes += 1
        ids = CountingIds(f"process {self._processes} of {worker}")
        return OwnProcess(where, worker, self.clock, ids, lambda: is_assigned)

    def fleet_state(self, worker: str, seed: int = 0, **how: Any) -> FleetState:
        """What a worker knows of its fleet."""
        config = how.pop("config", FleetConfig())
        rng = random.Random(f"{worker} {seed}")
        items = how.pop("items", None) or self.fleet_items(worker)
        return FleetState(items, config, worker, self.clock, rng, **how)

    def failing(self) -> FailingCondition:
        """Reports to nobody whether the leases of a worker can be written."""
        return FailingCondition(Reason.LEASE_WRITES_FAIL, Conditions(), self.clock, is_logged=False)

    def worker(
        self,
        worker: str,
        seed: int = 0,
        twins: Conditions | None = None,
        has_left: Callable[[str], Awaitable[bool]] = nobody_has_left,
        newcomer: Newcomer | None = None,
    ) -> TakingWorker:
        """A worker of a 2.x fleet; ``twins`` = where it alone says that another one has its id."""
        dynamodb = self.dynamodb(worker)
        runtime = self.runtime(worker, seed)
        rng = runtime.rng
        unreadable = UnreadableRows(TABLE, self.conditions, self.clock, self.metrics)
        store = LeaseStore(
            dynamodb,
            self.config,
            self.clock,
            rng,
            unreadable,
            Holder(
                stream=IdentifiedStream(self.stream),
                newcomer=newcomer,
                own_rows=OwnRows(worker, self.config.failover_s),
            ),
            is_multi_stream=self.stream.identifier is not None,
        )
        renewer = LeaseRenewer(store, self.config, worker, runtime, self.failing(), has_left)
        state = self.fleet_state(
            worker, seed, config=FleetConfig(client_version=ClientVersionConfig.STAY_2X)
        )
        elector = LeaderElector(store, worker, self.clock, every)

        def taker() -> LeaseTaker:
            return LeaseTaker(
                store,
                renewer,
                self.config,
                worker,
                self.clock,
                rng,
                self.metrics,
                every,
                failing=self.failing(),
                conditions=twins or self.conditions,
            )

        switch = AcquisitionSwitch({Mode.TAKES: taker}, Mode.TAKES)
        return TakingWorker(
            store,
            renewer,
            switch,
            elector,
            FleetWatch(store, state, self.clock, self.conditions, lambda: False),
            watch_table(store, renewer, self.conditions, self.clock, rng),
            FleetMember(state, switch, elector, _no_services, lambda _mode: None),
        )

    def fault(self, kind: str, operation: str = "UpdateItem", **details: Any) -> None:
        """Arrange a fault.

        ``slow`` and ``slow answer`` wait ``seconds`` before or after the effect; ``throttle`` and
        ``refuse`` mean no effect; ``lose request`` and ``lose answer`` are unknown outcomes
        without and with an effect; ``error`` is raised instead where given.
        """
        self.faults.append(Fault(kind, operation, **details))

    async def _strike(self, kinds: tuple[str, ...], worker: str, operation: str) -> None:
        for fault in list(self.faults):
            if fault.kind not in kinds or fault.operation not in (operation, "*"):
                continue
            if fault.worker not in (None, worker) or fault.times <= 0:
                continue
            fault.times -= 1
            if fault.seconds:
                await asyncio.sleep(fault.seconds)
            error = fault.error or _ERRORS.get(fault.kind)
            if error is not None:
                raise error.with_traceback(None)  # one object, raised often
            return


def _no_services() -> NoReturn:
    raise AssertionError("a fleet of 2.x assigns nothing")


_ERRORS: dict[str, Exception] = {
    "throttle": Throttled("UpdateItem", "ProvisionedThroughputExceededException"),
    "refuse": Unreachable("UpdateItem", "ConnectTimeoutError"),
    "lose request": UnknownOutcome("UpdateItem", "ReadTimeoutError"),
    "lose answer": UnknownOutcome("UpdateItem", "ReadTimeoutError"),
}


def lease(number: int = 0, **fields: Any) -> Lease:
    """An ordinary new lease; ``number`` gives its shard id and hash range."""
    shard_id = f"shardId-{number:012d}"
    defaults: dict[str, Any] = {
        "lease_key": shard_id,
        "shard_id": shard_id,
        "checkpoint": TRIM_HORIZON,
        "hash_range": HashRange(number * 100, number * 100 + 99),
    }
    return Lease(**(defaults | fields))


def create_table(model: DynamoDbModel, name: str, key: str) -> None:
    """A table whose primary key is a text."""
    model.call(
        "CreateTable",
        {
            "TableName": name,
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )


def on_table_with(*make: Callable[[World], Any]) -> Callable[..., None]:
    """What runs ``test(world, *made)`` on a table with rows, in virtual time.

    Args:
        make: makes an argument from the world.
    """

    def on_table(test: Callable[..., Any], *rows: Lease, config: Any = None) -> None:
        async def main() -> None:
            world = World(config=config) if config else World()
            world.create_table()
            world.put(*rows)
            await test(world, *(each(world) for each in make))

        run(main())

    return on_table
