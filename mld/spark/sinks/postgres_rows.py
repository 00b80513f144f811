"""Rows as PostgreSQL takes them: its types, and the CSV that ``COPY`` reads.

pyarrow quotes each text and leaves a null empty, as ``COPY`` expects it.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kcl_mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kcl_mld.spark.table.data_files import Rows

#: Of a table that the sink makes, by Spark's types.
_TYPES = {
    "string": "text",
    "binary": "bytea",
    "boolean": "boolean",
    "byte": "smallint",
    "short": "smallint",
    "integer": "integer",
    "long": "bigint",
    "float": "real",
    "double": "double precision",
    "date": "date",
    "timestamp": "timestamp with time zone",
    "timestamp_ntz": "timestamp without time zone",
}
#: PostgreSQL cuts longer names, unless it was built with another bound.
MOST_NAME_BYTES = 63
#: Rows that are turned into text at a time.
_ROWS = 1000
_CSV = csv.WriteOptions(include_header=False)
_UTC = pa.timestamp("us", "UTC")
_DAY_0 = date(1970, 1, 1).toordinal()
_MICROS_A_DAY = 86_400_000_000


def column_type(kind: Any) -> str | None:
    """PostgreSQL's type for one of Spark's, in JSON; None = there is none."""
    match kind:
        case {"type": "array", "elementType": str(element)}:
            inner = column_type(element)
            return inner and f"{inner}[]"
        case str() if kind.startswith("decimal("):
            return f"numeric{kind.removeprefix('decimal')}"
        case str() if kind.startswith(("char(", "varchar(")):
            return "text"
        case str():
            return _TYPES.get(kind)
        case _:
            return None


def is_cut(name: str) -> bool:
    """Whether PostgreSQL would cut the name of a column."""
    return len(name.encode()) > MOST_NAME_BYTES


def refused_column(fields: Sequence[Mapping[str, Any]]) -> str:
    """Which column has no place in PostgreSQL; "" if there are columns, and each has one.

    Args:
        fields: of Spark's schema, in JSON.
    """
    if not fields:
        return "what the function returned has no columns: select some in it"
    names = [field["name"] for field in fields]
    for field in fields:
        if names.count(field["name"]) > 1:
            return f"two columns have the name {field['name']}"
        if column_type(field["type"]) is None:
            kind = field["type"]
            name = kind if isinstance(kind, str) else kind["type"]
            if name == "array":
                name = "array of arrays, structs or maps"
            return (
                f"the column {field['name']} has the type {name}, for which PostgreSQL has none: "
                f"cast it, or make a text of it by to_json"
            )
    return ""


def require_values(rows: Rows, name: str) -> None:
    """See that PostgreSQL can store each value, as far as it depends on no table.

    Raises:
        BatchFailed: it can't; names the column.
    """
    for column in rows.table.column_names:
        if why := _why_not(rows.table.column(column)):
            raise BatchFailed(f"{name}: the column {column} has {why} in the function")


def csv_parts(table: pa.Table) -> Iterator[bytes]:
    """The rows for ``COPY … (FORMAT csv)``, some at a time."""
    names = [str(number) for number in range(table.num_columns)]
    for batch in table.to_batches(max_chunksize=_ROWS):
        columns = [_printable(column) for column in batch.columns]
        out = pa.BufferOutputStream()
        csv.write_csv(pa.RecordBatch.from_arrays(columns, names), out, _CSV)
        yield out.getvalue().to_pybytes()


def _why_not(column: pa.ChunkedArray) -> str:
    kind = column.type
    if _is_array(kind):
        return _why_not(pc.list_flatten(column))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = pc.any(pc.match_substring(column, "\0")).as_py()
        return "a text with a NUL, which PostgreSQL can't store: take it out" if found else ""
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        a_day = 1 if pa.types.is_date(kind) else _MICROS_A_DAY
        number = pa.int32() if pa.types.is_date(kind) else pa.int64()
        for bound in pc.min_max(column.cast(number)).as_py().values():
            if bound is not None and not 1 <= _DAY_0 + bound // a_day <= date.max.toordinal():
                return f"a {'date' if a_day == 1 else 'timestamp'} before the year 1 or after 9999: change it"
    return ""


def _is_array(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _printable(column: pa.Array) -> pa.Array:
    """A column that pyarrow writes as PostgreSQL reads it."""
    kind = column.type
    if _is_array(kind):
        return _literals(column)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        found = (each.as_buffer() for each in column)
        texts = [None if each is None else f"\\x{each.to_pybytes().hex()}" for each in found]
        return pa.array(texts, pa.large_string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(_UTC)  # the same moments, written with a Z
    return column


def _literals(column: pa.Array) -> pa.Array:
    """Arrays as PostgreSQL writes them, e.g. ``{"a","b",NULL}``."""
    texts = _printable(column.flatten()).cast(pa.string())
    escaped = pc.replace_substring_regex(texts, r'(["\\])', r"\\\1")
    elements = pc.fill_null(pc.binary_join_element_wise('"', escaped, '"', ""), "NULL")
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, elements), ",")
    found = pc.binary_join_element_wise("{", joined, "}", "")
    return pc.if_else(column.is_valid(), found, pa.scalar(None, pa.string()))
