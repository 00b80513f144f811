"""The function once for all rows of a micro-batch, as ``foreachBatch`` calls one.

The frame is a plain one: whatever the function does with it (count, collect, a view of it, several
passes) is Spark's own business, because no other function runs in the session meanwhile.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kcl_mld.spark.batch_context import context_of
from kcl_mld.spark.calls import raise_if_abandoned
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.failures import (
    condition,
    is_deterministic,
    is_server_gone,
    is_session_lost,
    raised,
    said_by,
)
from kcl_mld.spark.rows.app_decoder import write_bad_rows
from kcl_mld.spark.rows.decode import bad_record_in
from kcl_mld.spark.rows.handoff import HandOff

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from pyspark.sql import DataFrame, SparkSession

    from kcl_mld.spark.batch_context import BatchContext
    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.model import MicroBatch
    from kcl_mld.spark.rows.app_decoder import AppDecoder
    from kcl_mld.spark.rows.handoff import Parcel

    FunctionAnswer: TypeAlias = DataFrame | Mapping[str, DataFrame] | None

_log = logging.getLogger("mld.spark")


class FunctionFailed(BatchFailed):
    """The user's function raised, or returned something that cannot be used."""


class _Kind(NamedTuple):
    module: str
    library: str
    conversion: str


_KINDS = (
    _Kind("pyspark.pandas.", "pandas on Spark", "answer.to_spark()"),
    _Kind("pandas.", "pandas", "ctx.spark.createDataFrame(answer)"),
    _Kind("pyarrow.", "pyarrow", "ctx.spark.createDataFrame(answer)"),
    _Kind("polars.", "polars", "ctx.spark.createDataFrame(answer.to_arrow())"),
)


def not_of_spark(answer: object) -> str:
    """What it is, and what to return instead: ``a DataFrame of pandas; return one of Spark: …``.

    Args:
        answer: of the user's function; no DataFrame of Spark.
    """
    if isinstance(answer, Mapping):
        return "a dict; several outputs need spark.sink=delta and their names in spark.sink.outputs"
    name, module = type(answer).__name__, f"{type(answer).__module__}."
    for kind in _KINDS:
        if module.startswith(kind.module) and name in {"DataFrame", "Table"}:
            what = "one" if name == "DataFrame" else "a DataFrame"
            return f"a {name} of {kind.library}; return {what} of Spark: {kind.conversion}"
    return f"of type {name}; return a DataFrame of Spark"


def fault_of_outputs(answer: object, names: Sequence[str]) -> str | None:
    """What is wrong with the answer of a function that has several outputs; None = nothing.

    Args:
        names: of the outputs; one that is missing in the answer has no rows.
    """
    named = f"spark.sink.outputs names {', '.join(names)}"
    if not isinstance(answer, Mapping):
        what = "None" if answer is None else f"of type {type(answer).__name__}"
        return f"is {what}; {named}: return a dict of DataFrames, without those that have no rows"
    for name, frame in answer.items():
        if name not in names:
            return f"has the output {name!r}, but {named}"
        if frame is None:
            return f"has None for {name!r}: leave out an output that has no rows"
        if not callable(getattr(frame, "withColumn", None)):
            return f"has, for {name!r}, {not_of_spark(frame)}"
    return None


