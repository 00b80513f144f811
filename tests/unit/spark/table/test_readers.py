"""The table that the sink leaves, read by engines that know nothing of it."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

from mld.spark.table import upkeep
from tests.unit.spark.table_kit import batch, frame, open_sink, shard, write

COLUMNS = {"shard_id": "string", "n": "long", "fee": "double"}


def by_deltalake(path):
    return DeltaTable(path).to_pyarrow_table().to_pylist()


def by_polars(path):
    return pl.scan_delta(str(path)).collect().to_dicts()


def by_duckdb(path):
    place = Path(sysconfig.get_paths()["purelib"], "duckdb_ext", "extensions")
    (extension,) = place.glob(f"v{duckdb.__version__}/*/delta.duckdb_extension")
    with duckdb.connect() as connection:
        connection.load_extension(str(extension))
        return connection.sql(f"from delta_scan('{path}')").fetch_arrow_table().to_pylist()


def directory(row):
    return "shard_id=" + row["shard_id"].replace("shardId", "a%2Fb c")


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Partitioned, with a column that came later, a deletion, merged files, and an open job."""
    path = tmp_path_factory.mktemp("table")
    sink = open_sink(path, sink__partitionBy="shard_id", sink__schema="addColumns")
    write(sink, batch(shard(), 0, 3), batch(shard(1), 0, 2), directory=directory)
    write(sink, batch(shard(), 3, 5), columns=COLUMNS, directory=directory)
    DeltaTable(path).delete("n = 1")
    write(sink, batch(shard(1), 2, 4), columns=COLUMNS, directory=directory)
    assert upkeep.main(["optimize", str(path)]) == 0
    write(sink, batch(shard(), 5, 6), columns=COLUMNS, directory=directory)

    one = batch(shard(), 6, 9)
    sink.write(frame(one, columns=COLUMNS, directory=directory), [one])
    return path


@pytest.mark.parametrize("reader", [by_deltalake, by_polars, by_duckdb])
def test_each_reader_sees_what_was_committed_and_nothing_else(path, reader):
    first, second = "a/b c-000000000000", "a/b c-000000000001"
    wanted = [(first, n) for n in (2, 3, 4, 5, 6)] + [(second, n) for n in (2, 3, 4)]
    rows = reader(path)
    assert sorted((row["shard_id"], row["n"]) for row in rows) == wanted
    assert {row["fee"] for row in rows} == {None}
