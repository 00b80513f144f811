"""What a function returned, and whether the sink can use it. Pure.

What is no DataFrame of Spark is known by the name of its module: none of these libraries has to be
installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mld.spark.errors import BatchFailed


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
        answer: of the user's function.
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
        answer: of the function.
        where: whose answer, for messages.
        sink: its name.

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
