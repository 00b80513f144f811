"""A stream, a lease table and the services that stand between them, in virtual time."""

from __future__ import annotations

import random
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

from kcl_mld.children.consuming.stream_context import StreamContext, StreamRegistry
from kcl_mld.config.config import (
    AwsConfig,
    ChildConfig,
    Config,
    LeaseConfig,
    ShardConfig,
    StreamConfig,
)
from kcl_mld.config.credentials import CredentialChain
from kcl_mld.config.stream import Stream
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber, InitialPosition, Sentinel
from kcl_mld.local.kinesis.model import KinesisModel
from kcl_mld.retrieval.child_shards import child_shards
from kcl_mld.shards.lease_cleanup import LeaseCleanup
from kcl_mld.shards.shard_detector import ShardDetector
from kcl_mld.shards.shard_end import ShardEnd
from kcl_mld.shards.shard_syncer import ShardSyncer
from kcl_mld.shards.stream_existence import StreamExistence, StreamSource
from kcl_mld.streams.identified_stream import IdentifiedStream
from tests.fakes.fake_kinesis import FakeKinesis
from tests.fakes.lease_world import TABLE, World
from tests.sim.loop import run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kcl_mld.leases.model.lease import Lease

HALF = 2**127
#: A checkpoint of a shard that is being read.
MOVING = "49590338271490256608559692538361571095921575989136588898"
P = ParamSpec("P")


