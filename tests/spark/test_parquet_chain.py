"""The parquet sink with a real Spark server."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from mld.spark.config import read_properties
from mld.spark.errors import BatchFailed, Fenced, SinkRefused, SparkConfigError
from mld.spark.model import BATCH_COLUMN, Position, Row, ShardBatch, ShardKey
from mld.spark.parquet import chain_files, chain_layout
from mld.spark.sinks import make_sink
from mld.spark.sinks.parquet_chain import HINT_EVERY, write_tasks

pytestmark = pytest.mark.spark
BASE = 49590338271490256608559692538361571095921575989136588898


def shard(number: int = 0, stream: str = "flights", epoch: str = "0") -> ShardKey:
    return ShardKey("app", stream, f"shardId-{number:012d}", epoch)


def batch(key: ShardKey, after: int | None, to: int, *, sub: int = 0) -> ShardBatch:
    first = 1 if after is None else after + 1
    rows = tuple(Row(Position(BASE + n, sub), "k", b"%d" % n, None) for n in range(first, to + 1))
    begin = None if after is None else Position(BASE + after, sub)
    return ShardBatch(key, begin, Position(BASE + to, sub), rows)


def frame(spark, batches, keep="true"):
    """What the engine hands over: the function's rows with the batch column."""
    united = None
    for each in batches:
        numbers = [r.position.sequence - BASE for r in each.rows]
        table = pa.table({"n": pa.array(numbers, pa.int64())})
        part = spark.createDataFrame(table).where(keep)
        part = part.withColumn(BATCH_COLUMN, F.lit(each.batch_id))
        united = part if united is None else united.unionByName(part)
    return united


def open_sink(spark, path: Path, application: str = "app", **more: str):
    properties = {
        "spark.sink": "parquet",
        "spark.sink.path": str(path),
        "spark.master": "local[2]",
        **more,
    }
    sink = make_sink(read_properties(properties), application)
    sink.prepare(spark)
    return sink


def write_and_commit(spark, sink, *batches: ShardBatch) -> None:
    staged = sink.write(frame(spark, batches), batches)
    for each in batches:
        sink.commit(staged, each)
    sink.discard(staged)


def numbers(path: Path, key: ShardKey) -> list[int]:
    """What lies on the chain, in its order, read without Spark."""
    directory = path / chain_layout.shard_path(key)
    found: list[int] = []
    for link in chain_files.walk_shard(directory):
        for file in chain_files.data_files(directory / link.name):
            found += pq.read_table(file, partitioning=None)["n"].to_pylist()
    return found


