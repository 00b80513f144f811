"""Runs our worker through a scenario that was recorded with the Java daemon.

The whole worker as ``kcl_mld.app`` builds it, from the recorded properties file, on an in-process
Kinesis and DynamoDB in virtual time. Its children play the recorded children: after each message
they write what the recorded child wrote after the same message, with our sequence numbers in the
place of the recorded ones. The world does what the recorded one did at the same point of the
conversation: puts the records that come next, reshards, asks the daemon to stop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld import app
from kcl_mld.config.build import build_config
from kcl_mld.config.stream import Stream
from kcl_mld.errors import MldError
from kcl_mld.local.kinesis.model import KinesisModel
from kcl_mld_protocol import transcripts
from kcl_mld_protocol.transcripts import Direction
from tests.fakes.aggregate import aggregate
from tests.fakes.app_ports import ports_with
from tests.fakes.children import ScriptedChild, ScriptedChildren
from tests.fakes.clock import CountingIds, LoopClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.dynamodb_model import DynamoDbModel
from tests.fakes.fake_kinesis import FakeKinesis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.app import Worker
    from kcl_mld.config.config import Config

DATA = Path(__file__).parents[1] / "data"
TABLES = [json.loads(line) for line in (DATA / "lease_tables.jsonl").read_text().splitlines()]
#: Written by 3.x workers only.
ONLY_3X = {"throughputKBps", "checkpointOwner"}
_SEQUENCE_NUMBER = re.compile(rb"\b[0-9]{50,60}\b")


class Inline:
    """Offload without threads."""

    async def run(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return work(*args, **kwargs)


@dataclass
class Step:
    """One recorded message of the daemon and what the child wrote until the next one."""

    line: bytes
    replies: list[bytes] = field(default_factory=list)

    @property
    def action(self) -> str:
        return str(json.loads(self.line)["action"])


@dataclass
class Recording:
    """One recorded child.

    Attributes:
        exit_code: its own, where it ended before its input did; else None.
        heard_eof: the daemon closed its stdin.
    """

    name: str
    steps: list[Step] = field(default_factory=list)
    exit_code: int | None = None
    heard_eof: bool = False

    @classmethod
    def load(cls, name: str) -> Recording:
        recording = cls(name)
        for entry in transcripts.load(name):
            if entry.direction is Direction.TO_CHILD:
                recording.steps.append(Step(entry.line))
            elif entry.direction is Direction.FROM_CHILD and not recording.heard_eof:
                recording.steps[-1].replies.append(entry.line)
            elif entry.line == b"stdin EOF from daemon":
                recording.heard_eof = True
            elif entry.line.startswith(b"child exit rc=") and not recording.heard_eof:
                recording.exit_code = int(entry.line.partition(b"=")[2])
        return recording

    @property
    def shard_id(self) -> str:
        return str(json.loads(self.steps[0].line)["shardId"])


class SequenceNumbers:
    """Recorded numbers and ours, in both directions; neighbors keep their distance."""

    def __init__(self) -> None:
        self._ours: dict[int, int] = {}

    def learn(self, recorded: str, ours: str) -> None:
        self._ours[int(recorded)] = int(ours)

    def knows(self, recorded: str) -> bool:
        return int(recorded) in self._ours

    def translate(self, line: bytes) -> bytes:
        """A recorded line with our numbers."""
        return _SEQUENCE_NUMBER.sub(
            lambda found: str(self._one(int(found[0]), self._ours)).encode(), line
        )

    def recorded(self, number: str) -> str:
        """The recorded number in the place of ours."""
        theirs = {ours: recorded for recorded, ours in self._ours.items()}
        return str(self._one(int(number), theirs))

    @staticmethod
    def _one(number: int, table: dict[int, int]) -> int:
        if not table:
            return number
        nearest = min(table, key=lambda known: abs(known - number))
        return table[nearest] + number - nearest


class ReplayWorld:
    """Stream and table of one scenario, and the workers that run in it one after the other."""

    def __init__(self, scenario: str, resharding: Iterable[tuple[str, ...]] = ()) -> None:
        """Prepare.

        Args:
            scenario: its name.
            resharding: the parents of each split (one) or merge (two), in the recorded order.
        """
        self.scenario = scenario
        self.clock = LoopClock(1_795_000_000.0)
        self.kinesis = KinesisModel(self.clock.wall, random.Random(1))
        self.dynamodb = DynamoDbModel(self.clock.wall)
        self.numbers = SequenceNumbers()
        self.resharding = [tuple(parents) for parents in resharding]
        self.exchanges: dict[str, list[bytes]] = {}
        self.unrecorded: list[list[bytes]] = []
        self.before_stop: dict[str, list[dict[str, Any]]] = {}
        self.after_end: dict[str, list[dict[str, Any]]] = {}
        self.worker: Worker | None = None
        self._waiting: dict[str, str] = {}
        self._left: list[Recording] = []

    # -- the stream ----------------------------------------------------------------------------

    def create_stream(self, name: str, shards: int) -> None:
        self.kinesis.call("CreateStream", {"StreamName": name, "ShardCount": shards})

    def _put(self, shard_id: str, step: Step) -> None:
        """Put the records of a recorded batch that are not in the stream yet."""
        assert self.worker is not None
        stream = self.worker.config.stream.name
        by_number: dict[str, list[dict[str, Any]]] = {}
        for record in json.loads(step.line)["records"]:
            if not self.numbers.knows(record["sequenceNumber"]):
                by_number.setdefault(record["sequenceNumber"], []).append(record)
        (keys,) = [
            one["HashKeyRange"]
            for one in self.kinesis.call("ListShards", {"StreamName": stream})["Shards"]
            if one["ShardId"] == shard_id
        ]
        for number, parts in by_number.items():
            data = parts[0]["data"]
            if len(parts) > 1:
                pairs = [(part["partitionKey"], base64.b64decode(part["data"])) for part in parts]
                data = base64.b64encode(aggregate(*pairs)).decode()
            answer = self.kinesis.call(
                "PutRecord",
                {
                    "StreamName": stream,
                    "PartitionKey": parts[0]["partitionKey"],
                    "ExplicitHashKey": keys["StartingHashKey"],
                    "Data": data,
                },
            )
            self.numbers.learn(number, answer["SequenceNumber"])

    def _put_first(self) -> None:
        """What was in the stream before the worker started."""
        assert self.worker is not None
        listed = self.kinesis.call("ListShards", {"StreamName": self.worker.config.stream.name})
        for recording in self._all:
            is_there = recording.shard_id in {one["ShardId"] for one in listed["Shards"]}
            is_late = b'"LATEST"' in recording.steps[0].line
            batches = [step for step in recording.steps if step.action == "processRecords"]
            if is_there and batches and not is_late:
                self._put(recording.shard_id, batches[0])

    def _reshard(self, parents: tuple[str, ...]) -> None:
        assert self.worker is not None
        name = self.worker.config.stream.name
        (first, *others) = parents
        if others:
            self.kinesis.call(
                "MergeShards",
                {"StreamName": name, "ShardToMerge": first, "AdjacentShardToMerge": others[0]},
            )
            return
        (keys,) = [
            one["HashKeyRange"]
            for one in self.kinesis.call("ListShards", {"StreamName": name})["Shards"]
            if one["ShardId"] == first
        ]
        middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2 + 1
        self.kinesis.call(
            "SplitShard",
            {"StreamName": name, "ShardToSplit": first, "NewStartingHashKey": str(middle)},
        )

    # -- the table -----------------------------------------------------------------------------

    def translate(self, text: str) -> str:
        """A recorded value with our sequence numbers."""
        return self.numbers.translate(text.encode()).decode()

    def leases(self) -> list[dict[str, Any]]:
        """Items of the lease table that are leases."""
        assert self.worker is not None
        items = self.dynamodb.items(self.worker.config.leases.table_name)
        return [dict(item) for item in items if "leaseCounter" in item]

    def _delete_lease(self, key: str) -> None:
        assert self.worker is not None
        table = self.worker.config.leases.table_name
        self.dynamodb.call("DeleteItem", {"TableName": table, "Key": {"leaseKey": {"S": key}}})

    # -- children ------------------------------------------------------------------------------

    async def play(self, child: ScriptedChild) -> int:
        """The script of every child: find the recording of its shard and play it."""
        lines = _Lines(child)
        first = await lines.next()
        if first is None:
            return 0
        shard_id = json.loads(first)["shardId"]
        recording = next((one for one in self._left if one.shard_id == shard_id), None)
        if recording is None:
            heard: list[bytes] = []
            self.unrecorded.append(heard)
            template = next(r for r in self._all if r.shard_id == shard_id)
            return await self._follow(child, lines, first, template, heard, "")
        self._left.remove(recording)
        heard = self.exchanges.setdefault(recording.name, [])
        return await self._follow(child, lines, first, recording, heard, recording.name)

    async def _follow(
        self,
        child: ScriptedChild,
        lines: _Lines,
        line: bytes | None,
        recording: Recording,
        heard: list[bytes],
        name: str,
    ) -> int:
        pending = ""
        for number, step in enumerate(recording.steps):
            if line is None:
                return 0
            heard.append(line)
            pending = json.loads(line)["action"]
            if number and recording.steps[number - 1].action == "shardEnded":
                self.after_end[recording.shard_id] = self.leases()
            for reply in step.replies:
                await child.print(self.numbers.translate(reply))
            following = recording.steps[number + 1 :]
            if not following and recording.exit_code is not None:
                return recording.exit_code
            if name:
                self._foresee(recording, following)
            line = await lines.next()
        while line is not None:  # more than was recorded: answer politely
            heard.append(line)
            action = json.loads(line)["action"]
            pending = pending if action == "checkpoint" else action
            if pending == "checkpoint":
                pending = "processRecords"
            await child.answer({"action": pending})
            line = await lines.next()
        return 0

    def _foresee(self, recording: Recording, following: list[Step]) -> None:
        """Make happen what was recorded next; act once all children wait for the same."""
        shard_id = recording.shard_id
        self._waiting.pop(shard_id, None)
        upcoming = following[0].action if following else "end"
        is_asked = any(step.action == "shutdownRequested" for step in recording.steps)
        match upcoming:
            case "processRecords":
                self._put(shard_id, following[0])
            case "leaseLost" if not is_asked:
                self._delete_lease(shard_id)
            case "end" if recording.steps[-1].action == "shardEnded":
                pass  # nothing was checkpointed: the shard is not finished
            case "shutdownRequested" | "shardEnded" | "end":
                self._waiting[shard_id] = upcoming
                self._act()

    def _act(self) -> None:
        """Reshard or stop once every child that it takes waits for it."""
        for parents in list(self.resharding):
            if all(self._waiting.get(parent) == "shardEnded" for parent in parents):
                self.resharding.remove(parents)
                self._reshard(parents)
        if not self._left and "shardEnded" not in self._waiting.values():
            self._stop_if_all_wait()

    def _stop_if_all_wait(self) -> None:
        assert self.worker is not None
        at_work = {one.shard_id for one in self.worker.scheduler.consumers()}
        if at_work <= set(self._waiting):
            self.before_stop[self.worker.config.worker_id] = self.leases()
            self.worker.scheduler.stop()

    # -- workers -------------------------------------------------------------------------------

    async def run(
        self,
        name: str,
        recordings: list[Recording],
        launcher: ScriptedChildren | None = None,
    ) -> int:
        """Run one worker to its end; the exit code that its process would have."""
        file = DATA / "golden" / self.scenario / f"{name}.properties"
        config: Config = build_config(file.read_bytes(), str(file), worker_id=name).require()
        self._left = list(recordings)
        self._all = list(recordings)
        self._waiting = {}
        ports = ports_with(
            dynamodb=FakeDynamoDb(self.dynamodb),
            kinesis=FakeKinesis(self.kinesis),
            cloudwatch=None,
            children=launcher or ScriptedChildren(self.play),
            clock=self.clock,
            ids=CountingIds(name),
            rng=random.Random(name),
            offload=Inline(),
            pid=4711,
        )
        self.worker = app.build(config, ports, Stream(config.stream.name))
        self._put_first()
        try:
            async with asyncio.timeout(2000):
                outcome = await self.worker.run()
        except MldError as error:
            return error.exit_code
        return 0 if outcome.complete else 143


class _Lines:
    """Raw lines of a child's stdin."""

    def __init__(self, child: ScriptedChild) -> None:
        self._child = child
        self._rest = b""

    async def next(self) -> bytes | None:
        while b"\n" not in self._rest:
            data = await self._child.stdin.read()
            if not data:
                assert not self._rest, "an unfinished line"
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line
