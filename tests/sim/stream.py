"""The stream under the fleet: producers, reshards, and the truth about every record."""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mld.local.kinesis import KinesisModel, KinesisSettings
from mld.local.kinesis.faults import KinesisFault

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mld.model.sequence import ExtendedSequenceNumber

STREAM = "orders"
_MAGIC = b"\xf3\x89\x9a\xc2"

#: A user record's place: sequence number and index within its aggregate.
Place = tuple[int, int]


@dataclass
class ShardTruth:
    """Everything that was ever put into one shard.

    Attributes:
        places: of all user records, ascending.
        index: place -> its index in ``places``.
        identities: what tells each record apart, in the order of ``places``.
        parents: shards that must be finished before.
    """

    shard_id: str
    parents: tuple[str, ...]
    places: list[Place] = field(default_factory=list)
    index: dict[Place, int] = field(default_factory=dict)
    identities: list[str] = field(default_factory=list)

    def add(self, place: Place, identity: str) -> None:
        """Remember a record that was just put."""
        self.index[place] = len(self.places)
        self.places.append(place)
        self.identities.append(identity)

    def covered(self, position: ExtendedSequenceNumber) -> int:
        """How many records lie at or before a checkpoint."""
        if position.is_shard_end:
            return len(self.places)
        if position.sentinel is not None:
            return 0
        place = (int(position.sequence_number), position.sub_sequence_number)
        return bisect_right(self.places, place)

    def last_sub(self, sequence_number: int) -> int:
        """Highest sub-sequence number inside a Kinesis record."""
        sub = 0
        while (sequence_number, sub + 1) in self.index:
            sub += 1
        return sub


def kpl_aggregate(records: list[tuple[str, bytes]]) -> bytes:
    """Partition keys and payloads as one KPL record."""
    keys = sorted({key for key, _data in records})
    body = b"".join(_field(1, key.encode()) for key in keys)
    for key, data in records:
        body += _field(3, b"\x08" + _varint(keys.index(key)) + _field(3, data))
    return _MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest()


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class SimStream:
    """One stream with its producers' notes."""

    def __init__(
        self, now: Callable[[], float], rng: random.Random, shards: int, settings: KinesisSettings
    ) -> None:
        self._now = now
        self._rng = rng
        self._count = 0
        self.model = KinesisModel(now, rng, settings)
        self.truth: dict[str, ShardTruth] = {}
        #: The stream was deleted; what is told of it stays as it was then.
        self.is_deleted = False
        self.model.call("CreateStream", {"StreamName": STREAM, "ShardCount": shards})
        self._stream = self.model.stream(STREAM)
        self.refresh()

    def delete(self, *, create_shards: int = 0) -> None:
        """Delete the stream, and create another of its name when that has shards."""
        self.is_deleted = True
        self.model.call("DeleteStream", {"StreamName": STREAM, "EnforceConsumerDeletion": True})
        if create_shards:
            self.model.call("CreateStream", {"StreamName": STREAM, "ShardCount": create_shards})

    def refresh(self) -> None:
        """Learn of shards that have come since."""
        for shard in self.shards.values():
            if shard.shard_id not in self.truth:
                self.truth[shard.shard_id] = ShardTruth(shard.shard_id, tuple(shard.parents))

    @property
    def shards(self) -> dict[str, Any]:
        """The model's shards by id."""
        if not self.is_deleted:
            self.model.stream(STREAM)  # do what is due
        return self._stream.shards

    def find(self, shard_id: str) -> ShardTruth | None:
        """What is known of a shard, None when there is none of that id."""
        if shard_id not in self.truth:
            self.refresh()
        return self.truth.get(shard_id)

    def put(self, *, aggregated: bool = False) -> None:
        """One record of one user record or several, somewhere."""
        key = f"key-{self._rng.randrange(1000)}"
        size = self._rng.randint(2, 4) if aggregated else 1
        identities = [f"r{self._count + number}" for number in range(size)]
        self._count += size
        data = (
            kpl_aggregate([(key, identity.encode()) for identity in identities])
            if aggregated
            else identities[0].encode()
        )
        answer = self.model.call(
            "PutRecord",
            {
                "StreamName": STREAM,
                "PartitionKey": key,
                "Data": base64.b64encode(data).decode(),
            },
        )
        self.refresh()
        truth = self.truth[answer["ShardId"]]
        for sub, identity in enumerate(identities):
            truth.add((int(answer["SequenceNumber"]), sub), identity)

    def reshard(self) -> str:
        """Split a shard or merge two neighbors, as luck has it; what was done, in words."""
        stream = self.model.stream(STREAM)
        if stream.status != "ACTIVE":
            return "reshard refused: busy"
        shards = list(stream.open_shards)
        try:
            if len(shards) > 1 and self._rng.random() < 0.5:
                left = self._rng.randrange(len(shards) - 1)
                return self._merge(shards[left].shard_id, shards[left + 1].shard_id)
            return self._split(self._rng.choice(shards))
        except KinesisFault as fault:
            return f"reshard refused: {fault.code}"

    def _merge(self, one: str, other: str) -> str:
        self.model.call(
            "MergeShards",
            {"StreamName": STREAM, "ShardToMerge": one, "AdjacentShardToMerge": other},
        )
        return f"merge {one[-3:]} + {other[-3:]}"

    def _split(self, shard: Any) -> str:
        middle = (shard.start_key + shard.end_key) // 2 + 1
        self.model.call(
            "SplitShard",
            {
                "StreamName": STREAM,
                "ShardToSplit": shard.shard_id,
                "NewStartingHashKey": str(middle),
            },
        )
        return f"split {shard.shard_id[-3:]}"
