"""The table that the sink leaves, read by engines that know nothing of it."""

from __future__ import annotations

import sysconfig
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from kcl_mld.spark.table import upkeep
from tests.unit.spark.table.test_upsert import Keyed, merge, open_merge
from tests.unit.spark.table_kit import batch, frame, open_sink, shard, write

COLUMNS = {"shard_id": "string", "n": "long", "fee": "double"}


def by_deltalake(path):
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def by_polars(path):
    return pl.scan_delta(str(path)).collect().to_dicts()


@cache
def duck():
    place = Path(sysconfig.get_paths()["purelib"], "duckdb_ext", "extensions")
    (extension,) = place.glob(f"v{duckdb.__version__}/*/delta.duckdb_extension")
    connection = duckdb.connect()
    connection.load_extension(str(extension))
    connection.sql("set timezone = 'UTC'")
    return connection


def by_duckdb(path, condition="true"):
    rows = duck().sql(f"from delta_scan('{path}') where {condition}")
    return rows.fetch_arrow_table().to_pylist()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Partitioned, with a column that came later, a deletion, merged files, and an open job."""
    path = tmp_path_factory.mktemp("table")
    sink = open_sink(path, sink__partitionBy="shard_id", sink__schema="addColumns")
    write(sink, batch(shard(), 0, 3), batch(shard(1), 0, 2))
    write(sink, batch(shard(), 3, 5), columns=COLUMNS)
    DeltaTable(path).delete("n = 1")
    write(sink, batch(shard(1), 2, 4), columns=COLUMNS)
    assert upkeep.main(["optimize", str(path)]) == 0
    write(sink, batch(shard(), 5, 6), columns=COLUMNS)

    one = batch(shard(), 6, 9)
    sink.write(frame(one, columns=COLUMNS), [one])
    return path


@pytest.mark.parametrize("reader", [by_deltalake, by_polars, by_duckdb])
def test_each_reader_sees_what_was_committed_and_nothing_else(path, reader):
    first, second = (shard(number).shard_id for number in (0, 1))
    wanted = [(first, n) for n in (2, 3, 4, 5, 6)] + [(second, n) for n in (2, 3, 4)]
    rows = reader(path)
    assert sorted((row["shard_id"], row["n"]) for row in rows) == wanted
    assert {row["fee"] for row in rows} == {None}


VALUES = {"key": "string", "d": "decimal(38,18)", "x": "double", "t": "timestamp"}
ROWS = [
    {"key": "small", "d": Decimal("0.1"), "x": 1.0, "t": datetime(1500, 1, 1, tzinfo=UTC)},
    {"key": "NaN", "d": Decimal("12345678901234567.123456789012345678"), "x": float("nan"),
     "t": datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC)},
    {"key": "large", "d": Decimal(-3), "x": 5.0, "t": None},
]  # fmt: skip
NAN = {
    by_deltalake: pc.is_nan(pc.field("x")),
    by_polars: pl.col("x").is_nan(),
    by_duckdb: "isnan(x)",
}


def keys(reader, path, name, value):
    """Keys of the rows that a reader finds by one value."""
    if value != value:  # noqa: PLR0124 - NaN
        found = NAN[reader]
    elif reader is by_deltalake:
        kind = DeltaTable(path).to_pyarrow_dataset().schema.field(name).type
        found = pc.field(name) == pa.scalar(value, kind)
    elif reader is by_polars:
        found = pl.col(name) == (
            pl.lit(value, dtype=pl.Decimal(38, 18)) if name == "d" else pl.lit(value)
        )
    else:
        found = f"{name} = '{value}'" if name != "d" else f"d = '{value}'::decimal(38,18)"
    match reader:
        case _ if reader is by_deltalake:
            return DeltaTable(path).to_pyarrow_dataset().to_table(filter=found)["key"].to_pylist()
        case _ if reader is by_polars:
            return pl.scan_delta(str(path)).filter(found).collect()["key"].to_list()
    return [row["key"] for row in by_duckdb(path, found)]


def delta_rs_table(path):
    """As somebody made it who knows nothing of the sink."""
    kinds = {"key": pa.string(), "d": pa.decimal128(38, 18), "x": pa.float64()}
    schema = pa.schema({**kinds, "t": pa.timestamp("us", "UTC")})
    write_deltalake(path, pa.Table.from_pylist([], schema))


@pytest.mark.parametrize("reader", [by_deltalake, by_polars, by_duckdb])
@pytest.mark.parametrize("way", ["merge", "merge into another's", "append", "optimize"])
def test_a_filter_finds_decimals_and_nan(tmp_path, way, reader):
    """delta-rs logs decimals as floats, and ranges without NaN: who filters by them loses rows."""
    path, is_merge = tmp_path / "t", way.startswith("merge")
    if way == "merge into another's":
        delta_rs_table(path)
    sink = open_merge(path) if is_merge else open_sink(path)
    for number, row in enumerate(ROWS):
        one, rows = batch(shard(), number, number + 1), Keyed([row], VALUES)
        if is_merge:
            merge(sink, one, frame=rows)
        else:
            sink.mark(one.shard)
            sink.commit_all(sink.write(rows, [one]), [one])
    if way == "optimize":
        DeltaTable(path).alter.set_table_properties({"delta.dataSkippingStatsColumns": "key,d,x"})
        assert upkeep.main(["optimize", str(path)]) == 0
    for row in ROWS:
        for name, value in row.items():
            if value is not None:
                assert keys(reader, path, name, value) == [row["key"]], (name, value)
