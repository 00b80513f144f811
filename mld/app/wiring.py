"""Builds a worker from a configuration and ports: the only module that knows every service."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kcl_mld.app.scheduler import Scheduler, SchedulerParts
from kcl_mld.app.start_calls import StartCalls
from kcl_mld.app.worker import Worker
from kcl_mld.app.worker_streams import SingleStream, WorkerStreams
from kcl_mld.aws.ports import DynamoDb, Kinesis
from kcl_mld.children.consuming.consumer_parts import ConsumerNotes, ConsumerParts
from kcl_mld.children.consuming.shard_consumer import ShardConsumer
from kcl_mld.children.consuming.stream_context import StreamContext, StreamRegistry
from kcl_mld.config.config import RetrievalMode
from kcl_mld.config.stream_options import StreamOptions
from kcl_mld.fleet.lease_wiring import LeaseWiring
from kcl_mld.fleet.model.worker_metrics import WorstLag
from kcl_mld.kernel.clock_watch import ClockWatch
from kcl_mld.observe.cloudwatch_metrics import CloudWatchMetrics
from kcl_mld.observe.metric_store import MetricPush, MetricStore
from kcl_mld.observe.summary_log import SummaryLog
from kcl_mld.retrieval.byte_budget import ByteBudget, MemoryReturn
from kcl_mld.retrieval.child_shards import child_shards
from kcl_mld.retrieval.polling_publisher import PollingPublisher
from kcl_mld.retrieval.records_publisher import PublisherParts
from kcl_mld.shards.lease_cleanup import LeaseCleanup
from kcl_mld.shards.shard_detector import ShardDetector
from kcl_mld.shards.shard_end import ShardEnd
from kcl_mld.shards.shard_syncer import ShardSyncer
from kcl_mld.shards.stream_existence import StreamExistence, StreamSource
from kcl_mld.shards.stream_sync import rows_of
from kcl_mld.signals.model.conditions import Conditions
from kcl_mld.signals.ports import AllMetrics, Metrics
from kcl_mld.signals.runtime import Runtime
from kcl_mld.signals.watchdog import LoopWatchdog
from kcl_mld.streams.identified_stream import IdentifiedStream
from kcl_mld.streams.stream_metrics import metrics_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.app.ports import Ports, SchemaPorts
    from kcl_mld.app.worker_streams import Loop
    from kcl_mld.config.config import Config
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.model.sequence import InitialPosition
    from kcl_mld.leases.model.lease import HeldLease, Lease
    from kcl_mld.retrieval.records_publisher import PublisherFactory
    from kcl_mld.retrieval.schema_registry import SchemaRegistry


def build(
    config: Config, ports: Ports, stream: Stream | None = None, *, keeps_metrics: bool = False
) -> Worker:
    """Wire one worker.

    Args:
        config: the effective configuration.
        ports: the outside world.
        stream: as ``stream_to_read`` resolved it; None = those of ``config.streams``.
        keeps_metrics: :meth:`Worker.readings` will be called.
    """
    return WorkerWiring(config, ports, stream, keeps_metrics=keeps_metrics).worker()


class WorkerWiring:
    """The services of one worker; :meth:`worker` joins them."""

    def __init__(
        self, config: Config, ports: Ports, stream: Stream | None, *, keeps_metrics: bool
    ) -> None:
        """Create what all services share; the arguments are those of :func:`build`."""
        self._config = config
        self._conditions = Conditions()
        self._start_calls = StartCalls(config, ports.clock, ports.rng, self._conditions)
        self._ports = self._repeating(ports)
        self._cloudwatch = self._new_cloudwatch()
        self._metric_store = self._new_store() if keeps_metrics or ports.metric_sender else None
        self._metrics: Metrics = AllMetrics(
            [one for one in (self._cloudwatch, self._metric_store) if one is not None]
        )
        self._runtime = Runtime(
            clock=ports.clock,
            rng=ports.rng,
            ids=ports.ids,
            metrics=self._metrics,
            offload=ports.offload,
        )
        self._notes = ConsumerNotes()
        self._stream = None if stream is None else IdentifiedStream(stream)
        self._coordinator = LeaseWiring(
            self._ports.dynamodb,
            config,
            self._runtime,
            self._conditions,
            stream=self._stream,
            find_notes=self._notes.find,
            is_read=self._is_read,
            find_load=ports.find_load,
            find_worst_lag=self._worst_lag,
        ).coordinator()
        self._store, self._renewer = self._coordinator.store, self._coordinator.renewer
        self._budget = ByteBudget(config.retrieval.memory_budget_bytes, ports.clock)
        self._registry = StreamRegistry()
        self._cleanup = LeaseCleanup(
            self._store,
            self._registry,
            lambda lease: self._registry.of(lease).source,
            config.shards,
            ports.clock,
            self._renewer,
        )
        self._streams: WorkerStreams
        self._stream_loops: tuple[Loop, ...] = ()
        if stream is None:
            self._follow_streams()
        else:
            self._streams = self._single_stream(stream)

    def worker(self) -> Worker:
        """All of them."""
        ports, clock, metrics = self._ports, self._ports.clock, self._metrics
        consuming = self._consumer_parts()
        watchdog = LoopWatchdog(clock, metrics)

        def new_consumer(held: HeldLease) -> ShardConsumer:
            return ShardConsumer(held, consuming)

        sender = self._ports.metric_sender
        summary_log = SummaryLog(
            clock, metrics, consuming.tally, ports.dropped_messages, ports.resident_bytes
        )
        parts = SchedulerParts(
            coordinator=self._coordinator,
            streams=self._streams,
            cleanup=self._cleanup,
            new_consumer=new_consumer,
            conditions=self._conditions,
            on_started=self._start_calls.end,
            loops=self._loops(watchdog),
        )
        self._scheduler = Scheduler(self._config, parts, clock, metrics)
        return Worker(
            self._config,
            self._scheduler,
            self._coordinator,
            watchdog,
            self._cloudwatch,
            self._metric_store,
            None if sender is None else MetricPush(sender),
            summary_log,
            self._conditions,
            self._streams,
            self._ports,
        )

    # -- what all services share -------------------------------------------------------------------

    def _repeating(self, ports: Ports) -> Ports:
        """Ports whose calls are repeated while the worker starts."""
        calls = self._start_calls
        return replace(
            ports,
            dynamodb=calls.of(DynamoDb, ports.dynamodb, ports.patient_dynamodb),
            kinesis=calls.of(Kinesis, ports.kinesis),
        )

    def _new_cloudwatch(self) -> CloudWatchMetrics | None:
        config = self._config
        if self._ports.cloudwatch is None:
            return None
        return CloudWatchMetrics(
            self._ports.cloudwatch,
            config.metrics,
            namespace=config.application_name,
            worker_id=config.worker_id,
            clock=self._ports.clock,
        )

    def _new_store(self) -> MetricStore:
        config = self._config
        return MetricStore(self._ports.clock, config.stream.name, by_shard=config.metrics.by_shard)

    def _worst_lag(self) -> WorstLag | None:
        """Of the leases that are read now."""
        read = [(one.status().lag_s, one.lease_key) for one in self._scheduler.consumers()]
        lags = [WorstLag(key, round(lag_s)) for lag_s, key in read if lag_s is not None]
        return max(lags, key=lambda one: one.seconds, default=None)

    # -- streams -----------------------------------------------------------------------------------

    def _is_read(self, lease: Lease) -> bool:
        return self._streams.is_read(lease)

    def _follow_streams(self) -> None:
        # Its modules take a tenth of the start time of a worker with one stream.
        from kcl_mld.app.many_streams import follow_streams  # noqa: PLC0415

        self._streams, self._stream_loops = follow_streams(
            self._config,
            self._ports,
            self._coordinator,
            self._registry,
            self._new_context,
            self._conditions,
            self._metrics,
        )

    def _single_stream(self, stream: Stream) -> SingleStream:
        positions = (self._config.stream.initial_position,)
        context = self._new_context(stream, positions, StreamOptions(), None)
        self._registry.add(context)
        return SingleStream(context)

    def _new_context(
        self,
        stream: Stream,
        positions: Sequence[InitialPosition],
        options: StreamOptions,
        created: object,
    ) -> StreamContext:
        """Wire the parts that each stream has of its own; see ``ContextFactory``."""
        config, ports = self._config, self._ports
        own = replace(self._runtime, metrics=metrics_of(stream, self._metrics))
        source = self._source(stream, positions[0], created)
        parts = PublisherParts(
            kinesis=ports.kinesis,
            stream=stream,
            existence=source.existence,
            config=config.retrieval_of(stream.name),
            budget=self._budget,
            runtime=own,
            initial_timestamp_s=next(
                (one.timestamp_s for one in positions if one.timestamp_s is not None), None
            ),
        )
        return StreamContext(
            source=source,
            syncer=ShardSyncer(
                self._store,
                source,
                self._coordinator.is_leader,
                self._coordinator.check_table,
                config,
                ports.clock,
                own.metrics,
                on_abandoned=self._cleanup.enqueue,
            ),
            publishers=self._publishers(parts),
            metrics=own.metrics,
            argv=options.argv,
            children=options.children,
        )

    def _source(self, stream: Stream, position: InitialPosition, created: object) -> StreamSource:
        config, ports, store = self._config, self._ports, self._store
        detector = ShardDetector(ports.kinesis, stream, config.shards, ports.rng)
        existence = StreamExistence(
            ports.kinesis,
            IdentifiedStream(stream, created) if self._stream is None else self._stream,
            detector,
            config.leases.table_name,
            self._conditions,
            ports.clock,
            ports.rng,
            lambda: () if (scan := store.last_scan) is None else rows_of(stream, scan).leases,
        )
        return StreamSource(
            stream=stream,
            position=position,
            detector=detector,
            existence=existence,
            children_of=partial(child_shards, ports.kinesis, stream),
        )

    def _publishers(self, parts: PublisherParts) -> PublisherFactory:
        """The factory of a stream, according to its configuration."""
        config, runtime = parts.config, parts.runtime
        if config.mode is RetrievalMode.POLLING:
            return partial(PollingPublisher, parts=parts, in_time=self._renewer.in_time.wait)
        # Only here, so that a worker that polls starts faster.
        from kcl_mld.retrieval.consumer_registration import (  # noqa: PLC0415
            ConsumerRegistration,
        )
        from kcl_mld.retrieval.fan_out_publisher import FanOutPublisher  # noqa: PLC0415

        registration = ConsumerRegistration(
            parts.kinesis,
            parts.stream,
            config.fan_out.consumer_name or self._config.application_name,
            config.fan_out,
            self._conditions,
            runtime.clock,
            runtime.rng,
        )
        return partial(FanOutPublisher, parts=parts, registration=registration)

    # -- consumers, and what runs beside them ------------------------------------------------------

    def _consumer_parts(self) -> ConsumerParts:
        ports, runtime = self._ports, self._runtime
        return ConsumerParts(
            config=self._config,
            runtime=runtime,
            streams=self._registry,
            renewer=self._renewer,
            shard_end=ShardEnd(
                self._store,
                ports.clock,
                ports.rng,
                self._metrics,
                has_room=self._renewer.has_room,
            ),
            cleanup=self._cleanup,
            launcher=ports.children,
            pid=ports.pid,
            notes=self._notes,
            service_time=ports.service_time,
            letters=ports.letters,
            schemas=None if ports.schemas is None else _schema_registry(ports.schemas, runtime),
        )

    def _loops(self, watchdog: LoopWatchdog) -> tuple[Loop, ...]:
        coordinator, cloudwatch = self._coordinator, self._cloudwatch
        return (
            ("fleet-watch", coordinator.fleet.run),
            ("fleet-member", coordinator.member.run),
            ("table-watch", coordinator.table_watch.run),
            ("loop-watchdog", watchdog.run),
            ("clock-watch", ClockWatch(self._ports.clock).run),
            ("memory-return", MemoryReturn(self._budget, self._ports.release_memory).run),
            *self._stream_loops,
            *((("cloudwatch", cloudwatch.run),) if cloudwatch else ()),
            *self._child_limits(),
        )

    def _child_limits(self) -> tuple[Loop, ...]:
        config, find = self._config, self._ports.limits
        if find is None or not config.has_several_children:
            return ()
        from kcl_mld.app.child_limits import ChildLimits  # noqa: PLC0415 - most have one for a shard

        watch = ChildLimits(config, self._store, self._registry, find(), self._largest_child)
        return (("child-limits", watch.run),)

    def _largest_child(self) -> int | None:
        """Its memory; None where children share pages with their template, or none runs."""
        if self._config.child.prefork:
            return None
        found = (one.status().child_pid for one in self._scheduler.consumers())
        sizes = [self._ports.resident_bytes(pid) for pid in found if pid is not None]
        return max((size for size in sizes if size is not None), default=None)


def _schema_registry(ports: SchemaPorts, runtime: Runtime) -> SchemaRegistry:
    from kcl_mld.retrieval.schema_registry import SchemaRegistry  # noqa: PLC0415 - most have none

    return SchemaRegistry(ports.glue, ports.files, ports.decoders, runtime)
