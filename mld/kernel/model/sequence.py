"""Positions in a shard: a sequence number with its place inside an aggregated record.

The order is the one that every KCL worker uses, so that two workers never disagree about what a
checkpoint covers: ``AT_TIMESTAMP < TRIM_HORIZON < LATEST < any number < SHARD_END``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.masking import printable

#: Kinesis writes 56 digits; Python converts at most 4,300.
_DIGITS = re.compile(r"[0-9]{1,4000}\Z")
_LEADING_ZEROS = re.compile(r"\A0+(?=[0-9]+\Z)")


class Sentinel(StrEnum):
    """The words that are stored in place of a sequence number, spelled as in the table."""

    AT_TIMESTAMP = "AT_TIMESTAMP"
    TRIM_HORIZON = "TRIM_HORIZON"
    LATEST = "LATEST"
    SHARD_END = "SHARD_END"


#: Rank below every sequence number (0 and up); SHARD_END has a class of its own above them.
#: Source: ExtendedSequenceNumber.java:41-44.
_SHARD_END = Sentinel.SHARD_END.value
_RANK = {Sentinel.AT_TIMESTAMP: -3, Sentinel.TRIM_HORIZON: -2, Sentinel.LATEST: -1}


@dataclass(frozen=True, slots=True)
class ExtendedSequenceNumber:
    """A position: everything up to and including it is done.

    Equality is textual (``"010"`` is not ``"10"``), order is numeric, as in Java. Compare positions
    with ``<``, ``<=`` and ``key``; use ``==`` only to ask whether the same text was written.

    Attributes:
        sequence_number: ASCII digits, or the text of a :class:`Sentinel`.
        sub_sequence_number: index inside an aggregated record, from 0; 0 for sentinels.

    Raises:
        MalformedData: neither digits nor a sentinel, or a negative sub-sequence number.
    """

    sequence_number: str
    sub_sequence_number: int = 0

    def __post_init__(self) -> None:
        if not is_sequence_number(self.sequence_number):
            raise MalformedData(
                f"'{printable(self.sequence_number)}' is neither a sequence number nor one of "
                f"{', '.join(Sentinel)}"
            )
        if self.sub_sequence_number < 0:
            raise MalformedData(f"sub-sequence number {self.sub_sequence_number} is negative")

    @property
    def sentinel(self) -> Sentinel | None:
        """The sentinel that this position is, or None for a number."""
        text = self.sequence_number
        return Sentinel(text) if text in _SENTINELS else None

    @property
    def is_shard_end(self) -> bool:
        """True when the shard is completely processed."""
        return self.sequence_number == _SHARD_END

    @property
    def key(self) -> tuple[int, int, int]:
        """Sort key; all SHARD_END positions are equal whatever their sub-sequence number."""
        sentinel = self.sentinel
        if sentinel is Sentinel.SHARD_END:
            return (1, 0, 0)
        if sentinel is not None:
            return (0, _RANK[sentinel], self.sub_sequence_number)
        return (0, int(self.sequence_number), self.sub_sequence_number)

    def __lt__(self, other: ExtendedSequenceNumber) -> bool:
        return self.key < other.key

    def __le__(self, other: ExtendedSequenceNumber) -> bool:
        return self.key <= other.key

    def __gt__(self, other: ExtendedSequenceNumber) -> bool:
        return self.key > other.key

    def __ge__(self, other: ExtendedSequenceNumber) -> bool:
        return self.key >= other.key

    def __str__(self) -> str:
        if self.sub_sequence_number:
            return f"{self.sequence_number}/{self.sub_sequence_number}"
        return self.sequence_number


_SENTINELS = frozenset(Sentinel)


def is_sequence_number(text: str) -> bool:
    """True for ASCII digits and for the text of a sentinel; what a checkpoint may hold."""
    return _DIGITS.match(text) is not None or text in _SENTINELS


def without_leading_zeros(text: str) -> str:
    """A sequence number as Kinesis writes it and takes it; another text as it is."""
    return _LEADING_ZEROS.sub("", text)


TRIM_HORIZON = ExtendedSequenceNumber(Sentinel.TRIM_HORIZON)
LATEST = ExtendedSequenceNumber(Sentinel.LATEST)
AT_TIMESTAMP = ExtendedSequenceNumber(Sentinel.AT_TIMESTAMP)
SHARD_END = ExtendedSequenceNumber(Sentinel.SHARD_END)


@dataclass(frozen=True, slots=True)
class InitialPosition:
    """Where a shard without a checkpoint starts.

    Attributes:
        sentinel: LATEST, TRIM_HORIZON or AT_TIMESTAMP.
        timestamp_s: epoch seconds, set exactly when the sentinel is AT_TIMESTAMP.
    """

    sentinel: Sentinel
    timestamp_s: float | None = None

    @property
    def checkpoint(self) -> ExtendedSequenceNumber:
        """The position that a new lease stores."""
        return ExtendedSequenceNumber(self.sentinel)
