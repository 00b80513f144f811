"""The outputs of the simulated world, behind the surface that sinks have.

Delta and jdbc are tables with the guarantee that the real ones give. The last two are known to be
wrong, and are there to be convicted.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from mld.spark.errors import Fenced
from mld.spark.model import Position

if TYPE_CHECKING:
    from mld.spark.model import ShardBatch, ShardKey


def kept(batch: ShardBatch) -> list[Position]:
    """What the user's function makes of a batch: every fifth record goes, and long stretches."""
    return [row.position for row in batch.rows if is_kept(row.position)]


def is_kept(position: Position) -> bool:
    return position.sequence % 5 != 0 and position.sequence // 20 != 1


class _Table:
    """Rows in the order of their transactions."""

    uses_intents, is_marked, stages_ahead = False, False, False

    def __init__(self) -> None:
        self.content: dict[ShardKey, list[Position]] = defaultdict(list)
        self.ends: dict[ShardKey, Position] = {}

    def open(self):
        return self

    def rows(self, shard: ShardKey) -> list[Position]:
        return self.content[shard]

    def durable_end(self, shard: ShardKey) -> Position | None:
        return self.ends.get(shard)

    def append(self, batch: ShardBatch) -> None:
        self.content[batch.shard] += kept(batch)
        self.ends[batch.shard] = max(batch.to, self.ends.get(batch.shard, batch.to))

    def mark(self, shard: ShardKey) -> Position | None:
        return None

    def write(self, frame, batches):
        return None

    def commit(self, staged, batch: ShardBatch) -> None:
        """Everything is in the write."""

    def discard(self, staged) -> None:
        """Nothing is staged."""


class Delta(_Table):
    """A table that skips a version of an application id which it has seen."""

    uses_intents, coalesces = True, False

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int] = {}

    def write(self, frame, batches):
        (batch,) = batches
        if batch.number > self.versions.get(batch.app_id, 0):
            self.versions[batch.app_id] = batch.number
            self.append(batch)


class Jdbc(_Table):
    """Rows and mark in one transaction, on the condition that the mark is the predecessor."""

    is_marked, coalesces = True, True

    def open(self):
        return _JdbcSession(self)


class _JdbcSession:
    coalesces, uses_intents, stages_ahead = True, False, True

    def __init__(self, table: Jdbc) -> None:
        self._table = table
        self._mine: set[tuple[ShardKey, Position]] = set()

    def mark(self, shard: ShardKey) -> Position | None:
        return self._table.durable_end(shard)

    def write(self, frame, batches):
        return None

    def commit(self, staged, batch: ShardBatch) -> None:
        if (batch.shard, batch.to) in self._mine:
            return
        if self._table.durable_end(batch.shard) != batch.after:
            raise Fenced(f"{batch.batch_id}: another writer was first")
        self._table.append(batch)
        self._mine.add((batch.shard, batch.to))

    def discard(self, staged) -> None:
        """Nothing is staged."""


class PathPerRange(_Table):
    """WRONG: a directory per (shard, first, last), overwritten when it is there."""

    coalesces = True

    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[ShardKey, dict[tuple, list[Position]]] = defaultdict(dict)

    def rows(self, shard: ShardKey) -> list[Position]:
        return [position for rows in self.paths[shard].values() for position in rows]

    def commit(self, staged, batch: ShardBatch) -> None:
        self.append(batch)
        if batch.rows:
            self.paths[batch.shard][batch.rows[0].position, batch.to] = kept(batch)


class LastSequence(_Table):
    """WRONG: Delta with the last sequence number as the version, and no intent."""

    coalesces = False

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[ShardKey, Position] = {}

    def write(self, frame, batches):
        (batch,) = batches
        if batch.to > self.versions.get(batch.shard, Position(0)):
            self.versions[batch.shard] = batch.to
            self.append(batch)


TABLES = {"delta": Delta, "jdbc": Jdbc, "path per range": PathPerRange}
TABLES["last sequence"] = LastSequence
