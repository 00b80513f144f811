"""Upsert into a Delta table by key: ``MERGE`` on the columns of ``spark.sink.key``.

Writing the same rows again changes nothing, so no number and no mark is needed and a redelivery
may be cut anywhere. The price is a join with the table, and that the function's rows must be a
matter of the record alone: an aggregate over a batch depends on the cut.

A worker that has lost its lease and does not know yet may write rows once more. If table and rows
have ``sequence_number`` (and ``shard_id``), a row never goes back to an older record of its shard;
without these columns it may, until the shard's new owner has written the newer record.

A merge that is given up after its time may still end on the server, while the next one runs. That
next one wins: Delta refuses a merge if another commit has added rows to the table since it began,
and a merge that was given up is not repeated after such a conflict.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

from mld.spark.errors import BatchFailed, SparkConfigError
from mld.spark.model import BATCH_COLUMN
from mld.spark.sinks.delta_table import SCHEMA_CONDITIONS, DeltaTarget
from mld.spark.sinks.merge_statement import NULL_KEY, TWICE, merge_statement, only_last
from mld.spark.sinks.spark_errors import condition, first_line, refuse_none, retry_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Position, ShardBatch, ShardKey


class MergeSink:
    """The ``merge`` sink: one ``MERGE`` per job, whatever number of shards is in it."""

    coalesces = True
    stages_ahead = False
    uses_intents = False
    commits_together = False

    def __init__(
        self,
        config: SparkConfig,
        application: str,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Read the configuration; nothing is touched before ``prepare``.

        Args:
            config: with ``spark.sink.key`` and ``spark.sink.path`` or ``spark.sink.table``.
            application: name of the KCL application.
            pause: waits the given number of seconds.

        Raises:
            SparkConfigError: a property is missing.
        """
        if not config.sink_key:
            raise SparkConfigError("spark.sink=merge needs spark.sink.key: the columns of the key")
        self._target = DeltaTarget(config)
        self._key = config.sink_key
        self._updates = config.sink_mode == "update"
        self._application = application
        self._pause = pause
        self._lock = threading.Lock()
        self._exists = False

    def prepare(self, spark: SparkSession) -> None:
        """Look whether Delta is there, and whether an existing table has the key.

        Raises:
            MissingPart: Delta's jar or its session extension is missing.
            SinkRefused: the target is no Delta table, or lacks a column of the key.
        """
        self._exists = self._target.look(spark)
        if self._exists:
            self._target.require(spark, self._key)

    def turn(self) -> AbstractContextManager[object]:
        """Two merges of one process would only come between each other."""
        return self._lock

    def mark(self, shard: ShardKey) -> Position | None:
        """None: a repeat does no harm."""
        del shard
        return None

    def write(self, frame: DataFrame | None, batches: Sequence[ShardBatch]) -> None:
        """Merge the rows of all batches at once.

        Raises:
            BatchFailed: a key is null or occurs twice without an order, the columns do not fit,
                or others came between too often.
        """
        shards = ", ".join(batch.shard.shard_id for batch in batches)
        if frame is None:
            refuse_none(batches, "merge")
            return
        rows = frame.drop(BATCH_COLUMN)
        columns = list(rows.columns)
        if missing := [name for name in self._key if name not in columns]:
            raise BatchFailed(
                f"{shards}: the function's rows lack {', '.join(missing)} of spark.sink.key; they "
                f"have {', '.join(columns)}"
            )
        what = f"{self._target}, batches of {shards}"
        try:
            self._merge(what, rows, columns)
        except Exception as error:
            self._explain(what, error)
            raise

    def commit(self, staged: Any, batch: ShardBatch) -> None:
        """Nothing: Delta's own commit was part of ``write``."""

    def discard(self, staged: Any) -> None:
        """Nothing is left over."""

    def _merge(self, what: str, rows: DataFrame, columns: Sequence[str]) -> None:
        spark = rows.sparkSession
        if not self._exists:
            self._target.create(rows, self._pause)
            self._exists = True
        target = self._target.columns(spark)
        self._refuse_unknown(what, columns, target)
        view = f"kcl_mld_{uuid.uuid4().hex}"
        statement = merge_statement(
            self._target.sql, view, self._key, columns, target,
            updates=self._updates, evolves=self._target.merges_schema,
        )  # fmt: skip
        only_last(rows, self._key, columns).createOrReplaceTempView(view)
        try:
            retry_conflicts(what, lambda: spark.sql(statement).collect(), self._pause)
        finally:
            spark.catalog.dropTempView(view)

    def _refuse_unknown(self, what: str, columns: Sequence[str], target: Sequence[str]) -> None:
        """MERGE would leave out a column that the table does not have, without a word."""
        known = {name.lower() for name in target}
        unknown = [name for name in columns if name.lower() not in known]
        if unknown and not self._target.merges_schema:
            raise BatchFailed(
                f"{what}: the table has no column {', '.join(unknown)}; change the function, or set"
                " spark.sink.options.mergeSchema=true to let new columns in"
            )

    def _explain(self, what: str, error: Exception) -> None:
        key = ", ".join(self._key)
        if NULL_KEY in str(error):
            raise BatchFailed(
                f"{what}: a row has a null in the key ({key}); filter such rows in the function"
            ) from error
        if TWICE in str(error):
            raise BatchFailed(
                f"{what}: a key ({key}) occurs twice; keep the columns sequence_number and "
                "sub_sequence_number in the output so that the last one wins, or reduce the rows "
                "to one a key in the function"
            ) from error
        if condition(error).startswith(SCHEMA_CONDITIONS):
            raise BatchFailed(
                f"{what}: the function's rows do not fit the table: {first_line(error)}"
            ) from error
