"""Operations on whole streams: create, delete, describe, list, retention."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from mld.local.kinesis.faults import in_use, invalid, malformed, over_limit
from mld.local.kinesis.listing import (
    filtered_shards,
    page_answer,
    page_size,
    read_page_token,
)
from mld.local.kinesis.stream import LocalStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.state import KinesisState

_STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_MAX_SHARDS = 10_000
_ON_DEMAND_SHARDS = 4


def create_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """CreateStream: ``ShardCount`` shards, or four on demand."""
    name = request.get("StreamName")
    if not isinstance(name, str) or not _STREAM_NAME.fullmatch(name):
        raise malformed("StreamName must have 1 to 128 letters, digits, _ . or -.")
    if name in state.streams:
        raise in_use(f"Stream {name} under account {state.settings.account_id} already exists.")
    on_demand = request.get("StreamModeDetails", {}).get("StreamMode") == "ON_DEMAND"
    count = request.get("ShardCount", _ON_DEMAND_SHARDS if on_demand else None)
    if not isinstance(count, int) or count < 1:
        raise malformed("ShardCount must be at least 1.")
    if count > _MAX_SHARDS:
        raise over_limit(f"This request would exceed the shard limit of {_MAX_SHARDS}.")
    stream = LocalStream(
        name, state.arn_prefix() + name, state.now_ms(), count, on_demand=on_demand
    )
    stream.tags.update(request.get("Tags", {}))
    state.streams[name] = stream
    if state.settings.create_s > 0:
        due_ms = state.now_ms() + int(state.settings.create_s * 1000)
        stream.schedule("CREATING", due_ms, lambda _due_ms: None)
    return {}


def delete_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DeleteStream: refused while consumers are registered, unless enforced."""
    stream = state.find(request, active=False)
    if stream.consumers and not request.get("EnforceConsumerDeletion"):
        raise in_use(f"Stream {stream.name} has registered consumers.")
    for consumer in stream.consumers.values():
        consumer.gone_ms = state.now_ms()

    def remove(_due_ms: int) -> None:
        state.streams.pop(stream.name, None)
        state.limits.forget(stream.name)

    if state.settings.delete_s > 0:
        stream.schedule("DELETING", state.now_ms() + int(state.settings.delete_s * 1000), remove)
    else:
        remove(0)
    return {}


def describe_stream_summary(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeStreamSummary: state and counts without the shards."""
    stream = state.find(request, active=False)
    state.count_call("DescribeStreamSummary", stream.name)
    summary = _common_description(stream)
    summary["OpenShardCount"] = len(stream.open_shards)
    summary["ConsumerCount"] = len(stream.consumers)
    return {"StreamDescriptionSummary": summary}


def describe_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeStream: the same with the shards, paged by ``ExclusiveStartShardId``."""
    stream = state.find(request, active=False)
    state.count_call("DescribeStream", stream.name)
    after = request.get("ExclusiveStartShardId", "")
    shards = [shard for shard in stream.shards.values() if shard.shard_id > after]
    limit = request.get("Limit", 100)
    if not isinstance(limit, int) or not 1 <= limit <= 10_000:
        raise malformed("Limit must be between 1 and 10000.")
    description = _common_description(stream)
    description["Shards"] = [shard.describe() for shard in shards[: min(limit, 100)]]
    description["HasMoreShards"] = len(shards) > min(limit, 100)
    return {"StreamDescription": description}


def _common_description(stream: LocalStream) -> dict[str, Any]:
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": stream.status,
        "StreamModeDetails": {"StreamMode": "ON_DEMAND" if stream.on_demand else "PROVISIONED"},
        "RetentionPeriodHours": stream.retention_hours,
        "StreamCreationTimestamp": stream.created_ms / 1000,
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
    }


def list_streams(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """ListStreams: names in order, paged by the last name."""
    state.count_call("ListStreams", "")
    limit = request.get("Limit", 100)
    if not isinstance(limit, int) or not 1 <= limit <= 10_000:
        raise malformed("Limit must be between 1 and 10000.")
    after = request.get("NextToken") or request.get("ExclusiveStartStreamName") or ""
    for name in list(state.streams):
        state.streams[name].settle(state.now_ms())
    names = sorted(name for name in state.streams if name > after)
    answer: dict[str, Any] = {
        "StreamNames": names[:limit],
        "HasMoreStreams": len(names) > limit,
        "StreamSummaries": [
            {
                key: value
                for key, value in _common_description(state.streams[name]).items()
                if key in _SUMMARY_FIELDS
            }
            for name in names[:limit]
        ],
    }
    if len(names) > limit:
        answer["NextToken"] = names[limit - 1]
    return answer


_SUMMARY_FIELDS = frozenset(
    {"StreamName", "StreamARN", "StreamStatus", "StreamModeDetails", "StreamCreationTimestamp"}
)


def list_shards(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """ListShards: by stream with an optional filter, or by the token of the page before."""
    now_ms = state.now_ms()
    token = request.get("NextToken")
    if token is None:
        stream = state.find(request)
        state.count_call("ListShards", stream.name)
        if "ShardFilter" in request and "ExclusiveStartShardId" in request:
            raise invalid("ExclusiveStartShardId and ShardFilter cannot be used together.")
        shards = filtered_shards(stream, request.get("ShardFilter"), now_ms)
        after = request.get("ExclusiveStartShardId", "")
        shards = [shard for shard in shards if shard.shard_id > after]
        return page_answer(stream, shards, page_size(request), now_ms)
    if {"StreamName", "StreamARN", "ExclusiveStartShardId", "ShardFilter"} & request.keys():
        raise invalid("NextToken cannot be used with a stream, a starting shard or a filter.")
    page = read_page_token(token, now_ms)
    stream = state.named(page.stream)
    state.count_call("ListShards", stream.name)
    if stream.created_ms != page.created_ms:
        raise invalid("NextToken belongs to a stream that is gone.")
    shards = [stream.shards[shard_id] for shard_id in page.rest if shard_id in stream.shards]
    size = page_size(request) if "MaxResults" in request else page.size
    return page_answer(stream, shards, size, now_ms)


def change_retention(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """Increase- and DecreaseStreamRetentionPeriod: 24 to 8760 hours, at once."""
    stream = state.find(request)
    hours = request.get("RetentionPeriodHours")
    if not isinstance(hours, int) or not 24 <= hours <= 8760:
        raise invalid("RetentionPeriodHours must be between 24 and 8760.")
    stream.retention_hours = hours
    return {}
