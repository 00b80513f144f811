"""Rows of a server that knows no Delta, in a real table; Spark's own reader looks at it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import Position, Row, ShardBatch
from kcl_mld.spark.ports import CommitOutcome
from tests.spark.sink_server import BASE, batch, frame, open_sink, shard, write
from tests.unit.spark.table.test_readers import by_deltalake, by_duckdb, by_polars

pytestmark = pytest.mark.spark


@pytest.fixture
def delta(sink_session):
    """A session with Delta's jars, for the readers."""
    return sink_session


def sink_of(spark, path, **more):
    return open_sink(spark, sink="delta", sink__path=str(path), **more)


def rows(delta, path) -> Counter:
    table = delta.read.format("delta").load(str(path))
    return Counter((row.shard_id[-1], row.n) for row in table.select("shard_id", "n").collect())


def expected(**counts: int) -> Counter:
    return Counter((name[1:], n) for name, to in counts.items() for n in range(1, to + 1))


def test_a_server_without_jars_writes_a_table_that_sparks_delta_reads(spark, delta, tmp_path):
    sink = sink_of(spark, tmp_path)
    write(spark, sink, batch(shard(), 0, 10), batch(shard(1), 0, 7))
    write(spark, sink, batch(shard(), 10, 12))
    assert rows(delta, tmp_path) == expected(s0=12, s1=7)
    table = delta.read.format("delta").load(str(tmp_path))
    assert table.columns == ["n", "sequence_number", "sub_sequence_number", "shard_id"]
    assert DeltaTable(tmp_path).count() == table.count() == 19
    assert DeltaTable(tmp_path).version() == 2


def test_a_redelivery_that_is_cut_anew_is_written_once_by_its_mark(spark, delta, tmp_path):
    """Killed after the commit or before it; then records come in other portions."""
    delivered = 0
    for is_committed in (True, False, True, True, False, True):
        sink = sink_of(spark, tmp_path)
        mark = sink.mark(shard())
        begin = mark.sequence - BASE if mark else 0
        delivered = max(delivered, begin) + 7
        one = batch(shard(), begin, delivered)
        staged = sink.write(frame(spark, [one]), [one])
        if is_committed:
            assert sink.commit_all(staged, [one]) == {shard(): CommitOutcome.STANDS}
    assert rows(delta, tmp_path) == expected(s0=delivered)


def test_a_batch_whose_rows_were_all_filtered_moves_the_mark(spark, delta, tmp_path):
    sink = sink_of(spark, tmp_path)
    write(spark, sink, batch(shard(), 0, 5))
    write(spark, sink, batch(shard(), 5, 9), keep="false")
    assert sink_of(spark, tmp_path).mark(shard()) == batch(shard(), 5, 9).to
    write(spark, sink, batch(shard(), 9, 12))
    assert sorted(n for _, n in rows(delta, tmp_path)) == [1, 2, 3, 4, 5, 10, 11, 12]


def test_two_writers_behind_one_position_leave_one_copy(spark, delta, tmp_path):
    one, two = sink_of(spark, tmp_path), sink_of(spark, tmp_path)
    write(spark, one, batch(shard(), 0, 3))
    two.mark(shard())
    late = batch(shard(), 3, 9)
    staged = two.write(frame(spark, [late]), [late])
    write(spark, one, batch(shard(), 3, 5))
    assert two.commit_all(staged, [late]) == {shard(): CommitOutcome.LOST}
    assert rows(delta, tmp_path) == expected(s0=5)


def test_values_of_all_types_and_partitions_come_back_as_they_were(spark, delta, tmp_path):
    """Timestamps are instants, whatever zone the session has."""
    moment = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # in a zone that skips that hour
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        sink = sink_of(spark, tmp_path, sink__partitionBy="at,day")
        at = F.timestamp_micros(F.lit(int(moment.timestamp() * 1_000_000) + 5))
        more = {
            "at": at,
            "seen": at,
            "day": F.when(F.col("n") == 1, F.lit("a/b=c %41")),
            "price": F.lit("1.50").cast("decimal(10,2)"),
            "tags": F.array(F.struct(F.lit("x").alias("name"), F.col("n"))),
        }
        write(spark, sink, batch(shard(), 0, 2), **more)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")  # as tests of others expect it
    found = delta.read.format("delta").load(str(tmp_path)).orderBy("n")
    micros = int(moment.timestamp() * 1_000_000) + 5
    picked = found.select(
        F.unix_micros("at"), F.unix_micros("seen"), "day", "price", "tags"
    ).collect()
    assert [tuple(row)[:4] for row in picked] == [
        (micros, micros, "a/b=c %41", Decimal("1.50")),
        (micros, micros, None, Decimal("1.50")),
    ]
    assert picked[0][4] == [("x", 1)]
    by_rust = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n").to_pylist()
    assert [each["at"] for each in by_rust] == [moment.replace(microsecond=5)] * 2
    assert [each["day"] for each in by_rust] == ["a/b=c %41", None]
    assert found.where(F.col("day") == "a/b=c %41").count() == 1


