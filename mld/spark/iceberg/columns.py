"""Columns of an Iceberg table and those of Spark's rows, in the terms of the other one."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.table.fitting import conformed, fitted
from kcl_mld.spark.table.rules import misfit, refused_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld.spark.table.data_files import Rows

_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")
_TYPES: dict[str, IcebergType] = {
    "boolean": BooleanType(),
    # Iceberg has none that is narrower.
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
#: Types of Spark by the beginning of their names, and what to do instead.
_REFUSED = {
    "variant": "few readers know it; use to_json(...)",
    "void": "it has no type; cast it, e.g. to string",
    "interval": "Iceberg has none; use a number of your own",
    "time(": "not written yet; use a string or a number",
    "char(": "use string",
    "varchar(": "use string",
}
_NAMES = {str(kind): name for name, kind in _TYPES.items() if name not in ("byte", "short")}


def refused_column(fields: Sequence[Mapping[str, Any]]) -> str:
    """Which column has no place in an Iceberg table; "" if there are columns, and each has one.

    Args:
        fields: of Spark's schema, in JSON.
    """
    if not fields:
        return "what the function returned has no columns: select some in it"
    if dotted := [each["name"] for each in fields if "." in each["name"]]:
        return (
            f"the name of the column {dotted[0]} has a dot, by which Iceberg names fields of "
            f"structs: give it another name in the function"
        )
    return refused_type(fields, _REFUSED)


def spark_fields(schema: Schema) -> list[dict[str, Any]]:
    """The columns of a table as Spark names them in JSON; a type that Spark lacks as Iceberg's."""
    return [_spark_field(field) for field in schema.fields]


def _spark_field(field: NestedField) -> dict[str, Any]:
    kind = _spark_type(field.field_type)
    return {"name": field.name, "type": kind, "nullable": not field.required, "metadata": {}}


def _spark_type(kind: IcebergType) -> Any:
    match kind:
        case StructType():
            return {"type": "struct", "fields": [_spark_field(each) for each in kind.fields]}
        case ListType():
            return {
                "type": "array",
                "elementType": _spark_type(kind.element_type),
                "containsNull": not kind.element_required,
            }
        case MapType():
            return {
                "type": "map",
                "keyType": _spark_type(kind.key_type),
                "valueType": _spark_type(kind.value_type),
                "valueContainsNull": not kind.value_required,
            }
        case DecimalType():
            return f"decimal({kind.precision},{kind.scale})"
        case _:
            return _NAMES.get(str(kind), str(kind))


def iceberg_schema(fields: Sequence[Mapping[str, Any]]) -> Schema:
    """Columns of Spark as those of a new table, all of them nullable; the catalog numbers them anew."""
    numbers = itertools.count(1)
    return Schema(*_nested(fields, lambda: next(numbers)))


def _nested(fields: Sequence[Mapping[str, Any]], number: Callable[[], int]) -> list[NestedField]:
    return [
        NestedField(number(), each["name"], _iceberg_type(each["type"], number), required=False)
        for each in fields
    ]


def _iceberg_type(kind: Any, number: Callable[[], int]) -> IcebergType:
    if isinstance(kind, str):
        if (match := _DECIMAL.fullmatch(kind)) is not None:
            return DecimalType(int(match[1]), int(match[2]))
        return _TYPES[kind]
    match kind["type"]:
        case "struct":
            return StructType(*_nested(kind["fields"], number))
        case "array":
            element = _iceberg_type(kind["elementType"], number)
            return ListType(number(), element, element_required=False)
        case _:
            key, value = (_iceberg_type(kind[each], number) for each in ("keyType", "valueType"))
            return MapType(number(), key, number(), value, value_required=False)


def fit(schema: Schema, rows: Rows, name: str, *, adds_columns: bool) -> pa.Table:
    """Rows in a table's types.

    Args:
        name: of the table, for errors.
        adds_columns: the table may get new columns; it has been asked already.

    Raises:
        BatchFailed: they don't fit; the message names the column.
    """
    fields = spark_fields(schema)
    why = misfit(fields, fitted(fields, rows.fields), (), nulls=rows.nulls)
    if why:
        more = "" if adds_columns else ", or set spark.sink.schema=addColumns to let new columns in"
        raise BatchFailed(
            f"{name}: the function's rows do not fit the table: {why}; change the function"
            f"{more if why.startswith('the table has no column') else ''}"
        )
    made = conformed(rows, fields).table
    types = {field.name: field.type for field in schema.as_arrow()}
    columns = {each: _as(made.column(each), types[each]) for each in made.column_names}
    required = {field.name: field.required for field in schema.fields}
    return pa.table(
        list(columns.values()),
        schema=pa.schema(
            [pa.field(each, types[each], nullable=not required[each]) for each in columns]
        ),
    )


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return column if column.type == kind else column.cast(kind)
