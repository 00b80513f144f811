"""Values of each of Spark's types, through Arrow into a table and out by four readers, equal."""

from __future__ import annotations

import json
import math
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

from kcl_mld.spark.errors import BatchFailed, ResultTooLarge
from tests.spark.sink_server import batch, frame, open_sink, shard, write
from tests.unit.spark.table.test_readers import by_deltalake, by_duckdb, by_polars
from tests.unit.spark.table_kit import log_entries

pytestmark = pytest.mark.spark

MIN_LONG = -(2**63)
#: SQL of a column in the first row, the second row, and what it is in Python; the third is null.
COLUMNS = {
    "flag": ("true", "false", True, False),
    "tiny": ("cast(-128 as tinyint)", "cast(127 as tinyint)", -128, 127),
    "small": ("cast(-32768 as smallint)", "cast(7 as smallint)", -32768, 7),
    "whole": ("-2147483648", "2147483647", -(2**31), 2**31 - 1),
    "big": ("bigint(-9223372036854775807) - 1", "1L", MIN_LONG, 1),
    "single": ("float('NaN')", "float(0.1)", math.nan, 0.10000000149011612),
    "double": ("double('-Infinity')", "-0.0D", -math.inf, -0.0),
    "price": (
        "cast(-1.50 as decimal(10,2))",
        "cast(99999999.99 as decimal(10,2))",
        Decimal("-1.50"),
        Decimal("99999999.99"),
    ),
    "exact": (
        "cast('-12345678901234567890.123456789012345678' as decimal(38,18))",
        "cast('0.000000000000000001' as decimal(38,18))",
        Decimal("-12345678901234567890.123456789012345678"),
        Decimal("1e-18"),
    ),
    "huge": (
        "cast('-99999999999999999999999999999999999999' as decimal(38,0))",
        "cast(1 as decimal(38,0))",
        Decimal(-99999999999999999999999999999999999999),
        Decimal(1),
    ),
    "text": ("'größe \U0001f600 \\u0000'", "''", "größe \U0001f600 \0", ""),
    "bytes": ("x'00ff80'", "x''", b"\x00\xff\x80", b""),
    "day": ("date'1500-02-28'", "date'9999-12-31'", date(1500, 2, 28), date(9999, 12, 31)),
    "at": (
        "timestamp'1500-01-01 00:00:00.000001Z'",
        "timestamp'2026-03-29 01:30:00.999999Z'",
        datetime(1500, 1, 1, 0, 0, 0, 1, UTC),
        datetime(2026, 3, 29, 1, 30, 0, 999_999, UTC),
    ),
    "list": ("array(1, null, 3)", "array()", [1, None, 3], []),
    "lists": ("array(array('a'), null)", "array(array())", [["a"], None], [[]]),
    "pair": (
        "named_struct('a', 1, 'b', named_struct('c', cast(null as string)))",
        "named_struct('a', cast(null as int), 'b', null)",
        {"a": 1, "b": {"c": None}},
        {"a": None, "b": None},
    ),
    "map": (
        "map('k', cast(-1.5 as decimal(4,1)), 'n', null)",
        "map()",
        {"k": Decimal("-1.5"), "n": None},
        {},
    ),
    "deep": (
        "array(named_struct('t', timestamp'2026-01-01 00:00:00Z', 'm', map(1, array(x'01'))))",
        "array(null)",
        [{"t": datetime(2026, 1, 1, tzinfo=UTC), "m": {1: [b"\x01"]}}],
        [None],
    ),
}
ROWS = [
    {"n": number, **{name: column[1 + number] for name, column in COLUMNS.items()}}
    for number in (1, 2)
] + [{"n": 3, **dict.fromkeys(COLUMNS)}]


def sql(name, first, second):
    kind = f"case when n = 1 then {first} when n = 2 then {second} end"
    return f.expr(kind).alias(name)


def same(value, wanted):
    """Equal as values; NaN is NaN, and a map may be pairs."""
    match wanted:
        case float():
            return isinstance(value, float) and (
                math.isnan(value) if math.isnan(wanted) else value == wanted
            )
        case dict() if isinstance(value, list):
            found = [tuple(x.values()) if isinstance(x, dict) else tuple(x) for x in value]
            return same(dict(found), wanted)
        case dict():
            return value is not None and set(value) == set(wanted) and all(
                same(value[key], wanted[key]) for key in wanted
            )  # fmt: skip
        case list():
            return value is not None and len(value) == len(wanted) and all(map(same, value, wanted))
    return value == wanted


def plain(value):
    """A row of Spark as Python's own."""
    if hasattr(value, "asDict"):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return value.astimezone(UTC) if isinstance(value, datetime) else value


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory):
    path = tmp_path_factory.mktemp("types")
    one = batch(shard(), 0, 3)
    rows = frame(spark, [one]).select(
        "n", *(sql(name, *column[:2]) for name, column in COLUMNS.items())
    )
    sink = open_sink(spark, sink__path=str(path))
    sink.mark(one.shard)
    sink.commit_all(sink.write(rows, [one]), [one])
    return path


def by_spark(session):
    def read(path):
        table = session.read.format("delta").load(str(path))
        return [plain(row) for row in table.collect()]

    return read


