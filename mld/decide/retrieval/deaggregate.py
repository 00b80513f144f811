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

Source: AggregatorUtil.java:93-222 (KCL 3.5.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from hashlib import md5
from typing import TYPE_CHECKING, NamedTuple

from mld.errors import MalformedData
from mld.model.retrieval.aggregate import Aggregate, parse_aggregate, text
from mld.model.streams.shard import MAX_HASH_KEY, MIN_HASH_KEY, HashRange

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class UserRecord(NamedTuple):
    """One record as its producer put it.

    Attributes:
        partition_key: the producer's.
        explicit_hash_key: decimal text, None where the producer gave none.
        data: payload.
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


_WHOLE = HashRange(MIN_HASH_KEY, MAX_HASH_KEY)
_new_record = tuple.__new__


def is_aggregated_base64(data: str) -> bool:
    """May this base64 text be an aggregate? False is certain; True is to be decoded and tried."""
    return len(data) >= _MIN_BASE64 and _BASE64_MAGIC.match(data) is not None


def deaggregate(
    data: bytes, partition_key: str, hash_range: HashRange | None = None
) -> Deaggregated:
    """Expand one Kinesis record.

    Args:
        data: payload of the Kinesis record.
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
