"""Requests that the Java daemon sent, with the answers it got, asked again of our own services.

A row is [operation, status, request, answer]; recorded against DynamoDB Local and kinesis-local
during one life of a stream with a split and a merge.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.contract.targets import InProcessKinesis, Refused
from tests.fakes.items import SETS, number_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.targets import Target

WIRE = Path(__file__).resolve().parents[1] / "data" / "wire"
Row = tuple[str, int, dict[str, Any], dict[str, Any]]


def rows(name: str) -> Iterator[Row]:
    with (WIRE / f"{name}.jsonl").open() as lines:
        for line in lines:
            operation, status, request, answer = json.loads(line)
            yield operation, status, request, answer


def test_recorded_dynamodb_requests_get_the_same_answers(dynamodb: Target) -> None:
    kinds = set()
    for number, (operation, status, request, recorded) in enumerate(rows("dynamodb"), 1):
        code, answer = asked(dynamodb, operation, request)
        if operation == "UpdateTable":
            let_the_index_become_active(dynamodb, request["TableName"])
        where = (number, operation, request)
        assert recorded.get("__type", "#").rpartition("#")[2] == code, where
        assert (code == "") is (status == 200), where
        kinds.add(operation)
        if operation not in {"CreateTable", "UpdateTable", "DescribeTable"}:
            assert comparable(answer) == comparable(recorded), where
    assert kinds >= {"CreateTable", "PutItem", "UpdateItem", "DeleteItem", "Scan", "Query"}
    dynamodb.call("DeleteTable", TableName="life")


def asked(dynamodb: Target, operation: str, request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The code of the error, empty for none, and the answer."""
    try:
        return "", dynamodb.call(operation, **request)
    except Refused as refusal:
        return refusal.code, {}


def let_the_index_become_active(dynamodb: Target, table: str) -> None:
    for _ in range(100):
        # DynamoDB Local answers InternalFailure now and then while it makes an index.
        code, answer = asked(dynamodb, "DescribeTable", {"TableName": table})
        assert code in {"", "InternalFailure"}
        if not code and answer["Table"]["GlobalSecondaryIndexes"][0]["IndexStatus"] == "ACTIVE":
            return
        dynamodb.advance(0.1)
    raise AssertionError(f"the index of {table} does not become active")


