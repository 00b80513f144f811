"""How a commit brings staged files into a table: their rows are added, or merged by a key.

Both are one commit of delta-rs on the snapshot that they are given, with the marks in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from mld.spark.model import SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN
from mld.spark.table.marks import output_id
from mld.spark.table.rules import misfit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from mld.spark.table.footers import DataFile
    from mld.spark.table.snapshot import Snapshot
    from mld.spark.table.store import Store

_SHARD = "shard_id"


class Change(Protocol):
    """What a commit does with staged files."""

    @property
    def keeps_files(self) -> bool:
        """True if the files become the table's own; False if others are made of them."""

    def misfit(self, table: Snapshot, file: DataFile) -> str:
        """Why a file does not fit the table; "" if it does."""

    def apply(
        self, table: Snapshot, files: Sequence[DataFile], transactions: Mapping[str, int]
    ) -> None:
        """One commit on exactly this version; it may stand although this raises.

        It need not have been made although this returns: the marks say whether it was.
        """


class Append:
    """The files become part of the table as they are."""

    keeps_files = True

    def misfit(self, table: Snapshot, file: DataFile) -> str:
        """As ``Change``: partition columns are in the names of directories."""
        why = misfit(table.fields, file.fields, table.partitions, nulls=file.nulls)
        if not why and set(file.partition_values) != set(table.partitions):
            return f"the table is partitioned by {', '.join(table.partitions) or 'nothing'}"
        return why

    def apply(
        self, table: Snapshot, files: Sequence[DataFile], transactions: Mapping[str, int]
    ) -> None:
        """As ``Change``."""
        table.commit(files, transactions)


class Upsert:
    """Each row replaces the one of its key; delta-rs writes the files of the table.

    All merges of an application and epoch name one application id, so of two that began on one
    version the second is refused. It is refused by delta-rs itself, too, if any commit added rows
    since that it would have had to compare; the id makes that independent of what it finds out
    about predicates.

    Args:
        store: of the table.
        application: name of the KCL application.
        epoch: of its output.
        key: columns, one at least.
        updates: True = a key that exists gets the new row; False = it stays as it is.
    """

    keeps_files = False

    def __init__(
        self, store: Store, application: str, epoch: str, key: Sequence[str], *, updates: bool
    ) -> None:
        self._store = store
        self._id = output_id(application, epoch, "merge")
        self._key = tuple(key)
        self._updates = updates

    def misfit(self, table: Snapshot, file: DataFile) -> str:
        """As ``Change``: the staged files have partition columns like any other."""
        return misfit(table.fields, file.fields, (), nulls=file.nulls)

    def apply(
        self, table: Snapshot, files: Sequence[DataFile], transactions: Mapping[str, int]
    ) -> None:
        """As ``Change``; the rows are read batch by batch."""
        if table.sets_index():
            return  # and this is done again behind that commit
        numbers = {**transactions, self._id: 1}
        if not files:
            table.commit((), numbers)
            return
        rows = self._read(files)
        columns = rows.schema.names
        table.merge(
            rows,
            on=" AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self._key),
            columns={quoted(name): f"s.{quoted(name)}" for name in columns},
            newer=newer(table.fields, columns),
            updates=self._updates,
            transactions=numbers,
        )

    def _read(self, files: Sequence[DataFile]) -> pa.RecordBatchReader:
        """One file after the other; they have one schema."""
        first = pq.ParquetFile(self._store.source(files[0].path))

        def batches() -> Iterator[pa.RecordBatch]:
            yield from first.iter_batches(use_threads=False)
            for file in files[1:]:
                yield from pq.ParquetFile(self._store.source(file.path)).iter_batches(
                    use_threads=False
                )

        return pa.RecordBatchReader.from_batches(first.schema_arrow, batches())


def quoted(name: str) -> str:
    """A column's name for DataFusion's SQL."""
    return '"' + name.replace('"', '""') + '"'


def newer(fields: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str | None:
    """A condition for an update: never back to an older record of the same shard.

    Args:
        fields: of the table.
        columns: of the rows.

    Returns:
        None if rows and table do not both have the sequence number, as text.
    """
    types = {field["name"]: field["type"] for field in fields if field["name"] in columns}
    if types.get(SEQUENCE_COLUMN) != "string":
        return None
    old, new = f"t.{SEQUENCE_COLUMN}", f"s.{SEQUENCE_COLUMN}"
    old_length, new_length = f"character_length({old})", f"character_length({new})"
    longer = f"{new_length} > {old_length} OR ({new_length} = {old_length} AND {new} > {old})"
    same = f"{new} = {old}"
    if types.get(SUB_SEQUENCE_COLUMN) in ("integer", "long"):
        same += f" AND s.{SUB_SEQUENCE_COLUMN} >= t.{SUB_SEQUENCE_COLUMN}"
    other = f" OR t.{_SHARD} <> s.{_SHARD} OR t.{_SHARD} IS NULL" if _SHARD in types else ""
    return f"{old} IS NULL OR {longer} OR ({same}){other}"
