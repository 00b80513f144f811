r"""Message -> one JSON line, and a daemon's line -> message.

Encoding is byte-identical to the Java daemon's (Jackson): compact, ``action`` first (last inside a
record), nulls always written, UTF-8 raw, escapes only for ``"``, ``\`` and characters below
U+0020, with the short forms of JSON and upper-case hex for the rest. Decoding a daemon's line is
tolerant about unknown fields, strict about known ones; decoding a child's line is a matter of its
own, see ``kcl_mld_protocol.jackson``.

Source: KCL 3.5.1 ``multilang.messages``; kclpy 3.2.0 ``messages.py``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from kcl_mld_protocol.errors import LocalProtocolError
from kcl_mld_protocol.jackson import Junk, decode_from_child
from kcl_mld_protocol.messages import (
    Action,
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    Message,
    ProcessRecords,
    Record,
    ShardEnded,
    Shutdown,
    ShutdownRequested,
    Status,
    Tick,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld_protocol.messages import ChildMessage

__all__ = ["Junk", "decode_from_child", "decode_from_daemon", "encode", "json_string"]

_ESCAPES: Final = str.maketrans(
    {chr(code): f"\\u{code:04X}" for code in range(0x20)}
    | {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
)
_NEEDS_ESCAPE: Final = re.compile(r'["\\\x00-\x1f]')


def json_string(text: str | None) -> str:
    """A JSON string literal as Jackson writes it; ``null`` for None."""
    if text is None:
        return "null"
    return f'"{text.translate(_ESCAPES)}"' if _NEEDS_ESCAPE.search(text) else f'"{text}"'


def _number(value: int | None) -> str:
    return "null" if value is None else str(value)


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return json_string(value)
    return json.dumps(value, allow_nan=False)


def _record(record: Record) -> str:
    return (
        f'{{"data":{json_string(record.data)}'
        f',"partitionKey":{json_string(record.partition_key)}'
        f',"sequenceNumber":{json_string(record.sequence_number)}'
        f',"approximateArrivalTimestamp":{_number(record.approximate_arrival_timestamp_ms)}'
        f',"subSequenceNumber":{_number(record.sub_sequence_number)}'
        f',"action":"record"{_schema(record)}}}'
    )


def _schema(record: Record) -> str:
    if record.schema_version_id is None:
        return ""
    return (
        f',"schemaVersionId":{json_string(record.schema_version_id)}'
        f',"schemaName":{json_string(record.schema_name)}'
        f',"dataFormat":{json_string(record.data_format)}'
    )


def _fields(message: Message) -> str:
    """The part between the action and the closing brace."""
    match message:
        case Initialize():
            extras = "".join(f",{json_string(k)}:{_scalar(v)}" for k, v in message.extras.items())
            return (
                f',"shardId":{json_string(message.shard_id)}'
                f',"sequenceNumber":{json_string(message.sequence_number)}'
                f',"subSequenceNumber":{_number(message.sub_sequence_number)}{extras}'
            )
        case ProcessRecords():
            records = ",".join(map(_record, message.records))
            behind = _number(message.millis_behind_latest)
            return f',"records":[{records}],"millisBehindLatest":{behind}'
        case CheckpointResult():
            return f'{_position(message)},"error":{json_string(message.error)}'
        case CheckpointRequest() | Status() | Tick():
            return _child_fields(message)
        case LeaseLost() | ShardEnded() | ShutdownRequested():
            return ""
        case Shutdown():
            raise LocalProtocolError("the legacy shutdown message is never sent")
        case _ as never:
            assert_never(never)


def _child_fields(message: ChildMessage) -> str:
    match message:
        case CheckpointRequest():
            return _position(message)
        case Status():
            return f',"responseFor":{json_string(message.response_for)}{_failure(message)}'
        case Tick():
            return f',"seconds":{_scalar(message.seconds)}'
        case _ as never:
            assert_never(never)


def _failure(status: Status) -> str:
    """The fields of a failure in a status; none for success, as in Java."""
    if status.failure is None:
        return ""
    encoded = f',"failure":{json_string(status.failure)}'
    if status.failed_sequence_number is not None:
        encoded += (
            f',"failedSequenceNumber":{json_string(status.failed_sequence_number)}'
            f',"failedSubSequenceNumber":{_number(status.failed_sub_sequence_number)}'
        )
    return encoded


def _position(message: CheckpointRequest | CheckpointResult) -> str:
    return (
        f',"sequenceNumber":{json_string(message.sequence_number)}'
        f',"subSequenceNumber":{_number(message.sub_sequence_number)}'
    )


def encode(message: Message) -> bytes:
    """One line of UTF-8, newline included.

    Args:
        message: any message but :class:`~kcl_mld_protocol.messages.Shutdown`.

    Raises:
        LocalProtocolError: the message is never sent, or an extra value is not a JSON scalar.

    Unpaired surrogates become ``?``, as in Java's UTF-8 encoder.
    """
    try:
        text = f'{{"action":"{message.action}"{_fields(message)}}}\n'
    except (TypeError, ValueError) as error:
        raise LocalProtocolError(f"{message.action} cannot be encoded: {error}") from error
    return text.encode("utf-8", "replace")


class _Refused(Exception):
    """A field has the wrong type."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _string_in(fields: dict[str, Any], name: str) -> str | None:
    value = fields[name]
    if value is None or isinstance(value, str):
        return value
    raise _Refused(f"field {name!r} is not a string")


