"""A real PostgreSQL: rows and mark in one transaction, through Spark's JDBC writer."""

from __future__ import annotations

import threading
from collections import Counter

import pytest
from pyspark.sql import functions as F

from mld.spark.calls import GivenUp, Overdue, call_within
from mld.spark.errors import BatchFailed, Fenced, MissingPart, SinkUnavailable
from mld.spark.sinks.dbapi import DatabaseUnavailable
from tests.spark.postgres import running_postgres, why_not
from tests.spark.sink_server import BASE, batch, frame, open_sink, shard, write

pytestmark = pytest.mark.spark


@pytest.fixture
def session(sink_session):
    return sink_session


@pytest.fixture(scope="module")
def server():
    if reason := why_not():
        pytest.skip(reason)
    with running_postgres() as running:
        yield running


@pytest.fixture
def schema(server, request):
    """A schema of the test's own, so that tables and marks begin empty."""
    name = f"t{abs(hash(request.node.name))}"
    server.execute(f"create schema {name}")
    return name


def sink_of(session, server, schema, **more):
    table = f"{schema}.rows"
    return open_sink(session, sink="jdbc", sink__url=server.url, sink__table=table, **more)


def rows(server, schema) -> Counter:
    found = server.query(f"select shard_id, n from {schema}.rows")
    return Counter((name[-1], n) for name, n in found)


def expected(**counts: int) -> Counter:
    return Counter((name[1:], n) for name, to in counts.items() for n in range(1, to + 1))


def stages(server, schema) -> list[str]:
    sql = "select tablename from pg_tables where schemaname=%s and tablename like 'kcl_mld_stage\\_%%'"
    return [name for (name,) in server.query(sql, schema)]


def test_a_crash_between_staging_and_commit_and_a_new_cut_leave_each_row_once(
    session, server, schema
):
    now = [1_000_000.0]
    first = sink_of(session, server, schema)
    first._now_s = lambda: now[0]
    ones = [batch(shard(0), 0, 10), batch(shard(1), 0, 7)]
    staged = first.write(frame(session, ones), ones)
    first.commit(staged, ones[0])
    # The process dies here: shard 1 is staged and not committed, its table stays behind.
    assert len(stages(server, schema)) == 1

    second = sink_of(session, server, schema)
    assert second.mark(shard(0)).sequence - BASE == 10
    assert second.mark(shard(1)) is None
    write(session, second, batch(shard(0), 10, 25), batch(shard(1), 0, 3))
    write(session, second, batch(shard(1), 3, 9))
    assert rows(server, schema) == expected(s0=25, s1=9)

    with pytest.raises(Fenced, match="another worker has the shard"):
        first.commit(staged, ones[1])
    assert rows(server, schema) == expected(s0=25, s1=9)
    assert stages(server, schema) == []  # swept: it was more than an hour old


def test_a_commit_whose_answer_was_lost_is_found_committed(session, server, schema):
    sink = sink_of(session, server, schema)
    one = batch(shard(), 0, 10)
    staged = sink.write(frame(session, [one]), [one])
    sink.commit(staged, one)
    write(session, sink, one)
    assert rows(server, schema) == expected(s0=10)


def test_an_empty_batch_moves_the_mark(session, server, schema):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 5), keep="false")
    sink.commit(sink.write(None, [batch(shard(), 5, 5)]), batch(shard(), 5, 6))
    assert sink.mark(shard()).sequence - BASE == 6
    assert rows(server, schema) == Counter()


def test_each_epoch_has_marks_of_its_own(session, server, schema):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 5))
    assert sink.mark(shard(epoch="1")) is None
    write(session, sink, batch(shard(epoch="1"), 0, 5))
    assert set(rows(server, schema).values()) == {2}


def test_columns_go_by_name_into_a_table_of_the_user(session, server, schema):
    server.execute(
        f'create table {schema}.rows (id serial primary key, "Odd ""name" text, shard_id text,'
        " sub_sequence_number bigint, n int, sequence_number numeric)"
    )
    sink = sink_of(session, server, schema)
    one = batch(shard(), 0, 3)
    odd = frame(session, [one]).withColumn('Odd "name', F.lit("x"))
    odd = odd.withColumn("sequence_number", F.lit(7).cast("decimal(10,0)"))
    staged = sink.write(odd, [one])
    sink.commit(staged, one)
    assert rows(server, schema) == expected(s0=3)


def test_rows_that_do_not_fit_are_refused_and_nothing_is_kept(session, server, schema):
    server.execute(f"create table {schema}.rows (n int check (n < 5), shard_id text)")
    sink = sink_of(session, server, schema)
    one = batch(shard(), 0, 9)
    with pytest.raises(BatchFailed, match="no column sequence_number, sub_sequence_number"):
        write(session, sink, one)
    fitting = frame(session, [one]).drop("sequence_number", "sub_sequence_number")
    staged = sink.write(fitting, [one])
    with pytest.raises(BatchFailed, match="CheckViolation") as caught:
        sink.commit(staged, one)
    assert "DETAIL" not in str(caught.value)
    sink.discard(staged)
    assert rows(server, schema) == Counter()
    assert sink.mark(shard()) is None
    assert stages(server, schema) == []


