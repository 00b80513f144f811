"""Records of which a row-wise function fails, from the engine to both tables, with a real Spark."""

import os
from collections import Counter
from dataclasses import replace

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

from kcl_mld.spark.config import Facts
from kcl_mld.spark.errors import BatchFailed, SparkConfigError
from kcl_mld.spark.parts import SparkService
from kcl_mld.spark.registration import Pipeline
from tests.spark.conftest import spark_config
from tests.spark.job_kit import batch, submit
from tests.unit.spark.shard_kit import WAIT_S

pytestmark = pytest.mark.spark

FACTS = Facts("app", "stream")


def process(df, ctx):
    """Fails in two ways: in a Python worker, and in Spark."""

    @f.udf("long")
    def checked(number):
        if number == 13:
            raise ValueError("an unlucky number")
        return number

    return df.select(checked("id").alias("id"), f.col("text").cast("int").alias("n"), "shard_id")


def dying(df, ctx):
    """Ends the Python worker that meets the second record of a shard."""

    @f.udf("long")
    def checked(number):
        if number == 2:
            os._exit(9)
        return number

    return df.select(checked("id").alias("id"), "shard_id")


@pytest.fixture
def open_service(spark_server, tmp_path):
    """Makes services over the same two tables, as processes that follow each other."""
    opened = []

    def make(*, function=process, is_rowwise=True, **more):
        given = {
            "sink": "delta",
            "sink__path": str(tmp_path / "out"),
            "function__onError": "deadletter",
            "function__deadletter__path": str(tmp_path / "letters"),
        }
        config = spark_config(**given | more)
        pipeline = Pipeline(function, "id bigint, text string", "json", is_rowwise=is_rowwise)
        address = (spark_server.url, spark_server.token)
        opened.append(SparkService(config, FACTS, pipeline, lambda: address))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def records(shard, *texts):
    """The n-th has the id n and a text that may be no number."""
    made = (b'{"id":%d,"text":"%b"}' % (n, text) for n, text in enumerate(texts, 1))
    return batch(shard, *made)


def run(service, *batches):
    futures = [submit(service, each) for each in batches]
    return [each.exception(WAIT_S) for each in futures]


def counts(path, *columns):
    rows = DeltaTable(path).to_pyarrow_table().select(columns).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


def test_what_fails_is_set_aside_once_and_the_rest_is_written_once_over_a_crash(
    open_service, tmp_path
):
    """The process dies between the two commits, and the records come again, cut anew."""
    one = records("shard-1", *[b"7"] * 12, b"8", b"x", b"9")
    two = records("shard-2", b"1", b"y")
    first = open_service()

    def die(*_):
        raise BatchFailed("killed")

    first._sink.commit_all = die
    assert all("killed" in str(error) for error in run(first, one, two))
    assert counts(tmp_path / "letters", "shard_id", "sequence_number").total() >= 1

    part = replace(one, rows=one.rows[:13], to=one.rows[12].position)
    rest = replace(one, rows=one.rows[13:], after=part.to)
    assert run(open_service(), part, two, rest) == [None] * 3
    expected = {("shard-1", str(n)) for n in (13, 14)} | {("shard-2", "2")}
    assert counts(tmp_path / "letters", "shard_id", "sequence_number") == Counter(expected)
    written = {("shard-1", n) for n in (*range(1, 13), 15)} | {("shard-2", 1)}
    assert counts(tmp_path / "out", "shard_id", "id") == Counter(written)
    errors = " ".join(text for (text,) in counts(tmp_path / "letters", "error"))
    assert "ValueError: an unlucky number" in errors
    assert "CAST_INVALID_INPUT" in errors


def test_a_record_that_ends_its_python_worker_is_set_aside_once_all_tries_have_failed(
    open_service, tmp_path
):
    """As the crash of a library does; with no try left, for a lack of memory passes."""
    one, two = records("shard-1", *[b"1"] * 3), records("shard-2", *[b"1"] * 3)
    service = open_service(function=dying, retry__attempts="2")
    assert run(service, one, two) == [None, None]
    expected = {("shard-1", "2"), ("shard-2", "2")}
    assert counts(tmp_path / "letters", "shard_id", "sequence_number") == Counter(expected)
    written = {(shard, n) for shard in ("shard-1", "shard-2") for n in (1, 3)}
    assert counts(tmp_path / "out", "shard_id", "id") == Counter(written)
    errors = {text for (text,) in counts(tmp_path / "letters", "error")}
    assert all("Python worker exited unexpectedly" in text for text in errors)


def test_an_app_whose_records_cannot_be_told_apart_is_refused_at_its_start(open_service):
    with pytest.raises(SparkConfigError, match=r"write run\(process, rowwise=True\)"):
        open_service(is_rowwise=False)
