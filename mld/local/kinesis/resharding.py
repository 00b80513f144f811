"""SplitShard, MergeShards and UpdateShardCount.

Each makes the stream UPDATING for :attr:`KinesisSettings.reshard_s` seconds; then the parents are
closed and their children opened at the same moment. With 0 s it happens before the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import in_use, invalid, malformed, not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mld.local.kinesis.shard import LocalShard
    from mld.local.kinesis.state import KinesisState
    from mld.local.kinesis.stream import LocalStream


def split_shard(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """SplitShard at ``NewStartingHashKey``, the first key of the second child."""
    stream = _ready_stream(state, request)
    parent = _open_shard(stream, request.get("ShardToSplit"))
    key_text = request.get("NewStartingHashKey")
    if not isinstance(key_text, str) or not key_text.isdigit():
        raise malformed("NewStartingHashKey must be a decimal number.")
    key = int(key_text)
    if not parent.start_key + 1 < key < parent.end_key:
        raise invalid(
            f"NewStartingHashKey {key} is not inside the range of {parent.shard_id}, "
            f"{parent.start_key} to {parent.end_key}."
        )
    _change(state, stream, lambda due_ms: stream.split(parent, key, due_ms))
    return {}


def merge_shards(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """MergeShards of two open neighbors."""
    stream = _ready_stream(state, request)
    shard = _open_shard(stream, request.get("ShardToMerge"))
    adjacent = _open_shard(stream, request.get("AdjacentShardToMerge"))
    if shard.end_key + 1 != adjacent.start_key and adjacent.end_key + 1 != shard.start_key:
        raise invalid(f"Shards {shard.shard_id} and {adjacent.shard_id} are not adjacent.")
    _change(state, stream, lambda due_ms: stream.merge(shard, adjacent, due_ms))
    return {}


def update_shard_count(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """UpdateShardCount: to between half and twice the open shards, by splits or merges."""
    stream = _ready_stream(state, request)
    current = len(stream.open_shards)
    target = request.get("TargetShardCount")
    if not isinstance(target, int) or target < 1:
        raise malformed("TargetShardCount must be at least 1.")
    if request.get("ScalingType") != "UNIFORM_SCALING":
        raise malformed("ScalingType must be UNIFORM_SCALING.")
    if not current / 2 <= target <= current * 2:
        raise invalid(f"TargetShardCount must be between half and twice {current}.")
    _change(state, stream, lambda due_ms: stream.rescale(target, due_ms))
    return {
        "StreamName": stream.name,
        "CurrentShardCount": current,
        "TargetShardCount": target,
        "StreamARN": stream.arn,
    }


def _ready_stream(state: KinesisState, request: Mapping[str, Any]) -> LocalStream:
    stream = state.find(request)
    if stream.status != "ACTIVE":
        raise in_use(f"Stream {stream.name} is {stream.status}, not ACTIVE.")
    return stream


def _open_shard(stream: LocalStream, shard_id: object) -> LocalShard:
    shard = stream.shard(shard_id)
    if shard is None:
        raise not_found(f"Could not find shard {shard_id} in stream {stream.name}.")
    if not shard.is_open:
        raise invalid(f"Shard {shard.shard_id} in stream {stream.name} is already closed.")
    return shard


def _change(state: KinesisState, stream: LocalStream, change: Callable[[int], None]) -> None:
    now_ms = state.now_ms()
    delay_ms = int(state.settings.reshard_s * 1000)
    if delay_ms > 0:
        stream.schedule("UPDATING", now_ms + delay_ms, change)
    else:
        change(now_ms)
