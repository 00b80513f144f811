"""The stream under the fleet: producers, reshards, and the truth about every record."""

from __future__ import annotations

import base64
import hashlib
import random
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcl_mld.local.kinesis.faults import KinesisFault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.local.kinesis import KinesisModel

#: Between the deletion of a stream and the creation of another of its name: in the service, either
#: takes longer.
REPLACED_S = 1.5
STREAM = "orders"
ACCOUNT = "123456789012"
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
        keys: by which records are ordered, in the order of ``places``.
        previous: index of the record before it that has its key, -1 = none.
        parents: shards that must be finished before.
    """

    shard_id: str
    parents: tuple[str, ...]
    places: list[Place] = field(default_factory=list)
    index: dict[Place, int] = field(default_factory=dict)
    identities: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)
    _last: dict[str, int] = field(default_factory=dict)

    def add(self, place: Place, identity: str, key: str) -> None:
        """Remember a record that was just put."""
        self.index[place] = len(self.places)
        self.previous.append(self._last.get(key, -1))
        self._last[key] = len(self.places)
        self.keys.append(key)
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


@dataclass(frozen=True)
class Keys:
    """Keys of records.

    Attributes:
        count: how many there are.
        hot: how often a record has the first of them, whatever else is drawn.
        spread: the user records of an aggregate have keys of their own.
    """

    count: int = 1000
    hot: float = 0.0
    spread: bool = False

    def hashes(self) -> dict[str, int]:
        """Where each is in the space of hash keys."""
        keys = (f"key-{number}" for number in range(self.count))
        return {
            key: int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest(), 16)
            for key in keys
        }


@dataclass(frozen=True)
class ShardView:
    """A shard of one of many streams, all names as lease keys."""

    shard_id: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    start_key: int
    end_key: int
    is_open: bool

    @classmethod
    def of(cls, shard: Any, prefix: str) -> ShardView:
        """What the model says of a shard."""
        return cls(
            prefix + shard.shard_id,
            tuple(prefix + one for one in shard.parents),
            tuple(prefix + one for one in shard.children),
            shard.start_key,
            shard.end_key,
            shard.is_open,
        )


_KEYS = Keys()


class SimStream:
    """One stream with its producers' notes.

    Shards are named by their lease keys, which for a single stream are the shard ids.

    Args:
        is_one_of_many: lease keys name the stream.
    """

    def __init__(
        self,
        model: KinesisModel,
        rng: random.Random,
        shards: int,
        name: str = STREAM,
        *,
        keys: Keys = _KEYS,
        is_one_of_many: bool = False,
    ) -> None:
        self._rng = rng
        self._count = 0
        self.name = name
        self.model = model
        self.truth: dict[str, ShardTruth] = {}
        #: The stream was deleted; what is told of it stays as it was then.
        self.is_deleted = False
        self.model.call("CreateStream", {"StreamName": name, "ShardCount": shards})
        self._stream = self.model.stream(name)
        self._keys = keys
        self._apart = random.Random(f"keys {name}")
        self._hashes = keys.hashes() if keys.spread else {}
        #: Those that the service has forgotten are among them.
        self._ever: dict[str, Any] = {}
        epoch = self._stream.created_ms // 1000
        self.prefix = f"{ACCOUNT}:{name}:{epoch}:" if is_one_of_many else ""
        self.generations = [self]
        self.refresh()

    def delete(self) -> None:
        """Delete the stream."""
        self.is_deleted = True
        request = {"StreamName": self.name, "EnforceConsumerDeletion": True}
        self.model.call("DeleteStream", request)

    def create_again(self, shards: int) -> None:
        """Another stream of the name of the deleted one."""
        self.model.call("CreateStream", {"StreamName": self.name, "ShardCount": shards})

    def refresh(self) -> None:
        """Learn of shards that have come since."""
        for key, shard in self.shards.items():
            if key not in self.truth:
                self.truth[key] = ShardTruth(key, tuple(shard.parents))

    @property
    def shards(self) -> dict[str, Any]:
        """The model's shards by lease key, forgotten ones too."""
        if not self.is_deleted:
            self.model.stream(self.name)  # do what is due
        self._ever |= self._stream.shards
        if not self.prefix:
            return self._ever
        found = (ShardView.of(shard, self.prefix) for shard in self._ever.values())
        return {shard.shard_id: shard for shard in found}

    @property
    def open_shards(self) -> list[Any]:
        """Those that take records now."""
        return [shard for shard in self.shards.values() if shard.is_open]

    def has_hole(self, unfinished: Collection[str]) -> bool:
        """Whether some hash keys have none of these leases: only an audit can mend that."""
        reach = 0
        shards = [shard for key, shard in self.shards.items() if key in unfinished]
        for shard in sorted(shards, key=lambda shard: shard.start_key):
            if shard.start_key > reach:
                return True
            reach = max(reach, shard.end_key + 1)
        return reach != 2**128

    def living(self) -> list[SimStream]:
        """Streams that are there, this one alone."""
        return [self]

    def deleted_s(self, key: str) -> float | None:
        """When the stream of a lease was deleted; the loss of a single one is the court's."""
        return None

    def find(self, shard_id: str) -> ShardTruth | None:
        """What is known of a shard, None when there is none of that id."""
        if shard_id not in self.truth:
            self.refresh()
        return self.truth.get(shard_id)

    def put(self, *, aggregated: bool = False) -> None:
        """One record of one user record or several, somewhere."""
        key = f"key-{self._rng.randrange(self._keys.count)}"
        if self._keys.hot and self._apart.random() < self._keys.hot:
            key = "key-0"
        size = self._rng.randint(2, 4) if aggregated else 1
        label = self.prefix and f"{self.name} "
        identities = [f"{label}r{self._count + number}" for number in range(size)]
        self._count += size
        keys = [key] * size
        if aggregated and self._keys.spread:
            beside = self._beside(key)
            keys[1:] = [self._apart.choice(beside) for _ in keys[1:]]
        data = (
            kpl_aggregate(
                [(one, identity.encode()) for one, identity in zip(keys, identities, strict=True)]
            )
            if aggregated
            else identities[0].encode()
        )
        answer = self.model.call(
            "PutRecord",
            {
                "StreamName": self.name,
                "PartitionKey": key,
                "Data": base64.b64encode(data).decode(),
            },
        )
        self.refresh()
        truth = self.truth[self.prefix + answer["ShardId"]]
        for sub, identity in enumerate(identities):
            truth.add((int(answer["SequenceNumber"]), sub), identity, keys[sub])

    def _beside(self, key: str) -> list[str]:
        """All keys of the shard that a record of this key is put into now."""
        at = self._hashes[key]
        for shard in self.model.stream(self.name).open_shards:
            if shard.start_key <= at <= shard.end_key:
                return [
                    one
                    for one, hashed in self._hashes.items()
                    if shard.start_key <= hashed <= shard.end_key
                ]
        return [key]

    def reshard(self) -> str:
        """Split a shard or merge two neighbors, as luck has it; what was done, in words."""
        stream = self.model.stream(self.name)
        if stream.status != "ACTIVE":
            return "reshard refused: busy"
        shards = list(stream.open_shards)
        try:
            if len(shards) > 1 and self._rng.random() < 0.5:
                left = self._rng.randrange(len(shards) - 1)
                return self.merge(shards[left].shard_id, shards[left + 1].shard_id)
            return self._split(self._rng.choice(shards))
        except KinesisFault as fault:
            return f"reshard refused: {fault.code}"

    def merge(self, one: str, other: str) -> str:
        """Merge two neighbors; what was done, in words."""
        self.model.call(
            "MergeShards",
            {"StreamName": self.name, "ShardToMerge": one, "AdjacentShardToMerge": other},
        )
        return f"merge {one[-3:]} + {other[-3:]}"

    def _split(self, shard: Any) -> str:
        middle = (shard.start_key + shard.end_key) // 2 + 1
        self.model.call(
            "SplitShard",
            {
                "StreamName": self.name,
                "ShardToSplit": shard.shard_id,
                "NewStartingHashKey": str(middle),
            },
        )
        return f"split {shard.shard_id[-3:]}"


