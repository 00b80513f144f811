"""Merged plans give what united plans give, batch by batch, and plans that would mix are not merged."""

import pandas as pd
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import Window, functions

from mld.spark.jobs.engine import Engine
from mld.spark.model import BATCH_COLUMN
from tests.spark.conftest import spark_config
from tests.spark.job_kit import batch, planner, some

pytestmark = pytest.mark.spark


def own_rows(df, ctx):
    return df.where("amount > 1").select("id", "amount", df.sequence_number, df["shard_id"])


def grouped(df, ctx):
    return df.groupBy("id").agg(
        functions.count("*").alias("n"), functions.sum("amount").alias("total")
    )


def windowed(df, ctx):
    order = Window.partitionBy("id").orderBy("amount")
    return (
        df.withColumn("place", functions.row_number().over(order)).where("place = 1").select("id")
    )


def deduplicated(df, ctx):
    return df.select("id").dropDuplicates()


def by_key(df, ctx):
    return df.dropDuplicates(["id"]).select("id")


def everything(df, ctx):
    return df.select("*").drop("data").sort("amount")


def joined(df, ctx):
    names = df.sparkSession.createDataFrame([(0, "zero"), (1, "one")], "id int, name string")
    return df.join(functions.broadcast(names), "id").select("name", "amount")


def named_by_shard(df, ctx):
    return df.select("id", functions.lit(ctx.shard_id).alias("own"))


def total(df, ctx):
    return df.agg(functions.count("*").alias("n"))


def first_two(df, ctx):
    return df.orderBy("amount").limit(2).select("amount")


def with_itself(df, ctx):
    return df.select("id").join(df.select("id", "amount"), "id")


def all_columns_as_text(df, ctx):
    return df.select("id", "amount").selectExpr("*", "amount * 2 as twice")


def counted_as_text(df, ctx):
    return df.groupBy("id").agg(functions.expr("count(*) as n"), functions.count("*").alias("m"))


def window_as_text(df, ctx):
    place = "row_number() OVER (partition by id order by amount) as place"
    return df.selectExpr("id", "amount", place).where("place = 1")


def share_as_text(df, ctx):
    return df.withColumn("share", functions.expr("amount / sum(amount) over ()")).select("share")


def packed(df, ctx):
    return df.select("id", "amount").select(functions.to_json(functions.struct("*")).alias("all"))


def packed_beside(df, ctx):
    return df.select("id", "amount").withColumn("all", functions.struct("*"))


def packed_as_text(df, ctx):
    return df.select("id", "amount").selectExpr("to_json(struct( *)) as all")


def packed_alias(df, ctx):
    return df.select("id").alias("a").select(functions.struct("a.*").alias("all"))


def packed_alias_as_text(df, ctx):
    return df.select("id").alias("a").selectExpr("struct(a.*) as all")


def distinct_rows(df, ctx):
    return df.select("id").groupBy("id").agg(functions.count_distinct("*").alias("n"))


def own_columns_by_pattern(df, ctx):
    return df.select("id", "amount").select(df.colRegex("`.*`"))


def some_columns_as_text(df, ctx):
    return df.select("id", "amount", "data").selectExpr("* except (data)")


def packed_behind_a_comment(df, ctx):
    return df.select("id", "amount").selectExpr("to_json(struct(/* all */ *)) as all")


def numbered(df, ctx):
    number = functions.monotonically_increasing_id() % functions.lit(2**33)
    return df.where(number < 2).select("id", "amount")


def sampled(df, ctx):
    return df.where(functions.rand(7) < 0.5).select("id", "amount")


def sampled_as_text(df, ctx):
    return df.where("rand(7) < 0.5").select("id", "amount")


def by_partition(df, ctx):
    return df.select("id", functions.spark_partition_id().alias("place"))


def all_columns_of_the_frame(df, ctx):
    return df.select(df["*"])


def columns_of_another_frame(df, ctx):
    names = df.sparkSession.createDataFrame([(0, "zero"), (1, "one")], "id int, name string")
    return df.join(names, df.id == names.id).select(names["*"]).distinct()


def far_from_the_mean(df, ctx):
    @functions.pandas_udf("double")
    def distance(amounts: pd.Series) -> pd.Series:
        return amounts - amounts.mean()

    return df.coalesce(1).select(distance("amount").alias("distance"))


def by_rows_of_python(df, ctx):
    return df.select(functions.udf(lambda amount: amount * 2, "double")("amount").alias("twice"))


def counting_rows(df, ctx):
    twice = functions.udf(lambda amount: amount * 2, "double").asNondeterministic()
    return df.select(twice("amount").alias("twice"))


