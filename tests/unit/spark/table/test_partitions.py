"""Rows by directory: values for the log, names as Spark writes them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.table.parquet import parts_of

NULL = "__HIVE_DEFAULT_PARTITION__"
UTC_MICROS = pa.timestamp("us", "UTC")


def parts(values, kind, arrow, name="p"):
    table = pa.table({name: pa.array(values, arrow), "n": list(range(len(values)))})
    return list(parts_of(table, {name: kind}))


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "text", "directory"),
    [
        ("string", pa.string(), "a/b=c %é", "a/b=c %é", "a%2Fb%3Dc %25é"),
        ("string", pa.string(), "", None, NULL),
        ("string", pa.string(), None, None, NULL),
        ("string", pa.string(), "+10000-01-01", "+10000-01-01", "+10000-01-01"),
        ("boolean", pa.bool_(), True, "true", "true"),
        ("byte", pa.int8(), -7, "-7", "-7"),
        ("long", pa.int64(), 2**63 - 1, "9223372036854775807", "9223372036854775807"),
        ("decimal(10,2)", pa.decimal128(10, 2), Decimal("-1.50"), "-1.50", "-1.50"),
        ("decimal(38,18)", pa.decimal128(38, 18), Decimal("1e-18"), "0." + "0" * 17 + "1", None),
        ("float", pa.float32(), 0.1, "0.1", "0.1"),
        ("double", pa.float64(), 1e300, "1E300", "1E300"),
        ("double", pa.float64(), 1e-7, "1E-07", "1E-07"),
        ("double", pa.float64(), float("nan"), "NaN", "NaN"),
        ("double", pa.float64(), float("-inf"), "-Infinity", "-Infinity"),
        ("date", pa.date32(), date(1500, 2, 28), "1500-02-28", "1500-02-28"),
        ("date", pa.date32(), date.max, "9999-12-31", "9999-12-31"),
        (
            "timestamp",
            UTC_MICROS,
            datetime(2026, 3, 29, 1, 30, 0, 5, UTC),
            "2026-03-29T01:30:00.000005Z",
            "2026-03-29 01%3A30%3A00.000005",
        ),
        (
            "timestamp",
            UTC_MICROS,
            datetime(2026, 3, 29, 2, 0, 0, 500_000, UTC),
            "2026-03-29T02:00:00.500000Z",
            "2026-03-29 02%3A00%3A00.5",
        ),
        (
            "timestamp",
            UTC_MICROS,
            datetime(99, 1, 1, tzinfo=UTC),
            "0099-01-01T00:00:00.000000Z",
            "0099-01-01 00%3A00%3A00",
        ),
    ],
)
def test_the_text_and_the_name_of_a_value(kind, arrow, value, text, directory):
    (part,) = parts([value], kind, arrow)
    assert part.values == {"p": text}
    assert part.directory == f"p={directory or text}"


@pytest.mark.parametrize(
    ("kind", "arrow", "number"),
    [
        ("date", pa.date32(), 2_932_897),
        ("date", pa.date32(), -719_163),
        ("timestamp", UTC_MICROS, 253_402_300_800_000_000),
        ("timestamp", UTC_MICROS, -62_135_596_800_000_001),
    ],
)
def test_years_that_no_reader_takes_are_refused_with_the_column(kind, arrow, number):
    """A commit would stand, and from then on readers fail, whatever rows they want."""
    whole = pa.int32() if kind == "date" else pa.int64()
    values = pa.array([number], whole).cast(arrow)
    with pytest.raises(BatchFailed, match=rf"partition column p has the {kind} .* 1 to 9999"):
        list(parts_of(pa.table({"p": values, "n": [1]}), {"p": kind}))


@pytest.mark.parametrize("text", ["/" * 85, "a\0", NULL])
def test_a_text_that_is_no_name_is_refused_with_the_column(text):
    with pytest.raises(BatchFailed, match="partition column p can't name a directory"):
        parts([text], "string", pa.string())


def test_the_longest_name_is_taken():
    (part,) = parts(["/" * 84 + "a"], "string", pa.string())
    assert len(part.directory) == 255


def test_rows_keep_their_order_and_equal_values_share_a_directory():
    table = pa.table({
        "a": ["x", "", "x", None, "y", "x"],
        "b": pa.array([1, 2, 1, 2, 1, 3], pa.int32()),
        "n": [1, 2, 3, 4, 5, 6],
    })  # fmt: skip
    found = {
        part.directory: part.table.to_pylist()
        for part in parts_of(table, {"a": "string", "b": "integer"})
    }
    assert found == {
        "a=x/b=1": [{"n": 1}, {"n": 3}],
        f"a={NULL}/b=2": [{"n": 2}, {"n": 4}],
        "a=y/b=1": [{"n": 5}],
        "a=x/b=3": [{"n": 6}],
    }


def test_a_thousand_partitions_and_more_are_no_limit():
    """As of pyarrow's own writer of data sets: 1,024."""
    count = 3_000
    found = parts([f"v{n % 1500}" for n in range(count)], "string", pa.string())
    assert len(found) == 1500
    assert all(part.table["n"].to_pylist() == [n, n + 1500] for n, part in enumerate(found))


def test_chunks_are_one_column():
    column = pa.chunked_array([["a"], [], ["b", "a"]], pa.string())
    table = pa.table({"p": column, "n": pa.chunked_array([[1, 2], [3]])})
    found = {
        part.values["p"]: part.table["n"].to_pylist() for part in parts_of(table, {"p": "string"})
    }
    assert found == {"a": [1, 3], "b": [2]}


def test_no_rows_have_no_parts_and_a_table_without_partitions_has_one():
    table = pa.table({"n": [1, 2]})
    assert list(parts_of(table.slice(0, 0), {})) == []
    (part,) = parts_of(table, {})
    assert (part.directory, part.values, part.table) == ("", {}, table)
