"""One shard: its place in the hash range, its ancestry, its log of records and their numbers.

Sequence numbers are of version 2: 186 bits, written as 56 decimal digits. From the top, in
hexadecimal digits: ``2``, creation second of the shard (9), low digit of the shard number (1),
running count in the shard (16), ``00``, second of the record (9), shard number (8), version ``2``.
Creation second and count decide the order, so numbers rise within a shard and from a parent to its
children; bits 4-35 hold the shard number, which is what KCL's ``SequenceNumberValidator`` reads.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

_VERSION = 2
_COUNT_BITS = 64
_SECOND_BITS = 36
_SHARD_BITS = 32
#: Count in a closed shard's EndingSequenceNumber: above every record's.
LAST_COUNT = (1 << 63) - 1


#: Trimmed records are freed when there are this many, or when nothing else is left.
_FREE_AT_ONCE = 4096
MAX_HASH_KEY = (1 << 128) - 1


@dataclass(frozen=True, slots=True)
class SequenceParts:
    """The parts of a version-2 sequence number."""

    shard_created_s: int
    shard_number: int
    count: int
    record_s: int


def shard_base(shard_created_s: int, shard_number: int) -> int:
    """The number with count 0 and second 0; a record's number is this + :func:`next_sequence`."""
    high = (_VERSION << _SECOND_BITS) | (shard_created_s & ((1 << _SECOND_BITS) - 1))
    high = (high << 4) | (shard_number & 0xF)
    low = ((shard_number & ((1 << _SHARD_BITS) - 1)) << 4) | _VERSION
    return (high << (_COUNT_BITS + 8 + _SECOND_BITS + _SHARD_BITS + 4)) | low


def next_sequence(count: int, record_s: int) -> int:
    """The part of a record's number that changes within a shard."""
    return ((count << (8 + _SECOND_BITS)) | record_s) << (_SHARD_BITS + 4)


def parse_sequence(number: int) -> SequenceParts | None:
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


def parse_sequence_text(text: object) -> SequenceParts | None:
    """As :func:`parse_sequence`, from the decimal text of a request; None for anything else."""
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > 128:
        return None
    return parse_sequence(int(text))


def shard_id_of(number: int) -> str:
    """The service's spelling of a shard number."""
    return f"shardId-{number:012d}"