def test_rows_that_spark_wrote_twice_are_not_moved(session, server, schema):
    sink = sink_of(session, server, schema)
    one = batch(shard(), 0, 9)
    staged = sink.write(frame(session, [one]), [one])
    server.execute(f"insert into {staged.table} select * from {staged.table} limit 3")
    with pytest.raises(DatabaseUnavailable, match="3 rows twice"):
        sink.commit(staged, one)
    assert sink.mark(shard()) is None


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_commit_that_was_given_up_and_its_successor_do_not_both_count(
    session, server, schema, is_cancelled
):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 4))
    one, longer = batch(shard(), 4, 9), batch(shard(), 4, 12)
    old = sink.write(frame(session, [one]), [one])
    new = sink.write(frame(session, [longer]), [longer])
    with server.connect() as blocker:
        blocker.execute(f"lock table {schema}.rows in exclusive mode")
        with pytest.raises(Overdue) as first:
            call_within(
                1.0,
                lambda: sink.commit(old, one),
                name="first",
                interrupt=(lambda: sink.cancel(one)) if is_cancelled else None,
            )
        # It has the mark locked, or was cancelled; the shard begins again, where it was.
        assert sink.mark(shard()).sequence - BASE == 4
        with pytest.raises(Overdue) as second:
            call_within(1.0, lambda: sink.commit(new, longer), name="second")
    ends = [type(each.value.call.exception(30)) for each in (first, second)]
    assert ends == [DatabaseUnavailable if is_cancelled else GivenUp, GivenUp]
    assert rows(server, schema) == expected(s0=4)
    sink.commit(new, longer)
    with pytest.raises(Fenced):
        sink.commit(old, one)
    assert rows(server, schema) == expected(s0=12)


def test_of_two_commits_that_wait_for_each_other_one_is_fenced(session, server, schema):
    """The first one was given up too late to be rolled back: it has all its rows and ends."""
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 4))
    one, longer = batch(shard(), 4, 9), batch(shard(), 4, 12)
    staged = [sink.write(frame(session, [each]), [each]) for each in (one, longer)]
    outcomes = []

    def commit(number, each):
        try:
            sink.commit(staged[number], each)
        except Fenced as error:
            outcomes.append(type(error))
        else:
            outcomes.append(each.to.sequence - BASE)

    with server.connect() as blocker:
        blocker.execute(f"lock table {schema}.rows in exclusive mode")
        threads = [threading.Thread(target=commit, args=each) for each in enumerate((one, longer))]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(30)
    (count,) = [each for each in outcomes if each is not Fenced]
    assert len(outcomes) == 2
    assert rows(server, schema) == expected(s0=count)


def test_a_dead_database_is_told_and_survived(session, server, schema):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 4))
    one = batch(shard(), 4, 9)
    staged = sink.write(frame(session, [one]), [one])
    server.stop()
    try:
        with pytest.raises(DatabaseUnavailable) as caught:
            sink.commit(staged, one)
        assert server.password not in str(caught.value)
        with pytest.raises(SinkUnavailable, match=r"spark\.sink=jdbc: .*[Cc]onnect"):
            sink_of(session, server, schema)
    finally:
        server.start()
    write(session, sink, one)
    assert rows(server, schema) == expected(s0=9)


def test_a_wrong_password_is_told_and_not_shown(session, server, schema):
    wrong = server.url.replace(server.password, "s3cret-wrong")
    with pytest.raises(SinkUnavailable, match="password authentication failed") as caught:
        open_sink(session, sink="jdbc", sink__url=wrong, sink__table=f"{schema}.rows")
    assert "s3cret-wrong" not in str(caught.value)


def test_a_password_that_only_spark_gets_wrong_is_not_shown_either(session, server, schema):
    wrong = server.url.replace(server.password, "s3cret-wrong")
    import tests.spark.test_jdbc_sink as here  # noqa: PLC0415

    here.connect = server.connect
    with pytest.raises(SinkUnavailable, match="the Spark server cannot read") as caught:
        open_sink(
            session,
            sink="jdbc",
            sink__url=wrong,
            sink__table=f"{schema}.rows",
            sink__connection="tests.spark.test_jdbc_sink:connect",
        )
    assert "s3cret-wrong" not in str(caught.value)


def test_a_server_without_the_driver_is_told_its_package(spark, server, schema):
    with pytest.raises(MissingPart, match=r"org\.postgresql:postgresql:42"):
        sink_of(spark, server, schema)
