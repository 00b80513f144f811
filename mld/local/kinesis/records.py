"""Writing and reading records: PutRecord, PutRecords, GetShardIterator and GetRecords.

An iterator is a position in a shard's log and the time at which it was made. Positions survive
trimming: one that lies before the oldest record reads from there.
"""

from __future__ import annotations

import binascii
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec.json

from kcl_mld.local.kinesis.faults import KinesisFault, invalid, malformed, not_found, throttled
from kcl_mld.local.kinesis.shard import MAX_HASH_KEY
from kcl_mld.local.kinesis.state import TOKEN_LIFE_S, make_token, read_token

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.local.kinesis.shard import LocalShard
    from kcl_mld.local.kinesis.state import KinesisState
    from kcl_mld.local.kinesis.stream import LocalStream

MAX_RECORDS_READ = 10_000
#: Most bytes of data and partition keys in one answer.
MAX_ANSWER_BYTES = 10 * 1024 * 1024
_ITERATOR_KIND = "iterator"
_MAX_RECORDS = 500
_MAX_REQUEST_BYTES = 10 * 1024 * 1024
_MAX_RECORD_BYTES = 10 * 1024 * 1024
_MAX_KEY_CHARACTERS = 256


def starting_position(
    stream: LocalStream,
    shard: LocalShard,
    now_s: float,
    *,
    kind: object,
    sequence: object = None,
    timestamp: object = None,
) -> int:
    """The position that a starting point means.

    Args:
        now_s: epoch seconds.
        kind: ``TRIM_HORIZON``, ``LATEST``, ``AT_SEQUENCE_NUMBER``, ``AFTER_SEQUENCE_NUMBER`` or
            ``AT_TIMESTAMP``.
        sequence: sequence number for the two kinds that need one; a record's, a continuation's,
            or one of the two ends of the shard.
        timestamp: epoch seconds for ``AT_TIMESTAMP``.

    Raises:
        KinesisFault: ValidationException for another kind, InvalidArgumentException for a number
            of another shard or a time that is absent or to come.
    """
    match kind:
        case "TRIM_HORIZON":
            return shard.start
        case "LATEST":
            return shard.end
        case "AT_SEQUENCE_NUMBER" | "AFTER_SEQUENCE_NUMBER":
            after = shard.position_after_sequence(sequence)
            if after is None:
                raise invalid(
                    f"Sequence number {sequence} used on shard {shard.shard_id} in stream "
                    f"{stream.name} is invalid because it did not come from this stream."
                )
            if kind == "AT_SEQUENCE_NUMBER" and shard.sequence_at(after - 1) == sequence:
                return after - 1
            return after
        case "AT_TIMESTAMP":
            if not isinstance(timestamp, int | float):
                raise invalid("Must either specify timestampInMillis for AT_TIMESTAMP.")
            if timestamp > now_s:
                raise invalid("The timestamp cannot be later than the current time.")
            return shard.position_at_time(timestamp * 1000)
        case other:
            raise malformed(f"Value '{other}' at 'type' is not a starting position.")


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
    return make_token(
        _ITERATOR_KIND, stream.name, stream.created_ms, shard.shard_id, position, now_ms
    )


def get_records_body(state: KinesisState, request: Mapping[str, Any]) -> bytes:
    """GetRecords as the JSON text of its answer."""
    limit = request.get("Limit", MAX_RECORDS_READ)
    if not isinstance(limit, int) or not 1 <= limit <= MAX_RECORDS_READ:
        raise malformed(f"Value '{limit}' at 'limit' must be between 1 and {MAX_RECORDS_READ}.")
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
    fields = read_token(_ITERATOR_KIND, token)
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
    """0 exactly when all records are read; else the age of the position where the answer stopped."""
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


def put_record(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """PutRecord: one record to the shard of its key."""
    stream = state.find(request)
    data, size = _checked(request)
    shard = _shard_for(stream, request)
    key = request["PartitionKey"]
    if state.settings.limits and not state.limits.may_write(
        stream.name, shard.shard_id, size, state.now_s()
    ):
        raise throttled(_rate_text(stream, shard))
    sequence = shard.append(data, msgspec.json.encode(key), size, state.now_ms())
    return {"ShardId": shard.shard_id, "SequenceNumber": str(sequence)}


def put_records(state: KinesisState, request: Mapping[str, Any]) -> dict[str, Any]:
    """PutRecords: up to 500, each accepted or refused for itself.

    The whole request is checked before anything is stored, as the service does.
    """
    stream = state.find(request)
    records = request.get("Records")
    if not isinstance(records, list) or not 1 <= len(records) <= _MAX_RECORDS:
        raise malformed(f"Records must hold 1 to {_MAX_RECORDS} records.")
    checked = [_checked(record) for record in records]
    if sum(size for _data, size in checked) > _MAX_REQUEST_BYTES:
        raise invalid("Records size exceeds 10 MB limit.")
    shards = [_shard_for(stream, record) for record in records]
    limits = state.limits if state.settings.limits else None
    now_s, now_ms = state.now_s(), state.now_ms()
    answers: list[dict[str, Any]] = []
    failed = 0
    for record, (data, size), shard in zip(records, checked, shards, strict=True):
        if limits is not None and not limits.may_write(stream.name, shard.shard_id, size, now_s):
            failed += 1
            answers.append(
                {
                    "ErrorCode": "ProvisionedThroughputExceededException",
                    "ErrorMessage": _rate_text(stream, shard),
                }
            )
            continue
        key = msgspec.json.encode(record["PartitionKey"])
        sequence = shard.append(data, key, size, now_ms)
        answers.append({"SequenceNumber": str(sequence), "ShardId": shard.shard_id})
    return {"FailedRecordCount": failed, "Records": answers}


def _checked(record: Mapping[str, Any]) -> tuple[bytes, int]:
    """The data as base64 text and the record's size in bytes."""
    key, data = record.get("PartitionKey"), record.get("Data")
    if not isinstance(key, str) or not 1 <= len(key) <= _MAX_KEY_CHARACTERS:
        raise malformed("PartitionKey must have 1 to 256 characters.")
    if not isinstance(data, str):
        raise malformed("Data must not be null.")
    encoded = data.encode()
    try:
        length = len(binascii.a2b_base64(encoded, strict_mode=True))
    except binascii.Error as error:
        raise KinesisFault("SerializationException", f"Data is not base64: {error}") from None
    if length > _MAX_RECORD_BYTES:
        raise malformed(f"Data must not be longer than {_MAX_RECORD_BYTES} bytes.")
    return encoded, length + len(key.encode())


def _shard_for(stream: LocalStream, record: Mapping[str, Any]) -> LocalShard:
    explicit = record.get("ExplicitHashKey")
    if explicit is None:
        digest = hashlib.md5(record["PartitionKey"].encode(), usedforsecurity=False).digest()
        return stream.shard_for(int.from_bytes(digest, "big"))
    if not isinstance(explicit, str) or not explicit.isdigit() or int(explicit) > MAX_HASH_KEY:
        raise invalid(f"Invalid ExplicitHashKey {explicit}: a decimal number below 2^128.")
    return stream.shard_for(int(explicit))


def _rate_text(stream: LocalStream, shard: LocalShard) -> str:
    return f"Rate exceeded for shard {shard.shard_id} in stream {stream.name}."
