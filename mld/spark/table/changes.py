"""How a commit brings what is staged into a table: its rows are added, or merged by a key.

Both are one commit of delta-rs on the snapshot that they are given, with the marks in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kcl_mld.spark.model import SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN
from kcl_mld.spark.table.data_files import DataFile, Rows
from kcl_mld.spark.table.fitting import fitted
from kcl_mld.spark.table.marks import output_id
from kcl_mld.spark.table.rules import misfit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from kcl_mld.spark.table.data_files import Staged
    from kcl_mld.spark.table.snapshot import Snapshot

_SHARD = "shard_id"


class Change(Protocol):
    """What a commit does with staged files."""

    @property
    def keeps_files(self) -> bool:
        """True if files become the table's own; False if delta-rs makes them of rows."""

    def misfit(self, table: Snapshot, staged: Staged) -> str:
        """Why a file, or rows, do not fit the table; "" if they do."""

    def apply(
        self, table: Snapshot, files: Sequence[Staged], transactions: Mapping[str, int]
    ) -> None:
        """One commit on exactly this version; it may stand although this raises.

        It need not have been made although this returns: the marks say whether it was.
        """


class Append:
    """The files become part of the table as they are."""

    keeps_files = True

    def misfit(self, table: Snapshot, staged: Staged) -> str:
        """As ``Change``: files have no partition columns, and rows that become files have them."""
        if isinstance(staged, Rows):
            return _misfit_of(table, staged) or _unlaid(table, staged)
        why = misfit(table.fields, staged.fields, table.partitions, nulls=staged.nulls)
        if not why and set(staged.partition_values) != set(table.partitions):
            return f"the table is partitioned by {', '.join(table.partitions) or 'nothing'}"
        return why

    def apply(
        self, table: Snapshot, files: Sequence[Staged], transactions: Mapping[str, int]
    ) -> None:
        """As ``Change``."""
        table.commit([file for file in files if isinstance(file, DataFile)], transactions)


def _misfit_of(table: Snapshot, rows: Staged) -> str:
    """Why rows do not fit the table, after what can be made of them; "" if they do."""
    fields = fitted(table.fields, rows.fields)
    return misfit(table.fields, fields, (), nulls=rows.nulls)


def _unlaid(table: Snapshot, rows: Rows) -> str:
    """Which partition column rows lack; "" if none."""
    names = [field["name"] for field in rows.fields]
    missing = [name for name in table.partitions if name not in names]
    return f"the partition column {missing[0]} is missing" if missing else ""


class Upsert:
    """Each row replaces the one of its key; delta-rs writes the files of the table.

    All merges of an application and epoch name one application id, so of two that began on one
    version the second is refused. It is refused by delta-rs itself, too, if any commit added rows
    since that it would have had to compare; the id makes that independent of what it finds out
    about predicates.

    Args:
        key: columns, one at least.
        updates: True = a key that exists gets the new row; False = it stays as it is.
    """

    keeps_files = False

    def __init__(self, application: str, epoch: str, key: Sequence[str], *, updates: bool) -> None:
        self._id = output_id(application, epoch, "merge")
        self._key = tuple(key)
        self._updates = updates

    def misfit(self, table: Snapshot, staged: Staged) -> str:
        """As ``Change``: partition columns are like any other."""
        return _misfit_of(table, staged)

    def apply(
        self, table: Snapshot, files: Sequence[Staged], transactions: Mapping[str, int]
    ) -> None:
        """As ``Change``."""
        if table.sets_index():
            return  # and this is done again behind that commit
        numbers = {**transactions, self._id: 1}
        if not (found := [each.table for each in files if isinstance(each, Rows)]):
            table.commit((), numbers)
            return
        (rows,) = found
        columns = rows.column_names
        table.merge(
            rows.to_reader(),
            on=" AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self._key),
            columns={quoted(name): f"s.{quoted(name)}" for name in columns},
            newer=newer(table.fields, columns),
            updates=self._updates,
            transactions=numbers,
        )


def quoted(name: str) -> str:
    """A column's name for DataFusion's SQL."""
    return '"' + name.replace('"', '""') + '"'


def newer(fields: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str | None:
    """A condition for an update: never back to an older record of the same shard.

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
