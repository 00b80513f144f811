"""The plan of a Spark job: the user's function once per batch, united into one frame.

The function sees the rows of its own batch only, so it may aggregate, join or sort as it likes.
Its plan gets the batch column, and the plans of several shards are united by column names, because
a job has a fixed price that a small batch alone does not repay.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from mld.spark.decode import Decoder, make_decoder
from mld.spark.errors import BatchFailed
from mld.spark.failures import is_server_gone, is_session_lost
from mld.spark.model import BATCH_COLUMN, BatchContext
from mld.spark.records import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import Batch
    from mld.spark.pipeline import Pipeline

_log = logging.getLogger(__name__)

#: Tasks of a united job: each relation brings one or two of its own, and most are tiny.
_TASKS = 4


class FunctionFailed(BatchFailed):
    """The user's function raised, or returned what is no answer."""


class Planner:
    """Asks the user's function for plans. Safe to call from any thread.

    Args:
        pipeline: what the app registered; it wins over the properties.
        config: decoder and policy where the app names none.
    """

    def __init__(self, pipeline: Pipeline, config: SparkConfig) -> None:
        self._pipeline = pipeline
        self._config = config
        self._writes_itself = config.sink == "foreach"
        self._lock = threading.Lock()
        self._decoder: Decoder | None = None

    def decoder(self, spark: SparkSession) -> Decoder:
        """The app's decoder; its schema is read once.

        Raises:
            ConfigError: the schema is missing or wrong.
        """
        with self._lock:
            if self._decoder is None:
                self._decoder = make_decoder(
                    self._pipeline.decoder or self._config.decoder,
                    self._pipeline.schema or self._config.decoder_schema,
                    self._pipeline.on_error or self._config.on_error,
                    spark,
                )
            return self._decoder

    def plan(self, spark: SparkSession, batch: Batch) -> DataFrame | None:
        """The function's plan for one batch; None if it wrote itself.

        Raises:
            FunctionFailed: the function raised, or returned something else.
        """
        frame = self.decoder(spark).apply(spark.createDataFrame(table_of(batch)))
        context = context_of(spark, batch)
        try:
            planned = self._pipeline.process(frame, context)
        except Exception as error:
            if is_session_lost(error) or is_server_gone(error):
                raise
            _log.exception("%s: the function failed on batch %s", batch.shard, batch.batch_id)
            raise FunctionFailed(
                f"{batch.shard.shard_id}: the function failed on batch {batch.batch_id} "
                f"({len(batch.rows)} records): {type(error).__name__}: {error}"
            ) from error
        self._check(planned, batch)
        return planned

    def _check(self, planned: Any, batch: Batch) -> None:
        where = f"{batch.shard.shard_id}: the function's answer for batch {batch.batch_id}"
        if planned is None:
            if not self._writes_itself:
                raise FunctionFailed(
                    f"{where} is None; return a DataFrame for spark.sink={self._config.sink}, or "
                    f"set spark.sink=foreach if the function writes itself"
                )
        elif not callable(getattr(planned, "withColumn", None)):
            raise FunctionFailed(f"{where} is a {type(planned).__name__}; return a DataFrame")
        elif self._writes_itself:
            raise FunctionFailed(
                f"{where} is a DataFrame, which spark.sink=foreach writes nowhere: write it in the "
                f"function and return None, or name another sink"
            )


def unite(planned: Sequence[tuple[Batch, DataFrame]]) -> DataFrame:
    """One frame with the rows of all plans, each with the id of its batch.

    Args:
        planned: at least one; of different shards.
    """
    frames = [_marked(frame, batch) for batch, frame in planned]
    if len(frames) == 1:
        return frames[0]
    while len(frames) > 1:  # a balanced tree: Spark's analyzer recurses as deep as the plan
        pairs = zip(frames[::2], frames[1::2], strict=False)
        odd = frames[-1:] if len(frames) % 2 else []
        frames = [left.unionByName(right) for left, right in pairs] + odd
    return frames[0].coalesce(_TASKS)


def _marked(frame: DataFrame, batch: Batch) -> DataFrame:
    """The frame with its batch column; a column of that name twice fails in Spark's analyzer."""
    from pyspark.sql import functions  # noqa: PLC0415 - after the host chose Connect

    return frame.select("*", functions.lit(batch.batch_id).alias(BATCH_COLUMN))


def context_of(spark: SparkSession, batch: Batch) -> BatchContext:
    """What the function is told about its batch."""
    return BatchContext(
        spark=spark,
        application=batch.shard.application,
        stream_name=batch.shard.stream,
        shard_id=batch.shard.shard_id,
        batch_id=batch.batch_id,
        batch_number=batch.number,
        after=batch.after,
        to=batch.to,
        count=len(batch.rows),
        is_replay=batch.is_replay,
        millis_behind_latest=batch.millis_behind_latest,
    )
