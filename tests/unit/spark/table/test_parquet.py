"""Files as Spark leaves them: what footers say, ranges, compression."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.table.data_files import Rows
from kcl_mld.spark.table.parquet import FileLayout, file_parts, require_codec
from tests.unit.spark.table_kit import field

NESTED = pa.table(
    {
        "n": pa.array([1, 2], pa.int64()),
        "x.y": pa.array([1.0, float("nan")]),
        "s": pa.array([{"a": 1, "f": 0.5}, None], pa.struct([("a", pa.int32()), ("f", pa.float32())])),
        "l": pa.array([["u"], None], pa.list_(pa.string())),
        "m": pa.array([[("k", 0.5)], None], pa.map_(pa.string(), pa.float64())),
        "d": pa.array([1, None], pa.decimal128(5, 2)),
    }
)  # fmt: skip


def footer_of(table, names, types=None):
    fields = [field(name) for name in names]
    (part,) = file_parts(Rows(table, fields), FileLayout(types or {}, require_codec("")))
    return part, pq.read_metadata(io.BytesIO(part.content()))


def test_all_columns_have_ranges_but_those_of_floats():
    _, footer = footer_of(NESTED, NESTED.column_names)
    group = footer.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    ranged = {each.path_in_schema for each in columns if each.statistics is not None}
    assert ranged == {"n", "s.a", "l.list.element", "m.key_value.key", "d"}
    assert {each.compression for each in columns} == {"SNAPPY"}


def test_a_footer_says_who_wrote_and_nothing_of_arrow():
    """Spark takes days before 1582 as they are only of a file with a version."""
    part, footer = footer_of(NESTED, NESTED.column_names)
    assert footer.metadata.keys() == {
        b"org.apache.spark.version",
        b"org.apache.spark.sql.parquet.row.metadata",
    }
    named = json.loads(footer.metadata[b"org.apache.spark.sql.parquet.row.metadata"])
    assert [each["name"] for each in named["fields"]] == NESTED.column_names
    assert part.named("p", 7, 8).nulls == ["s", "l", "m", "d"]


def test_partition_columns_are_in_no_file():
    table = pa.table({"p": ["a", "a"], "n": [1, None]})
    part, footer = footer_of(table, ("p", "n"), {"p": "string"})
    assert part.name == "p=a/part-0.parquet"
    assert footer.schema.to_arrow_schema().names == ["n"]
    found = part.named("x", 1, 2)
    assert (found.rows, found.partition_values, found.nulls) == (2, {"p": "a"}, ["n"])
    assert [each["name"] for each in found.fields] == ["n"]


@pytest.mark.parametrize(
    ("text", "codec"),
    [("", "snappy"), (" ZSTD ", "zstd"), ("uncompressed", "none"), ("lz4_raw", "lz4")],
)
def test_a_compression_has_sparks_word(text, codec):
    assert require_codec(text) == codec


def test_a_compression_that_is_none_is_told():
    with pytest.raises(SparkConfigError, match=r"spark\.sink\.options\.compression=lzo is not one"):
        require_codec("lzo")
