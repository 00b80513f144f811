"""A world for consumers: the real lease services over fakes of AWS, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import random
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kcl_mld.children.consuming.consumer_parts import ConsumerNotes, ConsumerParts
from kcl_mld.children.consuming.shard_consumer import ShardConsumer
from kcl_mld.children.consuming.stream_context import StreamContext, StreamRegistry
from kcl_mld.children.rules.lifecycle import ShutdownReason
from kcl_mld.config.config import (
    AwsConfig,
    ChildConfig,
    Config,
    LeaseConfig,
    RetrievalConfig,
    ShardConfig,
    StreamConfig,
)
from kcl_mld.config.credentials import CredentialChain
from kcl_mld.config.stream import Stream
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.holder import Holder
from kcl_mld.leases.lease_renewer import LeaseRenewer
from kcl_mld.leases.lease_store import LeaseStore
from kcl_mld.leases.model.lease import HeldLease, Lease
from kcl_mld.local.kinesis import KinesisModel
from kcl_mld.retrieval.byte_budget import ByteBudget
from kcl_mld.retrieval.child_shards import child_shards
from kcl_mld.retrieval.polling_publisher import PollingPublisher
from kcl_mld.retrieval.records_publisher import PublisherParts
from kcl_mld.shards.lease_cleanup import LeaseCleanup
from kcl_mld.shards.shard_detector import ShardDetector
from kcl_mld.shards.shard_end import ShardEnd
from kcl_mld.shards.stream_existence import StreamExistence, StreamSource
from kcl_mld.signals.failing_condition import FailingCondition
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.ports import Metrics
from kcl_mld.signals.runtime import Runtime
from kcl_mld.streams.identified_stream import IdentifiedStream
from tests.fakes.children import ScriptedChildren
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.lease_world import nobody_has_left

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kcl_mld.retrieval.schema_registry import SchemaRegistry
    from kcl_mld.signals.model.metrics import Metric

STREAM = Stream(name="orders")
FIRST = "shardId-000000000000"


class Inline:
    """An Offload that does the work at once."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        await asyncio.sleep(0)
        return work(*args, **kwargs)


class Datum(NamedTuple):
    """What a sink was given."""

    metric: Metric
    value: float
    shard_id: str | None
    stream_id: str | None


