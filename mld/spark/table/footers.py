"""A file of a job: what its footer and its place say, as a commit names it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mld.spark.errors import BatchFailed
from mld.spark.table.rules import fields_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

#: In the footers of files; what a commit compares with the table.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
#: Name of the directory of rows without a value.
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
_DAY = r"(?!0000)\d{4}-\d\d-\d\d"
#: Values that readers of Delta take, as Spark writes them, by type.
_DATES = {
    "date": re.compile(_DAY),
    "timestamp": re.compile(rf"({_DAY}) (\d\d:\d\d:\d\d)(?:\.(\d{{1,6}}))?"),
}
#: Names before those of the partitions: the process's and the job's.
_ABOVE = 2


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that Spark wrote, as a commit names it.

    Attributes:
        path: on the disk, from the table's directory on; not quoted.
        size: in bytes.
        modified_ms: since 1970.
        rows: in it, >= 1.
        partition_values: text by column, not quoted; None = null.
        fields: of its schema, as Spark wrote them into its footer.
        nulls: top columns that may hold nulls.
    """

    path: str
    size: int
    modified_ms: int
    rows: int
    partition_values: Mapping[str, str | None]
    fields: Sequence[Mapping[str, Any]]
    nulls: Sequence[str]


def data_file(
    footer: Any, path: str, size: int, modified_ms: int, types: Mapping[str, str]
) -> DataFile | None:
    """A file that Spark wrote; None if it has no rows.

    Args:
        footer: a ``pyarrow.parquet.FileMetaData``.
        path: from the table's directory on.
        size: in bytes.
        modified_ms: since 1970.
        types: Delta's types of the partition columns, by name.

    Raises:
        BatchFailed: it is not what this process told Spark to write, or lies in a directory whose
            date no reader takes.
    """
    if footer.num_rows == 0:
        return None
    schema = (footer.metadata or {}).get(SPARK_SCHEMA)
    if schema is None:
        raise BatchFailed(f"{path} has no schema of Spark in its footer; nothing is committed")
    for index in range(footer.num_columns):
        if footer.schema.column(index).physical_type == "INT96":
            raise BatchFailed(
                f"{path}: the column {footer.schema.column(index).path} is an INT96 timestamp, "
                f"which few readers take: leave spark.sql.parquet.outputTimestampType alone"
            )
    fields = fields_in(schema.decode())
    return DataFile(
        path=path,
        size=size,
        modified_ms=modified_ms,
        rows=footer.num_rows,
        partition_values=partition_values(path.split("/")[_ABOVE:-1], types),
        fields=fields,
        nulls=_nullable_columns(footer, fields),
    )


def partition_values(parts: Sequence[str], types: Mapping[str, str]) -> dict[str, str | None]:
    """The values in the names of directories, as a Delta log has them.

    Args:
        parts: like ``day=2026-01-01``, as Spark escapes them.
        types: Delta's types of the columns, by name; a timestamp is text in UTC.

    Raises:
        BatchFailed: a date or a timestamp is before the year 1 or after 9999. A reader fails of one
            such value, whatever rows it was asked for.
    """
    found: dict[str, str | None] = {}
    for part in parts:
        name, _, text = part.partition("=")
        column, value = unquote(name), unquote(text)
        kind = types.get(column)
        if value == NULL_DIRECTORY:
            found[column] = None
        elif kind not in _DATES:
            found[column] = value
        elif moment := _DATES[kind].fullmatch(value):
            found[column] = value if kind == "date" else _in_utc(moment)
        else:
            raise BatchFailed(
                f"the partition column {column} has the {kind} {value:.40}, and readers of Delta "
                f"take the years 1 to 9999 only; nothing is committed. Change the function"
            )
    return found


def _in_utc(moment: re.Match[str]) -> str:
    day, time, fraction = moment.groups()
    return f"{day}T{time}.{fraction or '':0<6}Z"


def is_data(name: str) -> bool:
    """True for the name of a file with rows: neither hidden nor Spark's own."""
    return not name.startswith(("_", "."))


def jobs_of(paths: Collection[str]) -> set[str]:
    """The jobs that files are of, as paths from the table's directory on."""
    return {"/".join(path.split("/")[:_ABOVE]) for path in paths}


def _nullable_columns(footer: Any, fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Top columns of which the statistics do not prove that they have no nulls."""
    found: dict[str, None] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                path = column.path_in_schema
                found |= dict.fromkeys(field["name"] for field in fields if _holds(field, path))
    return list(found)


def _holds(field: Mapping[str, Any], path: str) -> bool:
    """Whether a path in a file is of a top column; a dot in it may be part of a name."""
    name, is_nested = str(field["name"]), isinstance(field["type"], dict)
    return path.startswith(f"{name}.") if is_nested else path == name
