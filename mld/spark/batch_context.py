"""What the user's function is told about its batch, and how it keeps marks of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.spark.function_marks import covered, marks_of, new_rows
from mld.spark.model import range_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.function_marks import ShardMark
    from mld.spark.model import MicroBatch, Position, ShardRange


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What the user's function is told about its batch.

    A batch may be of several shards. What belongs to one shard is None then, and ``shards`` has it
    of each.

    Attributes:
        spark: the session; the function must not stop it.
        application: name of the KCL application.
        stream_name: name of the stream; None if they are several.
        shard_id: Kinesis shard id; None if they are several.
        batch_id: names the batch; the same when it is repeated after a failure in this process. A
            batch that is repeated without a shard that was lost meanwhile has another name.
        after: position that the batch follows; None = the beginning, or several shards.
        to: position of its last record; None if they are several.
        count: of records, >= 0.
        is_replay: True when an earlier process may have written some of it already.
        millis_behind_latest: distance to the tip of the shard in ms, the greatest of several; None
            if unknown.
        shards: what each shard has in it, in no order.
        epoch: of the output (``spark.sink.epoch``).
    """

    spark: SparkSession
    application: str
    stream_name: str | None
    shard_id: str | None
    batch_id: str
    after: Position | None
    to: Position | None
    count: int
    is_replay: bool
    millis_behind_latest: int | None
    shards: tuple[ShardRange, ...] = ()
    epoch: str = "0"

    def marks(self) -> tuple[ShardMark, ...]:
        """How far each shard has come once this batch is written, to be kept with your own data."""
        return marks_of(self.application, self.epoch, self.shards)

    def new_rows(self, df: DataFrame, stored: Mapping[str, str]) -> DataFrame:
        """The records of ``df`` that kept marks do not cover.

        Args:
            df: as the function got it, or with its columns of the record's place.
            stored: ``to`` by ``shard`` of earlier ``marks()``, read in the transaction that will
                hold the rows; a shard without one has never been written.

        Raises:
            BatchFailed: a mark lies before the batch, or a column is missing.
        """
        return new_rows(df, covered(self.application, self.epoch, self.shards, stored))


def context_of(spark: SparkSession, whole: MicroBatch) -> BatchContext:
    """What the function is told about its batch."""
    parts = whole.parts
    ranges = tuple(range_of(part) for part in parts)
    streams = {each.stream_name for each in ranges}
    behind = [each.millis_behind_latest for each in ranges if each.millis_behind_latest is not None]
    only = parts[0] if len(parts) == 1 else None
    return BatchContext(
        spark=spark,
        application=parts[0].shard.application,
        stream_name=streams.pop() if len(streams) == 1 else None,
        shard_id=only.shard.shard_id if only else None,
        batch_id=whole.batch_id,
        after=only.after if only else None,
        to=only.to if only else None,
        count=whole.count,
        is_replay=any(each.is_replay for each in ranges),
        millis_behind_latest=max(behind, default=None),
        shards=ranges,
        epoch=parts[0].shard.epoch,
    )
