"""One Kinesis record of the KPL -> the user records inside it.

Nothing raises here: what is no aggregate stays as it is, and of an aggregate with unreadable user
records the others are delivered.

Quirks of the Java daemon, and what is made of them:

* an index is cut to 32 bits before it is looked up: kept, though no producer writes such a thing;
* an index outside its table, or a hash key that is no number, ends the aggregate there: here only
  that user record is missing, and counted. On Java 11 and later the attempt to log it may end the
  worker;
* one user record outside the shard drops the aggregate: kept, and counted. What Java delivers
  before an unreadable user record is delivered in any case;
* a negative hash key is a number outside every range and drops the aggregate: kept;
* an aggregate without user records vanishes, while the 20-byte frame around an empty message is
  delivered raw: kept.

The message inside is proto2, read without a library: a field walk in Python is as fast for this one
message, and is strict in exactly the places where Java is. What Java's parser accepts is accepted:
overlong varints, unknown fields and groups, any order of fields, the last of repeated single fields.

Source: AggregatorUtil.java:93-222 (KCL 3.5.1); messages.proto of the KPL; CodedInputStream and
UnknownFieldSet of protobuf-java.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.errors import MalformedData
from kcl_mld.streams.model.shard import MAX_HASH_KEY, MIN_HASH_KEY, HashRange

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Tags as they stand in the message: field number << 3 | wire type.
_PARTITION_KEY = 1 << 3 | 2
_EXPLICIT_HASH_KEY = 2 << 3 | 2
_RECORD = 3 << 3 | 2
_RECORD_KEY_INDEX = 1 << 3
_RECORD_HASH_KEY_INDEX = 2 << 3
_RECORD_DATA = 3 << 3 | 2
_RECORD_TAG = 4 << 3 | 2
_TAG_KEY = 1 << 3 | 2

_VARINT, _FIXED_64, _DELIMITED, _GROUP, _GROUP_END, _FIXED_32 = range(6)
_FIXED_SIZE = {_FIXED_64: 8, _FIXED_32: 4}
_MAX_VARINT_BYTES = 10
_UINT32 = 2**32 - 1
_MAX_LENGTH = 2**31 - 1
#: Source: CodedInputStream.DEFAULT_RECURSION_LIMIT.
_MAX_DEPTH = 100

#: UTF-8 of a surrogate, whole or cut: Java replaces it by one U+FFFD, Python byte by byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()

MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16
#: Magic, at least one byte of message, digest; a shorter record is never looked into.
MIN_BYTES = len(MAGIC) + 1 + DIGEST_BYTES
#: The magic's 32 bits fix five base64 digits and the upper two bits of the sixth.
_BASE64_MAGIC = re.compile(r"84maw[g-v]")
_MIN_BASE64 = (MIN_BYTES + 2) // 3 * 4
#: What java.math.BigInteger reads: a sign, and decimal digits of any script (of UCS-2). Python's
#: ``int`` would also take blanks and underscores.
_BIG_INTEGER = re.compile(r"[+-]?\d+\Z")
_LAST_UCS_2 = "\uffff"
#: Numbers with more significant digits lie outside every range, and ``int`` refuses very long ones.
_MAX_DIGITS = 4000
_WHOLE = HashRange(MIN_HASH_KEY, MAX_HASH_KEY)
_new_record = tuple.__new__


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A parsed message; indexes are not checked against the tables.

    Attributes:
        partition_keys: UTF-8 texts.
        explicit_hash_keys: UTF-8 texts, meant to be decimal numbers.
        records: (partition key index, explicit hash key index or None, data) in order; indexes are
            in 0..2**32-1, cut as Java cuts them.
    """

    partition_keys: list[bytes]
    explicit_hash_keys: list[bytes]
    records: list[tuple[int, int | None, bytes]]


def parse_aggregate(message: bytes) -> Aggregate:
    """The message between magic and digest.

    Raises:
        MalformedData: not such a message; Java would deliver the whole record raw.
    """
    try:
        return _parse(message)
    except IndexError:
        raise MalformedData("a KPL message ends in the middle of a field") from None


def text(encoded: bytes) -> str:
    """UTF-8 to text as Java reads it: what is invalid becomes U+FFFD."""
    try:
        return encoded.decode()
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, encoded).decode(errors="replace")


def _parse(message: bytes) -> Aggregate:
    keys: list[bytes] = []
    hash_keys: list[bytes] = []
    records: list[tuple[int, int | None, bytes]] = []
    position, end = 0, len(message)
    while position < end:
        if message[position] == _PARTITION_KEY and message[position + 1] < 0x80:
            start = position + 2  # the usual key, read without a call
            position = start + message[position + 1]
            if position > end:
                raise IndexError
            keys.append(message[start:position])
            continue
        tag, position = _tag(message, position)
        if tag == _RECORD:
            position = _parse_records(message, position, records)
        elif tag == _PARTITION_KEY:
            start, position = _delimited(message, position)
            keys.append(message[start:position])
        elif tag == _EXPLICIT_HASH_KEY:
            start, position = _delimited(message, position)
            hash_keys.append(message[start:position])
        else:
            position = _skip(message, position, tag, depth=0)
    return Aggregate(keys, hash_keys, records)


