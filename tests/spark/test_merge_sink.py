"""Upserts of real plans by a server that knows no Delta; Spark's own reader looks at the table.

What delta-rs does with staged rows is in ``tests/unit/spark/table/test_upsert.py``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.ports import CommitOutcome
from tests.spark.sink_server import BASE, batch, frame, open_sink, shard

pytestmark = pytest.mark.spark


def sink_of(spark, path, **more):
    return open_sink(spark, sink="merge", sink__path=str(path), sink__key="key", **more)


def keyed(spark, batches):
    """Five keys a shard; each record replaces the one of its key."""
    key = F.concat(F.col("shard_id"), F.lit("/"), (F.col("n") % 5).cast("string"))
    return frame(spark, batches, key=key)


def merge(spark, sink, *batches, drop=(), **more):
    """As the engine does it."""
    for each in batches:
        sink.mark(each.shard)
    rows = keyed(spark, batches).drop(*drop)
    staged = sink.write(rows.withColumns(more) if more else rows, batches)
    try:
        assert set(sink.commit_all(staged, batches).values()) == {CommitOutcome.STANDS}
    finally:
        sink.discard(staged)


def table(path) -> dict[str, int]:
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert len({row["key"] for row in found}) == len(found)
    return {row["key"][-3:]: row["n"] for row in found}


def last(shard_digit: int, to: int) -> dict[str, int]:
    return {f"{shard_digit}/{n % 5}": n for n in range(max(1, to - 4), to + 1)}


def test_the_last_record_of_a_key_wins_and_two_shards_are_one_commit(spark, sink_session, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(spark, path)
    merge(spark, sink, batch(shard(), 0, 12), batch(shard(1), 0, 7))
    merge(spark, sink, batch(shard(), 12, 14))
    assert table(path) == last(0, 14) | last(1, 7)
    assert DeltaTable(path).version() == 2
    found = sink_session.read.format("delta").load(str(path)).select("key", "n").collect()
    assert {row.key[-3:]: row.n for row in found} == table(path)


def test_a_redelivery_that_is_cut_anew_is_merged_once_by_its_mark(spark, tmp_path):
    """Killed after the commit or before it; then records come in other portions."""
    path, delivered = tmp_path / "t", 0
    for is_committed in (True, False, True, False, True):
        sink = sink_of(spark, path)
        mark = sink.mark(shard())
        begin = mark.sequence - BASE if mark else 0
        delivered = max(delivered, begin) + 4
        one = batch(shard(), begin, delivered)
        if is_committed:
            merge(spark, sink, one)
        else:
            sink.write(keyed(spark, [one]), [one])
    assert table(path) == last(0, delivered)


def test_mode_insert_leaves_a_key_that_exists_as_it_is(spark, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(spark, path, sink__mode="insert")
    merge(spark, sink, batch(shard(), 0, 3))
    merge(spark, sink, batch(shard(), 3, 10))
    assert table(path) == {"0/1": 1, "0/2": 2, "0/3": 3, "0/4": 9, "0/0": 10}


def test_without_the_sequence_number_a_key_may_be_there_once_a_batch(spark, tmp_path):
    path, drop = tmp_path / "t", ("sequence_number", "sub_sequence_number")
    sink = sink_of(spark, path)
    for one in (batch(shard(), 0, 5), batch(shard(), 5, 8)):
        merge(spark, sink, one, drop=drop)
    assert table(path) == last(0, 5) | last(0, 8)
    with pytest.raises(BatchFailed, match="occurs twice; keep the columns sequence_number"):
        merge(spark, sink, batch(shard(), 8, 18), drop=drop)


def test_a_zero_is_one_key_whatever_its_sign(spark, tmp_path):
    """In directories by key: a name says the sign."""
    path = tmp_path / "t"
    sink = open_sink(
        spark, sink="merge", sink__path=str(path), sink__key="k-1,f", sink__partitionBy="k-1"
    )
    for begin, zero in enumerate(("-0.0", "0.0", "-0.0")):
        numbers = F.when(F.col("n") == begin * 2 + 1, F.lit(zero)).otherwise("1.5")
        merge(
            spark,
            sink,
            batch(shard(), begin * 2, begin * 2 + 2),
            **{"k-1": numbers.cast("double"), "f": F.lit(zero).cast("float")},
        )
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    assert sorted((str(row["k-1"]), str(row["f"]), row["n"]) for row in found) == [
        ("0.0", "0.0", 5),
        ("1.5", "0.0", 6),
    ]


def test_a_key_that_would_not_be_found_again_is_told(spark, tmp_path):
    path, one = tmp_path / "t", batch(shard(), 0, 3)
    sink = sink_of(spark, path)
    for kind in ("double", "float"):
        key = F.when(F.col("n") == 2, F.lit("NaN")).otherwise("1").cast(kind)
        with pytest.raises(BatchFailed, match="a null or a NaN in the key"):
            merge(spark, sink_of(spark, tmp_path / kind), one, key=key)
    for key in (F.struct("n"), F.array("n")):
        with pytest.raises(
            BatchFailed, match=r"the key key is of the type .*, which can't be comp"
        ):
            merge(spark, sink, one, key=key)


def test_a_text_that_the_table_would_compare_otherwise_is_no_key(spark, tmp_path):
    path, one = tmp_path / "t", batch(shard(), 0, 3)
    sink = sink_of(spark, path)
    text = F.when(F.col("n") == 1, F.lit("Bob")).otherwise("bob")
    with pytest.raises(BatchFailed, match=r"string collate UTF8_LCASE, but .* byte by byte"):
        merge(spark, sink, one, key=F.collate(text, "UTF8_LCASE"))
    merge(spark, sink, one, key=F.collate(text, "UTF8_BINARY"))
    assert sorted(row["key"] for row in DeltaTable(path).to_pyarrow_table().to_pylist()) == [
        *("Bob", "bob"),
    ]


def test_what_cannot_be_merged_is_told_before_anything_is_committed(spark, tmp_path):
    path, one = tmp_path / "t", batch(shard(), 5, 10)
    sink = sink_of(spark, path)
    merge(spark, sink, batch(shard(), 0, 5))
    with pytest.raises(BatchFailed, match="a null or a NaN in the key"):
        merge(spark, sink, one, key=F.expr("nullif(n, 7)").cast("string"))
    with pytest.raises(BatchFailed, match=r"no column fee; .*spark\.sink\.schema=addColumns"):
        merge(spark, sink, one, fee=F.lit(1))
    with pytest.raises(BatchFailed, match="the column n is string, but long in the table"):
        merge(spark, sink, one, n=F.lit("x"))
    with pytest.raises(BatchFailed, match=r"lack key of spark\.sink\.key"):
        merge(spark, sink, one, drop=("key",))
    assert table(path) == last(0, 5)
    assert not list(path.glob("kcl-mld-*/job-*"))


def test_values_of_all_types_and_partitions_come_back_as_they_were(spark, sink_session, tmp_path):
    moment = datetime(2026, 3, 29, 1, 30, 0, 5, UTC)
    at = F.timestamp_micros(F.lit(int(moment.timestamp()) * 1_000_000 + 5))
    more = {
        "at": at,
        "seen": at,
        "day": F.when(F.col("n") == 1, F.lit("a/b=c %41")),
        "price": F.lit("1.50").cast("decimal(10,2)"),
        "raw": F.lit(b"\0\xff"),
        "tags": F.array(F.struct(F.lit("x").alias("name"), F.col("n"))),
        'odd `"name': F.create_map(F.lit("a"), F.col("n")),
    }
    sink = sink_of(spark, tmp_path, sink__partitionBy="at,day")
    merge(spark, sink, batch(shard(), 0, 2), **more)
    merge(spark, sink, batch(shard(), 2, 7), **more)
    found = sink_session.read.format("delta").load(str(tmp_path)).orderBy("n").collect()
    assert [row.n for row in found] == [3, 4, 5, 6, 7]
    by_rust = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n").to_pylist()
    for row in by_rust:
        assert (row["at"], row["seen"], row["day"]) == (moment, moment, None)
        assert (row["price"], row["raw"]) == (Decimal("1.50"), b"\0\xff")
        assert row["tags"] == [{"name": "x", "n": row["n"]}]
        assert row['odd `"name'] == [("a", row["n"])]
    micros = sink_session.read.format("delta").load(str(tmp_path)).select(F.unix_micros("at"))
    assert {row[0] for row in micros.collect()} == {int(moment.timestamp()) * 1_000_000 + 5}
    assert found[0].tags == [("x", 3)]


def test_what_deltas_own_writer_deleted_by_a_vector_is_not_back_after_a_merge(
    spark, sink_session, tmp_path
):
    path = tmp_path / "t"
    merge(spark, sink_of(spark, path), batch(shard(), 0, 4))
    name = f"delta.`{path}`"
    sink_session.sql(f"ALTER TABLE {name} SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    sink_session.sql(f"DELETE FROM {name} WHERE n = 2")
    entries = [entry.read_text() for entry in (path / "_delta_log").glob("*.json")]
    assert any('"deletionVector":{' in entry for entry in entries)
    merge(spark, sink_of(spark, path), batch(shard(), 4, 6))
    found = sink_session.read.format("delta").load(str(path)).select("key", "n").collect()
    assert {row.key[-3:]: row.n for row in found} == {"0/3": 3, "0/4": 4, "0/0": 5, "0/1": 6}


def test_spark_finds_decimals_and_nan_by_a_filter(spark, sink_session, tmp_path):
    """Spark sorts NaN above all numbers; delta-rs leaves it out of a file's range."""
    path = tmp_path / "t"
    for begin, text in enumerate(("1.5", "12345678901234567.123456789012345678", "NaN")):
        decimal = F.lit(None if text == "NaN" else text).cast("decimal(38,18)")
        number = F.when(F.col("n") % 2 == 0, text).otherwise("-1").cast("double")
        merge(
            spark,
            sink_of(spark, path),
            batch(shard(), 2 * begin, 2 * begin + 2),
            d=decimal,
            x=number,
            nested=F.struct(number.alias("x")),
        )
    rows = sink_session.read.format("delta").load(str(path))
    assert rows.where("x > 1e300").select("n").collect() == [(6,)]
    assert rows.where("nested.x > 1e300").select("n").collect() == [(6,)]
    exact = "d = cast('12345678901234567.123456789012345678' as decimal(38,18))"
    assert sorted(row.n for row in rows.where(exact).collect()) == [3, 4]
