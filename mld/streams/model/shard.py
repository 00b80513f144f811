"""Shards as Kinesis describes them, and the hash-key space that they divide."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Forty digits are more than 2**128 - 1 has.
_DECIMAL = re.compile(r"[0-9]{1,40}\Z")

#: A shard of a DynamoDB stream: milliseconds at which it was made, then what makes the id unique.
_SHARD_OF_TABLE = re.compile(r"shardId-([0-9]{20})-[0-9a-f]+\Z")

MIN_HASH_KEY = 0
MAX_HASH_KEY = 2**128 - 1


@dataclass(frozen=True, slots=True, order=True)
class HashRange:
    """An inclusive range of 128-bit hash keys, ``0 <= start <= end <= 2**128 - 1``.

    Java refuses ``start == end`` in a lease; we read it (a shard of one key is legal in Kinesis)
    but never write it.
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not MIN_HASH_KEY <= self.start <= self.end <= MAX_HASH_KEY:
            raise MalformedData(f"hash range {self.start}-{self.end} is outside 0..2^128-1")

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end

    @property
    def is_whole(self) -> bool:
        """True when the range covers the whole space."""
        return self.start == MIN_HASH_KEY and self.end == MAX_HASH_KEY

    @classmethod
    def parse(cls, start: object, end: object) -> HashRange:
        """The range of two decimal texts.

        Raises:
            MalformedData: a text is not a decimal number in range.
        """
        if not all(_DECIMAL.match(str(bound)) for bound in (start, end)):
            raise MalformedData(f"hash range {start!r:.60}-{end!r:.60} is not decimal")
        return cls(int(str(start)), int(str(end)))


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard of a ListShards answer.

    Attributes:
        shard_id: e.g. ``shardId-000000000007``.
        starting_sequence_number: decimal text.
        ending_sequence_number: decimal text of a closed shard; None while it is open.
        parent_shard_id: the shard that was split, or one of two that were merged; else None.
        adjacent_parent_shard_id: the other merged shard; may be set alone.
    """

    shard_id: str
    hash_range: HashRange
    starting_sequence_number: str
    ending_sequence_number: str | None = None
    parent_shard_id: str | None = None
    adjacent_parent_shard_id: str | None = None

    @property
    def is_open(self) -> bool:
        """True while records can still be put into it."""
        return self.ending_sequence_number is None

    @property
    def parent_shard_ids(self) -> tuple[str, ...]:
        """Ids of zero to two parents, sorted, without repetition; listed or not."""
        parents = {self.parent_shard_id, self.adjacent_parent_shard_id} - {None, ""}
        return tuple(sorted(str(parent) for parent in parents))

    @classmethod
    def from_response(cls, entry: Mapping[str, Any]) -> Shard:
        """A shard of the ``Shards`` list of ListShards.

        Raises:
            MalformedData: a mandatory field is absent or unreadable.
        """
        try:
            sequence = entry["SequenceNumberRange"]
            keys = entry["HashKeyRange"]
            return cls(
                shard_id=entry["ShardId"],
                hash_range=HashRange.parse(keys["StartingHashKey"], keys["EndingHashKey"]),
                starting_sequence_number=sequence["StartingSequenceNumber"],
                ending_sequence_number=sequence.get("EndingSequenceNumber"),
                parent_shard_id=entry.get("ParentShardId"),
                adjacent_parent_shard_id=entry.get("AdjacentParentShardId"),
            )
        except (KeyError, TypeError) as error:
            raise MalformedData(f"shard without {error} in a ListShards answer") from error


@dataclass(frozen=True, slots=True)
class ChildShard:
    """One entry of ``ChildShards`` in the last GetRecords answer of a closed shard.

    Attributes:
        parent_shard_ids: one id after a split, two after a merge; sorted.
    """

    shard_id: str
    parent_shard_ids: tuple[str, ...]
    hash_range: HashRange


def creation_in_id(shard_id: str) -> float | None:
    """Epoch seconds at which a shard was made; None where the id does not have it.

    Ids of a DynamoDB stream have the time. Source: cleanup of leases by the age of a shard
    (dynamodb-streams-kinesis-adapter 1.x, 2.0.1 to 2.1.2).
    """
    found = _SHARD_OF_TABLE.match(shard_id)
    return None if found is None else int(found[1]) / 1000