def _parse_records(  # noqa: C901, PLR0912 - the hot loop: calls would double its cost
    message: bytes, start: int, records: list[tuple[int, int | None, bytes]]
) -> int:
    """Append the record whose length is at ``start`` and all that follow it directly.

    Nearly all of a message is spent here, so the shape that the KPL writes (key index, hash key
    index or nothing, data; short numbers) is read without a call; whatever else comes, the field
    walk reads.

    Returns:
        Position after the last of them.
    """
    end = len(message)
    append = records.append
    while True:
        size = message[start]
        at = start + 1
        if size >= 0x80:
            if message[at] < 0x80:
                size += (message[at] - 1) << 7
                at += 1
            else:
                size, at = _length(message, start)
        start = at + size
        if start > end:
            raise IndexError
        first, index, hash_index = at, message[at + 1], None
        size = end + 1  # no shape that we know: matches nothing
        if message[at] == _RECORD_KEY_INDEX:
            at += 2
            if index >= 0x80 and message[at] < 0x80:
                index += (message[at] - 1) << 7
                at += 1
            if message[at] == _RECORD_HASH_KEY_INDEX and message[at + 1] < 0x80:
                hash_index = message[at + 1]
                at += 2
            if message[at] == _RECORD_DATA:
                size = message[at + 1]
                at += 2
                if size >= 0x80 and message[at] < 0x80:
                    size += (message[at] - 1) << 7
                    at += 1
        if at + size == start:
            append((index, hash_index, message[at:start]))
        else:
            append(_parse_record(message[first:start]))
        if start == end or message[start] != _RECORD:
            return start
        start += 1


def _parse_record(message: bytes) -> tuple[int, int | None, bytes]:
    """One record of any shape.

    Raises:
        MalformedData: invalid, or a required field is missing.
        IndexError: cut off.
    """
    key_index = hash_index = data = None
    position, end = 0, len(message)
    while position < end:
        tag, position = _tag(message, position)
        if tag == _RECORD_KEY_INDEX:
            key_index, position = _varint(message, position)
        elif tag == _RECORD_HASH_KEY_INDEX:
            hash_index, position = _varint(message, position)
        elif tag == _RECORD_DATA:
            start, position = _delimited(message, position)
            data = message[start:position]
        elif tag == _RECORD_TAG:
            start, position = _delimited(message, position)
            _check_tag(message[start:position])
        else:
            position = _skip(message, position, tag, depth=1)
    if key_index is None or data is None:
        raise MalformedData("a KPL user record lacks its key or its data")
    return key_index, hash_index, data