def simulated(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Let a test coroutine run in virtual time."""

    @wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return wrapper


def _no_publisher(shard_id: str) -> NoReturn:
    raise AssertionError(f"nobody reads {shard_id} here")


class Leader:
    def __init__(self) -> None:
        self.leads = True

    async def is_leader(self) -> bool:
        return self.leads

    async def check_table(self) -> None:
        pass


class ShardWorld(World):
    """``World`` with a stream ``s`` beside the table."""

    def __init__(
        self,
        shards: int = 2,
        position: Sentinel = Sentinel.TRIM_HORIZON,
        *,
        timestamp_s: float | None = None,
        stream: Stream | None = None,
        **shard_settings: Any,
    ) -> None:
        super().__init__(stream=stream or Stream("s"))
        self.create_table()
        self.rng = random.Random(1)
        self.kinesis_model = KinesisModel(self.clock.wall, self.rng)
        self.kinesis_faults: list[tuple[str, BaseException]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.kinesis = FakeKinesis(self.kinesis_model, before=self._before)
        self.leader = Leader()
        self.config_tree = Config(
            application_name=TABLE,
            worker_id="me",
            stream=StreamConfig(name="s", initial_position=InitialPosition(position, timestamp_s)),
            aws=AwsConfig(kinesis_credentials=CredentialChain(())),
            leases=LeaseConfig(table_name=TABLE),
            child=ChildConfig(argv=("app",)),
            shards=ShardConfig(**shard_settings),
        )
        if shards:
            self.create_stream(shards)
        worker = self.worker("me")
        self.lease_store, self.renewer = worker.store, worker.renewer
        self.detector = ShardDetector(self.kinesis, self.stream, self.config_tree.shards, self.rng)
        #: Leases of the stream, as its existence sees them.
        self.seen_leases: list[Lease] = []
        self.existence = StreamExistence(
            self.kinesis,
            IdentifiedStream(self.stream),
            self.detector,
            TABLE,
            self.conditions,
            self.clock,
            self.rng,
            lambda: self.seen_leases,
        )
        self.source = StreamSource(
            stream=self.stream,
            position=self.config_tree.stream.initial_position,
            detector=self.detector,
            existence=self.existence,
            children_of=partial(child_shards, self.kinesis, self.stream),
        )
        self.streams = StreamRegistry()
        self.cleanup = LeaseCleanup(
            self.lease_store,
            self.streams,
            lambda lease: self.streams.of(lease).source,
            self.config_tree.shards,
            self.clock,
            self.renewer,
        )
        self.syncer = self.new_syncer()
        self.streams.add(
            StreamContext(
                source=self.source,
                syncer=self.syncer,
                publishers=_no_publisher,
                metrics=self.metrics,
            )
        )

    def new_syncer(self) -> ShardSyncer:
        """That of another worker, or of the next process."""
        return ShardSyncer(
            self.lease_store,
            self.source,
            self._is_leader,
            self._check_table,
            self.config_tree,
            self.clock,
            self.metrics,
            on_abandoned=self.cleanup.enqueue,
        )

    # As the leader is at the call: tests replace what it answers.

    async def _is_leader(self) -> bool:
        return await self.leader.is_leader()

    async def _check_table(self) -> None:
        await self.leader.check_table()

    def shard_end(self, *, has_room: bool = True) -> ShardEnd:
        return ShardEnd(
            self.lease_store,
            self.clock,
            random.Random(0),
            self.metrics,
            has_room=lambda: has_room,
        )

    async def _before(self, _service: str, operation: str, request: Any) -> None:
        self.calls.append((operation, dict(request)))
        for fault in list(self.kinesis_faults):
            if fault[0] == operation:
                self.kinesis_faults.remove(fault)
                raise fault[1]

    def fail(self, operation: str, error: BaseException, times: int = 1) -> None:
        self.kinesis_faults += [(operation, error)] * times

    def count(self, operation: str) -> int:
        return sum(called == operation for called, _request in self.calls)

    # -- the stream -------------------------------------------------------------------------------

    def kinesis_call(self, operation: str, **request: Any) -> dict[str, Any]:
        return self.kinesis_model.call(operation, {"StreamName": "s", **request})

    def create_stream(self, shards: int) -> None:
        self.kinesis_call("CreateStream", ShardCount=shards)

    def delete_stream(self) -> None:
        self.kinesis_call("DeleteStream")

    def split(self, number: int, at: int = HALF) -> None:
        self.kinesis_call("SplitShard", ShardToSplit=shard_id(number), NewStartingHashKey=str(at))

    async def reshard(self) -> None:
        """Shard 0 was split into 1 and 2; its lease is finished, theirs are being read."""
        await self.syncer.sync_if_empty()
        self.split(0)
        children = await self.source.children_of(shard_id(0))
        await self.shard_end().create_child_leases(await self.read(0), children)
        self.at(0, "SHARD_END")
        self.at(1, MOVING)
        self.at(2, MOVING)

    def trim(self, number: int) -> None:
        """Let retention pass for one closed shard."""
        del self.kinesis_model.stream("s").shards[shard_id(number)]

    def recreate_stream(self, shards: int = 1) -> None:
        self.delete_stream()
        self.create_stream(shards)

    def merge(self, first: int, second: int) -> None:
        self.kinesis_call(
            "MergeShards", ShardToMerge=shard_id(first), AdjacentShardToMerge=shard_id(second)
        )

    # -- the table --------------------------------------------------------------------------------

    def checkpoints(self) -> dict[str, str]:
        """Checkpoint by the last digits of the shard id."""
        return {
            item["leaseKey"]["S"].rpartition("-")[2].lstrip("0") or "0": item["checkpoint"]["S"]
            for item in sorted(self.model.items(TABLE), key=lambda item: item["leaseKey"]["S"])
        }

    async def read(self, number: int) -> Lease:
        lease = await self.lease_store.get(self.stream.lease_key(shard_id(number)))
        assert lease is not None
        return lease

    def at(self, number: int, checkpoint: str) -> None:
        self.change(self.stream.lease_key(shard_id(number)), checkpoint=checkpoint)

    def delete(self, *numbers: int) -> None:
        for number in numbers:
            key = {"leaseKey": {"S": self.stream.lease_key(shard_id(number))}}
            self.model.call("DeleteItem", {"TableName": TABLE, "Key": key})


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def position(text: str) -> ExtendedSequenceNumber:
    return ExtendedSequenceNumber(text)
