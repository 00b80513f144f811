"""A real PostgreSQL: rows and marks in one transaction, through Spark's JDBC writer."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from mld.spark.calls import GivenUp, Overdue, call_within
from mld.spark.errors import BatchFailed, MissingPart, SinkRefused, SinkUnavailable
from mld.spark.ports import CommitOutcome
from mld.spark.sinks import jdbc, make_sink
from mld.spark.sinks.jdbc import PAUSES_S
from tests.spark.conftest import spark_config
from tests.spark.postgres import running_postgres, why_not
from tests.spark.sink_server import BASE, batch, frame, open_sink, shard, write

pytestmark = pytest.mark.spark
STANDS, LOST, AGAIN = CommitOutcome.STANDS, CommitOutcome.LOST, CommitOutcome.AGAIN


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
    more = {
        "sink__url": server.url,
        "sink__table": f"{schema}.rows",
        "sink__createTable": "true",
        **more,
    }
    return open_sink(session, sink="jdbc", **more)


def commit(sink, staged, batches) -> list[CommitOutcome]:
    found = sink.commit_all(staged, batches)
    return [found[each.shard] for each in batches]


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
    write(session, first, batch(shard(0), 0, 10), batch(shard(1), 0, 7))
    both = [batch(shard(0), 10, 20), batch(shard(1), 7, 12)]
    staged = first.write(frame(session, both), both)
    # The process dies here: what it staged stays behind.
    assert len(stages(server, schema)) == 1

    second = sink_of(session, server, schema)
    assert second.mark(shard(0)).sequence - BASE == 10
    assert second.mark(shard(1)).sequence - BASE == 7
    assert stages(server, schema) == []  # swept: it was more than an hour old
    write(session, second, batch(shard(0), 10, 25))
    write(session, second, batch(shard(1), 7, 9))
    assert rows(server, schema) == expected(s0=25, s1=9)

    assert commit(first, staged, both) == [LOST, LOST]  # it lives after all
    assert rows(server, schema) == expected(s0=25, s1=9)


def test_one_staging_table_and_one_transaction_are_for_all_shards(session, server, schema):
    sink = sink_of(session, server, schema)
    batches = [batch(shard(number), 0, 3 + number) for number in range(4)]
    staged = sink.write(frame(session, batches), batches)
    assert len(stages(server, schema)) == 1
    assert commit(sink, staged, batches) == [STANDS] * 4
    numbers = server.query(
        f"select distinct xmin::text from {schema}.rows union select xmin::text from "
        f"{schema}.kcl_mld_marks"
    )
    assert len(numbers) == 1
    sink.discard(staged)
    assert rows(server, schema) == expected(s0=3, s1=4, s2=5, s3=6)


def test_a_shard_that_another_worker_has_moved_is_lost_and_nothing_is_committed(
    session, server, schema
):
    sink = sink_of(session, server, schema)
    both = [batch(shard(0), 0, 4), batch(shard(1), 0, 4)]
    staged = sink.write(frame(session, both), both)
    write(session, sink, batch(shard(0), 0, 4))  # the very same records
    assert commit(sink, staged, both) == [LOST, AGAIN]
    assert rows(server, schema) == expected(s0=4)
    write(session, sink, both[1])
    assert rows(server, schema) == expected(s0=4, s1=4)


def test_a_commit_whose_answer_was_lost_is_found_committed(session, server, schema):
    sink = sink_of(session, server, schema)
    both = [batch(shard(0), 0, 10), batch(shard(1), 0, 2)]
    staged = sink.write(frame(session, both), both)
    assert commit(sink, staged, both) == [STANDS] * 2
    write(session, sink, *both)
    assert rows(server, schema) == expected(s0=10, s1=2)


def test_marks_that_an_older_release_has_written_are_gone_on_with(session, server, schema):
    server.execute(
        f"create table {schema}.kcl_mld_marks (application VARCHAR(255), stream VARCHAR(255), "
        "shard VARCHAR(128), epoch VARCHAR(64), mark VARCHAR(128) NOT NULL, "
        "PRIMARY KEY (application, stream, shard, epoch))"
    )
    server.execute(
        f"insert into {schema}.kcl_mld_marks values "
        f"('app', 'flights', '{shard().shard_id}', '0', '{BASE + 4}.0')"
    )
    sink = sink_of(session, server, schema)
    assert sink.mark(shard()).sequence - BASE == 4
    write(session, sink, batch(shard(), 4, 6))
    assert rows(server, schema) == Counter({("0", 5): 1, ("0", 6): 1})


def test_two_workers_with_the_same_shards_in_another_order_do_not_lock_each_other_out(
    session, server, schema
):
    """Each is one of some, and no transaction is ended by the database as a deadlock."""
    sinks = [sink_of(session, server, schema) for _ in range(2)]
    write(session, sinks[0], *(batch(shard(number), 0, 1) for number in range(0, 8, 2)))
    no_rows = frame(session, [batch(shard(), 0, 1)]).where("false")
    failed = []

    def work(sink, mine):
        staged = sink.write(no_rows, [])
        for _ in range(25):
            marks = [(number, sink.mark(shard(number))) for number in mine]
            begins = [(number, mark.sequence - BASE if mark else 0) for number, mark in marks]
            batches = [batch(shard(number), begin, begin + 1) for number, begin in begins]
            try:
                commit(sink, staged, [replace(each, rows=()) for each in batches])
            except Exception as error:
                failed.append(error)
                raise

    threads = [
        threading.Thread(target=work, args=(sinks[0], range(8))),
        threading.Thread(target=work, args=(sinks[1], range(7, -1, -1))),
    ]
    deadlocks = "select deadlocks from pg_stat_database where datname = 'postgres'"
    before = server.query(deadlocks)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert server.query(deadlocks) == before
    steps = {sinks[0].mark(shard(number)).sequence - BASE for number in range(1, 8, 2)}
    assert len(steps) == 1
    assert steps.pop() >= 25


def test_an_empty_batch_moves_the_mark(session, server, schema):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 5), keep="false")
    write(session, sink, batch(shard(), 5, 6), keep="false")
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
    assert commit(sink, sink.write(odd, [one]), [one]) == [STANDS]
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
        sink.commit_all(staged, [one])
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
    with pytest.raises(SinkUnavailable, match="3 rows twice"):
        sink.commit_all(staged, [one])
    assert sink.mark(shard()) is None


def test_a_staging_table_that_is_gone_is_told_and_written_again(session, server, schema):
    sink = sink_of(session, server, schema)
    one = batch(shard(), 0, 9)
    staged = sink.write(frame(session, [one]), [one])
    server.execute(f"drop table {staged.table}")
    with pytest.raises(SinkUnavailable, match="the staging table is gone"):
        sink.commit_all(staged, [one])
    sink.discard(staged)
    write(session, sink, one)
    assert rows(server, schema) == expected(s0=9)


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
        began = time.monotonic()
        with pytest.raises(Overdue) as first:
            call_within(
                1.0,
                lambda: sink.commit_all(old, [one]),
                name="first",
                interrupt=(lambda: sink.cancel([one])) if is_cancelled else None,
            )
        assert first.value.call.done() is is_cancelled
        assert not is_cancelled or time.monotonic() - began < 4.0
        # It has the mark locked, or was cancelled; the shard begins again, where it was.
        assert sink.mark(shard()).sequence - BASE == 4
        with pytest.raises(Overdue) as second:
            call_within(1.0, lambda: sink.commit_all(new, [longer]), name="second")
    ends = [type(each.value.call.exception(30)) for each in (first, second)]
    assert ends == [GivenUp, GivenUp]
    assert rows(server, schema) == expected(s0=4)
    assert commit(sink, new, [longer]) == [STANDS]
    assert commit(sink, old, [one]) == [LOST]
    assert rows(server, schema) == expected(s0=12)


def test_of_two_commits_that_wait_for_each_other_one_loses_the_shard(session, server, schema):
    """The first one was given up too late to be rolled back: it has all its rows and ends."""
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 4))
    one, longer = batch(shard(), 4, 9), batch(shard(), 4, 12)
    staged = [sink.write(frame(session, [each]), [each]) for each in (one, longer)]
    outcomes = []

    def work(number, each):
        (found,) = commit(sink, staged[number], [each])
        outcomes.append(found if found is LOST else each.to.sequence - BASE)

    with server.connect() as blocker:
        blocker.execute(f"lock table {schema}.rows in exclusive mode")
        threads = [threading.Thread(target=work, args=each) for each in enumerate((one, longer))]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(30)
    (count,) = [each for each in outcomes if each is not LOST]
    assert len(outcomes) == 2
    assert rows(server, schema) == expected(s0=count)


def test_a_database_that_is_started_again_costs_one_wait_and_one_write(session, server, schema):
    sink = sink_of(session, server, schema)
    batches = [batch(shard(number), 0, 2) for number in range(19)]
    staged = sink.write(frame(session, batches), batches)
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 4:
            server.start()
        time.sleep(seconds / 10)

    sink._pause = pause
    server.stop()
    assert commit(sink, staged, batches) == [STANDS] * 19
    assert pauses == list(PAUSES_S[: len(pauses)])
    assert 4 <= len(pauses) < len(PAUSES_S)
    assert sum(rows(server, schema).values()) == 38
    assert len(stages(server, schema)) == 1


def test_a_dead_database_is_told(session, server, schema):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 4))
    one = batch(shard(), 4, 9)
    staged = sink.write(frame(session, [one]), [one])
    sink._pause = lambda _: None
    server.stop()
    try:
        with pytest.raises(SinkUnavailable) as caught:
            sink.commit_all(staged, [one])
        assert server.password not in str(caught.value)
        with pytest.raises(SinkUnavailable, match=r"spark\.sink=jdbc: .*[Cc]onnect"):
            sink_of(session, server, schema)
    finally:
        server.start()
    write(session, sink, one)
    assert rows(server, schema) == expected(s0=9)


def test_connections_that_the_server_has_cut_meanwhile_cost_nothing(session, server, schema):
    sink = sink_of(session, server, schema)
    write(session, sink, batch(shard(), 0, 4))
    server.query(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    assert sink.mark(shard()).sequence - BASE == 4


def test_a_process_that_stood_still_in_its_transaction_goes_on(session, server, schema):
    url = f"{server.url}&options=-c%20idle_in_transaction_session_timeout%3D500ms"
    sink = sink_of(session, server, schema, sink__url=url)
    one = batch(shard(), 0, 4)
    staged = sink.write(frame(session, [one]), [one])
    original, moved = sink._move, []

    def late(transaction, *more):
        moved.append(transaction.cursor.connection.info.backend_pid)
        while len(moved) == 1 and server.query(
            "select 1 from pg_stat_activity where pid = %s", moved[0]
        ):
            time.sleep(0.1)
        original(transaction, *more)

    sink._move = late
    assert commit(sink, staged, [one]) == [STANDS]
    assert len(moved) > 1
    assert rows(server, schema) == expected(s0=4)


def test_spark_names_no_statement_that_a_pooler_would_hand_to_another_session(
    session, server, schema
):
    url = f"{server.url}&options=-c%20log_statement%3Dall"
    sink = sink_of(session, server, schema, sink__url=url)
    write(session, sink, batch(shard(), 0, 9))
    lines = (server.directory / "log").read_text().splitlines()
    staged = [line for line in lines if f'INSERT INTO "{schema}"."kcl_mld_stage_' in line]
    assert staged
    assert not [line for line in staged if "S_" in line.partition("INSERT")[0]]


def test_a_start_waits_for_nobody_who_holds_a_staging_table_of_a_dead_job(
    session, server, schema, monkeypatch
):
    """As pg_dump holds all tables that there are, for hours."""
    first = sink_of(session, server, schema)
    first._now_s = lambda: 1_000_000.0
    one = batch(shard(), 0, 3)
    staged = first.write(frame(session, [one]), [one])
    monkeypatch.setattr(jdbc, "_SWEEP_S", 0.1)
    with server.connect() as dump:
        dump.execute(f"lock table {staged.table} in access share mode")
        call_within(60.0, lambda: sink_of(session, server, schema), name="start")
        assert len(stages(server, schema)) == 1
    monkeypatch.setattr(jdbc, "_SWEEP_S", 60.0)
    sink_of(session, server, schema)
    assert stages(server, schema) == []


def test_a_server_that_is_a_standby_for_a_while_costs_one_wait(session, server, schema):
    server.execute("create role mover login password 'p3'")
    server.execute(f"grant usage, create on schema {schema} to mover")
    more = {"sink__options__user": "mover", "sink__options__password": "p3"}
    sink = sink_of(session, server, schema, **more)
    one = batch(shard(), 0, 3)
    staged = sink.write(frame(session, [one]), [one])
    server.execute("alter role mover set default_transaction_read_only = on")
    sink.close()
    pauses = []

    def pause(_):
        pauses.append(0)
        if len(pauses) == 3:
            server.execute("alter role mover reset default_transaction_read_only")

    sink._pause = pause
    assert commit(sink, staged, [one]) == [STANDS]
    assert len(pauses) == 3
    assert rows(server, schema) == expected(s0=3)


def test_names_are_texts_in_a_database_without_an_encoding(session, server):
    with server.connect() as connection:
        connection.autocommit = True
        connection.execute(
            "create database plain encoding 'SQL_ASCII' template template0 locale 'C'"
        )
    url = server.url.replace("/postgres?", "/plain?")
    for begin in (0, 4):
        sink = open_sink(
            session, sink="jdbc", sink__createTable="true", sink__url=url, sink__table="rows"
        )
        assert (sink.mark(shard()) is None) == (begin == 0)
        write(session, sink, batch(shard(), begin, begin + 4))
        sink.close()


def test_a_schema_may_have_any_name_and_is_the_same_for_both_connections(session, server):
    for name in ("50%s", 'My "own', "back\\slash"):
        quoted = '"' + name.replace('"', '""') + '"'
        server.execute(f"create schema {quoted}")
        sink = open_sink(
            session,
            sink="jdbc",
            sink__createTable="true",
            sink__url=server.url,
            sink__table=f"{quoted}.rows",
        )
        write(session, sink, batch(shard(), 0, 2))
        more = {"sink__options__currentSchema": quoted}
        sink = open_sink(
            session,
            sink="jdbc",
            sink__createTable="true",
            sink__url=server.url,
            sink__table="rows",
            **more,
        )
        write(session, sink, batch(shard(), 2, 4))
        assert server.query(f"select count(*) from {quoted}.rows".replace("%", "%%")) == [(4,)]


def test_of_two_users_the_one_in_the_options_writes_everything(session, server, schema):
    server.execute("create role insider login password 'p 1'")
    server.execute(f"grant usage, create on schema {schema} to insider")
    more = {"sink__options__user": "insider", "sink__options__password": "p 1"}
    write(session, sink_of(session, server, schema, **more), batch(shard(), 0, 2))
    owners = "select distinct tableowner from pg_tables where schemaname = %s"
    assert server.query(owners, schema) == [("insider",)]


def test_a_target_that_may_not_be_read_is_told_with_what_to_grant(session, server, schema):
    server.execute(f"create table {schema}.rows (n int)")
    server.execute("create role blind login password 'p2'")
    server.execute(f"grant usage, create on schema {schema} to blind")
    server.execute(f"grant insert on {schema}.rows to blind")
    more = {"sink__options__user": "blind", "sink__options__password": "p2"}
    sink = sink_of(session, server, schema, **more)
    with pytest.raises(BatchFailed, match=r"cannot be read, nor made: .* needs SELECT and INSERT"):
        write(session, sink, batch(shard(), 0, 2))


def test_marks_of_another_user_that_may_not_be_read_are_told(session, server, schema):
    sink_of(session, server, schema)
    server.execute("create role stranger login password 'p4'")
    server.execute(f"grant usage, create on schema {schema} to stranger")
    more = {"sink__options__user": "stranger", "sink__options__password": "p4"}
    with pytest.raises(BatchFailed, match="marks can't be read, nor made: DuplicateTable"):
        sink_of(session, server, schema, **more)


def test_a_wrong_password_is_told_and_not_shown(session, server, schema):
    wrong = server.url.replace(server.password, "s3cret-wrong")
    with pytest.raises(SinkUnavailable, match="password authentication failed") as caught:
        open_sink(
            session,
            sink="jdbc",
            sink__createTable="true",
            sink__url=wrong,
            sink__table=f"{schema}.rows",
        )
    assert "s3cret-wrong" not in str(caught.value)


def test_a_password_that_only_spark_gets_wrong_is_not_shown_either(session, server, schema):
    wrong = server.url.replace(server.password, "s3cret-wrong")
    config = spark_config(
        sink="jdbc", sink__createTable="true", sink__url=wrong, sink__table=f"{schema}.rows"
    )
    sink = make_sink(config, "app")
    sink._database._connect = server.connect
    with pytest.raises(SinkUnavailable, match="the Spark server cannot read") as caught:
        sink.prepare(session)
    assert "s3cret-wrong" not in str(caught.value)


def test_a_server_without_the_driver_is_told_its_package(spark, server, schema):
    with pytest.raises(MissingPart, match=r"org\.postgresql:postgresql:42"):
        sink_of(spark, server, schema)


def test_a_table_is_made_only_if_that_is_said(session, server, schema):
    server.execute(f"create table {schema}.amounts (n bigint)")
    with pytest.raises(SinkRefused, match=rf'"amuonts" is missing.*there is "{schema}"."amounts"'):
        sink_of(session, server, schema, sink__table=f"{schema}.amuonts", sink__createTable="false")
    assert sink_of(
        session, server, schema, sink__createTable="false", sink__table=f"{schema}.amounts"
    )


def test_a_text_with_a_nul_is_told_at_once(session, server, schema):
    sink, one = sink_of(session, server, schema), batch(shard(), 0, 2)
    with pytest.raises(BatchFailed, match="a text has a NUL"):
        sink.write(frame(session, [one], t=F.lit("a\x00b")), [one])