class RecordedMetrics(Metrics):
    """Remembers every value by (operation, name)."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], list[float]] = {}
        self.data: list[Datum] = []

    def add(self, metric, value, *, shard_id=None, stream_id=None) -> None:
        self.values.setdefault((metric.operation, metric.name), []).append(float(value))
        self.data.append(Datum(metric, value, shard_id, stream_id))


class ExpectedLeases:
    """What of a syncer the end of a shard knows."""

    def __init__(self, expected: set[str]) -> None:
        self.expect = expected.add


class World:
    """One stream, one lease table, one worker; made inside a running (virtual) loop."""

    def __init__(
        self,
        *,
        shards: int = 1,
        children: ScriptedChildren | None = None,
        child: dict[str, Any] | None = None,
        retrieval: dict[str, Any] | None = None,
        leases: dict[str, Any] | None = None,
        spark: dict[str, str] | None = None,
        schemas: Callable[[Runtime], SchemaRegistry] | None = None,
        budget_bytes: int = 48 * 2**20,
    ) -> None:
        self.clock = LoopClock()
        self.rng = random.Random(7)
        self.model = KinesisModel(self.clock.wall, random.Random(1))
        self.model.call("CreateStream", {"StreamName": STREAM.name, "ShardCount": shards})
        self.kinesis = FakeKinesis(self.model)
        self.dynamodb = FakeDynamoDb(DynamoDbModel(self.clock.wall))
        self.children = children or ScriptedChildren()
        self.metrics = RecordedMetrics()
        self.offload = Inline()
        self.config = Config(
            application_name="app",
            worker_id="w1",
            stream=StreamConfig(name=STREAM.name),
            aws=AwsConfig(kinesis_credentials=CredentialChain(())),
            leases=LeaseConfig(table_name="app", failover_s=10_000.0, **(leases or {})),
            child=ChildConfig(argv=("child",), **(child or {})),
            shards=ShardConfig(),
            retrieval=RetrievalConfig(**(retrieval or {})),
            spark=spark or {},
        )
        self.notes = ConsumerNotes()
        holder = Holder(find_notes=self.notes.find)
        self.store = LeaseStore(
            self.dynamodb, self.config.leases, self.clock, self.rng, holder=holder
        )
        self.runtime = Runtime(
            clock=self.clock,
            rng=self.rng,
            ids=CountingIds("id"),
            metrics=self.metrics,
            offload=self.offload,
        )
        self.conditions = Conditions()
        self.renewer = LeaseRenewer(
            self.store,
            self.config.leases,
            "w1",
            replace(self.runtime, ids=CountingIds("token")),
            FailingCondition(Reason.LEASE_WRITES_FAIL, self.conditions, self.clock),
            nobody_has_left,
        )
        detector = ShardDetector(self.kinesis, STREAM, self.config.shards, random.Random(3))
        self.existence = StreamExistence(
            self.kinesis,
            IdentifiedStream(STREAM),
            detector,
            "app",
            self.conditions,
            self.clock,
            random.Random(4),
            tuple,
        )
        self.source = StreamSource(
            stream=STREAM,
            position=self.config.stream.initial_position,
            detector=detector,
            existence=self.existence,
            children_of=partial(child_shards, self.kinesis, STREAM),
        )
        self.streams = StreamRegistry()
        #: Keys of leases that the syncer was told are waited for.
        self.expected: set[str] = set()
        self.cleanup = LeaseCleanup(
            self.store,
            self.streams,
            lambda lease: self.streams.of(lease).source,
            self.config.shards,
            self.clock,
            self.renewer,
        )
        self.budget = ByteBudget(budget_bytes, self.clock)
        self.polling = PublisherParts(
            kinesis=self.kinesis,
            stream=STREAM,
            existence=self.existence,
            config=self.config.retrieval,
            budget=self.budget,
            runtime=self.runtime,
        )
        self.publish_to(self.runtime)
        self.parts = ConsumerParts(
            config=self.config,
            runtime=self.runtime,
            streams=self.streams,
            renewer=self.renewer,
            shard_end=ShardEnd(
                self.store,
                self.clock,
                random.Random(5),
                self.metrics,
                has_room=self.renewer.has_room,
            ),
            cleanup=self.cleanup,
            launcher=self.children,
            pid=4711,
            notes=self.notes,
            schemas=None if schemas is None else schemas(self.runtime),
            letters=None,
            service_time=lambda: None,
        )

    def publish_to(self, runtime: Runtime) -> None:
        """Let the stream's shards use that runtime's metrics."""
        self.streams.add(
            StreamContext(
                source=self.source,
                syncer=ExpectedLeases(self.expected),  # type: ignore[arg-type] - nothing syncs here
                publishers=partial(
                    PollingPublisher,
                    parts=replace(self.polling, runtime=runtime),
                    in_time=self.renewer.in_time.wait,
                ),
                metrics=runtime.metrics,
            )
        )

    async def open(self) -> None:
        """Until stream and table can be used."""
        await self.store.table.ensure()
        await asyncio.sleep(60)

    async def hold(
        self,
        shard_id: str = FIRST,
        checkpoint: ExtendedSequenceNumber = TRIM_HORIZON,
        parents: tuple[str, ...] = (),
    ) -> HeldLease:
        """Create a shard's lease and take it."""
        lease = Lease(
            lease_key=shard_id,
            shard_id=shard_id,
            checkpoint=checkpoint,
            parent_shard_ids=parents,
        )
        assert await self.store.create_if_absent(lease)
        now = self.clock.monotonic()
        row = await self.store.get(shard_id)
        assert row is not None
        taken = await self.store.take(row, "w1")
        assert taken is not None
        return self.renewer.hold(taken, now)

    def consumer(self, held: HeldLease) -> ShardConsumer:
        return ShardConsumer(held, self.parts)

    @asynccontextmanager
    async def consuming(
        self, held: HeldLease, ends: ShutdownReason = ShutdownReason.REQUESTED
    ) -> AsyncIterator[ShardConsumer]:
        """Run a consumer that is asked to stop behind the block, and ends for that reason."""
        async with self.running(held) as (consumer, running):
            yield consumer
            consumer.request_shutdown()
        assert running.result() is ends

    @asynccontextmanager
    async def running(
        self, held: HeldLease
    ) -> AsyncIterator[tuple[ShardConsumer, asyncio.Task[ShutdownReason]]]:
        """A consumer and its task; the block waits for its end."""
        consumer = self.consumer(held)
        async with asyncio.TaskGroup() as group:
            yield consumer, group.create_task(consumer.run())

    def split(self, shard_id: str = FIRST) -> None:
        """Split a shard in the middle of all hash keys."""
        self.model.call(
            "SplitShard",
            {
                "StreamName": STREAM.name,
                "ShardToSplit": shard_id,
                "NewStartingHashKey": str(2**127),
            },
        )

    async def at_its_end(self) -> ShardConsumer:
        """A consumer of a shard with one record, which was split a minute ago."""
        self.put(b"one")
        self.split()
        await asyncio.sleep(60)
        return self.consumer(await self.hold())

    def put(self, *payloads: bytes, key: str = "k") -> list[str]:
        """Put records; their sequence numbers."""
        return [
            self.model.call(
                "PutRecord",
                {
                    "StreamName": STREAM.name,
                    "Data": base64.b64encode(payload).decode(),
                    "PartitionKey": key,
                },
            )["SequenceNumber"]
            for payload in payloads
        ]

    async def row(self, shard_id: str = FIRST) -> Lease:
        row = await self.store.get(shard_id, consistent=True)
        assert row is not None
        return row

    def payloads(self, index: int = -1) -> list[bytes]:
        """What a child was given."""
        return [
            base64.b64decode(record["data"])
            for message in self.children.children[index].heard
            if message["action"] == "processRecords"
            for record in message["records"]
        ]
