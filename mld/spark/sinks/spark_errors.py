"""What sinks say of a function's answer and of Spark's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mld.spark.model import ShardBatch


def first_line(error: BaseException) -> str:
    """The message without Java's stack trace."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def refuse_none(batches: Sequence[ShardBatch], sink: str) -> None:
    """See that a missing frame means that there are no rows.

    Raises:
        BatchFailed: there are; the function returned None instead of a frame.
    """
    if shards := [batch.shard.shard_id for batch in batches if batch.rows]:
        raise BatchFailed(
            f"{', '.join(shards)}: the function returned None, but spark.sink={sink} writes what "
            "it returns; return a DataFrame, or set spark.sink=foreach"
        )
