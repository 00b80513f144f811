"""One worker of ours: the production composition root on simulated ports."""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kcl_mld.config.config import (
    AwsConfig,
    ChildConfig,
    ChildConfirms,
    ChildFailurePolicy,
    Config,
    LeaseConfig,
    MetricsConfig,
    RetrievalConfig,
    RetrievalMode,
    ShardConfig,
    StreamConfig,
)
from kcl_mld.config.contain_config import ContainConfig
from kcl_mld.config.credentials import CredentialChain
from kcl_mld.config.fleet import ClientVersionConfig, FleetConfig
from kcl_mld.config.stream import Stream
from kcl_mld.config.stream_list import FormerPolicy, FormerStrategy, ListedStream, StreamList
from kcl_mld.config.stream_selection import NamePattern, StreamSelection
from kcl_mld.errors import LetterRefused, MldError
from kcl_mld.fleet.leader_lock import LeaderLock
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel
from tests.fakes.app_ports import ports_with
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.fake_kinesis import FakeKinesis
from tests.sim.children import SimChildren
from tests.sim.gate import Gate, drive
from tests.sim.loop import OWNER, TaskOwner
from tests.sim.ports import EPOCH_S, InlineOffload, SimClock, SimIds, ThroughGate
from tests.sim.stream import STREAM
from tests.sim.table_stream import ARN, NAME, SimTableStream, port_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld import app
    from kcl_mld.app.scheduler import StopOutcome
    from tests.sim.children import Manners
    from tests.sim.fleet import Fleet
    from tests.sim.plan import Plan

TABLE = "app"
_DELETED = FormerPolicy(strategy=FormerStrategy.AUTO_DETECTION, wait_s=60.0)


def config_of(plan: Plan, worker_id: str, number: int = 0, streams: Sequence[str] = ()) -> Config:
    """What a worker of this plan is told.

    Args:
        plan: of the run.
        worker_id: its own.
        number: the n-th may get its records another way.
        streams: names; () = the single one.
    """
    is_pushed = plan.fan_out[number % len(plan.fan_out)]
    mode = RetrievalMode.FANOUT if is_pushed else RetrievalMode.POLLING
    is_at_time = plan.start is Sentinel.AT_TIMESTAMP
    position = InitialPosition(plan.start, EPOCH_S - 3600 if is_at_time else None)
    policy = ChildFailurePolicy.RESTART if plan.restart_children else ChildFailurePolicy.EXIT
    if plan.sets_aside:
        policy = ChildFailurePolicy.DEADLETTER
    shards = ShardConfig(parent_poll_s=2.0, audit_initial_delay_s=20.0, audit_interval_s=20.0)
    if plan.cleanup_fast:
        shards = ShardConfig(
            parent_poll_s=2.0,
            audit_initial_delay_s=10.0,
            audit_interval_s=10.0,
            cleanup_interval_s=5.0,
            completed_cleanup_s=10.0,
            garbage_cleanup_s=30.0,
        )
    retrieval = RetrievalConfig(mode=mode, idle_s=1.5, max_records=plan.max_records)
    if plan.budget_bytes is not None:
        retrieval = replace(retrieval, memory_budget_bytes=plan.budget_bytes)
    stream = stream_of(plan)
    return Config(
        application_name=TABLE,
        worker_id=worker_id,
        stream=StreamConfig(
            name=stream.name, arn=stream.arn, region="us-east-1", initial_position=position
        ),
        aws=AwsConfig(kinesis_credentials=CredentialChain(())),
        leases=LeaseConfig(table_name=TABLE, failover_s=plan.failover_s),
        fleet=FleetConfig(
            client_version=ClientVersionConfig.UNSAID
            if plan.is_assigned
            else ClientVersionConfig.STAY_2X
        ),
        child=ChildConfig(
            argv=("child",),
            answer_timeout_s=plan.answer_timeout_s,
            failure_policy=policy,
            restart_attempts=2 if plan.sets_aside else 1000,
            per_shard=plan.children[number % len(plan.children)],
            confirms=ChildConfirms.STATUS if plan.answers_confirm else ChildConfirms.CHECKPOINT,
        ),
        contain=ContainConfig(destination="file:x", limit=1000) if plan.sets_aside else None,
        shards=shards,
        retrieval=retrieval,
        metrics=MetricsConfig(level="NONE"),
        shutdown_grace_s=plan.grace_s,
        streams=StreamList(
            streams=() if plan.discovers else tuple(map(ListedStream, streams)),
            selection=StreamSelection(names=NamePattern.parse("*")) if plan.discovers else None,
            former=_DELETED if plan.discovers and plan.deletes_former else FormerPolicy(),
            discovery_interval_s=10.0,
            orphan_position=position,
        )
        if streams
        else None,
    )


