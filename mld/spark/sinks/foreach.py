"""The function writes by itself, as with Structured Streaming's ``foreachBatch``.

The function returns None when its rows are durable; nothing is left to do. It may be called again
with the same records: after a failed try, and after a crash between its write and the checkpoint.

Which records a batch has is not kept anywhere, so after a crash they come in other batches: the
function keeps the marks of the shards with its own data (:mod:`kcl_mld.spark.batch_context`), or
writes by the records' own identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.spark.ports import CommitOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import Position, ShardBatch, ShardKey


class ForeachSink:
    """The ``foreach`` sink: nothing is written here."""

    def __init__(self, config: SparkConfig, application: str) -> None:
        """Nothing is read of these."""
        del config, application

    def prepare(self, spark: SparkSession) -> None:
        """Nothing: where the function writes is its own affair."""

    def mark(self, shard: ShardKey) -> Position | None:
        """None: what the function made durable is not known."""
        del shard
        return None

    def write(self, frame: None, batches: Sequence[ShardBatch]) -> None:
        """Nothing: the function has written."""

    def commit_all(
        self, staged: Any, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Nothing: the rows are where the function put them."""
        del staged
        return {batch.shard: CommitOutcome.STANDS for batch in batches}

    def discard(self, staged: Any) -> None:
        """Nothing is left over."""
