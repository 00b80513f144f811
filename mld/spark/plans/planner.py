"""The plan of a Spark job: the user's function once per batch, made one frame.

The function sees the rows of its own batch only, so it may aggregate, join or sort as it likes. A
job has a fixed price that a small batch alone does not repay, so the plans of several shards become
one frame with a batch column: merged if they are the same (``mld.spark.plans.merging``), else united by
column names.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mld.spark.errors import BatchFailed, SparkConfigError
from mld.spark.failures import is_server_gone, is_session_lost, raised
from mld.spark.model import BATCH_COLUMN, MicroBatch, context_of
from mld.spark.plans.answers import not_of_spark
from mld.spark.plans.views import RowsNamed, Views
from mld.spark.rows.deadletter import write_bad_rows
from mld.spark.rows.decode import Decoder, make_decoder
from mld.spark.rows.handoff import HandOff, Inline
from mld.spark.rows.records import SCHEMA_COLUMNS, batched_table, table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.config import SparkConfig
    from mld.spark.model import ShardBatch
    from mld.spark.pipeline import Pipeline
    from mld.spark.plans.merging import RowsPlaceholder

_log = logging.getLogger(__name__)

#: Tasks of a united job: each relation brings one or two of its own, and most are tiny.
_TASKS = 4
#: Column of a union: the types that a row had before it.
_TYPES = "_kcl_types"


@dataclass(frozen=True, slots=True)
class Planned:
    """A batch and what the function made of it.

    Attributes:
        batch: which.
        frame: the function's answer; None if it wrote itself.
        placeholder: where the answer meets the batch's rows; None if plans are not merged.
    """

    batch: ShardBatch
    frame: DataFrame | None
    placeholder: RowsPlaceholder | None = None


class FunctionFailed(BatchFailed):
    """The user's function raised, or returned something that cannot be used."""


class RunAlone(Exception):
    """The function names its rows in the session: plan and write the batches one by one."""


