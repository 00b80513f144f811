"""The reader's view of the parquet chain, and its compaction, with a real Spark server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from mld.spark import compact, read_chain
from mld.spark.config import read_properties
from mld.spark.errors import BatchFailed, SparkConfigError
from mld.spark.model import BATCH_COLUMN, Position, Row, ShardBatch, ShardKey
from mld.spark.parquet import chain_files, chain_layout
from mld.spark.sinks import make_sink

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark
HOUR_S = 3600.0


class Writer:
    """A sink with shards that are continued."""

    def __init__(self, spark, path: Path) -> None:
        self.spark = spark
        properties = {
            "spark.sink": "parquet",
            "spark.sink.path": str(path),
            "spark.master": "local[2]",
        }
        self.sink = make_sink(read_properties(properties), "app")
        self.sink.prepare(spark)

    def append(self, count: int, *, shard="s-0", stream="flights", epoch="0", sql=("n",)) -> None:
        """Commit one batch: numbers go on from the shard's mark; ``sql`` are its columns."""
        key = ShardKey("app", stream, shard, epoch)
        after = self.sink.mark(key)
        begin = 0 if after is None else after.sequence
        rows = tuple(Row(Position(begin + n + 1), "k", b"", None) for n in range(count))
        batch = ShardBatch(key, after, rows[-1].position, rows)
        frame = self.spark.range(begin + 1, begin + count + 1).withColumnRenamed("id", "n")
        frame = frame.selectExpr(*sql).withColumn(BATCH_COLUMN, F.lit(batch.batch_id))
        staged = self.sink.write(frame, [batch])
        self.sink.commit(staged, batch)
        self.sink.discard(staged)


@pytest.fixture
def writer(spark, tmp_path):
    return Writer(spark, tmp_path)


def numbers(frame) -> list[int]:
    return sorted(row["n"] for row in frame.select("n").collect())