def filled(df, ctx):
    return df.select("id", "amount", "partition_key").na.fill("none").na.fill(0)


def renamed(df, ctx):
    return df.withColumnRenamed("id", "ID").select("id").withColumn("Id", functions.lit(1))


def passed_to_sql(df, ctx):
    return df.sparkSession.sql("select id, shard_id from {rows} where amount > 1", rows=df)


def elsewhere(df, ctx):
    """Rows that are not the batch's, whatever that is good for."""
    df.sparkSession.range(3).createOrReplaceTempView("elsewhere")
    return df.sparkSession.table("elsewhere")


MERGED = [
    *(own_rows, grouped, windowed, deduplicated, by_key, everything, joined),
    *(all_columns_as_text, counted_as_text, by_rows_of_python, filled, renamed),
]
UNITED = [
    *(named_by_shard, total, first_two, with_itself, passed_to_sql, elsewhere),
    *(window_as_text, share_as_text, packed, packed_beside, packed_as_text, packed_alias),
    *(packed_alias_as_text, distinct_rows, own_columns_by_pattern),
    *(some_columns_as_text, packed_behind_a_comment, numbered, sampled, sampled_as_text),
    *(by_partition, all_columns_of_the_frame, columns_of_another_frame, far_from_the_mean),
    counting_rows,
]


def rows_of(spark, ask, batches):
    planned = [ask.plan(spark, each) for each in batches]
    frame = ask.unite(spark, planned)
    ours = [name for name in frame.columns if name != BATCH_COLUMN]
    return sorted(str(tuple(row)) for row in frame.select(BATCH_COLUMN, *sorted(ours)).collect())


@pytest.mark.parametrize("function", [*MERGED, *UNITED])
def test_one_plan_for_all_shards_gives_the_rows_of_a_plan_for_each(spark, function):
    """Invariant 21, by Spark itself; the empty batch is one of them."""
    batches = [some("a"), some("b", 4), batch("c")]
    together = rows_of(spark, planner(function), batches)
    alone = [row for each in batches for row in rows_of(spark, planner(function), [each])]
    assert together == sorted(alone)
    assert together


@pytest.mark.parametrize("function", [*MERGED, *UNITED])
def test_only_plans_that_keep_the_batches_apart_are_merged(spark, function, monkeypatch):
    ask = planner(function)
    planned = [ask.plan(spark, each) for each in (some("a"), some("b"))]
    monkeypatch.setattr(
        "mld.spark.plans.planner._marked", lambda planned: pytest.fail("not merged")
    )
    if function in MERGED:
        assert ask.unite(spark, planned) is not None
    else:
        with pytest.raises(pytest.fail.Exception):
            ask.unite(spark, planned)


def test_an_aggregate_in_a_projection_is_refused_by_spark_and_never_mixed(spark):
    def process(df, ctx):
        return df.select(functions.sum("amount").alias("total"))

    batches = [some("a"), some("b")]
    ask = planner(process)
    with pytest.raises(AnalysisException):
        rows_of(spark, ask, batches)
    assert ask.stop_merging()
    assert not ask.stop_merging()
    assert len(rows_of(spark, ask, batches)) == 2


def test_the_function_may_run_actions_on_its_own_rows(spark):
    seen = []

    def process(df, ctx):
        seen.append((ctx.shard_id, df.count(), df.columns[:2], ctx.count))
        return df.select("id")

    rows_of(spark, planner(process), [some("a"), some("b", 4)])
    assert seen == [
        ("a", 6, ["data", "partition_key"], 6),
        ("b", 4, ["data", "partition_key"], 4),
    ]


def test_a_column_that_is_named_like_ours_is_refused(spark):
    def process(df, ctx):
        return df.withColumn(BATCH_COLUMN, functions.lit("x"))

    for batches in ([some("a")], [some("a"), some("b")]):
        with pytest.raises(AnalysisException):
            rows_of(spark, planner(process), batches)


def typed_by_shard(df, ctx):
    """A schema that was guessed from the rows: texts here, numbers there."""
    if ctx.shard_id == "a":
        return df.sparkSession.createDataFrame([("007", "a")], "id string, shard_id string")
    return df.sparkSession.createDataFrame([(8, ctx.shard_id)], "id int, shard_id string")


def test_batches_whose_columns_have_other_types_are_written_one_by_one(spark_sessions):
    """A union would bring them to a common type: 007 would become 7."""
    sink = Noted()
    asked = planner(typed_by_shard)
    config = spark_config(sink__path="/nowhere", batch__coalesceWindow="500ms")
    engine = Engine(spark_sessions, sink, asked._pipeline, config, planner=asked)
    futures = [engine.submit(some(shard), lambda: True) for shard in "abc"]
    assert [future.exception(60) for future in futures] == [None] * 3
    engine.close()
    assert sorted((row[1:] for row in sink.rows), key=lambda row: row[1]) == [
        ("007", "a"),
        (8, "b"),
        (8, "c"),
    ]