def test_batches_of_many_shards_are_one_job_one_file_and_one_link_each(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    first = [batch(shard(n), None, 20 + n) for n in range(5)]
    write_and_commit(spark, sink, *first)
    write_and_commit(spark, sink, batch(shard(0), 20, 30))

    assert numbers(tmp_path, shard(0)) == list(range(1, 31))
    assert numbers(tmp_path, shard(4)) == list(range(1, 25))
    directory = tmp_path / chain_layout.shard_path(shard(4))
    assert len(chain_files.data_files(directory / "after=start")) == 1
    assert sink.mark(shard(0)) == Position(BASE + 30)
    assert sink.mark(shard(9)) is None
    assert not list((tmp_path / "_staging").rglob("job-*"))


def test_a_batch_whose_rows_were_all_filtered_still_advances_the_mark(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    both = [batch(shard(0), None, 10), batch(shard(1), None, 10)]
    staged = sink.write(frame(spark, both[:1], keep="n < 0"), both[:1])
    sink.commit(staged, both[0])
    staged = sink.write(None, both[1:])
    sink.commit(staged, both[1])

    assert sink.mark(shard(0)) == sink.mark(shard(1)) == Position(BASE + 10)
    assert numbers(tmp_path, shard(0)) == []
    marker = chain_files.read_marker(tmp_path / chain_layout.shard_path(shard(0)) / "after=start")
    assert chain_layout.Marker.decode(marker).count == 10


def test_of_two_writers_after_the_same_position_exactly_one_succeeds(spark, tmp_path):
    sinks = [open_sink(spark, tmp_path), open_sink(spark, tmp_path)]
    cuts = [batch(shard(), None, 10), batch(shard(), None, 17)]
    staged = [sink.write(frame(spark, [cut]), [cut]) for sink, cut in zip(sinks, cuts, strict=True)]
    start, outcomes = threading.Barrier(2), []

    def commit(index: int) -> None:
        start.wait()
        try:
            sinks[index].commit(staged[index], cuts[index])
            outcomes.append(cuts[index].to)
        except Fenced:
            outcomes.append(None)

    threads = [threading.Thread(target=commit, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcome is None for outcome in outcomes) == [False, True]
    winner = next(outcome for outcome in outcomes if outcome is not None)
    assert numbers(tmp_path, shard()) == list(range(1, winner.sequence - BASE + 1))


def test_the_same_range_of_another_writer_is_fenced_too(spark, tmp_path):
    mine, other = open_sink(spark, tmp_path), open_sink(spark, tmp_path)
    write_and_commit(spark, mine, batch(shard(), None, 10))
    cut = batch(shard(), None, 10)
    staged = other.write(frame(spark, [cut]), [cut])
    with pytest.raises(Fenced, match="lost the shard"):
        other.commit(staged, cut)


def test_a_fenced_batch_does_not_touch_the_others_of_its_job(spark, tmp_path):
    mine, other = open_sink(spark, tmp_path), open_sink(spark, tmp_path)
    write_and_commit(spark, other, batch(shard(0), None, 5))
    cuts = [batch(shard(n), None, 10) for n in range(3)]
    staged = mine.write(frame(spark, cuts), cuts)
    with pytest.raises(Fenced):
        mine.commit(staged, cuts[0])
    mine.commit(staged, cuts[1])
    mine.commit(staged, cuts[2])
    mine.discard(staged)

    assert numbers(tmp_path, shard(0)) == list(range(1, 6))
    assert numbers(tmp_path, shard(1)) == numbers(tmp_path, shard(2)) == list(range(1, 11))


def test_a_crash_between_write_and_rename_leaves_nothing_that_counts(spark, tmp_path):
    dead = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    dead.write(frame(spark, [cut]), [cut])
    dead._staging._lock = os.close(dead._staging._lock)  # what the end of its process does

    heir = open_sink(spark, tmp_path)
    assert heir.mark(shard()) is None
    write_and_commit(spark, heir, batch(shard(), None, 7))
    write_and_commit(spark, heir, batch(shard(), 7, 20))
    assert numbers(tmp_path, shard()) == list(range(1, 21))
    assert [path.name for path in (tmp_path / "_staging").iterdir()] == [
        heir._staging._directory.name
    ]


def test_a_sweep_leaves_the_staging_of_the_living_alone(spark, tmp_path):
    alive = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    staged = alive.write(frame(spark, [cut]), [cut])
    open_sink(spark, tmp_path)
    alive.commit(staged, cut)
    assert numbers(tmp_path, shard()) == list(range(1, 11))


def test_a_commit_is_repeated_without_harm(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    staged = sink.write(frame(spark, [cut]), [cut])
    sink.commit(staged, cut)
    sink.commit(staged, cut)
    again = sink.write(frame(spark, [cut]), [cut])
    sink.commit(again, cut)
    assert numbers(tmp_path, shard()) == list(range(1, 11))
    assert sink.mark(shard()) == cut.to


def test_staging_that_was_swept_under_a_writer_commits_nothing(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    staged = sink.write(frame(spark, [cut]), [cut])
    sink.discard(staged)
    with pytest.raises(OSError, match="is not committed"):
        sink.commit(staged, cut)
    assert sink.mark(shard()) is None
    write_and_commit(spark, sink, cut)
    assert numbers(tmp_path, shard()) == list(range(1, 11))


def test_an_output_removed_under_the_writer_is_noticed_before_anything_is_lost(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    write_and_commit(spark, sink, batch(shard(), None, 10))
    (tmp_path / "epoch=0").rename(tmp_path / "gone")
    with pytest.raises(BatchFailed, match="was changed under this process"):
        write_and_commit(spark, sink, batch(shard(), 10, 20))
    assert sink.mark(shard()) is None


def test_records_of_one_aggregate_are_split_by_their_sub_sequence_number(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    key, at = shard(), [Position(BASE + 1, sub) for sub in range(6)]
    rows = [Row(position, "k", b"", None) for position in at]
    write_and_commit(spark, sink, ShardBatch(key, None, at[2], tuple(rows[:3])))
    write_and_commit(spark, sink, ShardBatch(key, at[2], at[5], tuple(rows[3:])))
    assert sink.mark(key) == at[5]
    assert len(numbers(tmp_path, key)) == 6


def test_each_epoch_and_each_oddly_named_stream_has_a_chain_of_its_own(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    keys = [shard(stream="a.b-c_d"), shard(epoch="2026/11 ü%"), shard(epoch="*~..")]
    for length, key in enumerate(keys, start=1):
        write_and_commit(spark, sink, batch(key, None, length))
    assert [numbers(tmp_path, key) for key in keys] == [[1], [1, 2], [1, 2, 3]]
    assert sink.mark(shard()) is None


def test_two_batches_with_one_name_are_refused(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    cuts = [batch(shard(), None, 10), batch(shard(), None, 20)]
    with pytest.raises(BatchFailed, match="same name"):
        sink.write(frame(spark, cuts), cuts)


def test_rows_without_a_known_batch_are_refused(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    strange = frame(spark, [cut]).withColumn(
        BATCH_COLUMN, F.when(F.col("n") > 5, F.col(BATCH_COLUMN))
    )
    with pytest.raises(BatchFailed, match="values that no batch has"):
        sink.write(strange, [cut])
    assert not list((tmp_path / "_staging").rglob("part-*"))


def test_the_mark_is_found_with_the_help_of_a_hint_and_without(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    for n in range(HINT_EVERY + 3):
        cut = batch(shard(), n or None, n + 1)
        staged = sink.write(None, [cut])
        sink.commit(staged, cut)
        sink.discard(staged)
    directory = tmp_path / chain_layout.shard_path(shard())
    assert (directory / chain_layout.HINT).exists()
    assert open_sink(spark, tmp_path).mark(shard()) == Position(BASE + HINT_EVERY + 3)
    (directory / chain_layout.HINT).write_text("torn", encoding="utf-8")
    assert open_sink(spark, tmp_path).mark(shard()) == Position(BASE + HINT_EVERY + 3)


def test_a_path_of_another_application_is_refused(spark, tmp_path):
    open_sink(spark, tmp_path, "first")
    with pytest.raises(SinkRefused, match="output of the application 'first'"):
        open_sink(spark, tmp_path, "second")


@pytest.mark.parametrize("path", ["s3://bucket/x", "hdfs://nn/x", "s3a:/x", "abfss://c@a/x"])
def test_object_stores_are_refused(path):
    with pytest.raises(SinkRefused, match="file system"):
        make_sink(read_properties({"spark.sink": "parquet", "spark.sink.path": path}), "app")


def test_a_missing_path_and_a_wrong_option_are_named():
    with pytest.raises(SparkConfigError, match=r"spark\.sink\.path"):
        make_sink(read_properties({}), "app")
    properties = {"spark.sink.path": "/x", "spark.sink.options.writeTasks": "many"}
    with pytest.raises(SparkConfigError, match="writeTasks"):
        make_sink(read_properties(properties), "app")


@pytest.mark.parametrize(
    ("properties", "tasks"),
    [
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "local[4,2]"}, 4),
        ({"spark.master": "local[*]"}, os.cpu_count()),
        ({"spark.master": "yarn"}, None),
        ({"spark.remote": "sc://host"}, None),
        ({"spark.master": "local[2]", "spark.sink.options.writeTasks": "0"}, 0),
    ],
)
def test_a_job_is_written_by_as_many_tasks_as_there_are_cores(properties, tasks):
    assert write_tasks(read_properties(properties)) == tasks


def test_a_file_url_is_a_path(spark, tmp_path):
    sink = open_sink(spark, Path(f"file:{tmp_path}/with blank"))
    write_and_commit(spark, sink, batch(shard(), None, 3))
    assert numbers(tmp_path / "with blank", shard()) == [1, 2, 3]


def test_a_path_that_is_a_file_is_refused(spark, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkRefused, match="can't be written"):
        open_sink(spark, tmp_path / "file")


def test_a_full_disk_fails_the_batch_and_commits_nothing(spark, tmp_path, monkeypatch):
    sink = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    staged = sink.write(frame(spark, [cut]), [cut])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(chain_files, "sync_file", full)
    with pytest.raises(OSError, match="disk is full"):
        sink.commit(staged, cut)
    monkeypatch.undo()
    assert sink.mark(shard()) is None
    sink.commit(staged, cut)
    assert numbers(tmp_path, shard()) == list(range(1, 11))


def test_a_full_disk_under_spark_is_told_apart_from_its_other_failures(spark, tmp_path):
    sink = open_sink(spark, tmp_path)
    cut = batch(shard(), None, 10)
    text = "No space left on device"
    broken = frame(spark, [cut]).where(F.raise_error(F.lit(text)).isNotNull())
    with pytest.raises(OSError, match="the disk is full; nothing was committed"):
        sink.write(broken, [cut])
    assert not list((tmp_path / "_staging").rglob("job-*"))


def test_a_shared_directory_passes_the_probe_of_a_remote_server(spark, tmp_path):
    sink = make_sink(
        read_properties(
            {
                "spark.sink": "parquet",
                "spark.sink.path": str(tmp_path),
                "spark.remote": "sc://host",
            }
        ),
        "app",
    )
    sink.prepare(spark)
    write_and_commit(spark, sink, batch(shard(), None, 3))
    assert numbers(tmp_path, shard()) == [1, 2, 3]


def test_a_directory_that_executors_do_not_see_is_refused(spark, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(chain_files, "spark_url", lambda path: f"file://{elsewhere}{path}")
    sink = make_sink(
        read_properties(
            {
                "spark.sink": "parquet",
                "spark.sink.path": str(tmp_path),
                "spark.remote": "sc://host",
            }
        ),
        "app",
    )
    with pytest.raises(SinkRefused, match="don't share that directory"):
        sink.prepare(spark)


def test_a_rename_that_overwrites_is_refused(spark, tmp_path, monkeypatch):
    def overwriting(source, target):
        if target.exists():
            target.rename(f"{target}.old")
        source.rename(target)

    monkeypatch.setattr(chain_files, "publish", overwriting)
    with pytest.raises(SinkRefused, match="a rename overwrites"):
        open_sink(spark, tmp_path)
