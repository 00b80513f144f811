"""Which of a shard's children gets a record: the one of its key, always the same.

The index of a child is the CRC-32 (that of zlib) of the key in UTF-8, modulo the number of
children. So it is the same in every process and every release.

The key is the partition key; a user record of an aggregate has its own. A change of a table's item
has the key of that item, see :func:`item_key`. A record without a key has the empty one.
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec

from kcl_mld.children.rules.line import data_bytes, ends_of, line_of, lines_behind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.retrieval.model.record import LineRecord


class _Keys(msgspec.Struct, gc=False):
    keys: dict[str, dict[str, str]] = msgspec.field(name="Keys")


class _KeyedData(msgspec.Struct, gc=False):
    dynamodb: _Keys


_KEYED_DATA = msgspec.json.Decoder(_KeyedData)
_SORTED = msgspec.json.Encoder(order="sorted")
_data_of = attrgetter("data")
_key_of = attrgetter("partition_key")


@dataclass(frozen=True, slots=True)
class Route:
    """How the records of a line are split among the children of its shard.

    Attributes:
        floors: by child, up to where records were assigned to it: it gets those behind. None = it
            gets none now.
        keys_in_data: see :attr:`kcl_mld.config.stream.SourceTraits.keys_in_data`.
    """

    floors: tuple[ExtendedSequenceNumber | None, ...]
    keys_in_data: bool = False

    def behind(self, default: ExtendedSequenceNumber) -> ExtendedSequenceNumber:
        """No child gets a record up to here; the default if none gets any."""
        return min((floor for floor in self.floors if floor is not None), default=default)


@dataclass(frozen=True, slots=True)
class Part:
    """What one child gets of a line.

    Attributes:
        child: its index, from 0.
        line: a whole ``processRecords`` line.
        records: >= 1.
        data_bytes: payload of those.
        smallest: position of one of its records; likewise ``largest``.
        arrived_s: epoch seconds at which the first record arrived; None if it is not given.
    """

    child: int
    line: bytes
    records: int
    data_bytes: int
    smallest: ExtendedSequenceNumber
    largest: ExtendedSequenceNumber
    arrived_s: float | None


def child_of(key: str | None, children: int) -> int:
    """Index of the child of a key.

    Args:
        key: a lone surrogate counts as the question mark as which it is read and written.
        children: >= 1.
    """
    return crc32((key or "").encode("utf-8", "replace")) % children


def item_key(data: str | None) -> str:
    """The key of the item whose change a record is, the same text for all changes of the item.

    It is the member ``Keys`` with its names sorted, JSON in UTF-8 without blanks and with only the
    escapes that JSON demands, as ``{"customer":{"S":"c-17"},"order":{"N":"4"}}``. Values stay the
    texts of the service, which writes each number in one way.

    Args:
        data: of the record in base64, as :func:`kcl_mld.aws.rules.change_record.change_data` writes it.

    Returns:
        "" where no key can be read.
    """
    try:
        keys = _KEYED_DATA.decode(b64decode(data or "")).dynamodb.keys
    except (ValueError, RecursionError):  # of base64, msgspec and UTF-8
        return ""
    return _SORTED.encode(keys).decode()


def split(
    lines: list[LineRecord],
    route: Route,
    smallest: ExtendedSequenceNumber,
    largest: ExtendedSequenceNumber,
    millis_behind_latest: int | None,
) -> tuple[Part, ...]:
    """What each child gets of a line, by child; one that gets no record has no part.

    Args:
        lines: at least one.
        smallest: position among them; likewise ``largest``.
    """
    groups = _by_child(lines, _keys(lines, route), len(route.floors))
    # Mostly all children have the same floor, the end of the line before.
    if not all(floor is not None and floor < smallest for floor in set(route.floors)):
        groups = [
            [] if floor is None or largest <= floor else lines_behind(floor, group)
            for floor, group in zip(route.floors, groups, strict=True)
        ]
    return tuple(
        _part(child, group, millis_behind_latest) for child, group in enumerate(groups) if group
    )


def _part(child: int, lines: list[LineRecord], millis_behind_latest: int | None) -> Part:
    smallest, largest = ends_of(lines)
    arrived_ms = lines[0].approximate_arrival_timestamp
    return Part(
        child,
        line_of(lines, millis_behind_latest),
        len(lines),
        data_bytes(lines),
        smallest,
        largest,
        None if arrived_ms is None else arrived_ms / 1000,
    )


def _keys(lines: list[LineRecord], route: Route) -> Iterable[str | None]:
    return map(item_key, map(_data_of, lines)) if route.keys_in_data else map(_key_of, lines)


def _by_child(
    lines: list[LineRecord], keys: Iterable[str | None], children: int
) -> list[list[LineRecord]]:
    """The records of each child, as :func:`child_of` says without a call each."""
    groups: list[list[LineRecord]] = [[] for _ in range(children)]
    adders = [group.append for group in groups]
    for line, key in zip(lines, keys, strict=True):
        adders[crc32((key or "").encode()) % children](line)
    return groups
