"""One call of the function for all shards, with a real Spark: what it may do, and what its errors are."""

import threading
from pickle import PicklingError
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions as f

from kcl_mld.spark.calls import JobCalls, Overdue
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.failures import is_deterministic
from kcl_mld.spark.model import MicroBatch
from kcl_mld.spark.plans.one_call import FunctionFailed
from kcl_mld.spark.rows.handoff import HandOff
from kcl_mld.spark.server.sessions import ConnectSessions
from tests.spark.conftest import spark_config
from tests.spark.job_kit import batch, caller

pytestmark = pytest.mark.spark

WAIT_S = 120
WHOLE = MicroBatch(
    (
        batch("shard-1", b'{"id":1,"amount":2.5}', b'{"id":2,"amount":-1}'),
        batch("shard-2", b'{"id":3,"amount":4}'),
    )
)


def call(spark, function, handoff=None, **settings):
    return caller(function, handoff=handoff, **settings).call(spark, WHOLE)


def test_a_function_may_count_collect_and_name_a_view(spark, tmp_path):
    seen = []

    def process(df, ctx):
        seen.append((df.count(), ctx.count, sorted(each.shard_id for each in ctx.shards)))
        df.createOrReplaceTempView("rows")
        greatest = df.agg(f.max("amount")).collect()[0][0]
        return ctx.spark.sql(f"SELECT id, shard_id FROM rows WHERE amount < {greatest}")

    found = call(spark, process, HandOff(tmp_path / "rows", least_bytes=0))
    assert sorted(map(tuple, found.collect())) == [(1, "shard-1"), (2, "shard-1")]
    assert seen == [(3, 3, ["shard-1", "shard-2"])]
    assert found.columns == ["id", "shard_id"]  # no column of ours


def test_what_fails_for_its_rows_is_known_as_such(spark, tmp_path):
    @f.udf("long")
    def refuse(amount):
        raise KeyError(amount)

    lock = threading.Lock()
    columns = [
        f.concat(f.lit("x"), "id").cast("int"),
        refuse("amount"),
        f.expr("1 / (id - 1)"),
        f.udf(lambda amount: lock and amount, "double")("amount"),  # it can't be pickled
    ]
    for number, column in enumerate(columns):
        frame = call(spark, lambda df, ctx, column=column: df.select(column.alias("value")))
        with pytest.raises((PySparkException, PicklingError)) as failure:
            frame.write.parquet((tmp_path / str(number)).as_uri())
        assert is_deterministic(failure.value), str(failure.value)[:500]


def test_a_full_disk_or_a_lost_file_is_not_taken_for_the_rows_fault(spark, tmp_path):
    frame = call(spark, lambda df, ctx: df.select("id"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(PySparkException) as failure:
        frame.write.parquet((tmp_path / "file" / "below").as_uri())
    assert not is_deterministic(failure.value), str(failure.value)[:500]


def test_an_action_of_the_functions_that_fails_for_its_rows_fails_the_batch_at_once(spark):
    def acting(df, ctx):
        return df.where(f.lit("x").cast("int") == f.col("id")).count()

    with pytest.raises(BatchFailed, match=r"the function failed on batch app@.*3 records of 2"):
        call(spark, acting)


@pytest.fixture
def own(spark_server, monkeypatch):
    """Sessions as a host has them, beside those of other tests; and a call as a host makes it."""
    monkeypatch.setenv("SPARK_REMOTE", "")  # and as it was at the end
    sessions = ConnectSessions(spark_server.url, spark_server.token, spark_config(), "own")
    sessions.offer()

    def within(function):
        session = sessions.get()
        return JobCalls(sessions, "job").within(
            WAIT_S, session, lambda: call(session, function).count()
        )

    yield SimpleNamespace(sessions=sessions, call=within)
    sessions.close()


def test_a_function_that_makes_or_ends_a_session_gets_the_one_there_is_or_an_error(own):
    got = []

    def process(df, ctx):
        got.append(SparkSession.builder.appName("mine").getOrCreate())
        return got[0].createDataFrame(df.toArrow())

    session = own.sessions.get()
    assert own.call(process) == 3
    assert got == [session]
    with pytest.raises(FunctionFailed, match=r"it stopped ctx\.spark"):
        own.call(lambda df, ctx: ctx.spark.stop() or df)
    with pytest.raises(FunctionFailed, match=r"it stopped ctx\.spark"):
        own.call(lambda df, ctx: ctx.spark.stop() or df.count())
    assert own.sessions.get() is not session


def test_the_active_session_is_that_of_the_function_also_after_a_call_that_hung(own):
    """Libraries that are shared with classic programs ask for it."""
    asked = []

    def process(df, ctx):
        asked.append((SparkSession.getActiveSession(), ctx.spark, ctx.spark.getTags()))
        return df

    hangs = threading.Event()
    own.call(process)
    own.call(process)
    session = own.sessions.get()
    with pytest.raises(Overdue):
        JobCalls(own.sessions, "stuck").within(0, session, hangs.wait, grace_s=0)
    own.call(process)
    hangs.set()
    assert [active is given for active, given, _ in asked] == [True] * 3
    assert [tags for _, _, tags in asked] == [{"job"}] * 3
    assert asked[0][0] is asked[1][0] is session is not asked[2][0]


def test_other_tests_still_have_a_session_after_one_that_was_closed(spark, own):
    own.call(lambda df, ctx: df)
    own.sessions.close()
    assert spark.range(2).select(f.udf(lambda n: n + 1, "long")("id")).count() == 2