class LocalShard:
    """A shard, open until :meth:`close`.

    Args:
        number: running number in the stream, from 0.
        created_ms: epoch milliseconds from which the shard takes records.
        created_s: second written into its sequence numbers; greater than its parents'.
        hash_range: first and last hash key, both inclusive, 0 to 2**128 - 1.
        parents: ids of the parent and the adjacent parent; none for a root, two after a merge.
    """

    __slots__ = (
        "_arrivals_ms",
        "_base",
        "_cumulative_bytes",
        "_fragments",
        "_freed_bytes",
        "_head",
        "children",
        "closed_ms",
        "created_ms",
        "created_s",
        "end_key",
        "ending_sequence",
        "number",
        "offset",
        "parents",
        "shard_id",
        "start_key",
    )

    def __init__(
        self,
        number: int,
        created_ms: int,
        created_s: int,
        hash_range: tuple[int, int],
        parents: tuple[str, ...] = (),
    ) -> None:
        self.number = number
        self.shard_id = shard_id_of(number)
        self.created_ms = created_ms
        self.created_s = created_s
        self.start_key, self.end_key = hash_range
        self.parents = parents
        self.children: tuple[str, ...] = ()
        self.closed_ms: int | None = None
        self.ending_sequence: str | None = None
        #: Position of the first record still held in memory.
        self.offset = 0
        self._head = 0
        self._freed_bytes = 0
        self._base = shard_base(created_s, number)
        self._fragments: list[bytes] = []
        self._arrivals_ms: list[int] = []
        self._cumulative_bytes: list[int] = []

    @property
    def is_open(self) -> bool:
        """Whether it still takes records."""
        return self.closed_ms is None

    @property
    def start(self) -> int:
        """Position of the oldest record that has not been trimmed."""
        return self.offset + self._head

    @property
    def end(self) -> int:
        """Position that the next record will get."""
        return self.offset + len(self._fragments)

    @property
    def last_arrival_ms(self) -> int:
        """Arrival of the newest record held, or the shard's creation."""
        return self._arrivals_ms[-1] if self._arrivals_ms else self.created_ms

    @property
    def starting_sequence(self) -> str:
        """The shard's StartingSequenceNumber; no record has it."""
        return str(self._base)

    def append(self, data_base64: bytes, partition_key_json: bytes, size: int, now_ms: int) -> int:
        """Add a record and return its sequence number.

        Args:
            data_base64: the data as base64 text, already checked.
            partition_key_json: the partition key as a JSON string with its quotes.
            size: bytes of data and partition key together.
            now_ms: epoch milliseconds; an arrival never precedes the one before it.
        """
        arrivals = self._arrivals_ms
        if arrivals and arrivals[-1] > now_ms:
            now_ms = arrivals[-1]
        sequence = self._base + next_sequence(self.end + 1, now_ms // 1000)
        self._fragments.append(
            b'{"ApproximateArrivalTimestamp":%d.%012dE9,"Data":"%b","PartitionKey":%b,'
            b'"SequenceNumber":"%d"}'
            % (*divmod(now_ms, 10**12), data_base64, partition_key_json, sequence)
        )
        arrivals.append(now_ms)
        total = self._cumulative_bytes
        total.append((total[-1] if total else self._freed_bytes) + size)
        return sequence

    def close(self, now_ms: int, children: tuple[str, ...]) -> None:
        """End the shard; its records stay until they are trimmed."""
        self.closed_ms = now_ms
        self.children = children
        self.ending_sequence = str(self._base + next_sequence(LAST_COUNT, now_ms // 1000))

    def trim(self, horizon_ms: int) -> None:
        """Forget records that arrived before ``horizon_ms``."""
        head = bisect_left(self._arrivals_ms, horizon_ms, self._head)
        self._head = head
        if head >= _FREE_AT_ONCE or (head and head == len(self._fragments)):
            self.offset += head
            self._head = 0
            self._freed_bytes = self._cumulative_bytes[head - 1]
            del self._fragments[:head], self._arrivals_ms[:head], self._cumulative_bytes[:head]

    def slice_end(self, position: int, max_records: int, max_bytes: int) -> int:
        """Where an answer from ``position`` stops: within both limits, at least one record."""
        index = position - self.offset
        stop = min(index + max_records, len(self._fragments))
        total = self._cumulative_bytes
        before = total[index - 1] if index else self._freed_bytes
        within = bisect_right(total, before + max_bytes, index, stop)
        return self.offset + max(within, min(index + 1, stop))

    def bytes_between(self, position: int, stop: int) -> int:
        """Data and partition keys of the records from ``position`` up to ``stop``."""
        first, last = position - self.offset, stop - self.offset
        if last <= first:
            return 0
        total = self._cumulative_bytes
        before = total[first - 1] if first else self._freed_bytes
        return total[last - 1] - before

    def json_between(self, position: int, stop: int) -> bytes:
        """Records from ``position`` up to ``stop`` as JSON objects joined by commas."""
        return b",".join(self._fragments[position - self.offset : stop - self.offset])

    def arrival_ms(self, position: int) -> int:
        """Arrival of the record at ``position``, epoch milliseconds."""
        return self._arrivals_ms[position - self.offset]

    def position_at_time(self, timestamp_ms: float) -> int:
        """Position of the first record that arrived at or after ``timestamp_ms``."""
        return self.offset + bisect_left(self._arrivals_ms, timestamp_ms, self._head)

    def sequence_at(self, position: int) -> str | None:
        """Sequence number of the record at ``position``; None where none is held."""
        index = position - self.offset
        if not 0 <= index < len(self._arrivals_ms):
            return None
        return str(self._base + next_sequence(position + 1, self._arrivals_ms[index] // 1000))

    def continuation(self, position: int, now_ms: int) -> str:
        """A continuation number: read up to ``position``, at ``now_ms``.

        It is at least that of the record before ``position``, less than that of the record at it,
        and grows with time, also while nothing is written.
        """
        index = position - self.offset
        if 0 < index <= len(self._arrivals_ms):
            now_ms = max(now_ms, self._arrivals_ms[index - 1])
        return str(self._base + next_sequence(position, now_ms // 1000))

    def position_after_sequence(self, text: object) -> int | None:
        """Position behind a sequence number; None when it did not come from this shard.

        The shard's start gives 0, its end :attr:`end`, a :meth:`continuation` the position that it
        was made for; trimmed records keep their position.
        """
        parts = parse_sequence_text(text)
        if parts is None or (parts.shard_number, parts.shard_created_s) != (
            self.number,
            self.created_s,
        ):
            return None
        if parts.count == LAST_COUNT:
            return None if self.is_open else self.end
        return parts.count if parts.count <= self.end else None

    def describe(self) -> dict[str, Any]:
        """The shard as ListShards and DescribeStream show it."""
        sequences: dict[str, str] = {"StartingSequenceNumber": self.starting_sequence}
        if self.ending_sequence is not None:
            sequences["EndingSequenceNumber"] = self.ending_sequence
        shown: dict[str, Any] = {
            "ShardId": self.shard_id,
            "HashKeyRange": self.hash_key_range(),
            "SequenceNumberRange": sequences,
        }
        shown.update(zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False))
        return shown

    def hash_key_range(self) -> dict[str, str]:
        """The hash range in the service's shape: decimal texts, both ends inclusive."""
        return {"StartingHashKey": str(self.start_key), "EndingHashKey": str(self.end_key)}

    def as_child(self) -> dict[str, Any]:
        """The shard as GetRecords shows it at its parent's end."""
        return {
            "ShardId": self.shard_id,
            "ParentShards": list(self.parents),
            "HashKeyRange": self.hash_key_range(),
        }
