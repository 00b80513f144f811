"""A configuration and ports become a worker: the only module that knows every service."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mld.app.leases import LeaseWiring
from mld.app.worker import Worker
from mld.ports.metrics import Metrics, NoMetrics
from mld.services.cloudwatch_metrics import CloudWatchMetrics
from mld.services.conditions import Conditions
from mld.services.consuming.consumer_parts import ConsumerParts
from mld.services.consuming.shard_consumer import ShardConsumer
from mld.services.memory_return import MemoryReturn
from mld.services.retrieval.byte_budget import ByteBudget
from mld.services.retrieval.chosen_publishers import chosen_publishers, retrieval_of
from mld.services.retrieval.polling_publisher import PollingParts
from mld.services.runtime import Runtime
from mld.services.scheduler import Scheduler, SchedulerParts
from mld.services.shards.lease_cleanup import LeaseCleanup
from mld.services.shards.shard_detector import ShardDetector
from mld.services.shards.shard_end import ShardEnd
from mld.services.shards.shard_syncer import ShardSyncer
from mld.services.shards.stream_presence import StreamPresence, StreamSource
from mld.services.shards.stream_sync import rows_of
from mld.services.streams.stream_context import (
    SingleStream,
    StreamContext,
    StreamRegistry,
    WorkerStreams,
    metrics_of,
)
from mld.services.summary_log import SummaryLog
from mld.services.watchdog import LoopWatchdog
from mld.services.worker_start import StartCalls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mld.app.ports import Ports, SchemaPorts
    from mld.decide.readiness import WorkerSnapshot
    from mld.model.config.config import Config
    from mld.model.leases.lease import HeldLease, Lease
    from mld.model.sequence import InitialPosition
    from mld.model.streams.stream import Stream
    from mld.services.schemas.schema_registry import SchemaRegistry
    from mld.services.streams.stream_context import Loop


def build(config: Config, ports: Ports, stream: Stream | None = None) -> Worker:
    """Wire one worker.

    Args:
        config: the effective configuration.
        ports: the world.
        stream: as ``stream_to_read`` resolved it; None = those of ``config.streams``.
    """
    clock, rng = ports.clock, ports.rng
    conditions = Conditions()
    calls = StartCalls(config, clock, rng, lambda: scheduler.state == "starting", conditions)
    ports = replace(
        ports,
        dynamodb=calls.of(ports.dynamodb, ports.patient_dynamodb),
        kinesis=calls.of(ports.kinesis),
    )
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

    coordinator = LeaseWiring(
        ports.dynamodb,
        config,
        runtime,
        conditions,
        is_multi_stream=stream is None or stream.identifier is not None,
        is_read=is_read,
        find_load=ports.find_load,
    ).coordinator()
    store, renewer = coordinator.store, coordinator.renewer
    budget = ByteBudget(config.retrieval.memory_budget_bytes, clock)
    registry = StreamRegistry()
    cleanup = LeaseCleanup(store, registry, config.shards, clock, renewer)

    def new_context(
        stream: Stream,
        positions: Sequence[InitialPosition],
        argv: tuple[str, ...] | None,
        created: object,
    ) -> StreamContext:
        """Wire what one stream has of its own."""
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
            created,
        )
        presence.find_leases = lambda: (
            () if (scan := store.last_scan) is None else rows_of(stream, scan).leases
        )
        source = StreamSource(
            stream=stream, position=positions[0], detector=detector, presence=presence
        )
        polling = PollingParts(
            kinesis=ports.kinesis,
            stream=stream,
            presence=presence,
            config=retrieval_of(config, stream.name),
            budget=budget,
            runtime=own,
            initial_timestamp_s=next(
                (one.timestamp_s for one in positions if one.timestamp_s is not None), None
            ),
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
            argv=argv,
        )

    streams: WorkerStreams
    stream_loops: tuple[Loop, ...] = ()
    if stream is None:
        # Its modules are a tenth of the start of those who read one stream.
        from mld.app.many_streams import follow_streams  # noqa: PLC0415

        streams, stream_loops = follow_streams(
            config, ports, coordinator, registry, new_context, conditions, metrics
        )
    else:
        context = new_context(stream, (config.stream.initial_position,), None, None)
        registry.add(context)
        store.find_stream_mark = lambda: context.presence.mark
        store.stream_name = stream.name
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
        service_time=ports.service_time,
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
        conditions=conditions,
        loops=(
            ("fleet-watch", coordinator.fleet.run),
            ("fleet-member", coordinator.member.run),
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
        config,
        scheduler,
        coordinator,
        watchdog,
        cloudwatch,
        conditions,
        clock,
        streams,
        ports.dropped_messages,
    )
    return worker


def _schema_registry(ports: SchemaPorts, runtime: Runtime) -> SchemaRegistry:
    from mld.services.schemas.schema_registry import SchemaRegistry  # noqa: PLC0415 - most have none

    return SchemaRegistry(ports.glue, ports.files, ports.decoders, runtime)
