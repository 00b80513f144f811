"""Several tables from one function, from the engine to the readers, with a real Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f

from kcl_mld.spark.config import Facts
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.parts import SparkService
from kcl_mld.spark.registration import Pipeline
from kcl_mld.spark.table.marked_table import MarkedTable
from tests.spark.conftest import spark_config
from tests.spark.job_kit import batch, submit
from tests.unit.spark.shard_kit import WAIT_S

pytestmark = pytest.mark.spark

CALLS: list[int] = []


def split(df, ctx):
    """Even numbers to the one, odd ones to the other; nothing for an output without rows."""
    CALLS.append(ctx.count)
    rows = df.select("id", "shard_id")
    found = {"even": rows.where("id % 2 = 0")}
    if ctx.count > 1:
        found["odd"] = rows.where("id % 2 = 1").withColumn("half", f.col("id") / 2)
    return found


def unlucky(df, ctx):
    text = f.when(df.id == 13, "no number").otherwise(df.id.cast("string"))
    checked = text.cast("bigint")
    rows = df.select(checked.alias("id"), "shard_id")
    return {"even": rows.where("id % 2 = 0"), "odd": rows.where("id % 2 = 1")}


@pytest.fixture
def open_service(spark_server, tmp_path):
    """Makes services over the same tables, as processes that follow each other."""
    opened = []

    def make(function=split, **more):
        given = {"sink__path": str(tmp_path / "out"), "sink__outputs": "odd, even", **more}
        pipeline = Pipeline(function, "id bigint", "json", is_rowwise=True)
        address = (spark_server.url, spark_server.token)
        opened.append(
            SparkService(spark_config(**given), Facts("app", "stream"), pipeline, lambda: address)
        )
        CALLS.clear()
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def records(shard, count):
    return batch(shard, *(b'{"id":%d}' % n for n in range(1, count + 1)))


def run(service, *batches):
    for each in batches:
        service._sink.mark(each.shard)
    futures = [submit(service, each) for each in batches]
    return [each.exception(WAIT_S) for each in futures]


def rows(path, *columns):
    table = DeltaTable(path).to_pyarrow_table(columns=list(columns))
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def expected(last, remainder, shards=("shard-1", "shard-2"), without=()):
    return Counter(
        (n, shard)
        for n in range(1, last + 1)
        for shard in shards
        if n % 2 == remainder and n not in without
    )


def test_each_output_is_a_table_of_its_own(open_service, tmp_path):
    service = open_service(batch__coalesceWindow="1s")
    assert run(service, records("shard-1", 9), records("shard-2", 9)) == [None, None]
    assert CALLS == [18]
    assert rows(tmp_path / "out" / "even", "id", "shard_id") == expected(9, 0)
    assert rows(tmp_path / "out" / "odd", "id", "shard_id") == expected(9, 1)
    assert DeltaTable(tmp_path / "out" / "odd").schema().to_arrow().names == [
        *("id", "shard_id", "half")
    ]


def test_an_output_that_the_function_leaves_out_has_no_rows(open_service, tmp_path):
    service = open_service()
    assert run(service, records("shard-1", 1)) == [None]
    assert DeltaTable(tmp_path / "out" / "even").count() == 0
    assert not (tmp_path / "out" / "odd" / "_delta_log").exists()


def test_the_function_is_not_called_again_for_what_one_table_has(
    open_service, tmp_path, monkeypatch
):
    """The second table can't be written; each shard goes to another host."""
    service = open_service(batch__coalesceWindow="1s")
    tried = MarkedTable._tried

    def failing(self, table, files, numbers):
        if Path(self._name).name == "odd":
            return OSError("the disk is read-only")
        return tried(self, table, files, numbers)

    ours = records("shard-1", 9), records("shard-2", 9)
    with monkeypatch.context() as patch:
        patch.setattr(MarkedTable, "_tried", failing)
        errors = run(service, *ours)
    assert all(isinstance(error, BatchFailed) for error in errors)
    assert "in some of its tables and not yet in all" in str(errors[0])
    assert CALLS == [18]
    assert rows(tmp_path / "out" / "even", "id", "shard_id") == expected(9, 0)
    assert DeltaTable(tmp_path / "out" / "odd").count() == 0
    for each in ours:
        assert open_service()._sink.mark(each.shard) == each.to
        assert CALLS == []
    assert rows(tmp_path / "out" / "odd", "id", "shard_id") == expected(9, 1)
    assert rows(tmp_path / "out" / "even", "id", "shard_id") == expected(9, 0)


def test_a_record_that_fails_is_set_aside_of_both(open_service, tmp_path):
    letters = tmp_path / "letters"
    service = open_service(
        unlucky, function__onError="deadletter", function__deadletter__path=str(letters)
    )
    assert run(service, records("shard-1", 20)) == [None]
    for name, remainder in (("even", 0), ("odd", 1)):
        found = rows(tmp_path / "out" / name, "id", "shard_id")
        assert found == expected(20, remainder, ("shard-1",), without=(13,))
    assert rows(letters, "sequence_number") == {("13",): 1}


@pytest.mark.parametrize(
    ("function", "settings", "why"),
    [
        (lambda df, ctx: df, {}, "is of type DataFrame; spark.sink.outputs names odd, even: retur"),
        (lambda df, ctx: {"evn": df}, {}, "has the output 'evn', but spark.sink.outputs names odd"),
        (split, {"sink__outputs": ""}, "a dict; several outputs need spark.sink=delta and their"),
    ],
)
def test_what_does_not_fit_the_names_fails_the_batch(open_service, function, settings, why):
    (error,) = run(open_service(function, **settings), records("shard-1", 3))
    assert why in str(error)
