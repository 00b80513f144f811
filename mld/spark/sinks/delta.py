"""Append to a Delta table; each batch once, by the number that its intent gave it.

A commit carries ``txnAppId`` and ``txnVersion``; Delta keeps the highest version per id in its log
and skips a write that is not above it. The number and the range of the batch are durable before
the write (``IntentStore``), so a repeat has the same number and the same records, whatever the
redelivery looks like. Source: Delta's "Idempotent table writes in foreachBatch"; an empty write
records its number too (measured with 4.4.0).

So a write that is given up after its time may still commit: it and the shard's next try have the
same number and the same records, and Delta lets one of them through, at the same moment too.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from mld.spark.errors import BatchFailed
from mld.spark.model import BATCH_COLUMN
from mld.spark.sinks.delta_table import SCHEMA_CONDITIONS, DeltaTarget
from mld.spark.sinks.spark_errors import condition, first_line, refuse_none, retry_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import MicroBatch, Position, ShardKey


class DeltaSink:
    """The ``delta`` sink: ``spark.sink.path`` or ``spark.sink.table``."""

    coalesces = False
    stages_ahead = False
    uses_intents = True
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
            config: with ``spark.sink.path`` or ``spark.sink.table``.
            application: name of the KCL application.
            pause: waits the given number of seconds.

        Raises:
            SparkConfigError: neither or both are named.
        """
        self._target = DeltaTarget(config)
        self._application = application
        self._pause = pause
        self._lock = threading.Lock()
        self._exists = False

    def prepare(self, spark: SparkSession) -> None:
        """Look whether Delta is there and whether an existing target is a Delta table.

        Raises:
            MissingPart: Delta's jar or its session extension is missing.
            SinkRefused: the target exists and is no Delta table.
        """
        self._exists = self._target.look(spark)

    def turn(self) -> AbstractContextManager[object]:
        """Until the table is there: the first batches of many shards would all create it."""
        return contextlib.nullcontext() if self._exists else self._lock

    def mark(self, shard: ShardKey) -> Position | None:
        """None: what is durable is told by the intent, not by the table."""
        del shard
        return None

    def write(self, frame: DataFrame | None, batches: Sequence[MicroBatch]) -> None:
        """Append the batch, or let Delta skip it if its number is known.

        Raises:
            BatchFailed: the rows do not fit the table, or others came between too often.
        """
        (batch,) = batches
        if frame is None:
            refuse_none(batches, "delta")
            return
        if batch.number is None or not batch.app_id:
            raise BatchFailed(f"{batch.batch_id}: the delta sink needs a batch with a number")
        rows = frame.drop(BATCH_COLUMN)
        self._create(rows)
        what = f"{self._target}, batch {batch.number} of {batch.shard.shard_id}"
        try:
            retry_conflicts(what, lambda: self._append(rows, batch), self._pause)
        except Exception as error:
            if condition(error).startswith(SCHEMA_CONDITIONS):
                raise BatchFailed(
                    f"{what}: the function's rows do not fit the table: {first_line(error)}; change"
                    " the function, or set spark.sink.options.mergeSchema=true to let new columns"
                    " in"
                ) from error
            raise

    def commit(self, staged: Any, batch: MicroBatch) -> None:
        """Nothing: Delta's own commit was part of ``write``."""

    def discard(self, staged: Any) -> None:
        """Nothing: files of a failed write are not part of the table (VACUUM removes them)."""

    def _append(self, rows: DataFrame, batch: MicroBatch) -> None:
        writer = self._target.writer(rows)
        writer = writer.option("txnAppId", batch.app_id).option("txnVersion", str(batch.number))
        self._target.save(writer)

    def _create(self, rows: DataFrame) -> None:
        """Create the table ahead; see ``turn``."""
        if not self._exists:
            self._target.create(rows, self._pause)
            self._exists = True
