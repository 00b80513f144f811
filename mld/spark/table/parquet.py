"""Rows as Parquet files that Spark, delta-rs and others read alike."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mld.spark.errors import SparkConfigError
from mld.spark.table.data_files import DataFile, Rows
from mld.spark.table.partitions import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import BinaryIO

#: In footers: the schema as Spark writes it, and who wrote. From Spark 3 on days before 1582 are
#: taken as they are; of a file without a version Spark does not know, and fails of them.
_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
_SPARK_VERSION = {"org.apache.spark.version": "4.0.0"}
#: Of the only file in its directory.
_NAME = "part-0.parquet"
#: As Spark's own, and what it calls those that others know.
_CODEC = "snappy"
_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
_KNOWN = ("none", "snappy", "gzip", "brotli", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class FileLayout:
    """How rows become files.

    Attributes:
        types: Delta's types of the partition columns, by name, in order.
        codec: Parquet's name of the compression.
    """

    types: Mapping[str, str]
    codec: str = _CODEC


def require_codec(text: str) -> str:
    """The compression that ``spark.sink.options.compression`` names; the usual one if it is empty.

    Raises:
        SparkConfigError: there is no such one.
    """
    word = text.strip().lower()
    codec = _CODECS.get(word, word) or _CODEC
    if codec not in _KNOWN:
        raise SparkConfigError(
            f"spark.sink.options.compression={text} is not one of uncompressed, {', '.join(_KNOWN)}"
        )
    return codec


@dataclass(frozen=True, slots=True)
class FilePart:
    """The rows of one file.

    Attributes:
        name: its path below the job's directory, with slashes.
        rows: of the file, without the partition columns.
        values: of the partition columns, as the log has them.
        codec: Parquet's name of the compression.
    """

    name: str
    rows: Rows
    values: Mapping[str, str | None]
    codec: str

    def write(self, where: BinaryIO | pa.BufferOutputStream) -> None:
        """Write the file."""
        table, fields = self.rows.table, self.rows.fields
        about = {_SPARK_SCHEMA: json.dumps({"type": "struct", "fields": list(fields)})}
        with pq.ParquetWriter(
            where,
            table.schema.remove_metadata(),
            compression=self.codec,
            store_decimal_as_integer=True,
            store_schema=False,  # or readers of Arrow would take its types for those of the table
            write_statistics=[path for field in table.schema for path in _ranged(field)],
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({**about, **_SPARK_VERSION})

    def content(self) -> bytes:
        """The file, in memory."""
        found = pa.BufferOutputStream()
        self.write(found)
        return found.getvalue().to_pybytes()  # type: ignore[no-any-return]

    def named(self, path: str, size: int, modified_ms: int) -> DataFile:
        """The file as a commit names it.

        Args:
            path: from the table's directory on.
            size: in bytes.
            modified_ms: since 1970.
        """
        rows = self.rows
        return DataFile(
            path, size, modified_ms, rows.table.num_rows, self.values, rows.fields, rows.nulls
        )


def file_parts(rows: Rows, layout: FileLayout) -> Iterator[FilePart]:
    """One file for each directory.

    Raises:
        BatchFailed: a value is no name of a directory, or no reader takes it.
    """
    fields = [each for each in rows.fields if each["name"] not in layout.types]
    for part in parts_of(rows.table, layout.types):
        name = "/".join(filter(None, (part.directory, _NAME)))
        yield FilePart(name, Rows(part.table, fields), part.values, layout.codec)


def _ranged(field: pa.Field, above: str = "") -> Iterator[str]:
    """Paths of the columns that get statistics: a NaN is in no range, so a float has none."""
    path, kind = f"{above}{field.name}", field.type
    if pa.types.is_struct(kind):
        for each in kind:
            yield from _ranged(each, f"{path}.")
    elif pa.types.is_map(kind):
        yield from _ranged(kind.key_field.with_name("key"), f"{path}.key_value.")
        yield from _ranged(kind.item_field.with_name("value"), f"{path}.key_value.")
    elif pa.types.is_list(kind):
        yield from _ranged(kind.value_field.with_name("element"), f"{path}.list.")
    elif not pa.types.is_floating(kind):
        yield path
