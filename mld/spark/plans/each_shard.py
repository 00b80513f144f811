"""The function for each shard of a micro-batch by itself, and one frame of what it returned.

What a function returns is computed when it is used, and then names in it (a temporary view, a
registered function, a variable of the session) mean what they mean at that moment. So the rows of
one shard are computed before the function is called for the next one (``localCheckpoint``), and a
call may do whatever a call of ``foreachBatch`` may. Spark keeps them until the batch is over.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mld.spark.calls import raise_if_abandoned
from mld.spark.model import MicroBatch
from mld.spark.plans.answers import FunctionFailed
from mld.spark.plans.one_call import FunctionCaller

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mld.spark.model import ShardBatch
    from mld.spark.plans.one_call import FunctionAnswer, Packed

_log = logging.getLogger(__name__)


class ShardCaller(FunctionCaller):
    """Calls the user's function for each shard. Safe to use from any thread."""

    def pack(self, whole: MicroBatch) -> None:
        """Each shard's rows are a frame of their own, made when it is asked."""
        del whole

    def _asked(
        self, spark: SparkSession, whole: MicroBatch, packed: Packed | None = None
    ) -> FunctionAnswer:
        del packed
        found: dict[str, list[tuple[ShardBatch, DataFrame]]] = {}
        for part in whole.parts:
            raise_if_abandoned()
            answer = super()._asked(spark, MicroBatch((part,)))
            if answer is None:
                continue
            for name, frame in answer.items() if isinstance(answer, Mapping) else [("", answer)]:
                rows = frame if len(whole.parts) == 1 else _computed(part, frame)
                found.setdefault(name, []).append((part, rows))
        if self._config.outputs:
            frames = {name: united(each) for name, each in found.items()}
            return {name: frame for name, frame in frames.items() if frame is not None}
        return united(found.get("", []))


def _computed(part: ShardBatch, answer: DataFrame) -> DataFrame:
    try:
        kept = answer.localCheckpoint()
        if kept.sparkSession is answer.sparkSession:
            return kept
        # pyspark gives it to the session that was made last, which an app may have done.
        return answer.sparkSession.createDataFrame(answer.toArrow())
    except Exception:
        _log.error("%s: its rows can't be computed", part.batch_id)
        raise


def united(found: list[tuple[ShardBatch, DataFrame]]) -> DataFrame | None:
    """One frame with the rows of all, by column names; None if there is none.

    Spark would bring a text and a number to a common type, silently: "007" beside 8 becomes 7.

    Args:
        found: the rows of shards.

    Raises:
        FunctionFailed: two shards have other columns, or other types.
    """
    if not found:
        return None
    if len(found) > 1:
        (first, frame), *others = found
        columns = _columns(frame)
        for part, another in others:
            if why := _difference(columns, _columns(another), first.shard.shard_id):
                raise FunctionFailed(
                    f"{part.shard.shard_id}: {why}: return the same columns for each shard"
                )
    frames = [each for _, each in found]
    while len(frames) > 1:  # a balanced tree: Spark's analyzer recurses as deep as the plan
        pairs = zip(frames[::2], frames[1::2], strict=False)
        odd = frames[-1:] if len(frames) % 2 else []
        frames = [left.unionByName(right) for left, right in pairs] + odd
    return frames[0]


def _columns(frame: DataFrame) -> dict[str, str]:
    """Names and types, without whether they may be null."""
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}


def _difference(ours: dict[str, str], theirs: dict[str, str], first: str) -> str:
    """What is not the same; "" if nothing is."""
    for name, kind in ours.items():
        if name not in theirs:
            return f"the function's rows lack the column {name}, which those of {first} have"
        if theirs[name] != kind:
            return f"the function's column {name} is {theirs[name]}, but {kind} for {first}"
    for name in theirs:
        if name not in ours:
            return f"the function's rows have the column {name}, which those of {first} lack"
    return ""
