"""Operations on whole streams: create, delete, describe, list, retention, tags, resharding.

Source: Kinesis API reference, ListShards and ShardFilter. Where the reference leaves a moment to
two shards (a parent closed and its children opened at exactly the filter's time) the children
alone are shown, so that one answer of ``AT_TIMESTAMP`` never overlaps itself.

A change of shards makes the stream UPDATING for :attr:`KinesisSettings.reshard_s` seconds; then the
parents are closed and their children opened at the same moment. With 0 s it happens before the
answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.local.kinesis.faults import (
    KinesisFault,
    in_use,
    invalid,
    malformed,
    not_found,
    over_limit,
)
from kcl_mld.local.kinesis.shard import shard_id_of
from kcl_mld.local.kinesis.state import TOKEN_LIFE_S, make_token, read_token
from kcl_mld.local.kinesis.stream import LocalStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kcl_mld.local.kinesis.shard import LocalShard
    from kcl_mld.local.kinesis.state import KinesisState

DEFAULT_PAGE = 1000
MAX_PAGE = 10_000
_PAGE_KIND = "shards"
_STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_MAX_SHARDS = 10_000
_MAX_ON_DEMAND_STREAMS = 50
_ON_DEMAND_SHARDS = 4
_SUMMARY_FIELDS = frozenset(
    {"StreamName", "StreamARN", "StreamStatus", "StreamModeDetails", "StreamCreationTimestamp"}
)
#: Of a stream; also of an answer (Kinesis API reference).
_MOST_TAGS = 50


def filtered_shards(
    stream: LocalStream, shard_filter: Mapping[str, Any] | None, now_ms: int
) -> list[LocalShard]:
    """Shards that pass the filter, in order of their ids."""
    shards = list(stream.shards.values())
    if not shard_filter:
        return shards
    horizon_ms = stream.horizon_ms(now_ms)
    match shard_filter.get("Type"):
        case "AT_LATEST":
            shards = [shard for shard in shards if shard.is_open]
        case "FROM_TRIM_HORIZON":
            pass
        case "AT_TRIM_HORIZON":
            shards = _open_at(shards, horizon_ms)
        case "AT_TIMESTAMP":
            shards = _open_at(shards, max(_timestamp_ms(shard_filter), horizon_ms))
        case "FROM_TIMESTAMP":
            since = max(_timestamp_ms(shard_filter), horizon_ms)
            shards = [s for s in shards if s.closed_ms is None or s.closed_ms > since]
        case "AFTER_SHARD_ID":
            after = shard_filter.get("ShardId")
            if not isinstance(after, str):
                raise invalid("ShardFilter of type AFTER_SHARD_ID needs a ShardId.")
            shards = [shard for shard in shards if shard.shard_id > after]
        case other:
            raise malformed(f"Value '{other}' at 'shardFilter.type' is not a filter type.")
    return shards


def _open_at(shards: list[LocalShard], time_ms: float) -> list[LocalShard]:
    return [
        shard
        for shard in shards
        if shard.created_ms <= time_ms and (shard.closed_ms is None or shard.closed_ms > time_ms)
    ]


def _timestamp_ms(shard_filter: Mapping[str, Any]) -> float:
    timestamp = shard_filter.get("Timestamp")
    if not isinstance(timestamp, int | float):
        raise invalid(f"ShardFilter of type {shard_filter.get('Type')} needs a Timestamp.")
    return timestamp * 1000


def page_size(request: Mapping[str, Any]) -> int:
    """``MaxResults`` of a request, 1000 where it is absent."""
    size = request.get("MaxResults", DEFAULT_PAGE)
    if not isinstance(size, int) or not 1 <= size <= MAX_PAGE:
        raise malformed(f"Value '{size}' at 'maxResults' must be between 1 and {MAX_PAGE}.")
    return size


@dataclass(frozen=True, slots=True)
class Page:
    """What a page token stands for.

    Attributes:
        created_ms: its creation, which distinguishes it from a later stream of that name.
        size: shards a page.
        rest: ids still to show.
    """

    stream: str
    created_ms: int
    size: int
    rest: list[str]


def page_answer(
    stream: LocalStream, shards: list[LocalShard], size: int, now_ms: int
) -> dict[str, Any]:
    """One page; the token holds the rest, so that a filter applies to one moment on all pages."""
    answer: dict[str, Any] = {"Shards": [shard.describe() for shard in shards[:size]]}
    if len(shards) > size:
        rest = (shard.number for shard in shards[size:])
        answer["NextToken"] = make_token(
            _PAGE_KIND, stream.name, stream.created_ms, now_ms, size, *rest
        )
    return answer


def read_page_token(token: object, now_ms: int) -> Page:
    """The page that a token stands for.

    Raises:
        KinesisFault: InvalidArgumentException for a mangled token, ExpiredNextTokenException for
            one older than 300 s.
    """
    fields = read_token(_PAGE_KIND, token)
    if fields is None:
        raise invalid("NextToken is invalid.")
    name, created_ms, made_ms, size, *rest = fields
    if now_ms - int(made_ms) > TOKEN_LIFE_S * 1000:
        raise KinesisFault("ExpiredNextTokenException", "NextToken has expired.")
    return Page(name, int(created_ms), int(size), [shard_id_of(int(n)) for n in rest])


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


def describe_limits(state: KinesisState, _request: Mapping[str, Any]) -> dict[str, Any]:
    """DescribeLimits: shards and on-demand streams of the account, and how many it may have."""
    streams = state.streams.values()
    provisioned = [one for one in streams if not one.on_demand]
    return {
        "ShardLimit": _MAX_SHARDS,
        "OpenShardCount": sum(len(one.open_shards) for one in provisioned),
        "OnDemandStreamCount": len(streams) - len(provisioned),
        "OnDemandStreamCountLimit": _MAX_ON_DEMAND_STREAMS,
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


def add_tags_to_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """AddTagsToStream: new keys are added, known ones get another value."""
    stream = state.find(request)
    state.count_call("AddTagsToStream", "")
    tags = request.get("Tags")
    if not isinstance(tags, dict) or not tags:
        raise malformed("Tags must have at least one tag.")
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or not isinstance(value, str) or len(value) > 256:
            raise malformed("A tag has a key of 1 to 128 characters and a value of up to 256.")
    if len(stream.tags.keys() | tags.keys()) > _MOST_TAGS:
        raise invalid(f"A stream has at most {_MOST_TAGS} tags.")
    stream.tags.update(tags)
    return {}


def remove_tags_from_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """RemoveTagsFromStream: keys that are not there are passed over."""
    stream = state.find(request)
    state.count_call("RemoveTagsFromStream", "")
    keys = request.get("TagKeys")
    if not isinstance(keys, list) or not keys:
        raise malformed("TagKeys must have at least one key.")
    for key in keys:
        stream.tags.pop(key, None)
    return {}


def list_tags_for_stream(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """ListTagsForStream: by key, paged by the last key."""
    stream = state.find(request, active=False)
    state.count_call("ListTagsForStream", "")
    limit = request.get("Limit", _MOST_TAGS)
    if not isinstance(limit, int) or not 1 <= limit <= _MOST_TAGS:
        raise malformed(f"Limit must be between 1 and {_MOST_TAGS}.")
    keys = sorted(key for key in stream.tags if key > request.get("ExclusiveStartTagKey", ""))
    return {
        "Tags": [{"Key": key, "Value": stream.tags[key]} for key in keys[:limit]],
        "HasMoreTags": len(keys) > limit,
    }


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
