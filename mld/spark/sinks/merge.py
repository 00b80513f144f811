"""Upsert into a Delta table by key: a row replaces the one of its key.

Spark computes the rows of a micro-batch, one a key; delta-rs merges them, in one commit that also
records how far each shard has come. So a redelivery is dropped up to the mark, and an aggregate
over a batch is kept once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.model import SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN
from kcl_mld.spark.sinks.delta import DeltaSink, StagedFiles
from kcl_mld.spark.table.changes import Upsert

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import ShardBatch
    from kcl_mld.spark.table.changes import Change
    from kcl_mld.spark.table.data_files import Rows
    from kcl_mld.spark.table.parquet import FileLayout
    from kcl_mld.spark.table.snapshot import Snapshot


#: Raised inside the job, before anything is written; never shown to people.
_NULL_KEY = "kcl-mld: null or NaN in a merge key"
_TWICE = "kcl-mld: merge key occurs twice"
_RANK = "_kcl_rank"
#: Beginnings of types that delta-rs can't look for, as Spark names them.
_NESTED = ("struct", "array", "map", "variant")
_FLOATS = ("float", "double")
#: How Spark names the type of a text that compares otherwise than byte by byte.
_COLLATED, _BYTES = "string collate ", "string collate UTF8_BINARY"


class MergeSink(DeltaSink):
    """The ``merge`` sink: a delta sink whose commit is an upsert."""

    def __init__(self, config: SparkConfig, application: str) -> None:
        """Read the configuration; nothing is touched before ``prepare``.

        Args:
            config: with ``spark.sink.key`` and ``spark.sink.path``.

        Raises:
            SparkConfigError: a property is wrong.
            SinkRefused: the path is neither on a file system nor in S3.
        """
        assert config.sink_key  # see ``config.require_places``
        self._key = config.sink_key
        super().__init__(config, application)

    def write(self, frame: DataFrame, batches: Sequence[ShardBatch]) -> StagedFiles:
        """Have one row a key computed, the last one of its shard.

        Raises:
            BatchFailed: a key is missing, null, NaN or of a type that can't be compared, occurs
                twice without an order, or the columns do not fit.
        """
        columns = list(frame.columns)
        key = ", ".join(self._key)
        if missing := [name for name in self._key if name not in columns]:
            raise BatchFailed(
                f"{self.store.name}: the function's rows lack {', '.join(missing)} of spark.sink.key; "
                f"they have {', '.join(columns)}"
            )
        types = dict(frame.dtypes)
        if nested := [name for name in self._key if types[name].startswith(_NESTED)]:
            raise BatchFailed(
                f"{self.store.name}: the key {nested[0]} is of the type {types[nested[0]]}, which "
                f"can't be compared; make a text or a number of it in the function"
            )
        for name in self._key:
            if types[name].startswith(_COLLATED) and types[name] != _BYTES:
                raise BatchFailed(
                    f"{self.store.name}: the key {name} is of the type {types[name]}, but a table "
                    f"compares texts byte by byte; make the texts alike in the function, e.g. with "
                    f"lower(), and end with collate({name}, 'UTF8_BINARY')"
                )
        try:
            return super().write(last_of_key(frame, self._key, columns), batches)
        except Exception as error:
            if _NULL_KEY in str(error):
                raise BatchFailed(
                    f"{self.store.name}: a row has a null or a NaN in the key ({key}); filter such "
                    f"rows in the function"
                ) from error
            if _TWICE in str(error):
                raise BatchFailed(
                    f"{self.store.name}: a key ({key}) occurs twice; keep the columns sequence_number "
                    f"and sub_sequence_number in the output so that the last one wins, or reduce "
                    f"the rows to one a key in the function"
                ) from error
            raise

    def _stage(self, rows: Rows, layout: FileLayout) -> StagedFiles:
        del layout
        rows = self._table.examine(rows)
        return StagedFiles([rows] if rows.table.num_rows else [])

    def _change(self, application: str, config: SparkConfig) -> Change:
        updates = config.sink_mode == "update"
        return Upsert(application, config.epoch, config.sink_key, updates=updates)

    def _lay_out(self, table: Snapshot) -> FileLayout:
        layout = super()._lay_out(table)
        if table.configuration.get("delta.appendOnly", "false").lower() == "true":
            raise SinkRefused(
                f"{self.store.name}: the table may only be appended to (delta.appendOnly), so "
                f"spark.sink=merge can't replace rows in it"
            )
        names = [field["name"] for field in table.fields]
        if missing := [name for name in self._key if name not in names]:
            raise SinkRefused(
                f"{self.store.name}: the table has no column {', '.join(missing)} of spark.sink.key; it "
                f"has {', '.join(names)}"
            )
        return layout


def last_of_key(rows: DataFrame, key: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """One row a key: the one with the highest position.

    Without position columns a key that occurs twice ends the job, as does a null or a NaN in a key;
    both before anything is committed. A NaN is in no file's range of values, so its row would not
    be found again. A zero is stored without its sign, by which readers tell directories and ranges.
    """
    from pyspark.sql import Window, functions as f  # noqa: PLC0415

    types = dict(rows.dtypes)
    floats = [name for name in key if types[name] in _FLOATS]
    good = f.lit(True)  # noqa: FBT003
    for name in key:
        good = good & f.col(_quoted(name)).isNotNull()
    for name in floats:
        good = good & ~f.isnan(_quoted(name))
    checked = rows.where(_or_raise(good, _NULL_KEY))
    if floats:
        checked = checked.withColumns(
            {name: f.col(_quoted(name)) + f.lit(0).cast(types[name]) for name in floats}
        )
    window = Window.partitionBy(*(f.col(_quoted(name)) for name in key))
    if SEQUENCE_COLUMN in columns:
        ranked = checked.withColumn(_RANK, f.row_number().over(window.orderBy(*_order(columns))))
        return ranked.where(f.col(_RANK) == 1).drop(_RANK)
    counted = checked.withColumn(_RANK, f.count(f.lit(1)).over(window))
    return counted.where(_or_raise(f.col(_RANK) == 1, _TWICE)).drop(_RANK)


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