def comparable(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer with items in order and values in one form, without what nobody asked for."""
    answer = {name: in_order(value) for name, value in answer.items() if name != "ConsumedCapacity"}
    if "Items" in answer:
        answer["Items"] = sorted(answer["Items"], key=lambda item: str(item["leaseKey"]))
    return answer


def in_order(value: Any, kind: str = "") -> Any:
    """A value with its sets in order and its numbers in normal form."""
    if isinstance(value, dict):
        return {name: in_order(entry, name) for name, entry in value.items()}
    if isinstance(value, list):
        return sorted(value) if kind in SETS else [in_order(entry) for entry in value]
    return number_text(value) if kind == "N" else value


class Replay:
    """Brings a model to where the recorded stream was before each answer."""

    def __init__(self) -> None:
        self.kinesis = InProcessKinesis()
        self.model = self.kinesis.model
        self.kinesis.call("CreateStream", StreamName="life", ShardCount=2)
        self.kinesis.advance(1)
        self.iterators: dict[str, str] = {}
        self.shards: dict[str, str] = {}

    def produce(self, shard_id: str, records: list[dict[str, Any]]) -> None:
        """Put what the answer will hold."""
        shard = self.model.stream("life").shards[shard_id]
        for record in records:
            self.model.call(
                "PutRecord",
                {
                    "StreamName": "life",
                    "PartitionKey": record["PartitionKey"],
                    "Data": record["Data"],
                    "ExplicitHashKey": str(shard.start_key),
                },
            )

    def reshard(self, children: list[dict[str, Any]]) -> None:
        """Split or merge so that these children exist."""
        if children[0]["ShardId"] in self.model.stream("life").shards:
            return
        parents = children[0]["ParentShards"]
        if len(parents) == 2:
            request = {"ShardToMerge": parents[0], "AdjacentShardToMerge": parents[1]}
            self.model.call("MergeShards", {"StreamName": "life", **request})
        else:
            middle = children[1]["HashKeyRange"]["StartingHashKey"]
            request = {"ShardToSplit": parents[0], "NewStartingHashKey": middle}
            self.model.call("SplitShard", {"StreamName": "life", **request})
        self.kinesis.advance(1)


def test_recorded_kinesis_requests_get_the_same_answers() -> None:
    replay = Replay()
    ended = 0
    listed: list[list[str]] = []
    for operation, _status, request, recorded in rows("kinesis"):
        if operation == "ListShards":
            prepare_listing(replay, recorded)
            answer = replay.model.call(operation, request)
            listed.append([shard["ShardId"] for shard in recorded["Shards"]])
            for ours, theirs in zip(answer["Shards"], recorded["Shards"], strict=True):
                assert shape(ours) == shape(theirs)
        elif operation == "GetShardIterator":
            answer = replay.model.call(operation, request)
            replay.iterators[recorded["ShardIterator"]] = answer["ShardIterator"]
            replay.shards[recorded["ShardIterator"]] = request["ShardId"]
        else:
            ended += replay_read(replay, request, recorded)
    assert ended == 3
    assert listed[-1] == [f"shardId-{number:012d}" for number in range(len(listed[-1]))]


def prepare_listing(replay: Replay, recorded: dict[str, Any]) -> None:
    by_parents: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for shard in recorded["Shards"]:
        parents = tuple(filter(None, (shard["ParentShardId"], shard["AdjacentParentShardId"])))
        if parents:
            child = {**shard, "ParentShards": list(parents)}
            by_parents.setdefault(parents, []).append(child)
    for children in by_parents.values():
        replay.reshard(children)


def shape(shard: dict[str, Any]) -> dict[str, Any]:
    """A listed shard without numbers that differ from run to run; null means absent."""
    sequences = shard["SequenceNumberRange"]
    return {
        "ShardId": shard["ShardId"],
        "parents": [shard.get("ParentShardId"), shard.get("AdjacentParentShardId")],
        "is_open": sequences.get("EndingSequenceNumber") is None,
        "fields": sorted(name for name, value in shard.items() if value is not None),
    }


def replay_read(replay: Replay, request: dict[str, Any], recorded: dict[str, Any]) -> int:
    """Ask again; 1 when the answer ended its shard."""
    name = request["ShardIterator"]
    shard_id = replay.shards[name]
    replay.produce(shard_id, recorded["Records"])
    if recorded["ChildShards"]:
        replay.reshard(recorded["ChildShards"])
    ours = {**request, "ShardIterator": replay.iterators[name]}
    answer = replay.model.call("GetRecords", ours)
    wanted = [(record["PartitionKey"], record["Data"]) for record in recorded["Records"]]
    assert [(r["PartitionKey"], r["Data"]) for r in answer["Records"]] == wanted
    for record, theirs in zip(answer["Records"], recorded["Records"], strict=True):
        assert record.keys() == theirs.keys() - {"EncryptionType"}
        assert len(record["SequenceNumber"]) == len(theirs["SequenceNumber"])
    assert answer["MillisBehindLatest"] == recorded["MillisBehindLatest"]
    if recorded["NextShardIterator"] is None:
        assert "NextShardIterator" not in answer
        assert [(c["ShardId"], c["ParentShards"]) for c in answer["ChildShards"]] == [
            (c["ShardId"], c["ParentShards"]) for c in recorded["ChildShards"]
        ]
        return 1
    assert "ChildShards" not in answer
    replay.iterators[recorded["NextShardIterator"]] = answer["NextShardIterator"]
    replay.shards[recorded["NextShardIterator"]] = shard_id
    return 0
