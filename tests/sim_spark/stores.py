"""The outputs of the simulated world, behind the surface that sinks have.

The chain is the real sink on a real directory; only the Spark job that writes the files is played.
Delta and jdbc are tables with the guarantee that the real ones give. The last two are known to be
wrong, and are there to be convicted.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import defaultdict
from typing import TYPE_CHECKING
from urllib.parse import quote

from mld.spark.config import read_properties
from mld.spark.errors import Fenced
from mld.spark.model import BATCH_COLUMN, Position
from mld.spark.parquet import chain_files, chain_layout, compaction
from mld.spark.sinks import parquet_chain
from mld.spark.sinks.parquet_chain import ParquetChainSink

if TYPE_CHECKING:
    from pathlib import Path

    from mld.spark.model import ShardBatch, ShardKey


def kept(batch: ShardBatch) -> list[Position]:
    """What the user's function makes of a batch: every fifth record goes, and long stretches."""
    return [row.position for row in batch.rows if is_kept(row.position)]


def is_kept(position: Position) -> bool:
    return position.sequence % 5 != 0 and position.sequence // 20 != 1


class Chain:
    """The real parquet sink; what is durable is read from its files."""

    uses_intents, is_marked = False, True

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> ChainSink:
        config = read_properties(
            {
                "spark.sink": "parquet",
                "spark.sink.path": str(self.root),
                "spark.master": "local[2]",
            }
        )
        sink = ChainSink(config, "app")
        sink.prepare(None)
        return sink

    def rows(self, shard: ShardKey) -> list[Position]:
        directory = self.root / chain_layout.shard_path(shard)
        return [
            position
            for link in chain_files.walk_shard(directory)
            if link.marker.files
            for path in chain_files.data_files(directory / link.name)
            for position in _load(path)
        ]

    def durable_end(self, shard: ShardKey) -> Position | None:
        last = chain_files.find_last(self.root / chain_layout.shard_path(shard))
        return None if last is None else last.to

    def compact(self, now: float) -> None:
        compaction.compact(None, self.root, min_batches=3, keep_s=50, full_rows=60, now_s=now)


class ChainSink(ParquetChainSink):
    """Without Spark: a file of JSON for each batch that has rows."""

    def _write_rows(self, frame, batches, job):
        found = {}
        for batch in frame:
            if rows := kept(batch):
                directory = job / "rows" / f"{BATCH_COLUMN}={quote(batch.batch_id)}"
                directory.mkdir(parents=True)
                _dump(directory / "part-0", rows)
                found[batch.batch_id] = directory
        return found

    def die(self) -> None:
        """What the end of a process does to its locks."""
        os.close(self._staging._lock)


def _dump(path: Path, rows: list[Position]) -> None:
    path.write_text(json.dumps(rows), encoding="utf-8")


def _load(path: Path) -> list[Position]:
    return [Position(*pair) for pair in json.loads(path.read_text(encoding="utf-8"))]


def write_merged(spark, files, target) -> int:
    """In place of the Spark job of a compaction."""
    rows = [position for path in files for position in _load(path)]
    target.mkdir()
    if rows:
        _dump(target / "part-0", rows)
    return len(rows)


@contextlib.contextmanager
def played_disk(hook):
    """Run with the disk's steps visible: ``hook(name)`` is called before and after each."""
    real = {name: getattr(chain_files, name) for name in ("seal", "publish")}
    before = {name: getattr(chain_files, name) for name in ("sync_file", "sync_directory")}
    merged, every = compaction._write_merged, parquet_chain.HINT_EVERY

    def step(name):
        def run(*args):
            hook(f"before {name}")
            real[name](*args)
            hook(f"after {name}")

        return run

    def merging(*args):
        hook("before merge")
        return write_merged(*args)

    for name in real:
        setattr(chain_files, name, step(name))
    for name in before:
        setattr(chain_files, name, lambda _: None)
    compaction._write_merged = merging
    parquet_chain.HINT_EVERY = 4
    try:
        yield
    finally:
        for name, function in (real | before).items():
            setattr(chain_files, name, function)
        compaction._write_merged = merged
        parquet_chain.HINT_EVERY = every


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

    def die(self) -> None:
        """Nothing is held."""

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

    def die(self) -> None:
        """Nothing is held."""


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
