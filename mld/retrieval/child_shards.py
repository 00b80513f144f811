"""Asks a closed shard for its children."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.errors import MalformedData
from mld.retrieval.model.wire import read_batch

if TYPE_CHECKING:
    from mld.aws.ports import Kinesis
    from mld.config.stream import Stream
    from mld.streams.model.shard import ChildShard


async def child_shards(kinesis: Kinesis, stream: Stream, shard_id: str) -> tuple[ChildShard, ...]:
    """The children of a closed shard, asked by reading at its end.

    Raises:
        NotFound: stream or shard do not exist any more.
        AwsError: the call failed; nothing is known. Not retried here.
        MalformedData: the answer contradicts itself.
    """
    answer = await kinesis.get_shard_iterator(
        **stream.request(), ShardId=shard_id, ShardIteratorType="LATEST"
    )
    iterator = answer.get("ShardIterator")
    if not iterator:
        raise MalformedData(f"{shard_id}: GetShardIterator answered without an iterator")
    arn = {"StreamARN": stream.arn} if stream.arn else {}
    body = await kinesis.get_records(ShardIterator=iterator, **arn)
    return read_batch(body).child_shards
