"""Rows as Parquet files that Spark, delta-rs and others read alike.

Values of partition columns are texts for the log, and names of directories as Spark writes them:
readers take them from the log, but for Polars, which reads them from the names.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kcl_mld.spark.errors import BatchFailed, SparkConfigError
from kcl_mld.spark.table.data_files import DataFile, Rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import BinaryIO

#: Name of the directory of rows without a value.
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
#: Longest name of a directory on the usual file systems.
_NAME_BYTES = 255
#: What Spark escapes, by three characters each (ExternalCatalogUtils.charToEscape).
_ESCAPED = re.compile(r"""[\x01-\x1f"#%'*/:=?\\{\[\]^\x7f]""")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_0 = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal()
_MICROS_A_DAY = 86_400_000_000
#: Java's words for floats without digits.
_FLOATS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
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


class PartitionValue(NamedTuple):
    """One value of a column.

    Attributes:
        text: in the log; None = null.
        directory: in the name of the directory, not escaped yet.
    """

    text: str | None
    directory: str


_NULL = PartitionValue(None, NULL_DIRECTORY)


class TablePart(NamedTuple):
    """The rows of one directory.

    Attributes:
        values: texts by column, as the log has them.
        directory: its path, with slashes; "" = the table has no partitions.
        table: the rows, without those columns.
    """

    values: Mapping[str, str | None]
    directory: str
    table: pa.Table


def parts_of(table: pa.Table, types: Mapping[str, str]) -> Iterator[TablePart]:
    """Rows by directory; their order within one stays.

    Args:
        table: the rows; an empty one has no parts.
        types: Delta's types of the partition columns, by name.

    Raises:
        BatchFailed: a value is no name of a directory, or no reader takes it.
    """
    if not table.num_rows:
        return
    if not types:
        yield TablePart({}, "", table)
        return
    values: list[list[PartitionValue]] = []
    codes: list[pa.Array] = []
    group = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for name, kind in types.items():
        found, code = _coded(name, kind, table.column(name))
        values.append(found)
        codes.append(code)
        joined = pc.add(pc.multiply(group, len(found)), code)
        group = pc.dictionary_encode(joined).indices.cast(pa.int64())
    order = pc.sort_indices(group)
    rows = table.drop_columns(list(types)).take(order)
    begin = 0
    for each in pc.value_counts(group.take(order)):
        count = each["counts"].as_py()
        first = order[begin].as_py()
        chosen = [found[code[first].as_py()] for found, code in zip(values, codes, strict=True)]
        yield TablePart(
            {name: value.text for name, value in zip(types, chosen, strict=True)},
            "/".join(
                f"{escaped(name)}={escaped(value.directory)}"
                for name, value in zip(types, chosen, strict=True)
            ),
            rows.slice(begin, count),
        )
        begin += count


def escaped(text: str) -> str:
    """A text in the name of a directory."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def _coded(name: str, kind: str, column: pa.ChunkedArray) -> tuple[list[PartitionValue], pa.Array]:
    """The distinct values of a column, and for each row the number of its own."""
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    numbers: dict[PartitionValue, int] = {}
    known = _values(name, kind, encoded.dictionary)
    renumbered = pa.array([numbers.setdefault(each, len(numbers)) for each in known], pa.int64())
    return list(numbers), renumbered.take(encoded.indices)


def _values(name: str, kind: str, found: pa.Array) -> list[PartitionValue]:
    """Texts of distinct values."""
    match kind:
        case "date":
            found = found.cast(pa.int32())
        case "timestamp":
            found = found.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        case "float":
            found = found.cast(pa.string())  # with as many digits as tell it from others
        case _:
            pass
    make = _TEXTS.get(kind.partition("(")[0], _plain)
    return [_NULL if each is None else make(name, each) for each in found.to_pylist()]


def _plain(name: str, value: Any) -> PartitionValue:
    del name
    return PartitionValue(str(value), str(value))


def _boolean(name: str, value: bool) -> PartitionValue:  # noqa: FBT001 - one of several kinds
    return _plain(name, "true" if value else "false")


def _decimal(name: str, value: Any) -> PartitionValue:
    return _plain(name, f"{value:f}")


def _float(name: str, value: Any) -> PartitionValue:
    text = str(value)
    return _plain(name, _FLOATS.get(text, text.replace("e+", "E").replace("e", "E")))


def _text(name: str, value: str) -> PartitionValue:
    """A text; an empty one is null, as Spark and Delta have it."""
    if not value:
        return _NULL
    size = len(f"{escaped(name)}={escaped(value)}".encode())
    if size > _NAME_BYTES or "\0" in value or value == NULL_DIRECTORY:
        raise BatchFailed(
            f"a value of the partition column {name} can't name a directory: it is longer than "
            f"{_NAME_BYTES} bytes with the column's name, has a NUL, or is {NULL_DIRECTORY}; "
            f"change the function"
        )
    return PartitionValue(value, value)


def _date(name: str, days: int) -> PartitionValue:
    if not 1 <= _DAY_0 + days <= _LAST_DAY:
        raise _no_reader(name, "date", f"{days} days from 1970-01-01")
    return _plain(name, date.fromordinal(_DAY_0 + days).isoformat())


def _timestamp(name: str, micros: int) -> PartitionValue:
    """In UTC: a reader takes it so, whatever zone Spark's session has."""
    if not 1 <= _DAY_0 + micros // _MICROS_A_DAY <= _LAST_DAY:
        raise _no_reader(name, "timestamp", f"{micros} µs from 1970-01-01")
    text = (_EPOCH + timedelta(microseconds=micros)).replace(tzinfo=None).isoformat(" ")
    day, _, time = text.partition(" ")
    seconds, _, fraction = time.partition(".")
    shown = f"{seconds}.{fraction}".rstrip("0") if fraction else seconds
    return PartitionValue(f"{day}T{seconds}.{fraction or '':0<6}Z", f"{day} {shown}")


def _no_reader(name: str, kind: str, value: str) -> BatchFailed:
    """A reader fails of one such value, whatever rows it was asked for."""
    return BatchFailed(
        f"the partition column {name} has the {kind} {value}, and readers of Delta take the years "
        f"1 to 9999 only; nothing is committed. Change the function"
    )


_TEXTS: Mapping[str, Callable[[str, Any], PartitionValue]] = {
    "boolean": _boolean,
    "decimal": _decimal,
    "float": _float,
    "double": _float,
    "string": _text,
    "date": _date,
    "timestamp": _timestamp,
}


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