def stream_of(plan: Plan) -> Stream:
    """The single stream of a plan."""
    return Stream(STREAM) if plan.table_stream is None else Stream(NAME, ARN)


class SimLetters:
    """A destination of dead letters that is slow, and full now and then."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """See :class:`kcl_mld.children.ports.LetterStore`; it may be kept although no answer comes."""
        node, luck = self._node, random.Random(f"{letter_id} {self._node.fleet.now()}")
        await node.gate.passable()
        await asyncio.sleep(luck.uniform(0, 1))
        await node.gate.passable()
        if luck.random() < 0.3:
            raise LetterRefused("no space left")
        node.fleet.judges.children.set_aside(node.worker_id, json.loads(document))
        if luck.random() < 0.2:
            raise LetterRefused("no answer")
        assert shard_id


class Node(TaskOwner):
    """One process, from its start to its end."""

    def __init__(self, fleet: Fleet, worker_id: str, rng: random.Random, number: int = 0) -> None:
        super().__init__()
        self.fleet = fleet
        self.worker_id = worker_id
        self._number = number  # of the process: ids are unique, whatever it is called
        self.config = config_of(fleet.plan, worker_id, number, fleet.listed)
        if fleet.operations is not None:
            self.config = replace(self.config, fleet=fleet.operations.fleet_config)
        self.gate = Gate(rng)
        self.worker: Any = None
        self.outcome: StopOutcome | None = None
        self.error: BaseException | None = None
        self.ended = asyncio.Event()
        self.started_s = fleet.now()
        self.stop_asked_s: float | None = None
        # The leader of a 3.x fleet believes in workers whose metrics are a minute old, by their clocks.
        most_s = 20 if fleet.plan.has_leader_by_lock else 100
        skew_s = rng.uniform(-most_s, most_s) if fleet.plan.clock_skew else 0.0
        rate = rng.uniform(0.99, 1.01) if fleet.plan.clock_skew else 1.0
        # Those of before go by their wall clocks alone.
        knows = random.Random(f"time of the service {fleet.plan.seed} {worker_id}").random() < 0.5
        self.clock = SimClock(fleet.now, skew_s, rate, rng.uniform(0, 1e5), knows_service=knows)
        #: Of its children; None = those of the whole fleet.
        self.manners: Manners | None = None
        self.children = SimChildren(
            worker_id, self.gate, rng, lambda: self.manners or fleet.manners, fleet.judges
        )
        self._rng = rng
        self._task: asyncio.Task[None] | None = None
        self._context = contextvars.Context()
        self._frozen_at_s = 0.0

    @property
    def alive(self) -> bool:
        """Whether the process exists."""
        return not self.gate.dead and not self.ended.is_set()

    def believes(self) -> tuple[str, ...]:
        """Lease keys that it believes to hold now."""
        if not self.alive or self.worker is None:
            return ()
        return tuple(held.lease.lease_key for held in self.worker.coordinator.renewer.held())

    def leads(self) -> bool:
        """Whether it believes to have the leader lock."""
        if not self.alive or self.worker is None:
            return False
        lock = self.worker.coordinator.leadership
        return isinstance(lock, LeaderLock) and bool(drive(lock.is_leader()))

    def _sent(self, request: dict[str, Any]) -> None:
        judges, table = self.fleet.judges, str(request.get("TableName", TABLE))
        judges.beliefs.sent(self.worker_id, request)
        is_starting = self.worker is None or self.worker.scheduler.state == "starting"
        judges.fleet.sent(self.worker_id, table, is_starting=is_starting)

    def start(self) -> None:
        """Let it run."""
        self.fleet.trace.add(self.worker_id, "START")
        self.fleet.court.began_s[self.worker_id] = self.fleet.now()
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, self)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._main(), context=self._context)

    def _ports(self) -> app.Ports:
        fleet = self.fleet

        def entered() -> None:
            fleet.court.actor = self.worker_id

        leases = self.config.leases
        return ports_with(
            dynamodb=ThroughGate(
                "dynamodb",
                FakeDynamoDb(fleet.dynamodb),
                self.gate,
                leases.request_timeout_s,
                entered,
                sent=self._sent,
            ),
            kinesis=self._kinesis(),
            cloudwatch=None,
            children=self.children,
            letters=SimLetters(self) if fleet.plan.sets_aside else None,
            clock=self.clock,
            ids=SimIds(f"{self.worker_id} {self._number}"),
            rng=self._rng,
            pid=1,
            offload=InlineOffload(self._rng),
        )

    def _kinesis(self) -> Any:
        stream, timeout_s = self.fleet.stream, self.config.retrieval.request_timeout_s
        if not isinstance(stream, SimTableStream):
            return ThroughGate("kinesis", FakeKinesis(stream.model), self.gate, timeout_s)
        return port_of(
            stream,
            self.worker_id,
            self.gate,
            timeout_s=timeout_s,
            patience_s=2 * self.config.shards.audit_interval_s,
            monotonic=self.clock.monotonic,
        )

    async def _main(self) -> None:
        try:
            stream = None if self.config.streams else stream_of(self.fleet.plan)
            self.worker = self.fleet.build(self.config, self._ports(), stream)
            self.outcome = await self.worker.run()
        except asyncio.CancelledError:
            if not self.gate.dead:
                self.fleet.court.convict("S0", f"{self.worker_id} was cancelled by itself")
        except MldError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001 - the verdict on it
            self.error = error
            self.fleet.court.convict("S0", f"{self.worker_id} died of {error!r}")
        finally:
            what = self.error or self.outcome
            self.fleet.trace.add(self.worker_id, f"END {str(what)[:100]}")
            self.ended.set()

    async def check_clean(self) -> None:
        """S7, once it has ended."""
        for _round in range(5):
            await asyncio.sleep(0)
        left = [task.get_name() for task in self.running()]
        if left:
            self.fleet.court.convict("S7", f"{self.worker_id} left tasks behind: {left}")
        for child in self.children.running():
            self.fleet.court.convict("S7", f"{self.worker_id} left the child of {child.shard_id}")

    def stop(self) -> None:
        """SIGTERM; a process that stands still hears of it when it goes on."""
        asyncio.get_running_loop().call_soon(self._on_sigterm, context=self._context)

    def _on_sigterm(self) -> None:
        if self.stop_asked_s is None and self.worker is not None and self.alive:
            self.stop_asked_s = self.fleet.now()
            self.fleet.trace.add(self.worker_id, "SIGTERM")
            self.worker.scheduler.stop()

    def freeze(self) -> None:
        """SIGSTOP."""
        if not self.frozen:
            self._frozen_at_s = self.fleet.now()
        super().freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        if self.frozen and self.stop_asked_s is not None:
            self.stop_asked_s += self.fleet.now() - self._frozen_at_s  # it could do nothing
        super().thaw()

    async def kill(self) -> None:
        """SIGKILL; the guardian ends the children."""
        self.fleet.trace.add(self.worker_id, "KILL")
        self.gate.kill()
        self.thaw()
        self.children.kill_all()
        for _round in range(100):
            left = self.running()
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.sleep(0)
        else:
            names = [task.get_name() for task in self.running()]
            self.fleet.court.convict("S7", f"{self.worker_id} swallows cancellation in {names}")
        self.children.kill_all()
        self.ended.set()