def _check_tag(message: bytes) -> None:
    """Tags are dropped, but a tag without its required key makes Java refuse the whole message."""
    has_key = False
    position, end = 0, len(message)
    while position < end:
        tag, position = _tag(message, position)
        has_key |= tag == _TAG_KEY
        position = _skip(message, position, tag, depth=2)
    if not has_key:
        raise MalformedData("a tag of a KPL user record lacks its key")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """Low 32 bits of the number, and the position after it."""
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        byte = message[position + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & _UINT32, position + count + 1
    raise MalformedData("a number in a KPL message is longer than ten bytes")


def _tag(message: bytes, position: int) -> tuple[int, int]:
    tag = message[position]
    if 0x08 <= tag < 0x80:
        return tag, position + 1
    tag, position = _varint(message, position)
    if tag >> 3 == 0:
        raise MalformedData("a KPL message holds a field number 0")
    return tag, position


def _length(message: bytes, position: int) -> tuple[int, int]:
    length, position = _varint(message, position)
    if length > _MAX_LENGTH:
        raise MalformedData("a KPL message holds a negative length")
    return length, position


def _delimited(message: bytes, position: int) -> tuple[int, int]:
    """Start and end of the bytes whose length is at ``position``."""
    length, start = _length(message, position)
    if start + length > len(message):
        raise IndexError
    return start, start + length


def _skip(message: bytes, position: int, tag: int, *, depth: int) -> int:
    """Position after a field that nobody asked for; ``depth`` counts the messages around it."""
    groups: list[int] = []
    while True:
        kind = tag & 7
        if kind == _GROUP:
            if depth + len(groups) >= _MAX_DEPTH:
                raise MalformedData("a KPL message is nested too deeply")
            groups.append(tag >> 3)
        elif kind == _GROUP_END:
            if not groups or groups.pop() != tag >> 3:
                raise MalformedData("a KPL message ends a group that it did not begin")
        else:
            position = _skip_value(message, position, kind)
        if not groups:
            return position
        tag, position = _tag(message, position)


def _skip_value(message: bytes, position: int, kind: int) -> int:
    if kind == _VARINT:
        return _varint(message, position)[1]
    if kind == _DELIMITED:
        return _delimited(message, position)[1]
    if kind not in _FIXED_SIZE:
        raise MalformedData(f"a KPL message holds wire type {kind}")
    position += _FIXED_SIZE[kind]
    if position > len(message):
        raise IndexError
    return position


class UserRecord(NamedTuple):
    """One record as its producer put it.

    Attributes:
        explicit_hash_key: decimal text, None where the producer gave none.
        sub_sequence_number: place inside the Kinesis record, from 0.
    """

    partition_key: str
    explicit_hash_key: str | None
    data: bytes
    sub_sequence_number: int


class AggregateOutcome(Enum):
    """What a Kinesis record turned out to be."""

    RAW = "no aggregate: deliver it unchanged"
    EXPANDED = "an aggregate: deliver its user records"
    DROPPED = "an aggregate with a key of another shard: a KPL sends all of it again"


@dataclass(frozen=True, slots=True)
class Deaggregated:
    """The result for one Kinesis record.

    Attributes:
        outcome: see :class:`AggregateOutcome`.
        records: what to deliver, in order; the record itself when RAW, nothing when DROPPED.
        unreadable: how many user records can't be read.
        error: which is the first of those, and why; None without one.
        dropped: how many readable user records are left out, because ``outside`` is not 0.
        outside: how many user records have keys of another shard.
    """

    outcome: AggregateOutcome
    records: Sequence[UserRecord]
    unreadable: int = 0
    error: str | None = None
    dropped: int = 0
    outside: int = 0


def is_aggregated_base64(data: str) -> bool:
    """May this base64 text be an aggregate? False is certain; True is to be decoded and tried."""
    return len(data) >= _MIN_BASE64 and _BASE64_MAGIC.match(data) is not None


def deaggregate(
    data: bytes, partition_key: str, hash_range: HashRange | None = None
) -> Deaggregated:
    """Expand one Kinesis record.

    Args:
        partition_key: its partition key, used only when it is delivered unchanged.
        hash_range: keys of the shard that it was read from. An aggregate of the KPL that holds a
            user record of other keys was made with an outdated shard map; its producer notices and
            sends all of it again, so it is dropped whole. None or the whole space = no such check.
    """
    aggregate = _aggregate_in(data)
    if aggregate is None:
        return Deaggregated(AggregateOutcome.RAW, (UserRecord(partition_key, None, data, 0),))
    keys = [text(key) for key in aggregate.partition_keys]
    hash_keys = [text(key) for key in aggregate.explicit_hash_keys]
    is_filtered = hash_range is not None and not hash_range.is_whole
    keys_inside = _PartitionKeysInside(hash_range or _WHOLE)
    hash_keys_inside = _HashKeysInside(hash_range or _WHOLE)
    records: list[UserRecord] = []
    unreadable = outside = before_error = 0
    error_text = None
    for position, (index, hash_index, payload) in enumerate(aggregate.records):
        try:
            key = keys[index]
            if hash_index is None:
                hash_key = None
                is_inside = not is_filtered or keys_inside[key]
            else:
                hash_key = hash_keys[hash_index]
                is_inside = hash_keys_inside[hash_key]
        except (IndexError, ValueError) as error:
            unreadable += 1
            if error_text is None:
                why = error if isinstance(error, ValueError) else "its key is not in the tables"
                error_text = f"sub-sequence number {position}: {why}"
                before_error = 0 if outside else len(records)
            continue
        outside += not is_inside
        records.append(_new_record(UserRecord, (key, hash_key, payload, position)))
    kept = records if not outside else records[:before_error]
    return Deaggregated(
        AggregateOutcome.DROPPED if outside and not kept else AggregateOutcome.EXPANDED,
        kept,
        unreadable,
        error_text,
        len(records) - len(kept),
        outside,
    )


def _aggregate_in(data: bytes) -> Aggregate | None:
    if len(data) < MIN_BYTES or not data.startswith(MAGIC):
        return None
    message = data[len(MAGIC) : -DIGEST_BYTES]
    if md5(message, usedforsecurity=False).digest() != data[-DIGEST_BYTES:]:
        return None
    try:
        return parse_aggregate(message)
    except MalformedData:
        return None


class _PartitionKeysInside(dict[str, bool]):
    """Partition key -> does its MD5 lie in the range? Computed once for each key."""

    def __init__(self, hash_range: HashRange) -> None:
        super().__init__()
        self._range = hash_range

    def __missing__(self, key: str) -> bool:
        digest = md5(key.encode(), usedforsecurity=False).digest()
        inside = self[key] = int.from_bytes(digest, "big") in self._range
        return inside


class _HashKeysInside(dict[str, bool]):
    """Explicit hash key -> does it lie in the range? Raises ValueError where Java throws."""

    def __init__(self, hash_range: HashRange) -> None:
        super().__init__()
        self._range = hash_range

    def __missing__(self, key: str) -> bool:
        if not _BIG_INTEGER.match(key) or max(key) > _LAST_UCS_2:
            raise ValueError(f"explicit hash key {key[:50]!r} is not a number")
        significant = key.lstrip("+-0")
        if len(significant) > _MAX_DIGITS:
            return False
        value = int(significant or "0")
        inside = self[key] = (-value if key.startswith("-") else value) in self._range
        return inside
