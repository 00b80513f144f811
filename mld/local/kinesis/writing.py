"""PutRecord and PutRecords."""

from __future__ import annotations

import binascii
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec.json

from mld.local.kinesis.faults import KinesisFault, invalid, malformed, throttled
from mld.local.kinesis.shard import MAX_HASH_KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.local.kinesis.shard import LocalShard
    from mld.local.kinesis.state import KinesisState
    from mld.local.kinesis.stream import LocalStream

_MAX_RECORDS = 500
_MAX_REQUEST_BYTES = 10 * 1024 * 1024
_MAX_RECORD_BYTES = 10 * 1024 * 1024
_MAX_KEY_CHARACTERS = 256


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
