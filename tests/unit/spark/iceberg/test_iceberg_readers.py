"""DuckDB reads what the sink wrote: each type of Spark, by partitions, and after new columns."""

from __future__ import annotations

import sysconfig
from datetime import timedelta
from pathlib import Path

import duckdb
import pytest

from kcl_mld.spark.iceberg.local_files import path_of
from tests.unit.spark.iceberg.test_iceberg_sink import (
    COLUMNS,
    MOMENT,
    commit_typed,
    open_sink,
    the_table,
)

WHOLE = {name: value for name, (_, _, value) in COLUMNS.items()}


def by_duckdb(folder, query):
    """Rows of a query over ``t``."""
    place = Path(sysconfig.get_paths()["purelib"], "duckdb_ext", "extensions")
    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            (extension,) = place.glob(f"v{duckdb.__version__}/*/{name}.duckdb_extension")
            connection.load_extension(str(extension))
        connection.sql("SET TimeZone = 'UTC'")
        metadata = the_table(folder).metadata_location
        connection.sql(f"create view t as select * from iceberg_scan('{metadata}')")
        return connection.sql(query).to_arrow_table().to_pylist()


def at_hour(hours):
    later = dict(COLUMNS)
    for name, shift in (("seen", timedelta(hours=hours)), ("day", timedelta(hours=hours))):
        kind, arrow, value = COLUMNS[name]
        later[name] = (kind, arrow, value + shift)
    return later


def test_duckdb_reads_each_type_of_spark(tmp_path):
    sink = open_sink(tmp_path / "t")
    commit_typed(sink, 0, **COLUMNS)
    commit_typed(sink, 1, **{name: (k, a, None) for name, (k, a, _) in COLUMNS.items()})
    found, nothing = by_duckdb(tmp_path / "t", "select * from t order by flag nulls last")
    assert found == WHOLE
    assert set(nothing.values()) == {None}


def test_duckdb_filters_by_partitions_and_sees_columns_that_came_later(tmp_path):
    by = "day(seen), bucket(4, big), truncate(2, text)"
    sink = open_sink(tmp_path / "t", sink__partitionBy=by, sink__schema="addColumns")
    for n, hours in enumerate((0, 24, 48)):
        commit_typed(sink, n, **at_hour(hours))
    wider = {**at_hour(72), "more": ("long", COLUMNS["big"][1], 5)}
    commit_typed(sink, 3, **wider)
    count = "select count(*) as n, count({}) as more from t where {}"
    for where, wanted in (
        (f"seen >= timestamptz '{MOMENT + timedelta(hours=24)}'", 3),
        (f"big = {2**62}", 4),
        ("big = 1", 0),
        ("text = 'größe'", 4),
        ("text like 'k%'", 0),
    ):
        assert by_duckdb(tmp_path / "t", count.format("more", where)) == [
            {"n": wanted, "more": min(wanted, 1)}
        ], where


@pytest.mark.parametrize("location", ["file:///d/a%20b", "file:/d/a%20b", "/d/a%20b"])
def test_a_files_place_is_read_as_pyiceberg_and_as_java_write_it(location):
    assert path_of(location) == "/d/a%20b"


@pytest.mark.parametrize("location", ["s3://b/k", "d/a", "file://host/d"])
def test_a_file_elsewhere_is_refused(location):
    with pytest.raises(ValueError, match="is no file of this machine"):
        path_of(location)