class SimStreams:
    """Several streams of one account, with equal shard ids; :class:`SimStream` for judges.

    Attributes:
        generations: every stream that ever was, in the order of creation.
    """

    def __init__(
        self,
        now: Callable[[], float],
        model: KinesisModel,
        rng: random.Random,
        shards: Iterable[int],
        keys: Keys = _KEYS,
    ) -> None:
        self._now = now
        self._keys = keys
        self._rng = rng
        self.model = model
        self.generations: list[SimStream] = []
        self._deleted_s: dict[str, float] = {}
        for number, count in enumerate(shards):
            self.create(f"{STREAM}{number}", count)

    # -- streams come and go -------------------------------------------------------------------

    def create(self, name: str, shards: int) -> None:
        """Another stream, perhaps of a name that was there before."""
        one = SimStream(self.model, self._rng, shards, name, keys=self._keys, is_one_of_many=True)
        self.generations.append(one)

    def delete(self, name: str) -> None:
        """A stream and all that is in it."""
        (one,) = [stream for stream in self.living() if stream.name == name]
        one.refresh()
        one.delete()
        self._deleted_s[one.prefix] = self._now()

    def living(self) -> list[SimStream]:
        """Streams that are there."""
        return [stream for stream in self.generations if not stream.is_deleted]

    def names(self) -> list[str]:
        """Their names."""
        return [stream.name for stream in self.living()]

    def deleted_s(self, key: str) -> float | None:
        """When the stream of a lease was deleted; None when it is there, or never was."""
        return self._deleted_s.get(key.rpartition(":")[0] + ":")

    # -- as one stream -------------------------------------------------------------------------

    @property
    def truth(self) -> dict[str, ShardTruth]:
        return {key: truth for one in self.generations for key, truth in one.truth.items()}

    @property
    def shards(self) -> dict[str, Any]:
        return {key: shard for one in self.generations for key, shard in one.shards.items()}

    @property
    def open_shards(self) -> list[Any]:
        return [shard for one in self.living() for shard in one.open_shards]

    def refresh(self) -> None:
        for one in self.living():
            one.refresh()

    def find(self, key: str) -> ShardTruth | None:
        found = (one.find(key) for one in self.generations if key.startswith(one.prefix))
        return next(found, None)

    def put(self, *, aggregated: bool = False) -> None:
        self._rng.choice(self.living()).put(aggregated=aggregated)

    def reshard(self) -> str:
        one = self._rng.choice(self.living())
        return f"{one.name}: {one.reshard()}"
