"""A model with one stream, on a clock that moves only when told to."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from kcl_mld.local.kinesis import KinesisFault, KinesisModel, KinesisSettings

FIRST, SECOND, THIRD = (f"shardId-{number:012d}" for number in range(3))
HOUR_S = 3600.0
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/s"
_BY_ARN = {"RegisterStreamConsumer", "DescribeStreamConsumer", "ListStreamConsumers"}


class World:
    """A model with one stream on a clock of its own."""

    def __init__(self, shards: int = 1, **settings: Any) -> None:
        self.now_s = 1_700_000_000.0
        self.model = KinesisModel(lambda: self.now_s, random.Random(5), KinesisSettings(**settings))
        self.call("CreateStream", ShardCount=shards)

    def call(self, operation: str, **request: Any) -> dict[str, Any]:
        if operation in _BY_ARN and not request.keys() & {"StreamARN", "ConsumerARN"}:
            request = {"StreamARN": ARN, **request}
        if not request.keys() & {"ShardIterator", "NextToken", "StreamARN", "ConsumerARN"}:
            request = {"StreamName": "s", **request}
        return self.model.call(operation, request)

    def refused(self, operation: str, **request: Any) -> str:
        with pytest.raises(KinesisFault) as caught:
            self.call(operation, **request)
        return caught.value.code

    def put(self, *texts: str, key: int = 0) -> list[str]:
        return [
            self.call("PutRecord", Data=encoded(text), PartitionKey="k", ExplicitHashKey=str(key))[
                "SequenceNumber"
            ]
            for text in texts
        ]

    def iterator(self, shard: str = FIRST, kind: str = "TRIM_HORIZON", **more: Any) -> str:
        answer = self.call("GetShardIterator", ShardId=shard, ShardIteratorType=kind, **more)
        text: str = answer["ShardIterator"]
        return text

    def read(self, iterator: str, **more: Any) -> tuple[list[str], dict[str, Any]]:
        answer = self.call("GetRecords", ShardIterator=iterator, **more)
        return [base64.b64decode(r["Data"]).decode() for r in answer["Records"]], answer

    def shard_ids(self, **request: Any) -> list[str]:
        return [shard["ShardId"] for shard in self.call("ListShards", **request)["Shards"]]

    def split(self, shard: str = FIRST, at: int = 1 << 127) -> None:
        self.call("SplitShard", ShardToSplit=shard, NewStartingHashKey=str(at))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