def _long_in(fields: dict[str, Any], name: str) -> int | None:
    value = fields[name]
    if value is None or type(value) is int:
        return value
    raise _Refused(f"field {name!r} is not a whole number")


def _record_in(fields: object) -> Record:
    if not isinstance(fields, dict):
        raise _Refused("a record is not an object")
    return Record(
        _string_in(fields, "data"),
        _string_in(fields, "partitionKey"),
        _string_in(fields, "sequenceNumber"),
        _long_in(fields, "approximateArrivalTimestamp"),
        _long_in(fields, "subSequenceNumber"),
        *(_optional_in(fields, name) for name in ("schemaVersionId", "schemaName", "dataFormat")),
    )


def _optional_in(fields: dict[str, Any], name: str) -> str | None:
    """An optional text; a value of another type belongs to somebody else's key and is ignored."""
    value = fields.get(name)
    return value if isinstance(value, str) else None


def _initialize_in(fields: dict[str, Any]) -> Initialize:
    known = {"action", "shardId", "sequenceNumber", "subSequenceNumber"}
    return Initialize(
        _string_in(fields, "shardId"),
        _string_in(fields, "sequenceNumber"),
        _long_in(fields, "subSequenceNumber"),
        {
            name: value
            for name, value in fields.items()
            if name not in known and not isinstance(value, dict | list)
        },
    )


def _process_records_in(fields: dict[str, Any]) -> ProcessRecords:
    records = fields["records"]
    if not isinstance(records, list):
        raise _Refused("field 'records' is not an array")
    behind = _long_in(fields, "millisBehindLatest")
    return ProcessRecords(tuple(map(_record_in, records)), behind)


def _checkpoint_result_in(fields: dict[str, Any]) -> CheckpointResult:
    return CheckpointResult(
        _string_in(fields, "sequenceNumber"),
        _long_in(fields, "subSequenceNumber"),
        _string_in({"error": None} | fields, "error"),
    )


_DaemonLine: TypeAlias = (
    Initialize
    | ProcessRecords
    | LeaseLost
    | ShardEnded
    | ShutdownRequested
    | CheckpointResult
    | Shutdown
)
_DAEMON_MESSAGES: Final[dict[str, Callable[[dict[str, Any]], _DaemonLine]]] = {
    Action.INITIALIZE: _initialize_in,
    Action.PROCESS_RECORDS: _process_records_in,
    Action.CHECKPOINT: _checkpoint_result_in,
    Action.LEASE_LOST: lambda _: LeaseLost(),
    Action.SHARD_ENDED: lambda _: ShardEnded(),
    Action.SHUTDOWN_REQUESTED: lambda _: ShutdownRequested(),
    Action.SHUTDOWN: lambda fields: Shutdown(_string_in({"reason": None} | fields, "reason")),
}


def decode_from_daemon(line: bytes) -> _DaemonLine | Junk:
    """The message on a line of the daemon.

    Args:
        line: without its line end.

    Returns:
        the message, or :class:`Junk` with the reason; a child should treat junk as fatal.
        Unknown fields are ignored; unknown flat fields of ``initialize`` go to ``extras``.
    """
    try:
        fields = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return Junk(line, "not JSON")
    if not isinstance(fields, dict):
        return Junk(line, "not a JSON object")
    action = fields.get("action")
    make = _DAEMON_MESSAGES.get(action) if isinstance(action, str) else None
    if make is None:
        return Junk(line, f"unknown action {action!r:.100}")
    try:
        return make(fields)
    except KeyError as missing:
        return Junk(line, f"field {missing} is missing")
    except _Refused as refused:
        return Junk(line, str(refused))
