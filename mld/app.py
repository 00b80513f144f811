"""The composition root: the only module that knows every part.

:func:`build` turns a configuration and ports into a worker; the simulation runs the same function.
:func:`real_ports` makes the ports of the real world.
"""

from __future__ import annotations

import os
import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mld.adapters.allocator import return_free_memory
from mld.adapters.aws import clients
from mld.adapters.aws.cloudwatch import BotocoreCloudWatch
from mld.adapters.aws.credentials import Sessions, require_credentials
from mld.adapters.aws.dynamodb import BotocoreDynamoDb
from mld.adapters.aws.glue import BotocoreGlue
from mld.adapters.aws.kinesis import BotocoreKinesis
from mld.adapters.aws.regions import resolve_region
from mld.adapters.calls import CallPool
from mld.adapters.children.child_process import ProcessLauncher
from mld.adapters.children.guardian import Guardian
from mld.adapters.load.selection import find_load_source
from mld.adapters.output.background_output import dropped_messages
from mld.adapters.schemas.decoders import Decoders
from mld.adapters.schemas.definition_files import SchemaFolder
from mld.adapters.system_clock import RandomIds, SystemClock
from mld.decide.readiness import Readiness, WorkerSnapshot, readiness
from mld.decide.retrieval_mode import may_fan_out, retrieval_of
from mld.model.config_former import named_in
from mld.ports.metrics import Metrics, NoMetrics
from mld.services.cloudwatch_metrics import CloudWatchMetrics
from mld.services.conditions import Conditions
from mld.services.consuming.consumer_parts import ConsumerParts
from mld.services.consuming.shard_consumer import ShardConsumer
from mld.services.leases.lease_coordinator import LeaseCoordinator
from mld.services.memory_return import MemoryReturn
from mld.services.retrieval.byte_budget import ByteBudget
from mld.services.retrieval.chosen_publishers import chosen_publishers
from mld.services.retrieval.polling_publisher import PollingParts
from mld.services.runtime import Runtime
from mld.services.scheduler import Scheduler, SchedulerParts
from mld.services.schemas.schema_registry import SchemaRegistry
from mld.services.shards.lease_cleanup import LeaseCleanup
from mld.services.shards.shard_detector import ShardDetector
from mld.services.shards.shard_end import ShardEnd
from mld.services.shards.shard_syncer import ShardSyncer
from mld.services.shards.stream_presence import StreamPresence
from mld.services.shards.stream_source import StreamSource
from mld.services.streams.discovered_names import DiscoveredNames
from mld.services.streams.former_streams import FormerStreams
from mld.services.streams.stream_context import StreamContext, StreamPlan, StreamRegistry
from mld.services.streams.stream_metrics import metrics_of
from mld.services.streams.stream_names import StaticNames
from mld.services.streams.stream_resolver import StreamResolver
from mld.services.streams.stream_tracker import StreamTracker
from mld.services.streams.tracker_parts import TrackerParts
from mld.services.streams.worker_streams import SingleStream, WorkerStreams
from mld.services.summary_log import SummaryLog
from mld.services.watchdog import LoopWatchdog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from mld.model.config import Config
    from mld.model.credentials import CredentialChain
    from mld.model.former_policy import FormerPolicy
    from mld.model.lease import HeldLease, Lease
    from mld.model.stream import Stream
    from mld.model.stream_list import ListedStream, StreamList
    from mld.ports.aws import CloudWatch, DynamoDb, Glue, Kinesis
    from mld.ports.children import ChildLauncher
    from mld.ports.clock import Clock, IdSource
    from mld.ports.offload import Offload
    from mld.ports.schemas import DecoderFactory, DefinitionFiles
    from mld.ports.worker_load import LoadSource
    from mld.services.fleet.worker_metrics_reporter import FindLoad
    from mld.services.streams.stream_context import ContextFactory
    from mld.services.streams.stream_names import StreamNames
    from mld.services.streams.worker_streams import Loop


