"""Migration of lease rows between single-stream and multi-stream keys.

A row of a worker of one stream has the key ``shardId``; a row of a multi-stream worker has
``account:stream:epoch:shardId``, ``streamName`` and ``shardId``. Everything else is the same in
both, including parents and children, which are bare ids (DynamoDBMultiStreamLeaseSerializer,
3.5.1).

During the migration a row is *staged*: it has its new key, no stream attributes, and its
``leaseCounter`` is stored in :data:`~kcl_mld.leases.model.lease_item.MOVING`. Without a counter, no
worker can take it: KCL 3.5 skips such a row, older versions refuse to list the table, and kcl-mld
refuses to run on it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kcl_mld.config.stream import Stream
from kcl_mld.errors import MalformedData
from kcl_mld.leases.model.lease_item import LEASE_KEY, MOVING, STREAM_MARK, item_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.leases.model.table_item import Item

_MULTI_KEY = re.compile(r"(?P<identifier>[0-9]+:[^:]+:[0-9]+):(?P<shard>[^:]+)\Z")
_COUNTER = "leaseCounter"
#: Not copied: multi-stream rows name their stream, and single-stream rows are marked again.
_OF_THE_STREAM = ("streamName", "shardId", STREAM_MARK)
_SETS = ("SS", "NS", "BS")
#: Attributes that others may add to a row without raising its counter; a condition names their
#: absence. Source: DynamoDBLeaseRefresher.updateLeaseWithMetaInfo (3.5.1).
_ADDED_QUIETLY = ("childShardIds", "startingHashKey", "endingHashKey")


class RowKind(StrEnum):
    """Kinds of lease keys; the values are those of ``--to``."""

    SINGLE = "single-stream"
    MULTI = "multi-stream"


@dataclass(frozen=True, slots=True)
class RowName:
    """The parts of a lease key.

    Attributes:
        shard_id: bare.
        identifier: ``account:stream:epoch``, None in a row of a worker of one stream.
    """

    shard_id: str
    identifier: str | None

    @classmethod
    def parse(cls, key: str) -> RowName:
        """Parse a key.

        Raises:
            MalformedData: it has colons but is not a key of a multi-stream lease.
        """
        match = _MULTI_KEY.match(key)
        if match is not None:
            Stream.parse_identifier(match["identifier"])
            return cls(match["shard"], match["identifier"])
        if ":" in key or not key:
            raise MalformedData(f"{key!r} is neither a shard id nor account:stream:epoch:shardId")
        return cls(key, None)

    @property
    def key(self) -> str:
        """The key as stored."""
        return self.shard_id if self.identifier is None else f"{self.identifier}:{self.shard_id}"


def staged(item: Item, key: str) -> dict[str, Mapping[str, Any]]:
    """The staged copy of a row, valid or staged itself, under its new key."""
    row = contents(item)
    row[MOVING] = row.pop(_COUNTER)
    return {LEASE_KEY: {"S": key}, **row}


def valid(item: Item) -> dict[str, Mapping[str, Any]]:
    """The lease that a staged row becomes."""
    name = RowName.parse(item_key(item))
    row: dict[str, Mapping[str, Any]] = {LEASE_KEY: {"S": name.key}, **contents(item)}
    if name.identifier is not None:
        row |= {"streamName": {"S": name.identifier}, "shardId": {"S": name.shard_id}}
    return row


def contents(item: Item) -> dict[str, Mapping[str, Any]]:
    """The parts of a row that both kinds share, staged or not: all but key and stream attributes.

    Values of sets are sorted, so that contents can be compared.
    """
    row = {
        name: value
        for name, value in comparable(item).items()
        if name not in (LEASE_KEY, *_OF_THE_STREAM)
    }
    if MOVING in row:
        row[_COUNTER] = row.pop(MOVING)
    return row


def comparable(item: Item) -> dict[str, Mapping[str, Any]]:
    """The item with the values of its sets sorted, because DynamoDB returns them in any order."""
    return {
        name: {
            kind: sorted(content) if kind in _SETS else content for kind, content in value.items()
        }
        for name, value in item.items()
    }


def unchanged_condition(item: Item) -> dict[str, Any]:
    """The condition of a write that requires the row to be unchanged since it was read."""
    names = {f"#a{number}": name for number, name in enumerate(item)}
    values = {f":a{number}": value for number, value in enumerate(item.values())}
    terms = [f"{name} = :{name[1:]}" for name in names]
    terms += [f"attribute_not_exists({name})" for name in _ADDED_QUIETLY if name not in item]
    return {
        "ConditionExpression": " AND ".join(terms),
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
