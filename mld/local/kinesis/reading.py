"""GetShardIterator and GetRecords.

An iterator is a position in a shard's log and the time at which it was made. Positions survive
trimming: one that lies before the oldest record reads from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec.json

from mld.local.kinesis.faults import KinesisFault, invalid, malformed, not_found
from mld.local.kinesis.positions import starting_position
from mld.local.kinesis.tokens import TOKEN_LIFE_S, make_token, read_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.shard import LocalShard
    from mld.local.kinesis.state import KinesisState
    from mld.local.kinesis.stream import LocalStream

MAX_RECORDS = 10_000
#: Most bytes of data and partition keys in one answer.
MAX_ANSWER_BYTES = 10 * 1024 * 1024
_KIND = "iterator"


def get_shard_iterator(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """GetShardIterator of all five types."""
    stream = state.find(request)
    shard = stream.shard(request.get("ShardId"))
    if shard is None:
        raise not_found(
            f"Shard {request.get('ShardId')} in stream {stream.name} under account "
            f"{state.settings.account_id} does not exist"
        )
    if state.settings.limits:
        state.limits.iterator(stream.name, shard.shard_id, state.now_s())
    now_ms = state.now_ms()
    position = starting_position(
        stream,
        shard,
        state.now_s(),
        kind=request.get("ShardIteratorType"),
        sequence=request.get("StartingSequenceNumber"),
        timestamp=request.get("Timestamp"),
    )
    return {"ShardIterator": _iterator(stream, shard, position, now_ms)}


def _iterator(stream: LocalStream, shard: LocalShard, position: int, now_ms: int) -> str:
    return make_token(_KIND, stream.name, stream.created_ms, shard.shard_id, position, now_ms)


def get_records_body(state: KinesisState, request: Mapping[str, Any]) -> bytes:
    """GetRecords as the JSON text of its answer."""
    limit = request.get("Limit", MAX_RECORDS)
    if not isinstance(limit, int) or not 1 <= limit <= MAX_RECORDS:
        raise malformed(f"Value '{limit}' at 'limit' must be between 1 and {MAX_RECORDS}.")
    now_ms = state.now_ms()
    stream, shard, position = _read_iterator(state, request.get("ShardIterator"), now_ms)
    limits = state.limits if state.settings.limits else None
    if limits is not None:
        limits.read(stream.name, shard.shard_id, state.now_s())
    position = max(position, shard.start)
    stop = shard.slice_end(position, limit, MAX_ANSWER_BYTES)
    spared = state.is_spared()
    if spared and stop < shard.end:
        stop = position
    if limits is not None:
        limits.was_read(stream.name, shard.shard_id, shard.bytes_between(position, stop))
    return b'{"Records":[%b],"MillisBehindLatest":%d,%b}' % (
        shard.json_between(position, stop),
        millis_behind(shard, position, stop, now_ms),
        _end_or_next(stream, shard, stop, now_ms, holds_back_end=spared and stop > position),
    )


def _read_iterator(
    state: KinesisState, token: object, now_ms: int
) -> tuple[LocalStream, LocalShard, int]:
    fields = read_token(_KIND, token)
    if fields is None:
        raise invalid("Invalid ShardIterator.")
    name, created_ms, shard_id, position, made_ms = fields
    stream = state.named(name)
    age_ms = now_ms - int(made_ms)
    if age_ms > TOKEN_LIFE_S * 1000:
        raise KinesisFault(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created {age_ms} ms ago while right now the "
            f"limit is {TOKEN_LIFE_S * 1000} ms.",
        )
    shard = stream.shard(shard_id)
    if shard is None or stream.created_ms != int(created_ms):
        raise not_found(f"Shard {shard_id} in stream {name} does not exist")
    return stream, shard, int(position)


def millis_behind(shard: LocalShard, position: int, stop: int, now_ms: int) -> int:
    """0 exactly when nothing is left to read; else the age of where the answer stopped."""
    if stop >= shard.end:
        return 0
    last = stop - 1 if stop > position else stop
    return max(1, now_ms - shard.arrival_ms(last))


def _end_or_next(
    stream: LocalStream, shard: LocalShard, stop: int, now_ms: int, *, holds_back_end: bool
) -> bytes:
    if shard.is_open or stop < shard.end or holds_back_end:
        return b'"NextShardIterator":"%b"' % _iterator(stream, shard, stop, now_ms).encode()
    return b'"ChildShards":%b' % children_json(stream, shard)


def children_json(stream: LocalStream, shard: LocalShard) -> bytes:
    """``ChildShards`` of a closed shard as JSON text."""
    return msgspec.json.encode([stream.shards[child].as_child() for child in shard.children])