def _keep_memory() -> None:
    """Where no memory can be given back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPorts:
    """What a schema registry needs of the world.

    Attributes:
        decoders: None = payloads are passed on as they are.
    """

    glue: Glue
    files: DefinitionFiles
    decoders: DecoderFactory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world as one worker sees it.

    Attributes:
        cloudwatch: None with ``metricsLevel=NONE``: then no client exists at all.
        pid: process id of the daemon.
        schemas: None without ``glueSchemaRegistry.enabled``: then no client exists at all.
        release_memory: gives free memory back to the system, if there is a way.
        read_properties: the bytes of the file of the configuration as it is now; None = not known.
        dropped_messages: log messages since the start that nobody took.
        find_load: finds what measures how busy this place is; None = nothing does.
    """

    dynamodb: DynamoDb
    kinesis: Kinesis
    cloudwatch: CloudWatch | None
    children: ChildLauncher
    clock: Clock
    ids: IdSource
    rng: random.Random
    offload: Offload
    pid: int
    schemas: SchemaPorts | None = None
    release_memory: Callable[[], object] = _keep_memory
    read_properties: Callable[[], bytes] | None = None
    dropped_messages: Callable[[], int] = int
    find_load: FindLoad | None = None


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready to run.

    Attributes:
        scheduler: run it, stop it.
        coordinator: what it holds.
        watchdog: whether its loop ticks.
        metrics: close it after the scheduler has ended; None without CloudWatch.
        conditions: what services reported against its readiness.
        streams: those that it reads.
    """

    config: Config
    scheduler: Scheduler
    coordinator: LeaseCoordinator
    watchdog: LoopWatchdog
    metrics: CloudWatchMetrics | None
    conditions: Conditions
    clock: Clock
    streams: WorkerStreams

    def snapshot(self) -> WorkerSnapshot:
        """This worker as it is now, for who judges it."""
        scan = self.coordinator.store.last_scan
        return WorkerSnapshot(
            state=self.scheduler.state,
            conditions=self.conditions.current(),
            shards=tuple(one.status() for one in self.scheduler.consumers()),
            scan_age_s=None if scan is None else self.clock.monotonic() - scan.finished_at,
            scan_interval_s=self.config.leases.taker_interval_s,
        )

    def readiness(self, max_age_s: float | None = None) -> Readiness:
        """What ``/readyz`` answers; see :func:`mld.decide.readiness.readiness`."""
        return readiness(self.snapshot(), max_age_s)

    def unreadable(self) -> tuple[tuple[str, str], ...]:
        """(lease key, why) of the rows that the last scan of the lease table could not read."""
        scan = self.coordinator.store.last_scan
        return () if scan is None else scan.broken

    def _shown_streams(self) -> dict[str, Any]:
        if not isinstance(self.streams, StreamTracker):
            return {"stream": self.config.stream.name}
        return {
            "streams": [one.identifier for one in self.streams.followed()],
            "orphans": [one.identifier for one in self.streams.orphans()],
            "unread": self.streams.unread(),
        }

    def status(self) -> dict[str, Any]:
        """What ``/leases`` shows: this worker, and per held lease its state, lag and age."""
        consumers = {one.lease_key: one.status() for one in self.scheduler.consumers()}
        return {
            "worker_id": self.config.worker_id,
            "application": self.config.application_name,
            **self._shown_streams(),
            "state": self.scheduler.state,
            "unreadable": [{"lease_key": key, "why": why} for key, why in self.unreadable()],
            "leases": [
                {
                    "lease_key": held.lease.lease_key,
                    "stream": held.lease.stream_identifier or self.config.stream.name,
                    "shard_id": held.lease.shard_id,
                    "checkpoint": str(held.lease.checkpoint),
                    "counter": held.lease.lease_counter,
                    **(
                        consumers[held.lease.lease_key].as_dict()
                        if held.lease.lease_key in consumers
                        else {"state": "FINISHED" if held.lease.is_finished else "STARTING"}
                    ),
                }
                for held in self.coordinator.renewer.held()
            ],
        }


def build(config: Config, ports: Ports, stream: Stream | None = None) -> Worker:
    """Wire one worker.

    Args:
        config: the effective configuration.
        ports: the world.
        stream: as ``mld.decide.addressing`` resolved it; None = those of ``config.streams``.
    """
    clock, rng = ports.clock, ports.rng
    conditions = Conditions()
    cloudwatch = None
    metrics: Metrics = NoMetrics()
    if ports.cloudwatch is not None:
        cloudwatch = CloudWatchMetrics(
            ports.cloudwatch,
            config.metrics,
            namespace=config.application_name,
            worker_id=config.worker_id,
            clock=clock,
        )
        metrics = cloudwatch
    runtime = Runtime(clock=clock, rng=rng, ids=ports.ids, metrics=metrics, offload=ports.offload)

    def is_read(lease: Lease) -> bool:
        return streams.is_read(lease)

    coordinator = LeaseCoordinator.wire(
        ports.dynamodb,
        config,
        runtime,
        conditions,
        is_multi_stream=stream is None or stream.identifier is not None,
        is_read=is_read,
        find_load=ports.find_load,
    )
    store, renewer = coordinator.store, coordinator.renewer
    budget = ByteBudget(config.retrieval.memory_budget_bytes, clock)
    registry = StreamRegistry()
    cleanup = LeaseCleanup(store, registry, config.shards, clock, renewer)

    def new_context(plan: StreamPlan) -> StreamContext:
        """Wire what one stream has of its own."""
        stream = plan.stream
        own = replace(runtime, metrics=metrics_of(stream, metrics))
        detector = ShardDetector(ports.kinesis, stream, config.shards, rng)
        presence = StreamPresence(
            ports.kinesis,
            stream,
            detector,
            config.leases.table_name,
            conditions,
            clock,
            rng,
            plan.created,
        )
        source = StreamSource(
            stream=stream, position=plan.position, detector=detector, presence=presence
        )
        polling = PollingParts(
            kinesis=ports.kinesis,
            stream=stream,
            presence=presence,
            config=retrieval_of(config, stream.name),
            budget=budget,
            runtime=own,
            initial_timestamp_s=plan.initial_timestamp_s,
        )
        return StreamContext(
            source=source,
            syncer=ShardSyncer(
                store,
                source,
                coordinator,
                config,
                clock,
                own.metrics,
                on_abandoned=cleanup.enqueue,
            ),
            publishers=chosen_publishers(polling, config.application_name, conditions),
            metrics=own.metrics,
            argv=plan.argv,
        )

    streams: WorkerStreams
    stream_loops: tuple[Loop, ...] = ()
    if stream is None:
        tracked = _tracker_parts(config, ports, coordinator, registry, new_context, conditions)
        streams = StreamTracker(tracked)
        former = FormerStreams(
            streams,
            tracked,
            coordinator.is_leader,
            clock,
            metrics,
            _former_list(tracked.options.former, ports),
        )
        stream_loops = (("former-streams", former.run),)
    else:
        position = config.stream.initial_position
        context = new_context(
            StreamPlan(stream=stream, position=position, initial_timestamp_s=position.timestamp_s)
        )
        registry.add(context)
        streams = SingleStream(context)
    consuming = ConsumerParts(
        config=config,
        runtime=runtime,
        streams=registry,
        renewer=renewer,
        shard_end=ShardEnd(store, clock, rng, metrics, has_room=renewer.has_room),
        cleanup=cleanup,
        launcher=ports.children,
        pid=ports.pid,
        schemas=None if ports.schemas is None else _schema_registry(ports.schemas, runtime),
    )
    watchdog = LoopWatchdog(clock, metrics)

    def new_consumer(held: HeldLease) -> ShardConsumer:
        return ShardConsumer(held, consuming)

    def snapshot() -> WorkerSnapshot:
        return worker.snapshot()

    summary_log = SummaryLog(clock, metrics, consuming.tally, snapshot, ports.dropped_messages)
    parts = SchedulerParts(
        coordinator=coordinator,
        streams=streams,
        cleanup=cleanup,
        new_consumer=new_consumer,
        loops=(
            ("fleet-watch", coordinator.fleet.run),
            *((("fleet-member", coordinator.member.run),) if coordinator.member else ()),
            ("table-watch", coordinator.table_watch.run),
            ("loop-watchdog", watchdog.run),
            ("summary", summary_log.run),
            ("memory-return", MemoryReturn(budget, ports.release_memory).run),
            *stream_loops,
            *((("cloudwatch", cloudwatch.run),) if cloudwatch else ()),
        ),
    )
    scheduler = Scheduler(config, parts, clock, metrics)
    worker = Worker(
        config, scheduler, coordinator, watchdog, cloudwatch, conditions, clock, streams
    )
    return worker


def _tracker_parts(
    config: Config,
    ports: Ports,
    coordinator: LeaseCoordinator,
    registry: StreamRegistry,
    new_context: ContextFactory,
    conditions: Conditions,
) -> TrackerParts:
    """What follows the streams of a multi-stream worker."""
    listed = config.streams
    region = config.aws.kinesis_region or config.stream.region
    assert listed is not None, "without one stream the configuration lists them"
    assert region is not None, "RealWorld.effective names the region"
    store = coordinator.store

    def identifiers() -> Iterable[str]:
        scan = store.last_scan
        return () if scan is None else {one.stream_identifier or "" for one in scan.leases}

    return TrackerParts(
        names=_names(listed, ports),
        resolver=StreamResolver(ports.kinesis, region, listed.epoch_unit, identifiers, ports.rng),
        registry=registry,
        new_context=new_context,
        store=store,
        table_watch=coordinator.table_watch,
        leases_created=coordinator.leases_created,
        changed=coordinator.renewer.changed,
        options=listed,
        position=config.stream.initial_position,
        region=region,
        conditions=conditions,
        rng=ports.rng,
    )


def _former_list(
    policy: FormerPolicy, ports: Ports
) -> Callable[[], Awaitable[tuple[ListedStream, ...]]]:
    """Reads the streams that the properties file names now for the deletion of their leases."""
    read = ports.read_properties

    async def named() -> tuple[ListedStream, ...]:
        if read is None:
            return policy.named
        return named_in(await ports.offload.run(read), "the properties file")

    return named


def _names(listed: StreamList, ports: Ports) -> StreamNames:
    if listed.selection is None:
        return StaticNames(listed.streams)
    return DiscoveredNames(
        ports.kinesis,
        listed.streams,
        listed.selection,
        listed.discovery_interval_s,
        ports.clock,
        ports.rng,
    )


def _schema_registry(ports: SchemaPorts, runtime: Runtime) -> SchemaRegistry:
    return SchemaRegistry(ports.glue, ports.files, ports.decoders, runtime)


@dataclass(frozen=True, slots=True)
class RealWorld:
    """Real ports, and what start-up asks about us.

    Attributes:
        region: region of the Kinesis client.
        account: asks STS who we are; called only where the file names a stream by ARN.
        kinesis_endpoint: URL that the Kinesis client uses.
    """

    ports: Ports
    region: str
    account: Callable[[], Awaitable[str]]
    kinesis_endpoint: str | None = None

    def effective(self, config: Config) -> Config:
        """The configuration with what the environment decided."""
        endpoint = self.kinesis_endpoint or config.aws.kinesis_endpoint
        found = replace(config.aws, kinesis_region=self.region, kinesis_endpoint=endpoint)
        return replace(config, aws=found)


@contextmanager
def real_ports(
    config: Config, read_properties: Callable[[], bytes] | None = None
) -> Iterator[RealWorld]:
    """Clients, pools, the guardian of the children; closed on exit.

    Args:
        config: of this worker.
        read_properties: see :class:`Ports`.

    Raises:
        ConfigError: no region, or an endpoint that is no URL.
        CredentialsMissing: a client's chain has no credentials.
    """
    region = resolve_region(config.aws.kinesis_region or config.stream.region)
    sessions = Sessions(region)
    with ExitStack() as closing:

        def pool(name: str, threads: int) -> CallPool:
            made = CallPool(name, threads)
            closing.callback(made.close)
            return made

        def client(
            chain: CredentialChain | None, key: str, settings: clients.ClientSettings
        ) -> Any:
            session = sessions.of(chain or config.aws.kinesis_credentials)
            require_credentials(session, key if chain else "AwsCredentialsProvider")
            return clients.make_client(session, settings)

        control = pool("control", clients.CONTROL_THREADS)
        retrieval = pool("retrieval", clients.RETRIEVAL_THREADS)
        kinesis = client(None, "AwsCredentialsProvider", clients.kinesis_settings(config))
        subscribing = None
        if may_fan_out(config):
            subscribing = client(
                None, "AwsCredentialsProvider", clients.subscription_settings(config)
            )
        dynamodb = client(
            config.aws.dynamodb_credentials,
            "AwsCredentialsProviderDynamoDB",
            clients.dynamodb_settings(config),
        )
        cloudwatch = None
        if config.metrics.level != "NONE":
            cloudwatch = BotocoreCloudWatch(
                client(
                    config.aws.cloudwatch_credentials,
                    "AwsCredentialsProviderCloudWatch",
                    clients.cloudwatch_settings(config),
                ),
                control,
            )

        schemas = None
        if config.schemas.enabled:
            decoders = Decoders() if config.schemas.decode else None
            glue_pool = pool("schemas", clients.GLUE_THREADS)
            glue = client(
                config.aws.glue_credentials,
                "AwsCredentialsProviderGlue",
                clients.glue_settings(config),
            )
            files = SchemaFolder(glue_pool)
            closing.callback(files.close)
            schemas = SchemaPorts(
                glue=BotocoreGlue(glue, glue_pool), files=files, decoders=decoders
            )

        async def account() -> str:
            sts = client(None, "AwsCredentialsProvider", clients.sts_settings(config))
            return await clients.caller_account(sts, control)

        clock = SystemClock()

        async def find_load() -> LoadSource | None:
            return await find_load_source(os.environ, clock, control)

        guardian = Guardian()
        closing.callback(guardian.close)
        ports = Ports(
            dynamodb=BotocoreDynamoDb(dynamodb, pool("leases", clients.LEASE_THREADS)),
            kinesis=BotocoreKinesis(kinesis, control, retrieval, subscribing),
            cloudwatch=cloudwatch,
            children=ProcessLauncher(guardian),
            clock=clock,
            ids=RandomIds(),
            rng=random.Random(),
            offload=pool("convert", 1),
            pid=os.getpid(),
            schemas=schemas,
            release_memory=return_free_memory,
            read_properties=read_properties,
            dropped_messages=dropped_messages,
            find_load=find_load,
        )
        yield RealWorld(ports, region, account, str(kinesis.meta.endpoint_url))
