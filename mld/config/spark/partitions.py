"""``spark.sink.partitionBy`` of an Iceberg table: columns, and transforms of columns. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

_FIELD = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)", re.ASCII)
_SPLIT = re.compile(r",(?![^(]*\))")
#: Transforms, and whether they have a number.
TRANSFORMS = {
    "identity": False,
    "year": False,
    "month": False,
    "day": False,
    "hour": False,
    "bucket": True,
    "truncate": True,
}


class PartitionField(NamedTuple):
    """One field of a partition.

    Attributes:
        transform: a key of ``TRANSFORMS``.
        number: of buckets, or the width that is kept; None without one.
    """

    column: str
    transform: str = "identity"
    number: int | None = None

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        number = "" if self.number is None else f"{self.number}, "
        return f"{self.transform}({number}{self.column})"


def partition_fields(text: str) -> tuple[PartitionField, ...]:
    """``day(ts), bucket(16, user), country`` -> its three fields.

    Raises:
        ValueError: one is none; the message names the expected form.
    """
    words = [word.strip() for word in _SPLIT.split(text) if word.strip()]
    return tuple(map(_field, words))


def _field(word: str) -> PartitionField:
    if "(" not in word and ")" not in word:
        return PartitionField(word)
    if (match := _FIELD.fullmatch(word)) is None:
        raise ValueError(
            f"{word!r} is no partition: write column, day(column) or bucket(16, column)"
        )
    name, number, column = match[1].lower(), match[2], match[3]
    if name not in TRANSFORMS:
        raise ValueError(f"{word!r}: {match[1]} is not one of {', '.join(TRANSFORMS)}")
    if TRANSFORMS[name] != (number is not None) or number == "0":
        takes = "a number > 0, as in bucket(16, user)" if TRANSFORMS[name] else "a column alone"
        raise ValueError(f"{word!r}: {name} takes {takes}")
    return PartitionField(column, name, None if number is None else int(number))
