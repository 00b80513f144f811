"""One row a key among the rows of a micro-batch: the one of the highest position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.model import SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

#: Raised inside the job, before anything is written; never shown to people.
NULL_KEY = "kcl-mld: null in a merge key"
TWICE = "kcl-mld: merge key occurs twice"
_RANK = "_kcl_rank"


def last_of_key(rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """One row a key: the one with the highest position.

    Without position columns a key that occurs twice ends the job, as does a null in a key; both
    before anything is committed.

    Args:
        rows: of the function.
        key: names of the key's columns.
        columns: of the rows.
    """
    from pyspark.sql import Window, functions as f  # noqa: PLC0415

    no_null = f.lit(True)  # noqa: FBT003
    for name in key:
        no_null = no_null & f.col(_quoted(name)).isNotNull()
    checked = rows.where(_or_raise(no_null, NULL_KEY))
    window = Window.partitionBy(*(f.col(_quoted(name)) for name in key))
    if SEQUENCE_COLUMN in columns:
        ranked = checked.withColumn(_RANK, f.row_number().over(window.orderBy(*_order(columns))))
        return ranked.where(f.col(_RANK) == 1).drop(_RANK)
    counted = checked.withColumn(_RANK, f.count(f.lit(1)).over(window))
    return counted.where(_or_raise(f.col(_RANK) == 1, TWICE)).drop(_RANK)


def _quoted(name: str) -> str:
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