def in_order(root: Path, shard="s-0") -> list[int]:
    """What the files hold, in the order of the chain."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    directory = root / chain_layout.shard_path(ShardKey("app", "flights", shard))
    return [
        n
        for link in chain_files.walk_shard(directory)
        for file in chain_files.data_files(directory / link.name)
        for n in pq.read_table(file, partitioning=None)["n"].to_pylist()
    ]


def test_a_reader_sees_what_is_committed_and_nothing_else(spark, writer, tmp_path):
    writer.append(5)
    writer.append(5)
    writer.append(3, shard="s-1")
    key = ShardKey("app", "flights", "s-0")
    rows = (Row(Position(11), "k", b"", None),)
    staged = ShardBatch(key, Position(10), Position(11), rows)
    frame = spark.range(11, 12).toDF("n").withColumn(BATCH_COLUMN, F.lit(staged.batch_id))
    writer.sink.write(frame, [staged])

    found = read_chain(spark, tmp_path)
    assert found.columns == ["n"]
    assert numbers(found) == sorted([*range(1, 11), 1, 2, 3])


def test_epochs_streams_and_shards_are_told_apart(spark, writer, tmp_path):
    writer.append(1)
    writer.append(2, shard="s-1")
    writer.append(3, stream="other")
    writer.append(4, epoch="b 2/ü")
    assert numbers(read_chain(spark, tmp_path, "b 2/ü")) == [1, 2, 3, 4]
    assert numbers(read_chain(spark, tmp_path, shards=["s-1"])) == [1, 2]
    assert numbers(read_chain(spark, tmp_path, streams=["other"])) == [1, 2, 3]
    found = read_chain(spark, tmp_path, with_source=True).groupBy("_stream", "_shard").count()
    assert sorted(tuple(row) for row in found.collect()) == [
        ("flights", "s-0", 1),
        ("flights", "s-1", 2),
        ("other", "s-0", 3),
    ]


def test_an_empty_chain_needs_a_schema(spark, writer, tmp_path):
    with pytest.raises(SparkConfigError, match="hand over their schema"):
        read_chain(spark, tmp_path)
    assert read_chain(spark, tmp_path, schema="n long").collect() == []
    found = read_chain(spark, tmp_path, schema="n long", with_source=True)
    assert found.columns == ["n", "_stream", "_shard"]
    with pytest.raises(SparkConfigError):
        read_chain(spark, tmp_path / "nowhere")


def test_a_column_that_came_later_is_null_before(spark, writer, tmp_path):
    writer.append(2)
    writer.append(2, sql=("n", "n * 2 AS twice"))
    found = read_chain(spark, tmp_path).orderBy("n").collect()
    assert [tuple(row) for row in found] == [(1, None), (2, None), (3, 6), (4, 8)]
    given = read_chain(spark, tmp_path, schema="n long")
    assert given.columns == ["n"]
    assert numbers(given) == [1, 2, 3, 4]


def test_compaction_leaves_the_rows_their_order_and_their_columns(spark, writer, tmp_path):
    for count in (40, 1, 30, 2, 25):
        writer.append(count)
    writer.append(2, sql=("n", "timestamp_seconds(n) AS at", "array(n) AS many"))
    before = read_chain(spark, tmp_path).orderBy("n").collect()

    reports = compact(spark, tmp_path, min_batches=2)
    assert [(report.merged, report.rows, report.removed) for report in reports] == [(6, 100, 0)]
    after = read_chain(spark, tmp_path)
    assert after.orderBy("n").collect() == before
    assert in_order(tmp_path) == list(range(1, 101))
    assert len(after.inputFiles()) == 1


def test_files_go_after_the_grace_and_fenced_names_stay_taken(spark, writer, tmp_path):
    for _ in range(4):
        writer.append(5)
    compact(spark, tmp_path, min_batches=2, now_s=1000.0)
    directory = tmp_path / chain_layout.shard_path(ShardKey("app", "flights", "s-0"))
    assert compact(spark, tmp_path, min_batches=2, now_s=1000.0 + HOUR_S - 1) == []
    assert len(chain_files.data_files(directory / "after=5.0")) == 1

    (report,) = compact(spark, tmp_path, min_batches=2, now_s=1000.0 + HOUR_S)
    assert (report.merged, report.removed) == (0, 4)
    assert [path.name for path in (directory / "after=5.0").iterdir()] == [chain_layout.MARKER]
    assert numbers(read_chain(spark, tmp_path)) == list(range(1, 21))
    assert writer.sink.mark(ShardKey("app", "flights", "s-0")) == Position(20)
    writer.append(5)
    assert numbers(read_chain(spark, tmp_path)) == list(range(1, 26))


def test_a_segment_is_merged_again_until_it_is_full(spark, writer, tmp_path):
    for _ in range(3):
        writer.append(5)
    compact(spark, tmp_path, min_batches=2, now_s=0.0)
    writer.append(5)
    (report,) = compact(spark, tmp_path, min_batches=2, now_s=1.0)
    assert (report.merged, report.rows) == (2, 20)
    writer.append(5)
    writer.append(5)
    (report,) = compact(spark, tmp_path, min_batches=2, now_s=2.0, full_rows=20)
    assert (report.merged, report.rows) == (2, 10)
    (report,) = compact(spark, tmp_path, min_batches=9, now_s=2.0 + HOUR_S)
    assert report.removed == 7  # six links and the first segment
    assert in_order(tmp_path) == list(range(1, 31))


def test_shards_without_rows_are_merged_too(spark, writer, tmp_path):
    writer.append(5, sql=("n", "assert_true(true) AS nothing"))
    for _ in range(3):
        key = ShardKey("app", "flights", "s-9")
        after = writer.sink.mark(key)
        at = Position(1 if after is None else after.sequence + 1)
        batch = ShardBatch(key, after, at, (Row(at, "k", b"", None),))
        writer.sink.commit(writer.sink.write(None, [batch]), batch)
    (report,) = compact(spark, tmp_path, min_batches=2)
    assert (report.merged, report.rows) == (3, 0)
    assert writer.sink.mark(ShardKey("app", "flights", "s-9")) == Position(3)


def test_rows_that_went_missing_are_noticed_and_nothing_is_changed(
    spark, writer, tmp_path, monkeypatch
):
    from mld.spark.parquet import compaction  # noqa: PLC0415

    writer.append(5)
    writer.append(5)
    real = compaction._in_order
    monkeypatch.setattr(compaction, "_in_order", lambda s, files: real(s, files).where("n != 3"))
    with pytest.raises(BatchFailed, match="merged 9 rows of 10"):
        compact(spark, tmp_path, min_batches=2)
    assert numbers(read_chain(spark, tmp_path)) == list(range(1, 11))


def test_a_second_compaction_of_a_shard_stands_back(spark, writer, tmp_path):
    from mld.spark.parquet.compaction import _sole  # noqa: PLC0415

    writer.append(5)
    writer.append(5)
    with _sole(tmp_path / chain_layout.shard_path(ShardKey("app", "flights", "s-0"))):
        assert compact(spark, tmp_path, min_batches=2) == []
    assert len(compact(spark, tmp_path, min_batches=2)) == 1


def test_a_writer_and_a_reader_go_on_while_a_compaction_works(spark, writer, tmp_path, monkeypatch):
    """At each step of a compaction a batch is appended, and readers see each row once."""
    from mld.spark.parquet import compaction  # noqa: PLC0415

    for _ in range(3):
        writer.append(5)
    begun = read_chain(spark, tmp_path)
    seen = []

    def during(name, real):
        def step(*args, **kwargs):
            result = real(*args, **kwargs)
            writer.append(5)
            seen.append((name, numbers(read_chain(spark, tmp_path))))
            return result

        return step

    for name in ("_write_merged", "_merge", "_remove_replaced"):
        monkeypatch.setattr(compaction, name, during(name, getattr(compaction, name)))
    compact(spark, tmp_path, min_batches=2)

    assert [name for name, _ in seen] == ["_write_merged", "_merge", "_remove_replaced"]
    for index, (_, found) in enumerate(seen):
        assert found == list(range(1, 15 + 5 * (index + 1) + 1))
    assert numbers(begun) == list(range(1, 16))


DEATHS = {
    "before the segment is published": ("mld.spark.parquet.chain_files", "publish", 1),
    "after the segment is published": ("mld.spark.parquet.compaction", "_remove_replaced", 1),
    "while old files are removed": ("pathlib.Path", "unlink", 3),
}
SCRIPT = """
    import importlib, os, signal, sys
    url, path, home, name, calls, now = sys.argv[1:]
    if home == "pathlib.Path":
        from pathlib import Path as owner
    else:
        owner = importlib.import_module(home)
    from mld.spark import compact
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.remote(url).getOrCreate()
    real, left = getattr(owner, name), [int(calls)]
    def die(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    setattr(owner, name, die)
    compact(spark, path, min_batches=2, now_s=float(now))
    print("survived")
"""


@pytest.mark.parametrize("death", DEATHS)
def test_a_compaction_may_be_killed_anywhere(spark, spark_server, writer, tmp_path, death):
    for _ in range(4):
        writer.append(5)
    is_removal = death.startswith("while")
    if is_removal:
        compact(spark, tmp_path, min_batches=2, now_s=0.0)
    home, name, calls = DEATHS[death]
    now = str(2 * HOUR_S)
    environment = {**os.environ, "SPARK_CONNECT_AUTHENTICATE_TOKEN": spark_server.token}
    ended = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(SCRIPT),
            spark_server.url,
            str(tmp_path),
            home,
            name,
            str(calls),
            now,
        ],
        env=environment,
        timeout=60,
        check=False,
        capture_output=True,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    assert numbers(read_chain(spark, tmp_path)) == list(range(1, 21))

    writer.append(5)
    compact(spark, tmp_path, min_batches=2, now_s=4 * HOUR_S)
    compact(spark, tmp_path, min_batches=2, now_s=8 * HOUR_S)
    assert in_order(tmp_path) == list(range(1, 26))
    directory = tmp_path / chain_layout.shard_path(ShardKey("app", "flights", "s-0"))
    assert len(read_chain(spark, tmp_path).inputFiles()) == 1
    assert chain_files.data_files(directory / "after=start") == []