class Planner:
    """Asks the user's function for plans and makes them one. Safe to call from any thread.

    Args:
        pipeline: what the app registered; it wins over the properties.
        config: decoder and policy where the app names none.
        handoff: how rows get into Spark; None = inline.
        with_schemas: the daemon has a schema registry: rows have the columns of a schema.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        config: SparkConfig,
        handoff: HandOff | None = None,
        *,
        with_schemas: bool = False,
    ) -> None:
        self._with_schemas = with_schemas
        self._pipeline = pipeline
        self._config = config
        self._handoff = handoff or Inline()
        self._writes_itself = config.sink == "foreach"
        self._lock = threading.Lock()
        self._decoder: Decoder | None = None
        self._merges = True
        self.views = Views()

    def decoder(self, spark: SparkSession) -> Decoder:
        """The app's decoder; its schema is read once.

        Raises:
            SparkConfigError: the schema is missing or wrong, or there is no place for bad records.
        """
        # No lock: the server is asked, which may hang, and two decoders would be equal.
        if self._decoder is None:
            on_error = self._pipeline.on_error or self._config.on_error
            if on_error == "deadletter" and self._config.deadletter_path is None:
                raise SparkConfigError("spark.deadletter.path is missing: bad records go there")
            decoder = make_decoder(
                self._pipeline.decoder or self._config.decoder,
                self._pipeline.schema or self._config.decoder_schema,
                on_error,
                spark,
            )
            if self._with_schemas:
                decoder = replace(decoder, raw_names=(*decoder.raw_names, *SCHEMA_COLUMNS))
            self._decoder = decoder
        return self._decoder

    def plan(self, spark: SparkSession, batch: ShardBatch) -> Planned:
        """The function's plan for one batch.

        Raises:
            FunctionFailed: the function raised, or returned something else.
            RunAlone: it has to be called anew, when no other batch is planned or written.
        """
        frame, placeholder = self.source(spark, batch)
        try:
            answer = self._pipeline.process(frame, context_of(spark, MicroBatch((batch,))))
        except RowsNamed as why:
            raise RunAlone from why
        except (Exception, SystemExit) as error:
            if is_session_lost(error) or is_server_gone(error):
                raise
            _log.exception("%s: the function failed", batch.batch_id)
            raise FunctionFailed(
                f"{batch.shard.shard_id}: the function failed on batch {batch.batch_id} "
                f"({len(batch.rows)} records): {raised(error)}"
            ) from error
        where = f"{batch.shard.shard_id}: the function's answer for batch {batch.batch_id}"
        self.check(answer, where)
        return Planned(batch, answer, placeholder)

    def source(
        self, spark: SparkSession, batch: ShardBatch
    ) -> tuple[DataFrame, RowsPlaceholder | None]:
        """The frame that the function is given; built when Spark needs it."""
        decoder = self.decoder(spark)

        def build() -> DataFrame:
            rows = self._handoff.frame(
                spark, {batch.batch_id: table_of(batch, with_schemas=self._with_schemas)}
            )
            return decoder.apply(rows)

        from mld.spark.plans.merging import RowsPlaceholder, with_placeholder  # noqa: PLC0415 - Connect's own modules

        placeholder = RowsPlaceholder(build)
        self.views.note(spark.client, placeholder, batch.batch_id)
        return with_placeholder(spark, placeholder), placeholder if self._merges else None

    def unite(self, spark: SparkSession, planned: Sequence[Planned]) -> DataFrame | None:
        """One frame with the rows of all plans, each with the id of its batch.

        Args:
            spark: the session.
            planned: at least one; of different shards.

        Returns:
            None if the function wrote itself.
        """
        answers = [each for each in planned if each.frame is not None]
        if not answers:
            return None
        if len(answers) == 1 or any(each.placeholder is None for each in answers):
            return _union([_marked(each) for each in answers])
        return _union([self._merged(spark, group) for group in _alike(answers)])

    def keep_bad_rows(self, spark: SparkSession, batches: Sequence[ShardBatch]) -> None:
        """With the policy ``deadletter``: write what cannot be decoded."""
        decoder = self.decoder(spark)
        if decoder.kind == "raw" or decoder.on_error != "deadletter":
            return
        rows = self._united(spark, batches)
        write_bad_rows(decoder, rows, self._config.deadletter_path or "")

    def release(self, batches: Iterable[ShardBatch]) -> None:
        """An attempt at these batches is over, however it ended: their frames are not used."""
        self._handoff.release([each.batch_id for each in batches])

    def stop_merging(self) -> bool:
        """Unite plans from now on; True if they were merged until now."""
        with self._lock:
            did, self._merges = self._merges, False
        if did:
            _log.warning("Spark refused a merged plan: plans are united from now on")
        return did

    def _merged(self, spark: SparkSession, group: Sequence[tuple[Planned, Any]]) -> DataFrame:
        """One frame of plans that are the same."""
        members = [each for each, _ in group]
        if len(members) == 1:
            return _marked(members[0])
        from mld.spark.plans.merging import NotMergeable, merged  # noqa: PLC0415 - Connect's own modules

        raw = self._united(spark, [each.batch for each in members])
        rows = self.decoder(spark).apply(raw, carried=(BATCH_COLUMN,))
        try:
            return merged(spark, group[0][1], rows)
        except NotMergeable as why:
            _log.debug("plans of %d shards are united: %s", len(members), why)
            return _union([_marked(each) for each in members])

    def _united(self, spark: SparkSession, batches: Sequence[ShardBatch]) -> DataFrame:
        """The raw rows of several batches with the batch column."""
        tables = {
            each.batch_id: batched_table(each, with_schemas=self._with_schemas) for each in batches
        }
        return self._handoff.frame(spark, tables)

    def check(self, answer: Any, where: str) -> None:
        """See that the sink can use what the function has returned.

        Args:
            answer: of the function.
            where: whose answer, for messages.

        Raises:
            FunctionFailed: it can't.
        """
        if answer is None:
            if not self._writes_itself:
                raise FunctionFailed(
                    f"{where} is None; return a DataFrame for spark.sink={self._config.sink}, or "
                    f"set spark.sink=foreach if the function writes itself"
                )
        elif not callable(getattr(answer, "withColumn", None)):
            raise FunctionFailed(f"{where} is {not_of_spark(answer)}")
        elif self._writes_itself:
            raise FunctionFailed(
                f"{where} is a DataFrame, which spark.sink=foreach writes nowhere: write it in the "
                f"function and return None, or name another sink"
            )


def _alike(answers: Sequence[Planned]) -> list[list[tuple[Planned, Any]]]:
    """The plans by their shape, in order."""
    from mld.spark.plans.merging import shape  # noqa: PLC0415 - Connect's own modules

    groups: dict[bytes, list[tuple[Planned, Any]]] = {}
    for each in answers:
        assert each.frame is not None
        assert each.placeholder is not None
        found = shape(each.frame, each.placeholder)
        key = found.SerializeToString(deterministic=True)
        groups.setdefault(key, []).append((each, found))
    return list(groups.values())


def _union(frames: list[DataFrame]) -> DataFrame:
    """All of them by column names, if they have the same types.

    Spark would bring a text and a number to a common type, silently: "007" beside 8 becomes 7. So
    each row carries the types that it had before; a difference fails the job, and then the batches
    are written one by one.
    """
    if len(frames) == 1:
        return frames[0]
    from pyspark.sql import functions as f  # noqa: PLC0415 - after the host chose Connect

    everything = f.expr(f"* except ({BATCH_COLUMN})")
    ordered = [each.select(BATCH_COLUMN, everything) for each in frames]
    before = f.typeof(f.struct("*", f.lit("").alias(_TYPES))).alias(_TYPES)
    frames = [each.select("*", before) for each in ordered]
    while len(frames) > 1:  # a balanced tree: Spark's analyzer recurses as deep as the plan
        pairs = zip(frames[::2], frames[1::2], strict=False)
        odd = frames[-1:] if len(frames) % 2 else []
        frames = [left.unionByName(right) for left, right in pairs] + odd
    differ = f.raise_error("the batches of a job have columns of different types")
    same = f.when(f.col(_TYPES) == f.typeof(f.struct("*")), f.lit(True))  # noqa: FBT003
    united = frames[0].where(same.otherwise(differ.cast("boolean"))).drop(_TYPES)
    return united.coalesce(_TASKS)


def _marked(planned: Planned) -> DataFrame:
    """The frame with its batch column; a column of that name twice fails in Spark's analyzer."""
    from pyspark.sql import functions  # noqa: PLC0415 - after the host chose Connect

    assert planned.frame is not None
    mark = functions.lit(planned.batch.batch_id).alias(BATCH_COLUMN)
    return planned.frame.select("*", mark)
