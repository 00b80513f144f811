"""The plan and the statement of a merge: one row a key, never back to an older record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.model import SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

#: Raised inside the job, before anything is written; never shown to people.
NULL_KEY = "kcl-mld: null in a merge key"
TWICE = "kcl-mld: merge key occurs twice"
_SHARD = "shard_id"
_RANK = "_kcl_rank"


def only_last(rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """One row a key: the one with the highest position.

    Without position columns a key that occurs twice ends the job, as does a null in a key; both
    before the merge writes anything.
    """
    from pyspark.sql import Window, functions as f  # noqa: PLC0415

    no_null = f.lit(True)  # noqa: FBT003
    for name in key:
        no_null = no_null & f.col(quoted(name)).isNotNull()
    checked = rows.where(_or_raise(no_null, NULL_KEY))
    window = Window.partitionBy(*(f.col(quoted(name)) for name in key))
    if SEQUENCE_COLUMN in columns:
        ranked = checked.withColumn(_RANK, f.row_number().over(window.orderBy(*_order(columns))))
        return ranked.where(f.col(_RANK) == 1).drop(_RANK)
    counted = checked.withColumn(_RANK, f.count(f.lit(1)).over(window))
    return counted.where(_or_raise(f.col(_RANK) == 1, TWICE)).drop(_RANK)


def merge_statement(
    table: str,
    view: str,
    key: Sequence[str],
    columns: Sequence[str],
    target: Sequence[str],
    *,
    updates: bool,
    evolves: bool,
) -> str:
    """``MERGE INTO table t USING view s …``.

    Args:
        table: as it stands in a statement.
        view: of the rows, one a key.
        key: names of the key's columns.
        columns: of the rows.
        target: columns of the table.
        updates: True = a key that exists gets the new row; False = it stays as it is.
        evolves: True = new columns are let into the table.
    """
    on = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in key)
    names = [quoted(name) for name in columns]
    sets = "UPDATE SET " + ", ".join(f"t.{name} = s.{name}" for name in names)
    values = ", ".join(f"s.{name}" for name in names)
    insert = f"INSERT ({', '.join(names)}) VALUES ({values})"  # noqa: S608 - quoted
    head = "MERGE INTO"
    if evolves:  # a new column cannot be named on the table's side
        head, sets, insert = "MERGE WITH SCHEMA EVOLUTION INTO", "UPDATE SET *", "INSERT *"
    newer = _newer({name.lower() for name in columns} & {name.lower() for name in target})
    matched = f"WHEN MATCHED{newer} THEN {sets} " if updates else ""
    return f"{head} {table} t USING {view} s ON {on} {matched}WHEN NOT MATCHED THEN {insert}"


def quoted(name: str) -> str:
    """A column's name for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def _or_raise(good: Column, message: str) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    return f.when(good, f.lit(True)).otherwise(f.raise_error(message).cast("boolean"))  # noqa: FBT003


def _order(columns: Sequence[str]) -> list[Column]:
    """Highest position first; sequence numbers are decimal texts of up to 56 digits."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    order = [f.length(SEQUENCE_COLUMN).desc(), f.col(SEQUENCE_COLUMN).desc()]
    return [*order, f.col(SUB_SEQUENCE_COLUMN).desc()] if SUB_SEQUENCE_COLUMN in columns else order


def _newer(common: set[str]) -> str:
    """A condition for an update, by the columns that rows and table share."""
    if SEQUENCE_COLUMN not in common:
        return ""
    old, new = f"t.{SEQUENCE_COLUMN}", f"s.{SEQUENCE_COLUMN}"
    newer = f"length({new}) > length({old}) OR (length({new}) = length({old}) AND {new} > {old})"
    sub = f"s.{SUB_SEQUENCE_COLUMN} >= t.{SUB_SEQUENCE_COLUMN}"
    same = f"{new} = {old} AND {sub}" if SUB_SEQUENCE_COLUMN in common else f"{new} = {old}"
    other = f" OR t.{_SHARD} <> s.{_SHARD} OR t.{_SHARD} IS NULL" if _SHARD in common else ""
    return f" AND ({old} IS NULL OR {newer} OR ({same}){other})"
