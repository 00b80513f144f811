"""What a function returned that is no DataFrame of Spark, and how it becomes one. Pure.

Known by the names of their modules: none of these libraries has to be installed.
"""

from __future__ import annotations

from typing import NamedTuple


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
    name, module = type(answer).__name__, f"{type(answer).__module__}."
    for kind in _KINDS:
        if module.startswith(kind.module) and name in {"DataFrame", "Table"}:
            what = "one" if name == "DataFrame" else "a DataFrame"
            return f"a {name} of {kind.library}; return {what} of Spark: {kind.conversion}"
    return f"of type {name}; return a DataFrame of Spark"
