"""Finds the children of a closed shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.errors import MalformedData, NotFound
from kcl_mld.retrieval.model.wire import read_batch
from kcl_mld.streams.model.shard import ChildShard, Shard

if TYPE_CHECKING:
    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.stream import Stream


async def child_shards(kinesis: Kinesis, stream: Stream, shard_id: str) -> tuple[ChildShard, ...]:
    """The children of a closed shard.

    They are asked by reading at its end; where few may read a shard, by listing.

    Raises:
        NotFound: stream or shard do not exist any more.
        AwsError: the call failed, so the children are unknown. Not retried here.
        MalformedData: the answer contradicts itself.
    """
    if stream.traits.most_readers is not None:
        return await _listed(kinesis, stream, shard_id)
    answer = await kinesis.get_shard_iterator(
        **stream.request(), ShardId=shard_id, ShardIteratorType="LATEST"
    )
    iterator = answer.get("ShardIterator")
    if not iterator:
        raise MalformedData(f"{shard_id}: GetShardIterator answered without an iterator")
    arn = {"StreamARN": stream.arn} if stream.arn else {}
    body = await kinesis.get_records(ShardIterator=iterator, **arn)
    return read_batch(body).child_shards


async def _listed(kinesis: Kinesis, stream: Stream, shard_id: str) -> tuple[ChildShard, ...]:
    only = {"Type": "CHILD_SHARDS", "ShardId": shard_id}
    answer = await kinesis.list_shards(**stream.request(), ShardFilter=only)
    children = [Shard.from_response(entry) for entry in answer["Shards"]]
    if not children:
        answer = await kinesis.list_shards(**stream.request())
        if all(entry["ShardId"] != shard_id for entry in answer["Shards"]):
            raise NotFound("ListShards", "ResourceNotFoundException", f"{shard_id} is not listed")
    return tuple(ChildShard(one.shard_id, one.parent_shard_ids, one.hash_range) for one in children)
