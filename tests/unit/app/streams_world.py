"""A worker of many streams on fakes, in virtual time."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from kcl_mld import app
from kcl_mld.config.build import build_config
from kcl_mld.local.kinesis.model import KinesisModel
from tests.fakes.app_ports import ports_with
from tests.fakes.children import ScriptedChild, ScriptedChildren, polite
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.fakes.fake_kinesis import FakeKinesis
from tests.unit.children.consumer_world import Inline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from kcl_mld.config.properties import Entry
    from kcl_mld.ops.rules.doctor import MachineLimits

ACCOUNT = "123456789012"
FIRST = "shardId-000000000000"


class Recording(ScriptedChildren):
    """Children that checkpoint everything; what each was started with and heard stays."""

    def __init__(self) -> None:
        super().__init__(polite)

    def of(self, stream: str) -> list[ScriptedChild]:
        """Children of a stream's shards, in the order of their starts."""
        return [one for one in self.children if one.env["KCL_STREAM_NAME"] == stream]

    def data(self, stream: str) -> list[str]:
        """Payloads that they got, in order."""
        return [
            base64.b64decode(record["data"]).decode()
            for child in self.of(stream)
            for message in child.heard
            if message["action"] == "processRecords"
            for record in message["records"]
        ]


class StreamsWorld:
    """Streams, a table and workers on them."""

    def __init__(self, *names: str, **properties: str) -> None:
        self.clock = LoopClock()
        self.kinesis = KinesisModel(self.clock.wall, random.Random(1))
        self.port = FakeKinesis(self.kinesis)
        self.model = DynamoDbModel(self.clock.wall)
        self.dynamodb = FakeDynamoDb(self.model)
        self.children = Recording()
        self.read_entries: Callable[[], tuple[Entry, ...]] | None = None
        self.limits: Callable[[], MachineLimits] | None = None
        self.resident_bytes: int | None = None
        self.properties = properties
        self.names = names
        for name in names:
            self.create(name)
        self.worker = self.new_worker()

    def new_worker(self, **changes: str) -> app.Worker:
        """Another one, or the next process."""
        values = {
            "executableName": "python app.py",
            **({"streams": ", ".join(self.names)} if self.names else {}),
            "multiStream": "true",
            "applicationName": "app",
            "AwsCredentialsProvider": "DefaultCredentialsProvider",
            "regionName": "us-east-1",
            "initialPositionInStream": "TRIM_HORIZON",
            "metricsLevel": "NONE",
            "retrievalMode": "POLLING",
            **self.properties,
            **changes,
        }
        text = "".join(f"{key} = {value}\n" for key, value in values.items())
        config = build_config(text.encode(), "app.properties", worker_id="w1").require()
        return app.build(
            config,
            ports_with(
                dynamodb=self.dynamodb,
                kinesis=self.port,
                cloudwatch=None,
                children=self.children,
                clock=self.clock,
                ids=CountingIds(),
                rng=random.Random(2),
                offload=Inline(),
                pid=4711,
                read_entries=self.read_entries,
                limits=self.limits,
                resident_bytes=lambda _pid: self.resident_bytes,
            ),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[app.Worker]:
        """The worker at work, stopped and drained at the end."""
        task = asyncio.create_task(self.worker.run())
        await asyncio.sleep(5)
        try:
            if task.done():
                await task
            yield self.worker
        finally:
            self.worker.scheduler.stop()
            outcome = await task
        assert outcome.complete

    def tracker(self) -> Any:
        return self.worker.streams

    # -- streams -------------------------------------------------------------------------------

    def create(self, name: str, shards: int = 1) -> None:
        self.kinesis.call("CreateStream", {"StreamName": name, "ShardCount": shards})

    def delete(self, name: str) -> None:
        request = {"StreamName": name, "EnforceConsumerDeletion": True}
        self.kinesis.call("DeleteStream", request)

    def put(self, name: str, *payloads: str) -> None:
        for payload in payloads:
            data = base64.b64encode(payload.encode()).decode()
            request = {"StreamName": name, "PartitionKey": "k", "Data": data}
            self.kinesis.call("PutRecord", request)

    def split(self, name: str, shard_id: str = FIRST) -> None:
        request = {
            "StreamName": name,
            "ShardToSplit": shard_id,
            "NewStartingHashKey": str(2**127),
        }
        self.kinesis.call("SplitShard", request)

    def created_s(self, name: str) -> int:
        return self.kinesis.stream(name).created_ms // 1000

    def identifier(self, name: str) -> str:
        return f"{ACCOUNT}:{name}:{self.created_s(name)}"

    # -- table ---------------------------------------------------------------------------------

    def rows(self) -> dict[str, dict[str, Any]]:
        """Leases of the lease table by key, as DynamoDB JSON."""
        if "app" not in self.model.tables:
            return {}
        items = self.model.call("Scan", {"TableName": "app"})["Items"]
        return {item["leaseKey"]["S"]: item for item in items if "leaseCounter" in item}

    def checkpoints(self) -> dict[str, str]:
        return {key: item["checkpoint"]["S"] for key, item in self.rows().items()}

    async def make_table(self) -> None:
        """As a worker of another time left it: without rows."""
        await self.worker.coordinator.store.table.ensure()

    def add_row(self, identifier: str | None, shard_id: str = FIRST, **changes: Any) -> str:
        """A lease as Java writes it."""
        key = shard_id if identifier is None else f"{identifier}:{shard_id}"
        item = {
            "leaseKey": {"S": key},
            "leaseCounter": {"N": "3"},
            "ownerSwitchesSinceCheckpoint": {"N": "0"},
            "checkpoint": {"S": "TRIM_HORIZON"},
            "checkpointSubSequenceNumber": {"N": "0"},
            "startingHashKey": {"S": "0"},
            "endingHashKey": {"S": str(2**128 - 1)},
            **changes,
        }
        if identifier is not None:
            item |= {"streamName": {"S": identifier}, "shardId": {"S": shard_id}}
        self.model.call("PutItem", {"TableName": "app", "Item": item})
        return key


def initialize_of(child: ScriptedChild) -> dict[str, Any]:
    """The first message of a child."""
    return json.loads(json.dumps(child.heard[0]))
