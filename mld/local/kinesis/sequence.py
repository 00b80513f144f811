"""Sequence numbers of version 2: 186 bits, written as 56 decimal digits.

From the top, in hexadecimal digits: ``2``, creation second of the shard (9), low digit of the shard
number (1), running count in the shard (16), ``00``, second of the record (9), shard number (8),
version ``2``. Creation second and count decide the order, so numbers rise within a shard and from
a parent to its children; bits 4-35 hold the shard number, which is what
KCL's ``SequenceNumberValidator`` reads.
"""

from __future__ import annotations

from dataclasses import dataclass

_VERSION = 2
_COUNT_BITS = 64
_SECOND_BITS = 36
_SHARD_BITS = 32
#: Count in a closed shard's EndingSequenceNumber: above every record's.
LAST_COUNT = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class SequenceParts:
    """What a version-2 sequence number says."""

    shard_created_s: int
    shard_number: int
    count: int
    record_s: int


def shard_base(shard_created_s: int, shard_number: int) -> int:
    """The number with count 0 and second 0: add ``step`` results to it for a record's number."""
    high = (_VERSION << _SECOND_BITS) | (shard_created_s & ((1 << _SECOND_BITS) - 1))
    high = (high << 4) | (shard_number & 0xF)
    low = ((shard_number & ((1 << _SHARD_BITS) - 1)) << 4) | _VERSION
    return (high << (_COUNT_BITS + 8 + _SECOND_BITS + _SHARD_BITS + 4)) | low


def step(count: int, record_s: int) -> int:
    """The part of a record's number that changes within a shard."""
    return ((count << (8 + _SECOND_BITS)) | record_s) << (_SHARD_BITS + 4)


def parse(number: int) -> SequenceParts | None:
    """Take a sequence number apart; None when it is not one of version 2."""
    if number.bit_length() != 186 or number & 0xF != _VERSION:
        return None
    rest = number >> 4
    shard_number = rest & ((1 << _SHARD_BITS) - 1)
    rest >>= _SHARD_BITS
    record_s = rest & ((1 << _SECOND_BITS) - 1)
    rest >>= _SECOND_BITS + 8
    count = rest & ((1 << _COUNT_BITS) - 1)
    rest >>= _COUNT_BITS + 4
    return SequenceParts(rest & ((1 << _SECOND_BITS) - 1), shard_number, count, record_s)


def parse_text(text: object) -> SequenceParts | None:
    """As :func:`parse`, from the decimal text of a request; None for anything else."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 128:
        return None
    return parse(int(text))
