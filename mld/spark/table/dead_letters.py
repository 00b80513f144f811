"""Records of which the function fails, in a Delta table with marks of its own.

A record may come again after a crash, in another batch, beside others. So a shard's mark here is
the last record that was set aside. What lies beyond it is new; what does not is looked for in the
table. The marks are compared at the commit, so of two hosts that both believe they own a shard, the
second looks again. The files are small, and this process writes them itself.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import SinkRefused, SinkUnavailable
from kcl_mld.spark.model import Position, ShardBatch
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.table.data_files import Rows
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.marked_table import MarkedTable
from kcl_mld.spark.table.parquet import FileLayout
from kcl_mld.spark.table.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import PurePath

    from kcl_mld.spark.model import DeadLetter, ShardKey
    from kcl_mld.spark.table.data_files import DataFile

_log = logging.getLogger("mld.spark")

KEY = "spark.function.deadletter.path"
#: How often another worker may come between.
_TIMES = 5
_KEY = ("stream_name", "shard_id", "sequence_number", "sub_sequence_number")
_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "data": ("binary", pa.binary()),
    "partition_key": ("string", pa.string()),
    "sequence_number": ("string", pa.string()),
    "sub_sequence_number": ("long", pa.int64()),
    "approximate_arrival_timestamp": ("timestamp", pa.timestamp("us", "UTC")),
    "shard_id": ("string", pa.string()),
    "stream_name": ("string", pa.string()),
    "epoch": ("string", pa.string()),
    "error": ("string", pa.string()),
}
_FIELDS = [
    {"name": name, "type": kind, "nullable": True, "metadata": {}}
    for name, (kind, _) in _TYPES.items()
]
_SCHEMA = json.dumps({"type": "struct", "fields": _FIELDS})
_ARROW = pa.schema([(name, kind) for name, (_, kind) in _TYPES.items()])
_LAYOUT = FileLayout({})


class DeadLetters:
    """The table below ``spark.function.deadletter.path``.

    Raises:
        SinkRefused: the path is neither on a file system nor in S3.
    """

    def __init__(self, path: str, application: str, epoch: str) -> None:
        self._store = open_store(path, "delta", KEY)
        self._log = DeltaLog(self._store)
        self._table = MarkedTable(self._log, self._store.name, application, epoch)
        self._files = self._store.jobs()

    def prepare(self) -> None:
        """Make the table unless it is there, and sweep what dead processes left.

        Raises:
            SinkRefused: it may not be written, or is another one.
        """
        try:
            self._store.make()
            table = self._table.look() or self._table.create(_SCHEMA, [])
            columns = {field["name"]: field["type"] for field in table.fields}
            if table.partitions or any(columns.get(name) != _TYPES[name][0] for name in _TYPES):
                raise SinkRefused(
                    f"{KEY}={self._store.name} is a table of other columns: name another directory"
                )
            self._files.open()
            self._files.sweep(self._log.live_paths)
        except OSError as error:
            raise SinkRefused(f"{KEY}={self._store.name} can't be written: {error}") from error

    def keep(self, letters: Sequence[DeadLetter]) -> None:
        """Commit the letters that are not there; see ``jobs.rescue.Rescue``.

        Raises:
            SinkUnavailable: other writers come between again and again.
            Exception: of the table.
        """
        for _ in range(_TIMES):
            marks = {letter.shard: self._table.mark(letter.shard) for letter in letters}
            new = self._new(letters, marks)
            if not new or self._commit(new, marks):
                return
        raise SinkUnavailable(f"{self._store.name}: other workers write the same records")

    def _new(
        self, letters: Sequence[DeadLetter], marks: dict[ShardKey, Position | None]
    ) -> list[DeadLetter]:
        def is_beyond(letter: DeadLetter) -> bool:
            mark = marks[letter.shard]
            return mark is None or letter.row.position > mark

        found = set() if all(map(is_beyond, letters)) else self._found(letters)
        return [each for each in letters if is_beyond(each) or _key(each) not in found]

    def _found(self, letters: Sequence[DeadLetter]) -> set[tuple[Any, ...]]:
        """The keys of the letters' sequence numbers that the table has."""
        names = sorted({str(each.row.position.sequence) for each in letters})
        found: set[tuple[Any, ...]] = set()
        for path in self._log.live_paths():
            rows = pq.read_table(
                self._store.source(path),
                columns=[*_KEY, "epoch"],
                filters=[("sequence_number", "in", names)],
                partitioning=None,
            )
            found.update(tuple(row.values()) for row in rows.to_pylist())
        return found

    def _commit(
        self, letters: Sequence[DeadLetter], marks: dict[ShardKey, Position | None]
    ) -> bool:
        """Write and commit; False if another writer came between."""
        job = self._files.new_job()
        shards = dict.fromkeys(letter.shard for letter in letters)
        may_stand = False
        try:
            files = self._write(job, letters)
            raise_if_abandoned()
            may_stand = True
            found = self._table.commit(files, [_moved(each, marks, letters) for each in shards])
            # If all are lost, others may have built on this very commit: its files stay.
            may_stand = CommitOutcome.AGAIN not in found.values()
        finally:
            if not may_stand:
                self._files.remove(job)
        if CommitOutcome.STANDS not in found.values():
            return False
        self._files.committed(job)
        self._table.keep_short()
        return True

    def _write(self, job: PurePath, letters: Sequence[DeadLetter]) -> list[DataFile]:
        table = pa.Table.from_pylist([_row(letter) for letter in letters], _ARROW)
        return self._files.write(job, Rows(table, _FIELDS), _LAYOUT)


def _moved(
    shard: ShardKey, marks: dict[ShardKey, Position | None], letters: Sequence[DeadLetter]
) -> ShardBatch:
    """The range by which a commit moves a shard's mark; of no length if all lie behind it."""
    mark = marks[shard]
    ends = [letter.row.position for letter in letters if letter.shard == shard]
    ends += [mark] if mark is not None else []
    return ShardBatch(shard, mark, max(ends), ())


def _key(letter: DeadLetter) -> tuple[Any, ...]:
    shard, position = letter.shard, letter.row.position
    return (shard.stream, shard.shard_id, str(position.sequence), position.sub, shard.epoch)


def _row(letter: DeadLetter) -> dict[str, Any]:
    row = letter.row
    return {
        "data": row.data,
        "partition_key": row.partition_key,
        "sequence_number": str(row.position.sequence),
        "sub_sequence_number": row.position.sub,
        "approximate_arrival_timestamp": None if row.arrival_ms is None else row.arrival_ms * 1000,
        "shard_id": letter.shard.shard_id,
        "stream_name": letter.shard.stream,
        "epoch": letter.shard.epoch,
        "error": letter.error,
    }