@pytest.mark.parametrize("reader", [by_deltalake, by_polars, by_duckdb])
@pytest.mark.parametrize("name", ["p", "a.b", "c`d", "größe"])
def test_every_reader_finds_the_partitions(spark, tmp_path, reader, name):
    """Polars reads the values from the names of the directories."""
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        at = "timestamp'2026-10-25 00:30:00.000005Z' + n * interval '1' hour"  # twice 02:30 there
        write(
            spark,
            sink_of(spark, tmp_path, sink__partitionBy=f"{name},text"),
            batch(shard(), 0, 2),
            **{name: F.expr(at), "text": F.expr("case when n = 1 then 'é/ü=%\U0001f600' end")},
        )
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")  # as tests of others expect it
    found = sorted((row["n"], row[name], row["text"]) for row in reader(tmp_path))
    first = datetime(2026, 10, 25, 1, 30, 0, 5, tzinfo=UTC)
    assert found == [(1, first, "é/ü=%\U0001f600"), (2, first.replace(hour=2), None)]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("repeat('/', 85)", "p can't name a directory"),
        ("concat('a', char(0))", "p can't name a directory"),
        ("make_date(10000, 1, 1)", "partition column p has the date"),
        ("timestamp_seconds(253402300800)", "partition column p has the timestamp"),
        ("timestamp_seconds(-62135596801)", "partition column p has the timestamp"),
    ],
)
def test_a_value_that_is_no_partition_is_refused_by_name_and_the_table_stays_readable(
    spark, tmp_path, column, why
):
    sink = sink_of(spark, tmp_path, sink__partitionBy="p")
    with pytest.raises(BatchFailed, match=why):
        write(spark, sink, batch(shard(), 0, 2), p=F.expr(column))
    assert by_deltalake(tmp_path) == []


def test_the_longest_value_that_can_name_a_directory_is_taken(spark, tmp_path):
    sink = sink_of(spark, tmp_path, sink__partitionBy="p")
    write(spark, sink, batch(shard(), 0, 1), p=F.expr("concat(repeat('/', 84), 'a')"))
    assert by_deltalake(tmp_path)[0]["p"] == "/" * 84 + "a"


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("cast('2026-01-01' as timestamp_ntz)", "timestamp_ntz"),
        ("interval '1' day", "interval"),
        ("null", "void"),
        ("parse_json('1')", "variant"),
    ],
)
def test_a_type_that_not_every_reader_reads_is_refused(spark, tmp_path, column, kind):
    sink = sink_of(spark, tmp_path)
    with pytest.raises(BatchFailed, match=f"the column odd has the type {kind}"):
        write(spark, sink, batch(shard(), 0, 2), odd=F.expr(column))
    assert not (tmp_path / "_delta_log").exists()


def test_new_columns_are_refused_until_they_are_let_in(spark, delta, tmp_path):
    sink = sink_of(spark, tmp_path)
    write(spark, sink, batch(shard(), 0, 2))
    with pytest.raises(BatchFailed, match=r"no column fee.*spark.sink.schema=addColumns"):
        write(spark, sink, batch(shard(), 2, 4), fee=F.lit(1.5))
    open_door = sink_of(spark, tmp_path, sink__schema="addColumns")
    write(spark, open_door, batch(shard(), 2, 4), fee=F.lit(1.5))
    assert rows(delta, tmp_path) == expected(s0=4)
    assert "fee" in delta.read.format("delta").load(str(tmp_path)).columns


def test_another_type_is_refused(spark, tmp_path):
    sink = sink_of(spark, tmp_path)
    write(spark, sink, batch(shard(), 0, 2))
    with pytest.raises(BatchFailed, match="do not fit the table: the column n is string"):
        write(spark, sink, batch(shard(), 2, 4), n=F.lit("x"))


def test_records_of_one_aggregate_are_split_by_their_sub_sequence_number(spark, delta, tmp_path):
    sink = sink_of(spark, tmp_path)
    at = [Position(BASE + 1, sub) for sub in range(6)]
    rows_of = [Row(position, "k", b"", None) for position in at]
    write(spark, sink, ShardBatch(shard(), None, at[2], tuple(rows_of[:3])))
    write(spark, sink, ShardBatch(shard(), at[2], at[5], tuple(rows_of[3:])))
    assert sink_of(spark, tmp_path).mark(shard()) == at[5]
    found = delta.read.format("delta").load(str(tmp_path)).collect()
    assert len(found) == 6
