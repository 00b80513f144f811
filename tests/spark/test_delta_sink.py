"""Appends to a real Delta table: each batch once, whatever is killed in between."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
from pyspark.sql import functions as F

from mld.spark.errors import BatchFailed, MissingPart, SinkRefused, SparkConfigError
from mld.spark.intents.file import FileIntentStore
from mld.spark.model import WriteIntent
from mld.spark.shard.resume import resume_intent
from mld.spark.sinks import make_sink
from tests.spark.conftest import spark_config
from tests.spark.sink_server import BASE, batch, frame, open_sink, shard, write

pytestmark = pytest.mark.spark


@pytest.fixture
def delta(sink_session):
    return sink_session


def sink_of(delta, path, **more):
    return open_sink(delta, sink="delta", sink__path=str(path), **more)


def rows(delta, path) -> Counter:
    table = delta.read.format("delta").load(str(path))
    return Counter((row.shard_id[-1], row.n) for row in table.select("shard_id", "n").collect())


def expected(**counts: int) -> Counter:
    return Counter((name[1:], n) for name, to in counts.items() for n in range(1, to + 1))


def test_a_batch_that_was_written_but_not_checkpointed_is_skipped_when_it_is_repeated(
    delta, tmp_path
):
    path = tmp_path / "t"
    write(delta, sink_of(delta, path), batch(shard(), 0, 10, 1))
    # The process dies here, before the checkpoint; its successor repeats the intent.
    again = sink_of(delta, path)
    write(delta, again, batch(shard(), 0, 10, 1))
    write(delta, again, batch(shard(), 10, 15, 2))
    assert rows(delta, path) == expected(s0=15)


def test_a_redelivery_that_is_cut_anew_is_written_once_by_its_intent(delta, tmp_path):
    """Killed after the intent, or after the write; then records come in other portions."""
    path, store = tmp_path / "t", FileIntentStore(str(tmp_path / "intents"))
    checkpoint, delivered = None, 0
    for is_written in (True, False, True, True, False):
        plan = resume_intent(shard(), checkpoint, str(checkpoint), store.load(shard()), "n0")
        begin = plan.after.sequence - BASE if plan.after else 0
        delivered = max(delivered, begin) + 7
        to = plan.forced_to.sequence - BASE if plan.forced_to else delivered
        one = batch(shard(), begin, to, plan.next_number)
        one = replace(one, app_id=plan.app_id)
        store.store(shard(), WriteIntent(plan.next_number, one.after, one.to, plan.app_id))
        if is_written:
            write(delta, sink_of(delta, path), one)
        if is_written and plan.forced_to:
            checkpoint = one.to
    plan = resume_intent(shard(), checkpoint, str(checkpoint), store.load(shard()), "n0")
    begin, to = plan.after.sequence - BASE, plan.forced_to.sequence - BASE
    last = replace(batch(shard(), begin, to, plan.next_number), app_id=plan.app_id)
    write(delta, sink_of(delta, path), last)
    assert rows(delta, path) == expected(s0=plan.forced_to.sequence - BASE)


def test_after_a_checkpoint_and_a_new_owner_the_counter_goes_on(tmp_path):
    store = FileIntentStore(str(tmp_path))
    first = batch(shard(), 0, 5, 3)
    store.store(shard(), WriteIntent(3, first.after, first.to, first.app_id))
    owner = FileIntentStore(str(tmp_path))
    plan = resume_intent(shard(), first.to, str(first.to), owner.load(shard()), "other")
    assert (plan.next_number, plan.app_id) == (4, first.app_id)


def test_an_empty_batch_records_its_number(delta, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(delta, path)
    write(delta, sink, batch(shard(), 0, 5, 1))
    write(delta, sink, batch(shard(), 5, 9, 2), keep="false")
    write(delta, sink, batch(shard(), 5, 9, 2))  # skipped, because 2 is known
    write(delta, sink, batch(shard(), 9, 12, 3))
    assert sorted(n for _, n in rows(delta, path)) == [1, 2, 3, 4, 5, 10, 11, 12]


def test_a_batch_without_a_frame_and_without_rows_writes_nothing(delta, tmp_path):
    sink = sink_of(delta, tmp_path / "t")
    sink.write(None, [batch(shard(), 5, 5, 1)])
    assert not (tmp_path / "t").exists()
    with pytest.raises(BatchFailed, match="returned None"):
        sink.write(None, [batch(shard(), 5, 6, 1)])


def test_first_batches_of_workers_that_make_the_table_at_once_are_all_there(delta, tmp_path):
    path = tmp_path / "t"
    sinks = [sink_of(delta, path) for _ in range(4)]
    failures: list[Exception] = []
    start = threading.Barrier(4)

    def run(number: int) -> None:
        start.wait()
        try:
            write(delta, sinks[number], batch(shard(number), 0, 6, 1))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=partial(run, n)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(delta, path) == expected(s0=6, s1=6, s2=6, s3=6)


def test_two_writers_of_the_same_number_leave_one_copy(delta, tmp_path):
    path = tmp_path / "t"
    one, two = sink_of(delta, path), sink_of(delta, path)
    write(delta, one, batch(shard(), 0, 3, 1))
    start = threading.Barrier(2)
    failures: list[Exception] = []

    def run(sink) -> None:
        start.wait()
        try:
            write(delta, sink, batch(shard(), 3, 9, 2))
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=run, args=(sink,)) for sink in (one, two)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert rows(delta, path) == expected(s0=9)


def test_a_table_that_is_deleted_and_replayed_gets_all_rows_under_a_new_nonce(delta, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(delta, path)
    write(delta, sink, batch(shard(), 0, 4, 1))
    write(delta, sink, batch(shard(), 4, 8, 2))
    shutil.rmtree(path)
    fresh = sink_of(delta, path)
    write(delta, fresh, batch(shard(), 0, 8, 1, nonce="n1"))
    assert rows(delta, path) == expected(s0=8)
    # The same history once more on purpose: a new nonce is never skipped.
    write(delta, fresh, batch(shard(), 0, 8, 1, nonce="n2"))
    assert set(rows(delta, path).values()) == {2}


def test_a_table_by_name_counts_as_a_path_does(delta):
    sink = open_sink(delta, sink="delta", sink__table="counted")
    for _ in range(2):
        write(delta, sink, batch(shard(), 0, 5, 1))
    write(delta, open_sink(delta, sink="delta", sink__table="counted"), batch(shard(), 5, 8, 2))
    assert delta.table("counted").count() == 8
    assert "_kcl_batch" not in delta.table("counted").columns


def test_new_columns_are_refused_until_they_are_let_in(delta, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(delta, path)
    write(delta, sink, batch(shard(), 0, 2, 1))
    with pytest.raises(BatchFailed, match=r"batch 2 of .*mergeSchema=true"):
        write(delta, sink, batch(shard(), 2, 4, 2), fee=F.lit(1.5))
    open_door = sink_of(delta, path, sink__options__mergeSchema="true")
    write(delta, open_door, batch(shard(), 2, 4, 2), fee=F.lit(1.5))
    assert rows(delta, path) == expected(s0=4)
    assert "fee" in delta.read.format("delta").load(str(path)).columns


def test_another_type_is_refused(delta, tmp_path):
    sink = sink_of(delta, tmp_path / "t")
    write(delta, sink, batch(shard(), 0, 2, 1))
    with pytest.raises(BatchFailed, match="do not fit the table"):
        write(delta, sink, batch(shard(), 2, 4, 2), n=F.lit("x"))


def test_partitions_of_a_new_table_come_from_the_options(delta, tmp_path):
    path = tmp_path / "t"
    sink = sink_of(delta, path, sink__options__partitionBy="shard_id")
    write(delta, sink, batch(shard(), 0, 2, 1))
    write(delta, sink, batch(shard(1), 0, 2, 1))
    assert len(list(path.glob("shard_id=*"))) == 2


def test_a_table_of_another_format_is_refused(delta):
    delta.range(1).write.format("parquet").saveAsTable("plain")
    with pytest.raises(SinkRefused, match="format parquet"):
        open_sink(delta, sink="delta", sink__table="plain")


def test_a_schema_that_is_not_there_is_refused(delta):
    sink = open_sink(delta, sink="delta", sink__table="nowhere.rows")
    with pytest.raises(SinkRefused, match="nowhere"):
        write(delta, sink, batch(shard(), 0, 2, 1))


def test_a_batch_without_a_number_is_refused(delta, tmp_path):
    one = batch(shard(), 0, 2)
    with pytest.raises(BatchFailed, match="needs a batch with a number"):
        sink_of(delta, tmp_path / "t").write(frame(delta, [one]), [one])


@pytest.mark.parametrize("more", [{}, {"sink__path": "x", "sink__table": "y"}])
def test_path_and_table_exclude_each_other(more):
    with pytest.raises(SparkConfigError, match=r"spark\.sink\.path or spark\.sink\.table"):
        make_sink(spark_config(sink="delta", **more), "app")


def test_a_server_without_delta_is_told_what_it_lacks(spark, tmp_path):
    with pytest.raises(MissingPart, match=r"io\.delta:delta-spark_4\.2_2\.13:4\.4\.0"):
        sink_of(spark, tmp_path / "t")
    with pytest.raises(MissingPart, match=r"DeltaSparkSessionExtension"):
        open_sink(spark, sink="delta", sink__table="rows")


def test_a_function_that_writes_itself_is_idempotent_by_the_identity_of_its_batch(delta, tmp_path):
    path = tmp_path / "t"
    sink = open_sink(delta, sink="foreach")

    def function(one) -> None:
        writer = frame(delta, [one]).drop("_kcl_batch").write.format("delta").mode("append")
        identity = {"txnAppId": one.app_id, "txnVersion": str(one.number)}
        writer.options(**identity).save(str(path))

    for one in (batch(shard(), 0, 4, 1), batch(shard(), 0, 4, 1), batch(shard(), 4, 6, 2)):
        function(one)
        staged = sink.write(None, [one])
        sink.commit(staged, one)
        sink.discard(staged)
    assert rows(delta, path) == expected(s0=6)
