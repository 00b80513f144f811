"""Putting a file of records into a stream, or of items into a table.

One JSON object a line. A record is ``{"partitionKey": "k", "data": "text"}``, or has ``dataBase64`` in
the place of ``data`` for bytes; ``explicitHashKey`` is allowed. An item is plain JSON.
"""

from __future__ import annotations

import base64
import codecs
import json
import time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
from botocore.exceptions import ClientError

from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_BATCH_RECORDS = 500
_BATCH_BYTES = 4 * 1024 * 1024
_RETRY_S = 0.2
#: Limit of Kinesis.
_MOST_KEY_CHARACTERS = 256
_FORM = 'each line is to be one JSON object such as {"partitionKey": "k", "data": "text"}'

_ITEM_FORM = 'each line is to be one JSON object such as {"pk": "a", "n": 1}'


class _RecordLine(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    partition_key: str
    data: str | None = None
    data_base64: str | None = None
    explicit_hash_key: str | None = None


def read_records(lines: Iterable[bytes], source: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Entries for PutRecords, each with the bytes read so far; blank lines are skipped.

    Raises:
        ConfigError: a line is no such object; names file and line.
    """
    decoder = msgspec.json.Decoder(_RecordLine)
    consumed = 0
    for number, line in enumerate(lines, 1):
        consumed += len(line)
        if not line.strip():
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)  # noqa: PLW2901 - as some editors write it
        try:
            yield _entry(decoder.decode(line)), consumed
        except ValueError as error:
            raise ConfigError(f"{error}; {_FORM}", where=f"{source}:{number}") from None


def _entry(line: _RecordLine) -> dict[str, Any]:
    if (line.data is None) == (line.data_base64 is None):
        raise ValueError("needs either data or dataBase64")
    if not 1 <= len(line.partition_key) <= _MOST_KEY_CHARACTERS:
        raise ValueError(f"partitionKey needs 1 to {_MOST_KEY_CHARACTERS} characters")
    if line.data_base64 is not None:
        data = base64.b64decode(line.data_base64, validate=True)
    else:
        data = (line.data or "").encode()
    entry: dict[str, Any] = {"PartitionKey": line.partition_key, "Data": data}
    if line.explicit_hash_key is not None:
        entry["ExplicitHashKey"] = line.explicit_hash_key
    return entry


def put_all(
    kinesis: Any,
    stream: str,
    records: Iterable[tuple[dict[str, Any], int]],
    progress: Callable[[int], object],
) -> int:
    """Put all records in order and return how many.

    Records that the service refuses for its rate are put again until it takes them, before any
    later ones.

    Args:
        records: from :func:`read_records`.
        progress: called with the bytes of input done after each request.
    """
    count = size = consumed = 0
    batch: list[dict[str, Any]] = []
    for entry, consumed in records:
        length = len(entry["Data"]) + len(entry["PartitionKey"])
        if batch and (len(batch) == _BATCH_RECORDS or size + length > _BATCH_BYTES):
            _put(kinesis, stream, batch)
            progress(consumed)
            batch, size = [], 0
        batch.append(entry)
        size += length
        count += 1
    if batch:
        _put(kinesis, stream, batch)
        progress(consumed)
    return count


def _put(kinesis: Any, stream: str, batch: list[dict[str, Any]]) -> None:
    while batch:
        answer = kinesis.put_records(StreamName=stream, Records=batch)
        if not answer["FailedRecordCount"]:
            return
        batch = [
            entry
            for entry, result in zip(batch, answer["Records"], strict=True)
            if "ErrorCode" in result
        ]
        time.sleep(_RETRY_S)


def put_items(
    dynamodb: Any,
    table: str,
    lines: Iterable[bytes],
    source: str,
    progress: Callable[[int], object],
) -> int:
    """Put the items of lines into a table, in order, and return how many.

    Texts, numbers, booleans, nulls, lists and objects become the types of DynamoDB.

    Args:
        progress: called with the bytes of input done after each item.

    Raises:
        ConfigError: a line is no item of this table; names file and line.
    """
    count = consumed = 0
    for number, line in enumerate(lines, 1):
        consumed += len(line)
        if not line.strip():
            continue
        try:
            dynamodb.put_item(TableName=table, Item=_item(line))
        except (ValueError, ClientError) as error:
            raise ConfigError(f"{error}; {_ITEM_FORM}", where=f"{source}:{number}") from None
        count += 1
        progress(consumed)
    return count


def _item(line: bytes) -> dict[str, Any]:
    item = _attribute(json.loads(line, parse_int=Decimal, parse_float=Decimal))
    if "M" not in item:
        raise ValueError("is no object")
    members: dict[str, Any] = item["M"]
    return members


def _attribute(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return {"M": {name: _attribute(one) for name, one in value.items()}}
    if isinstance(value, list):
        return {"L": [_attribute(one) for one in value]}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, Decimal):
        return {"N": str(value)}
    if value is None:
        return {"NULL": True}
    raise ValueError(f"{value} is no number")
