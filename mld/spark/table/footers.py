"""What the footer of a Parquet file and its place say of it, as a commit names it. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from mld.spark.errors import BatchFailed
from mld.spark.table.job_file import DataFile
from mld.spark.table.rules import fields_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

#: In the footers of files; what a commit compares with the table.
SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Names before those of the partitions: the process's and the job's.
_ABOVE = 2


def data_file(
    footer: Any, path: str, size: int, modified_ms: int, timestamps: Collection[str]
) -> DataFile | None:
    """A file that Spark wrote; None if it has no rows.

    Args:
        footer: a ``pyarrow.parquet.FileMetaData``.
        path: from the table's directory on.
        size: in bytes.
        modified_ms: since 1970.
        timestamps: partition columns whose values are microseconds since 1970.

    Raises:
        BatchFailed: it is not what this process told Spark to write.
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
    return DataFile(
        path=path,
        size=size,
        modified_ms=modified_ms,
        rows=footer.num_rows,
        partition_values=partition_values(path.split("/")[_ABOVE:-1], timestamps),
        fields=fields_in(schema.decode()),
        nulls=_nullable_columns(footer),
    )


def partition_values(parts: Sequence[str], timestamps: Collection[str]) -> dict[str, str | None]:
    """The values in the names of directories, as a Delta log has them.

    Args:
        parts: like ``day=2026-01-01``, as Spark escapes them.
        timestamps: columns whose values are microseconds since 1970.
    """
    found: dict[str, str | None] = {}
    for part in parts:
        name, _, text = part.partition("=")
        column, value = unquote(name), unquote(text)
        if value == _NULL:
            found[column] = None
        elif column in timestamps:
            moment = _EPOCH + timedelta(microseconds=int(value))
            found[column] = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)
        else:
            found[column] = value
    return found


def is_data(name: str) -> bool:
    """True for the name of a file with rows: neither hidden nor Spark's own."""
    return not name.startswith(("_", "."))


def jobs_of(paths: Collection[str]) -> set[str]:
    """The jobs that files are of, as paths from the table's directory on."""
    return {"/".join(path.split("/")[:_ABOVE]) for path in paths}


def _nullable_columns(footer: Any) -> list[str]:
    """Top columns of which the statistics do not prove that they have no nulls."""
    found: dict[str, None] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            name = column.path_in_schema.split(".")[0]
            statistics = column.statistics
            if statistics is None or not statistics.has_null_count or statistics.null_count:
                found[name] = None
    return list(found)