class Noted:
    """A sink that keeps what Spark gives it, by batch."""

    coalesces, uses_intents, stages_ahead = True, False, False
    commits_together = False

    def __init__(self):
        self.rows, self.jobs = [], []

    def write(self, frame, batches):
        self.jobs.append([each.shard.shard_id for each in batches])
        self.rows += map(tuple, frame.select(BATCH_COLUMN, "id", "shard_id").collect())

    def commit(self, staged, batch):
        pass

    def discard(self, staged):
        pass


def by_view(df, ctx):
    df.where("amount > 1").createOrReplaceTempView("mine")
    return df.sparkSession.sql("select id, shard_id from mine")


def by_table(df, ctx):
    df.createOrReplaceTempView("mine")
    return df.sparkSession.table("mine").where("amount > 1").select("id", "shard_id")


def by_collected_rows(df, ctx):
    rows = [tuple(row) for row in df.where("amount > 1").select("id", "shard_id").collect()]
    few = df.sparkSession.createDataFrame(rows, "id int, shard_id string")
    few.createOrReplaceTempView("few")
    return df.sparkSession.sql("select id, shard_id from few")


def by_registered_function(df, ctx):
    shard_id = ctx.shard_id
    ctx.spark.udf.register("whose", lambda amount: shard_id)
    return df.where("amount > 1").selectExpr("id", "whose(amount) as shard_id")


def by_view_in_sql(df, ctx):
    ctx.spark.sql(f"create or replace temp view whose as select '{ctx.shard_id}' as shard_id")
    mine = df.where("amount > 1").select("id")
    return mine.crossJoin(ctx.spark.table("whose")).select("id", "shard_id")


def without_view(df, ctx):
    return df.where("amount > 1").select("id", "shard_id")


@pytest.mark.parametrize(
    "function", [by_view, by_table, by_collected_rows, by_registered_function, by_view_in_sql]
)
def test_views_of_one_name_keep_the_rows_of_their_own_batches(spark_sessions, function):
    """Invariant 21: a name in the session is everybody's, and plans look it up when they run."""
    found = []
    for each in (without_view, function):
        sink = Noted()
        asked = planner(each)
        config = spark_config(sink__path="/nowhere", batch__coalesceWindow="500ms")
        engine = Engine(spark_sessions, sink, asked._pipeline, config, planner=asked)
        futures = [engine.submit(some(shard, 5), lambda: True) for shard in "abcd"]
        assert [future.exception(60) for future in futures] == [None] * 4
        engine.close()
        found.append(sorted(sink.rows))
    assert found[0] == found[1]
    assert sink.jobs == [["a"], ["b"], ["c"], ["d"]], "what is named runs alone"


def by_common_names(df, ctx):
    spark = df.sparkSession
    spark.createDataFrame([(0, "zero"), (1, "one")], "id int, name string").createOrReplaceTempView(
        "names"
    )
    spark.udf.register("shout", lambda name: name.upper())
    spark.sql("create or replace temp view known as select id from names")
    return df.join(spark.table("known"), "id").selectExpr("id", "shout(shard_id) as shard_id")


def test_names_that_mean_the_same_to_all_batches_keep_them_together(spark_sessions):
    sink = Noted()
    asked = planner(by_common_names)
    config = spark_config(sink__path="/nowhere", batch__coalesceWindow="500ms")
    engine = Engine(spark_sessions, sink, asked._pipeline, config, planner=asked)
    futures = [engine.submit(some(shard, 5), lambda: True) for shard in "ab"]
    assert [future.exception(60) for future in futures] == [None] * 2
    engine.close()
    assert sink.jobs == [["a", "b"]]
    assert {row[2] for row in sink.rows} == {"A", "B"}


def test_a_view_of_an_earlier_batch_is_refused(spark_sessions):
    kept = []

    def hoards(df, ctx):
        kept.append(df)
        kept[0].createOrReplaceTempView("first")
        return df.select("id", "shard_id")

    asked = planner(hoards)
    engine = Engine(
        spark_sessions, Noted(), asked._pipeline, spark_config(sink__path="/x"), planner=asked
    )
    answers = [engine.submit(some(shard), lambda: True).exception(60) for shard in "ab"]
    engine.close()
    assert "a view of another batch's rows" in str(answers[1])
