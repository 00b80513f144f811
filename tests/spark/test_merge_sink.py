"""Upserts into a real Delta table: any cut, any repeat, the same table."""

from __future__ import annotations

import pathlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import functions as F

from mld.spark.calls import GivenUp, call_within
from mld.spark.errors import BatchFailed, SinkRefused, SparkConfigError
from mld.spark.sinks import make_sink
from tests.spark.conftest import spark_config
from tests.spark.sink_server import batch, frame, open_sink, shard, write

pytestmark = pytest.mark.spark


@pytest.fixture
def delta(sink_session):
    return sink_session


def sink_of(delta, path, **more):
    return open_sink(delta, sink="merge", sink__path=str(path), sink__key="key", **more)


def keyed(delta, batches):
    """Five keys a shard; each record replaces the one of its key."""
    key = F.concat(F.col("shard_id"), F.lit("/"), (F.col("n") % 5).cast("string"))
    return frame(delta, batches, key=key)


def merge(delta, sink, *batches, drop=()):
    sink.write(keyed(delta, batches).drop(*drop), batches)


def table(delta, path) -> dict[str, int]:
    found = delta.read.format("delta").load(str(path)).select("key", "n").collect()
    assert len({row.key for row in found}) == len(found)
    return {row.key[-3:]: row.n for row in found}


def last(shard_digit: int, to: int) -> dict[str, int]:
    return {f"{shard_digit}/{n % 5}": n for n in range(max(1, to - 4), to + 1)}


def test_a_redelivery_cut_anew_leaves_the_same_table_and_two_shards_are_one_job(delta, tmp_path):
    path = tmp_path / "t"
    merge(delta, sink_of(delta, path), batch(shard(0), 0, 10), batch(shard(1), 0, 7))
    again = sink_of(delta, path)
    merge(delta, again, batch(shard(0), 0, 16), batch(shard(1), 3, 7))
    assert table(delta, path) == last(0, 16) | last(1, 7)
    # A worker that does not know yet that it has lost the shard writes its old batch.
    merge(delta, again, batch(shard(0), 0, 10))
    assert table(delta, path) == last(0, 16) | last(1, 7)


def test_without_position_columns_the_zombie_wins_until_the_owner_writes_again(delta, tmp_path):
    path, drop = tmp_path / "t", ("sequence_number", "sub_sequence_number")
    sink = sink_of(delta, path)
    for one in (batch(shard(), 0, 5), batch(shard(), 5, 10), batch(shard(), 0, 5)):
        merge(delta, sink, one, drop=drop)
    assert table(delta, path) == last(0, 5)
    merge(delta, sink, batch(shard(), 5, 10), drop=drop)
    assert table(delta, path) == last(0, 10)


def test_mode_insert_leaves_a_key_that_exists_as_it_is(delta, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(delta, path, sink__mode="insert")
    merge(delta, sink, batch(shard(), 0, 3))
    merge(delta, sink, batch(shard(), 3, 10))
    assert table(delta, path) == {"0/1": 1, "0/2": 2, "0/3": 3, "0/4": 9, "0/0": 10}


def test_what_cannot_be_merged_is_told_before_anything_is_written(delta, tmp_path):
    path, one = tmp_path / "t", batch(shard(), 0, 10)
    sink = sink_of(delta, path)
    merge(delta, sink, batch(shard(), 0, 5))
    twice = keyed(delta, [one]).drop("sequence_number")
    with pytest.raises(BatchFailed, match="occurs twice; keep the columns sequence_number"):
        sink.write(twice, [one])
    nulls = keyed(delta, [one]).withColumn("key", F.expr("nullif(n, 7)").cast("string"))
    with pytest.raises(BatchFailed, match="a null in the key"):
        sink.write(nulls, [one])
    with pytest.raises(BatchFailed, match=r"no column fee; .*mergeSchema=true"):
        sink.write(keyed(delta, [one]).withColumn("fee", F.lit(1)), [one])
    with pytest.raises(BatchFailed, match=r"lack key of spark\.sink\.key"):
        sink.write(frame(delta, [one]), [one])
    with pytest.raises(BatchFailed, match="returned None"):
        sink.write(None, [one])
    assert table(delta, path) == last(0, 5)


def test_new_columns_are_let_in_on_demand(delta, tmp_path):
    path, one = tmp_path / "t", batch(shard(), 0, 10)
    sink = sink_of(delta, path, sink__options__mergeSchema="true")
    merge(delta, sink, batch(shard(), 0, 5))
    sink.write(keyed(delta, [one]).withColumn("fee", F.col("n")), [one])
    found = delta.read.format("delta").load(str(path)).select("n", "fee").collect()
    assert sorted((row.n, row.fee) for row in found) == [(n, n) for n in range(6, 11)]


def test_a_table_without_the_key_is_refused_at_the_start(delta, tmp_path):
    path = tmp_path / "t"
    write(delta, open_sink(delta, sink="delta", sink__path=str(path)), batch(shard(), 0, 2, 1))
    with pytest.raises(SinkRefused, match=r"no column key of spark\.sink\.key"):
        sink_of(delta, path)


def test_the_key_has_to_be_named():
    with pytest.raises(SparkConfigError, match=r"spark\.sink\.key"):
        make_sink(spark_config(sink="merge", sink__path="x"), "app")


def test_workers_that_merge_at_once_come_between_each_other_and_both_get_there(delta, tmp_path):
    path = tmp_path / "t"
    sinks = [sink_of(delta, path) for _ in range(2)]
    start, failures = threading.Barrier(2), []

    def run(number: int) -> None:
        start.wait()
        try:
            merge(delta, sinks[number], batch(shard(number), 0, 8))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert table(delta, path) == last(0, 8) | last(1, 8)


def held(rows, folder: str):
    """The same rows, whose computation says that it has begun and waits until it is let go."""

    @F.udf("boolean")
    def wait(_):
        (pathlib.Path(folder) / "begun").touch()
        while not (pathlib.Path(folder) / "free").exists():
            time.sleep(0.05)
        return True

    return rows.where(wait("n"))


@pytest.mark.parametrize("drop", [(), ("sequence_number", "sub_sequence_number")])
def test_a_merge_that_was_given_up_cannot_commit_behind_a_later_one(delta, tmp_path, drop):
    """The server goes on with it, as if the interrupt had been lost."""
    path, conflicts = tmp_path / "t", []
    sink = sink_of(delta, path)
    sink._pause = conflicts.append
    merge(delta, sink, batch(shard(), 0, 2), drop=drop)
    old, longer = batch(shard(), 2, 4), batch(shard(), 2, 7)
    rows = held(keyed(delta, [old]).drop(*drop), str(tmp_path))
    with ThreadPoolExecutor() as pool:
        is_over = threading.Event()
        first = pool.submit(
            call_within,
            120,
            lambda: sink.write(rows, [old]),
            name="old",
            is_wanted=lambda: not is_over.is_set(),
        )
        while not (tmp_path / "begun").exists():
            assert not first.done(), first.exception()
            time.sleep(0.05)
        is_over.set()
        merge(delta, sink, longer, drop=drop)
        (tmp_path / "free").touch()
        assert isinstance(first.exception(120), GivenUp)
    assert len(conflicts) == 1
    assert table(delta, path) == last(0, 7)
