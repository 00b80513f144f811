"""Payloads -> JSON text, in a form that programs of any language read without knowing Avro.

========================================  =======================================================
Avro                                      JSON
========================================  =======================================================
null, boolean, int, long, string, enum    as they are; a long keeps all its digits
float, double                             number; null for NaN and the infinities
bytes, fixed                              base64 text
union                                     the value alone, without the name of its type
record, map                               object
array                                     array
decimal                                   text of all digits: ``"12.340"``
date, time-millis, time-micros            ``"2024-02-29"``, ``"13:37:00.250000"``
timestamp-millis, -micros, -nanos         RFC 3339 in UTC: ``"2024-02-29T13:37:00.250000Z"``
local-timestamp-…                         the same without the ``Z``
uuid, of a string or of 16 bytes          text: ``"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"``
duration                                  ISO 8601: ``"P1M2DT0.003S"``
========================================  =======================================================

What such a text can't say comes as the number or text that it is: a year beyond 9999, a time of 24
hours, a uuid that is none.

A payload of JSON is checked to be JSON and stays as it is, byte for byte.
"""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, time, timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from kcl_mld.errors import ConfigError
from kcl_mld.retrieval.model.schema import SchemaVersion, Undecodable
from kcl_mld.retrieval.rules.avro_shape import MOST_DIGITS, safe_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.retrieval.model.schema import Decode

_EXTRA = "pip install 'kcl-mld[schemas]'"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ENCODE = msgspec.json.Encoder().encode
_ANY_JSON = msgspec.json.Decoder()


class Decoders:
    """The port :class:`kcl_mld.retrieval.ports.DecoderFactory`.

    Raises:
        ConfigError: the package fastavro is missing.
    """

    def __init__(self) -> None:
        try:
            import fastavro.read  # noqa: PLC0415 - of an extra, and 20 ms for those who don't decode
        except ImportError:
            raise ConfigError(
                f"decode needs the package fastavro: {_EXTRA}", key="glueSchemaRegistry.mode"
            ) from None
        self._parse = fastavro.parse_schema
        self._read = fastavro.schemaless_reader
        # The library's way to read a logical type that it does not know.
        fastavro.read.LOGICAL_READERS.update(_LOGICAL_READERS)
        self._read_deep = _reader_in_python()

    def __call__(self, version: SchemaVersion) -> Decode | None:
        """See the port; any format but Avro and JSON is passed on as it is.

        Raises:
            Undecodable: the definition is no Avro schema, or one whose payloads might hurt.
        """
        if version.data_format == "JSON":
            return _checked_json
        if version.data_format != "AVRO":
            return None
        try:
            safe = safe_schema(json.loads(version.definition))
            schema = self._parse(safe.schema)
        except Undecodable:
            raise
        except Exception as error:
            raise Undecodable(f"not an Avro schema: {type(error).__name__}") from error
        read = self._read_deep if safe.refers_to_itself else self._read
        if read is None:
            raise Undecodable("the schema refers to itself, which this fastavro cannot read safely")
        return partial(_avro, read, schema)


def _reader_in_python() -> Callable[..., Any] | None:
    """The library's reader in Python, which it uses where it was not compiled; None = not there.

    A payload that nests too deep ends in RecursionError here. In the compiled one it ends the
    process.
    """
    try:
        module = import_module("fastavro._read_py")
    except ImportError:
        return None
    module.LOGICAL_READERS.update(_LOGICAL_READERS)
    reader: Callable[..., Any] = module.schemaless_reader
    return reader


def _avro(read: Callable[..., Any], schema: Any, payload: bytes) -> bytes:
    stream = io.BytesIO(payload)
    try:
        encoded = _ENCODE(read(stream, schema, None))
    except Exception as error:  # noqa: BLE001 - the library lets all kinds through
        # Only the kind: the message may have a part of the payload.
        raise Undecodable(type(error).__name__) from None
    if stream.tell() != len(payload):
        raise Undecodable("there is more than one value of the schema in it")
    return encoded


def _checked_json(payload: bytes) -> bytes:
    try:
        _ANY_JSON.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        _check_slowly(payload)
    return payload


def _check_slowly(payload: bytes) -> None:
    """The fast parser refuses numbers beyond a double, which are JSON all the same."""
    try:
        json.loads(payload.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Undecodable("not JSON") from None


def _refuse(name: str) -> None:
    raise ValueError(name)


def _decimal(data: bytes, schema: Any, _reader: Any = None) -> str:
    precision, scale = schema["precision"], schema.get("scale", 0)
    if len(data) > MOST_DIGITS:  # making digits of a number takes the square of its length
        raise ValueError("longer than its precision")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = str(abs(unscaled))
    if len(digits) > precision:
        raise ValueError("longer than its precision")
    sign = "-" if unscaled < 0 else ""
    if not scale:
        return sign + digits
    digits = digits.zfill(scale + 1)
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def _duration(data: bytes, _schema: Any, _reader: Any = None) -> str:
    months, days, millis = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 8))
    seconds, rest = divmod(millis, 1000)
    return f"P{months}M{days}DT{seconds}.{rest:03}S"


def _nanos(value: int, _schema: Any, _reader: Any = None) -> str:
    seconds, nanos = divmod(value, 10**9)
    moment = _EPOCH + timedelta(seconds=seconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{nanos:09}"


def _utc_nanos(value: int, schema: Any, reader: Any = None) -> str:
    return _nanos(value, schema, reader) + "Z"


def _time(step: timedelta, steps: int) -> time:
    if not 0 <= steps < timedelta(days=1) / step:
        raise ValueError("no time of a day")
    return (_EPOCH + steps * step).time()


def _moment(epoch: datetime, step: timedelta, steps: int) -> datetime:
    return epoch + steps * step


def _or_as_it_is(convert: Callable[[Any], object]) -> Callable[[Any, Any, Any], object]:
    """A reader that gives the value as it is where it can't be converted."""

    def read(value: Any, _schema: Any, _reader: Any = None) -> object:
        try:
            return convert(value)
        except (ValueError, OverflowError):
            return value

    return read


def _logical_readers() -> dict[str, Callable[[Any, Any, Any], object]]:
    readers: dict[str, Callable[[Any, Any, Any], object]] = {
        "bytes-kcl-mld-decimal": _decimal,
        "fixed-kcl-mld-decimal": _decimal,
        "fixed-kcl-mld-duration": _duration,
        "long-kcl-mld-timestamp-nanos": _utc_nanos,
        "long-kcl-mld-local-timestamp-nanos": _nanos,
        "int-kcl-mld-date": _or_as_it_is(lambda days: (_EPOCH + timedelta(days=days)).date()),
        "string-kcl-mld-uuid": _or_as_it_is(UUID),
        "fixed-kcl-mld-uuid": _or_as_it_is(lambda data: UUID(bytes=data)),
    }
    for unit, kind, step in (
        ("millis", "int", timedelta(milliseconds=1)),
        ("micros", "long", timedelta(microseconds=1)),
    ):
        readers |= {
            f"{kind}-kcl-mld-time-{unit}": _or_as_it_is(partial(_time, step)),
            f"long-kcl-mld-timestamp-{unit}": _or_as_it_is(partial(_moment, _EPOCH, step)),
            f"long-kcl-mld-local-timestamp-{unit}": _or_as_it_is(
                partial(_moment, _EPOCH.replace(tzinfo=None), step)
            ),
        }
    return readers


_LOGICAL_READERS = _logical_readers()
