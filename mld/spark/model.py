"""The values that travel through the Spark child. Pure: no Spark, no I/O.

Positions compare as two integers, never as text: a sequence number has up to 56 digits, and the
records of one KPL aggregate share it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import NamedTuple

#: How the beginning of a shard's history is written where a position is expected.
START = "start"
#: Columns of a decoded frame that the function may drop: they order the rows of a key.
SEQUENCE_COLUMN = "sequence_number"
SUB_SEQUENCE_COLUMN = "sub_sequence_number"


class Position(NamedTuple):
    """A record's place in its shard; ordered as Kinesis orders."""

    sequence: int
    sub: int = 0

    def __str__(self) -> str:
        return f"{self.sequence}.{self.sub}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The inverse of ``str``.

        Raises:
            ValueError: it is not two decimal numbers with a dot between.
        """
        numbers = text.split(".")
        if len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
            raise ValueError(f"not a position: {text!r}")
        return cls(*map(int, numbers))

    @classmethod
    def of_checkpoint(cls, sequence: str | None, sub: int | None) -> Position | None:
        """The position of a stored checkpoint; None for the sentinels (TRIM_HORIZON and so on)."""
        if sequence is None or not (sequence.isascii() and sequence.isdigit()):
            return None
        return cls(int(sequence), sub or 0)


def position_text(position: Position | None) -> str:
    """A position, or ``start`` for None."""
    return START if position is None else str(position)


def parse_position(text: str) -> Position | None:
    """The inverse of :func:`position_text`.

    Raises:
        ValueError: it is neither.
    """
    return None if text == START else Position.parse(text)


@dataclass(frozen=True, slots=True, order=True)
class ShardKey:
    """Whose records these are, in the sink's eyes.

    Attributes:
        application: name of the KCL application.
        stream: name of the stream.
        shard_id: Kinesis shard id.
        epoch: of the output; a new one starts every shard's history again (``spark.sink.epoch``).
    """

    application: str
    stream: str
    shard_id: str
    epoch: str = "0"


class RowSchema(NamedTuple):
    """What a daemon with a schema registry says of a record whose frame it took off."""

    version_id: str
    name: str | None
    data_format: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """One user record as the child received it; ``data`` is decoded from base64."""

    position: Position
    partition_key: str
    data: bytes
    arrival_ms: int | None
    schema: RowSchema | None = None


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """Consecutive records of one shard that are written and committed together.

    Attributes:
        shard: whose.
        after: the position that the batch follows: the sink's mark when it was cut.
        to: position of its last record; one without rows has it, too, if they were set aside.
        rows: in order; all positions in (after, to].
        is_replay: True when an earlier process may have written it already.
        millis_behind_latest: of the last delivery in it; None if unknown.
    """

    shard: ShardKey
    after: Position | None
    to: Position
    rows: tuple[Row, ...] = field(repr=False)
    is_replay: bool = False
    millis_behind_latest: int | None = None

    @property
    def batch_id(self) -> str:
        """The same for every attempt at this batch by this cut: ``<stream>.<shard>@<after>``."""
        return f"{self.shard.stream}.{self.shard.shard_id}@{position_text(self.after)}"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record of which the function fails.

    Attributes:
        shard: whose.
        row: the record as it came.
        error: what the function, or Spark, said of it.
    """

    shard: ShardKey
    row: Row = field(repr=False)
    error: str

    def __str__(self) -> str:
        return f"the record of {self.shard.shard_id} at {self.row.position}: {self.error}"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """What the shards of a host had at one cut: one frame, one call of the function, one commit.

    Attributes:
        parts: at least one, each of another shard.
    """

    parts: tuple[ShardBatch, ...]

    @property
    def batch_id(self) -> str:
        """The same for every attempt at the same parts: the only one's, or a digest of all."""
        names = sorted(part.batch_id for part in self.parts)
        if len(names) == 1:
            return names[0]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        return f"{self.parts[0].shard.application}@{digest[:16]}"

    @property
    def count(self) -> int:
        """Records, >= 0."""
        return sum(len(part.rows) for part in self.parts)

    def __str__(self) -> str:
        shards = f"{len(self.parts)} shards" if len(self.parts) > 1 else "1 shard"
        return f"batch {self.batch_id} ({self.count} records of {shards})"


@dataclass(frozen=True, slots=True)
class ShardRange:
    """A shard's part of a batch, as the user's function sees it.

    Attributes:
        stream_name: name of the stream.
        shard_id: Kinesis shard id.
        after: position that the part follows; None = the beginning.
        to: position of its last record.
        count: of records, >= 0.
        is_replay: True when an earlier process may have written it already.
        millis_behind_latest: distance to the tip of the shard in ms; None if unknown.
    """

    stream_name: str
    shard_id: str
    after: Position | None
    to: Position
    count: int
    is_replay: bool
    millis_behind_latest: int | None


def range_of(part: ShardBatch) -> ShardRange:
    """The range of a shard's part of a batch."""
    return ShardRange(
        stream_name=part.shard.stream,
        shard_id=part.shard.shard_id,
        after=part.after,
        to=part.to,
        count=len(part.rows),
        is_replay=part.is_replay,
        millis_behind_latest=part.millis_behind_latest,
    )
