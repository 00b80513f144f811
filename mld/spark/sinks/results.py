"""What the function returned, computed by Spark and brought here as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kcl_mld.spark.errors import BatchFailed, ResultTooLarge
from kcl_mld.spark.table.data_files import Rows
from kcl_mld.spark.table.rules import as_nullable, fields_in, refused_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

#: The setting of Spark that bounds a result, which its error names.
MOST_RESULT = "spark.driver.maxResultSize"


def fetch(
    frame: DataFrame,
    name: str,
    most_bytes: int,
    why_not: Callable[[Sequence[Mapping[str, Any]]], str] = refused_type,
) -> Rows:
    """Let Spark compute rows, and take them.

    Args:
        most_bytes: of the rows (``spark.sink.maxResultBytes``).
        why_not: says which of the columns the sink has no type for; "" = none.

    Raises:
        ResultTooLarge: they are more than that.
        BatchFailed: a column has a type that the sink does not take, or a text that is no UTF-8.
        Exception: of Spark.
    """
    fields = fields_in(frame.schema.json())
    if why := why_not(fields):
        raise BatchFailed(f"{name}: {why}")
    if any(_is_strict(field["type"]) for field in fields):
        frame = frame.to(_nullable(fields))
    try:
        table = frame.toArrow()
    except Exception as error:
        if MOST_RESULT in str(error):
            raise ResultTooLarge(most_bytes) from error
        raise
    if table.nbytes > most_bytes:
        raise ResultTooLarge(most_bytes)
    for column in table.column_names:
        _require_utf8(table, column, name)
    return Rows(table, fields)


def _require_utf8(table: pa.Table, column: str, name: str) -> None:
    """A reader fails of such a text, whatever rows it was asked for.

    Raises:
        BatchFailed: the column has one.
    """
    try:
        table.column(column).validate(full=True)
    except pa.ArrowInvalid as error:
        raise BatchFailed(
            f"{name}: the column {column} has a text that is no UTF-8: {error}; decode the bytes in "
            f"the function, or return them as binary"
        ) from error


def _is_strict(kind: Any) -> bool:
    """Whether a field within a struct may not be null.

    pyspark refuses a struct that is null, as of an outer join, if a field of it may not be.
    """
    if not isinstance(kind, dict):
        return False
    match kind["type"]:
        case "struct":
            return any(
                not field["nullable"] or _is_strict(field["type"]) for field in kind["fields"]
            )
        case "array":
            return not kind["containsNull"] or _is_strict(kind["elementType"])
        case _:
            return not kind["valueContainsNull"] or _is_strict(kind["valueType"])


def _nullable(fields: Sequence[Mapping[str, Any]]) -> Any:
    from pyspark.sql.types import StructType  # noqa: PLC0415 - takes half a second

    return StructType.fromJson({"type": "struct", "fields": [*map(as_nullable, fields)]})
