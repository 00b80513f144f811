"""The function for each shard by itself, with a real Spark: whose rows it sees, and what it may return."""

import pytest
from pyspark.sql import functions as f

from mld.spark.errors import BatchFailed
from mld.spark.model import MicroBatch
from mld.spark.plans.each_shard import ShardCaller
from mld.spark.rows.handoff import HandOff
from tests.spark.job_kit import batch, caller

pytestmark = pytest.mark.spark

WHOLE = MicroBatch(
    tuple(
        batch(f"shard-{n}", *(b'{"id":%d,"amount":%d}' % (k, n) for k in range(n)))
        for n in range(1, 4)
    )
)


def call(spark, function, handoff=None):
    ask = caller(function, ShardCaller, handoff)
    frame = ask.call(spark, WHOLE)
    ask.release(WHOLE)  # the rows that it made are there whatever becomes of what it was given
    return frame


def test_an_aggregate_is_that_of_one_shard(spark, tmp_path):
    def process(df, ctx):
        return df.agg(f.count("*").alias("n"), f.sum("amount").alias("sum")).withColumn(
            "shard", f.lit(ctx.shard_id)
        )

    found = call(spark, process, HandOff(tmp_path / "rows", least_bytes=0)).collect()
    assert sorted((row.shard, row.n, row["sum"]) for row in found) == [
        ("shard-1", 1, 1.0),
        ("shard-2", 2, 4.0),
        ("shard-3", 3, 9.0),
    ]


def test_a_name_in_the_session_means_the_shards_own_rows(spark):
    """The views of all shards have one name, and so has the function in SQL."""

    def process(df, ctx):
        df.createOrReplaceTempView("rows")
        number = int(ctx.shard_id[-1])
        ctx.spark.udf.register("tagged", lambda: number, "int")
        return ctx.spark.sql("SELECT shard_id, tagged() AS tag, count(*) AS n FROM rows GROUP BY 1")

    found = call(spark, process).collect()
    assert sorted(map(tuple, found)) == [("shard-1", 1, 1), ("shard-2", 2, 2), ("shard-3", 3, 3)]


@pytest.mark.parametrize(
    ("third", "why"),
    [
        (lambda df: df.select("id"), "lack the column amount, which those of shard-1 have"),
        (lambda df: df.select("id", f.lit("7").alias("amount")), "amount is string, but double"),
        (
            lambda df: df.select("id", "amount", f.lit(1).alias("more")),
            "have the column more, which those of shard-1 lack",
        ),
    ],
)
def test_columns_that_differ_between_two_shards_are_named_with_the_shard(spark, third, why):
    def process(df, ctx):
        return third(df) if ctx.shard_id == "shard-3" else df.select("id", "amount")

    with pytest.raises(BatchFailed, match=f"^shard-3: .*{why}"):
        call(spark, process)


def test_rows_that_fail_are_told_with_their_shard(spark, caplog):
    def process(df, ctx):
        return df.select(f.expr("1 / (id - 1)").alias("n"))

    with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
        call(spark, process)
    assert "stream.shard-2@start: its rows can't be computed" in caplog.text


def test_a_session_that_the_app_has_made_for_itself_changes_nothing(spark, spark_server):
    """pyspark gives what it has computed to the session that was made last."""
    address = f"{spark_server.url}/;token={spark_server.token}"
    other = type(spark).builder.remote(address).create()
    try:
        found = call(spark, lambda df, ctx: df.select("id", "shard_id"))
        assert found.count() == 6
    finally:
        other.client.release_session()