@pytest.mark.parametrize("reader", ["spark", by_deltalake, by_polars, by_duckdb])
def test_every_reader_finds_the_values_of_all_types(sink_session, path, reader):
    read = by_spark(sink_session) if reader == "spark" else reader
    found = sorted(read(path), key=lambda row: row["n"])
    assert len(found) == 3
    for row, wanted in zip(found, ROWS, strict=True):
        for name, value in wanted.items():
            assert same(row[name], value), (name, row[name], value)


def test_no_floats_have_ranges_and_others_have(path):
    (name,) = DeltaTable(path).file_uris()
    group = pq.read_metadata(name).row_group(0)
    found = {
        group.column(n).path_in_schema: group.column(n).statistics is not None
        for n in range(group.num_columns)
    }
    assert not found["single"]
    assert not found["double"]
    assert found["n"]
    assert found["at"]


def test_the_log_has_no_ranges(path):
    """delta-rs would log a decimal as a float."""
    (action,) = [each["add"] for each in log_entries(path) if "add" in each]
    assert json.loads(action["stats"]) == {"numRecords": 3}


@pytest.mark.parametrize(
    "rows",
    [
        "select n, s from range(3) t(n) left join (select 1L as k, struct(1 as a, 'x' as b) s) on n = k",
        "select max(n) n, max(struct(n, 'x')) filter (where n < 0) as s from range(3) t(n)",
        "select n, if(n = 1, null, array(struct(n))) as s from range(3) t(n)",
    ],
)
def test_a_null_struct_whose_fields_may_not_be_null_is_a_null(spark, tmp_path, rows):
    one = batch(shard(), 0, 1)
    sink = open_sink(spark, sink__path=str(tmp_path))
    sink.mark(one.shard)
    answer = spark.sql(rows)
    sink.commit_all(sink.write(answer, [one]), [one])
    found = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n")
    wanted = [plain(row) for row in answer.orderBy("n").collect()]
    assert [same(a, b) for a, b in zip(found.to_pylist(), wanted, strict=True)] == [True] * len(
        wanted
    )
    assert found.column("s").null_count


def test_a_text_that_is_no_utf8_is_refused_with_its_column(spark, tmp_path):
    sink = open_sink(spark, sink__path=str(tmp_path))
    with pytest.raises(BatchFailed, match=r"the column odd has a text that is no UTF-8"):
        write(spark, sink, batch(shard(), 0, 2), odd=f.expr("cast(x'fffe' as string)"))
    with pytest.raises(BatchFailed, match=r"the column odd has a text that is no UTF-8"):
        write(spark, sink, batch(shard(), 0, 2), odd=f.expr("array(cast(x'fffe' as string))"))


@pytest.mark.parametrize(
    ("column", "place", "kind"),
    [
        ("interval '1' month", "odd", "interval month"),
        ("interval '1 02' day to hour", "odd", "interval day to hour"),
        ("make_interval(1)", "odd", "interval"),
        ("array(interval '1' day)", "odd.element", "interval day"),
        ("named_struct('v', parse_json('1'))", "odd.v", "variant"),
    ],
)
def test_intervals_and_variants_are_refused_by_name(spark, tmp_path, column, place, kind):
    sink = open_sink(spark, sink__path=str(tmp_path))
    with pytest.raises(BatchFailed, match=f"the column {place} has the type {kind}: "):
        write(spark, sink, batch(shard(), 0, 2), odd=f.expr(column))


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("decimal(10,2)", "-1.50", Decimal("-1.50")),
        ("double", "1e300", 1e300),
        ("float", "0.1", 0.10000000149011612),
        ("boolean", "true", True),
        ("date", "1500-02-28", date(1500, 2, 28)),
        ("string", "", None),
    ],
)
def test_partition_columns_of_other_types_are_found_by_every_reader(
    spark, sink_session, tmp_path, kind, value, wanted
):
    sink = open_sink(spark, sink__path=str(tmp_path), sink__partitionBy="p")
    write(
        spark, sink, batch(shard(), 0, 2), p=f.expr(f"if(n = 1, cast('{value}' as {kind}), null)")
    )
    readers = [by_spark(sink_session), by_polars, by_duckdb]
    if not kind.startswith("decimal"):  # it writes -1.50 as -1.-50 to pyarrow, whoever wrote it
        readers.append(by_deltalake)
    for reader in readers:
        found = {row["n"]: row["p"] for row in reader(tmp_path)}
        assert found == {1: wanted, 2: None}, reader


def test_more_than_a_thousand_partitions_in_one_batch(spark, tmp_path):
    sink = open_sink(spark, sink__path=str(tmp_path), sink__partitionBy="n")
    write(spark, sink, batch(shard(), 0, 1100))
    assert Counter(row["n"] for row in by_deltalake(tmp_path)) == Counter(range(1, 1101))


@pytest.mark.parametrize(("most", "count"), [("1k", 10), ("256m", 300_000)])
def test_more_than_the_bound_is_told_as_such(spark, tmp_path, most, count):
    """The host's own bound, and the server's, which is a quarter of its heap."""
    sink = open_sink(spark, sink__path=str(tmp_path), sink__maxResultBytes=most)
    rows = spark.range(count).select("id", f.expr("repeat(uuid(), 20) as text"))
    with pytest.raises(ResultTooLarge):
        sink.write(rows, [batch(shard(), 0, 3)])
    assert spark.range(3).count() == 3