def require_usable(answer: Any, where: str, sink: str) -> None:
    """See that the sink can use what the function has returned.

    Args:
        where: whose answer, for messages.

    Raises:
        FunctionFailed: it can't.
    """
    if answer is None:
        if sink != "foreach":
            raise FunctionFailed(
                f"{where} is None; return a DataFrame for spark.sink={sink}, or set "
                f"spark.sink=foreach if the function writes itself"
            )
    elif not callable(getattr(answer, "withColumn", None)):
        raise FunctionFailed(f"{where} is {not_of_spark(answer)}")
    elif sink == "foreach":
        raise FunctionFailed(
            f"{where} is a DataFrame, which spark.sink=foreach writes nowhere: write it in the "
            f"function and return None, or name another sink"
        )


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows of a batch that are ready for Spark.

    Attributes:
        whole: the batch.
        parcel: its rows.
    """

    whole: MicroBatch
    parcel: Parcel

    def is_of(self, whole: MicroBatch) -> bool:
        """True for exactly these batches: others have lost a shard, or records."""
        ours, theirs = self.whole.parts, whole.parts
        return len(ours) == len(theirs) and all(map(operator.is_, ours, theirs))


class FunctionCaller:
    """Calls the user's function for whole micro-batches. Safe to use from any thread.

    Args:
        handoff: how rows get into Spark; None = inline.
    """

    def __init__(
        self,
        function: Callable[[DataFrame, BatchContext], FunctionAnswer],
        config: SparkConfig,
        decoder: AppDecoder,
        handoff: HandOff | None = None,
    ) -> None:
        self._function = function
        self._config = config
        self._decoder = decoder
        self._handoff = handoff or HandOff()

    def pack(self, whole: MicroBatch) -> Packed:
        """Make a batch's rows ready before its turn: neither function nor Spark is asked.

        Returns:
            for ``call``, until the batch is released.
        """
        return Packed(whole, self._parcel(whole))

    def call(
        self, spark: SparkSession, whole: MicroBatch, packed: Packed | None = None
    ) -> FunctionAnswer:
        """The rows that the function makes of a micro-batch; by output if it has several.

        Args:
            packed: rows that were made ready; not used if they are not exactly the batch's.

        Raises:
            FunctionFailed: the function raised, or returned something else.
            Exception: of Spark, in an action of the function's; another try may pass.
        """
        try:
            return self._asked(spark, whole, packed)
        except FunctionFailed as failure:
            if (error := failure.__cause__) is not None:
                _log.error("%s: the function failed", whole.batch_id, exc_info=error)
            raise

    def probe(self, spark: SparkSession, whole: MicroBatch) -> None:
        """Let the function and Spark run over a part of a batch, and keep nothing of it.

        Raises:
            Exception: as ``call``, and of the rows that the function returned.
        """
        frame = self._asked(spark, whole)
        raise_if_abandoned()
        for each in frames_of(frame):
            each.write.format("noop").mode("overwrite").save()

    def _asked(
        self, spark: SparkSession, whole: MicroBatch, packed: Packed | None = None
    ) -> FunctionAnswer:
        frame = self.source(spark, whole, packed)
        try:
            answer = self._function(frame, context_of(spark, whole))
        except BaseException as error:
            _refuse_stopped(spark, whole, error)
            # Whatever it is, e.g. asyncio's CancelledError: this thread is the function's alone.
            if is_session_lost(error) or is_server_gone(error):
                raise
            if bad_record_in(said_by(error)) is not None:
                raise  # it met a record that can't be decoded
            if _is_of_spark(error) and not is_deterministic(error):
                raise
            raise FunctionFailed(f"the function failed on {whole}: {raised(error)}") from error
        _refuse_stopped(spark, whole, None)
        where = f"the function's answer for {whole}"
        if not (names := self._config.outputs):
            require_usable(answer, where, self._config.sink)
        elif why := fault_of_outputs(answer, names):
            raise FunctionFailed(f"{where} {why}")
        return answer

    def source(
        self, spark: SparkSession, whole: MicroBatch, packed: Packed | None = None
    ) -> DataFrame:
        """The frame that the function is given: the decoded rows of all shards."""
        is_ready = packed is not None and packed.is_of(whole)
        parcel = packed.parcel if packed is not None and is_ready else self._parcel(whole)
        return self._decoder.get(spark).apply(self._handoff.frame(spark, parcel))

    def keep_bad_rows(self, spark: SparkSession, whole: MicroBatch) -> None:
        """With the policy ``deadletter``: write what cannot be decoded."""
        decoder = self._decoder.get(spark)
        if decoder.kind == "raw" or decoder.on_error != "deadletter":
            return
        tables = {id(part): self._decoder.table(part, is_named=True) for part in whole.parts}
        rows = self._handoff.frame(spark, self._handoff.pack(tables))
        write_bad_rows(decoder, rows, self._config.deadletter_path or "")

    def release(self, whole: MicroBatch) -> None:
        """An attempt is over, however it ended: its frames are not used any more."""
        self._handoff.release([id(part) for part in whole.parts])

    def _parcel(self, whole: MicroBatch) -> Parcel:
        return self._handoff.pack({id(part): self._decoder.table(part) for part in whole.parts})


def frames_of(answer: FunctionAnswer) -> list[DataFrame]:
    """The frames in what a function returned, in the order of their outputs' names."""
    if answer is None:
        return []
    if isinstance(answer, Mapping):
        return [answer[name] for name in sorted(answer)]
    return [answer]


def _refuse_stopped(spark: SparkSession, whole: MicroBatch, error: BaseException | None) -> None:
    """A session that the function has ended would look like one that the server lost.

    A client also counts as closed once the server has told it of another session; the error says so.

    Raises:
        FunctionFailed: it has.
    """
    is_ours = error is None or condition(error) == "NO_ACTIVE_SESSION"
    if is_ours and getattr(spark, "is_stopped", False) is True:
        raise FunctionFailed(
            f"the function failed on {whole}: it stopped ctx.spark, which is not its own; take "
            f"stop() out"
        ) from error


def _is_of_spark(error: BaseException) -> bool:
    """True for what a job of the function's met, e.g. a lost executor."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - takes half a second

    return isinstance(error, PySparkException)
