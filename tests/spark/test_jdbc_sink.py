"""A real PostgreSQL: the rows that Spark computes, and marks, in one transaction."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from kcl_mld.spark.calls import GivenUp, Overdue, call_within
from kcl_mld.spark.errors import BatchFailed, ResultTooLarge, SinkRefused, SinkUnavailable
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.sinks.jdbc import PAUSES_S
from tests.spark.postgres import running_postgres, why_not
from tests.spark.sink_server import BASE, batch, frame, open_sink, shard, write
from tests.unit.spark import batches as plain
from tests.unit.spark.sqlite_kit import Frame

pytestmark = pytest.mark.spark
STANDS, LOST, AGAIN = CommitOutcome.STANDS, CommitOutcome.LOST, CommitOutcome.AGAIN


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


def sink_of(spark, server, schema, **more):
    more = {
        "sink__url": server.url,
        "sink__table": f"{schema}.rows",
        "sink__createTable": "true",
        **more,
    }
    return open_sink(spark, sink="jdbc", **more)


def commit(sink, staged, batches) -> list[CommitOutcome]:
    found = sink.commit_all(staged, batches)
    return [found[each.shard] for each in batches]


def rows(server, schema) -> Counter:
    found = server.query(f"select shard_id, n from {schema}.rows")
    return Counter((name[-1], n) for name, n in found)


def expected(**counts: int) -> Counter:
    return Counter((name[1:], n) for name, to in counts.items() for n in range(1, to + 1))


def test_a_crash_between_computation_and_commit_and_a_new_cut_leave_each_row_once(
    spark, server, schema
):
    first = sink_of(spark, server, schema)
    write(spark, first, batch(shard(0), 0, 10), batch(shard(1), 0, 7))
    both = [batch(shard(0), 10, 20), batch(shard(1), 7, 12)]
    staged = first.write(frame(spark, both), both)
    # The process dies here.
    second = sink_of(spark, server, schema)
    assert second.mark(shard(0)).sequence - BASE == 10
    assert second.mark(shard(1)).sequence - BASE == 7
    write(spark, second, batch(shard(0), 10, 25))
    write(spark, second, batch(shard(1), 7, 9))
    assert rows(server, schema) == expected(s0=25, s1=9)

    assert commit(first, staged, both) == [LOST, LOST]  # it lives after all
    assert rows(server, schema) == expected(s0=25, s1=9)


def test_one_transaction_is_for_all_shards(spark, server, schema):
    sink = sink_of(spark, server, schema)
    batches = [batch(shard(number), 0, 3 + number) for number in range(4)]
    staged = sink.write(frame(spark, batches), batches)
    assert commit(sink, staged, batches) == [STANDS] * 4
    numbers = server.query(
        f"select distinct xmin::text from {schema}.rows union select xmin::text from "
        f"{schema}.kcl_mld_marks"
    )
    assert len(numbers) == 1
    sink.discard(staged)
    assert rows(server, schema) == expected(s0=3, s1=4, s2=5, s3=6)


def test_a_shard_that_another_worker_has_moved_is_lost_and_nothing_is_committed(
    spark, server, schema
):
    sink = sink_of(spark, server, schema)
    both = [batch(shard(0), 0, 4), batch(shard(1), 0, 4)]
    staged = sink.write(frame(spark, both), both)
    write(spark, sink, batch(shard(0), 0, 4))  # the very same records
    assert commit(sink, staged, both) == [LOST, AGAIN]
    assert rows(server, schema) == expected(s0=4)
    write(spark, sink, both[1])
    assert rows(server, schema) == expected(s0=4, s1=4)


def test_a_commit_whose_answer_was_lost_is_found_committed(spark, server, schema):
    sink = sink_of(spark, server, schema)
    both = [batch(shard(0), 0, 10), batch(shard(1), 0, 2)]
    staged = sink.write(frame(spark, both), both)
    assert commit(sink, staged, both) == [STANDS] * 2
    write(spark, sink, *both)
    assert rows(server, schema) == expected(s0=10, s1=2)


def test_marks_that_an_older_release_has_written_are_gone_on_with(spark, server, schema):
    server.execute(
        f"create table {schema}.kcl_mld_marks (application VARCHAR(255), stream VARCHAR(255), "
        "shard VARCHAR(128), epoch VARCHAR(64), mark VARCHAR(128) NOT NULL, "
        "PRIMARY KEY (application, stream, shard, epoch))"
    )
    server.execute(
        f"insert into {schema}.kcl_mld_marks values "
        f"('app', 'flights', '{shard().shard_id}', '0', '{BASE + 4}.0')"
    )
    sink = sink_of(spark, server, schema)
    assert sink.mark(shard()).sequence - BASE == 4
    write(spark, sink, batch(shard(), 4, 6))
    assert rows(server, schema) == Counter({("0", 5): 1, ("0", 6): 1})


def test_two_workers_with_the_same_shards_in_another_order_do_not_lock_each_other_out(
    spark, server, schema
):
    """Each is one of some, and no transaction is ended by the database as a deadlock."""
    sinks = [sink_of(spark, server, schema) for _ in range(2)]
    write(spark, sinks[0], *(batch(shard(number), 0, 1) for number in range(0, 8, 2)))
    no_rows = frame(spark, [batch(shard(), 0, 1)]).where("false")
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


def test_an_empty_batch_moves_the_mark(spark, server, schema):
    sink = sink_of(spark, server, schema)
    write(spark, sink, batch(shard(), 0, 5), keep="false")
    write(spark, sink, batch(shard(), 5, 6), keep="false")
    assert sink.mark(shard()).sequence - BASE == 6
    assert rows(server, schema) == Counter()


def test_each_epoch_has_marks_of_its_own(spark, server, schema):
    sink = sink_of(spark, server, schema)
    write(spark, sink, batch(shard(), 0, 5))
    assert sink.mark(shard(epoch="1")) is None
    write(spark, sink, batch(shard(epoch="1"), 0, 5))
    assert set(rows(server, schema).values()) == {2}


def test_columns_go_by_name_into_a_table_of_the_user(spark, server, schema):
    server.execute(
        f'create table {schema}.rows (id serial primary key, "Odd ""name" text, shard_id text,'
        " sub_sequence_number bigint, n int, sequence_number numeric)"
    )
    sink = sink_of(spark, server, schema)
    one = batch(shard(), 0, 3)
    odd = frame(spark, [one]).withColumn('Odd "name', F.lit("x"))
    odd = odd.withColumn("sequence_number", F.lit(7).cast("decimal(10,0)"))
    assert commit(sink, sink.write(odd, [one]), [one]) == [STANDS]
    assert rows(server, schema) == expected(s0=3)


def test_rows_that_do_not_fit_are_refused_and_nothing_is_kept(spark, server, schema):
    server.execute(f"create table {schema}.rows (n int check (n < 5), shard_id text)")
    sink = sink_of(spark, server, schema)
    one = batch(shard(), 0, 9)
    with pytest.raises(BatchFailed, match="no column sequence_number, sub_sequence_number"):
        write(spark, sink, one)
    fitting = frame(spark, [one]).drop("sequence_number", "sub_sequence_number")
    staged = sink.write(fitting, [one])
    with pytest.raises(BatchFailed, match="CheckViolation") as caught:
        sink.commit_all(staged, [one])
    assert "DETAIL" not in str(caught.value)
    sink.discard(staged)
    assert rows(server, schema) == Counter()
    assert sink.mark(shard()) is None


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_commit_that_was_given_up_and_its_successor_do_not_both_count(
    spark, server, schema, is_cancelled
):
    sink = sink_of(spark, server, schema)
    write(spark, sink, batch(shard(), 0, 4))
    one, longer = batch(shard(), 4, 9), batch(shard(), 4, 12)
    old = sink.write(frame(spark, [one]), [one])
    new = sink.write(frame(spark, [longer]), [longer])
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


def test_of_two_commits_that_wait_for_each_other_one_loses_the_shard(spark, server, schema):
    """The first one was given up too late to be rolled back: it has all its rows and ends."""
    sink = sink_of(spark, server, schema)
    write(spark, sink, batch(shard(), 0, 4))
    one, longer = batch(shard(), 4, 9), batch(shard(), 4, 12)
    staged = [sink.write(frame(spark, [each]), [each]) for each in (one, longer)]
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


def test_a_database_that_is_started_again_costs_one_wait_and_one_write(spark, server, schema):
    sink = sink_of(spark, server, schema)
    batches = [batch(shard(number), 0, 2) for number in range(19)]
    staged = sink.write(frame(spark, batches), batches)
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


def test_a_dead_database_is_told(spark, server, schema):
    sink = sink_of(spark, server, schema)
    write(spark, sink, batch(shard(), 0, 4))
    one = batch(shard(), 4, 9)
    staged = sink.write(frame(spark, [one]), [one])
    sink._pause = lambda _: None
    server.stop()
    try:
        with pytest.raises(SinkUnavailable) as caught:
            sink.commit_all(staged, [one])
        assert server.password not in str(caught.value)
        with pytest.raises(SinkUnavailable, match=r"spark\.sink=jdbc: .*[Cc]onnect"):
            sink_of(spark, server, schema)
    finally:
        server.start()
    write(spark, sink, one)
    assert rows(server, schema) == expected(s0=9)


def test_connections_that_the_server_has_cut_meanwhile_cost_nothing(spark, server, schema):
    sink = sink_of(spark, server, schema)
    write(spark, sink, batch(shard(), 0, 4))
    server.query(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    assert sink.mark(shard()).sequence - BASE == 4


def test_a_process_that_stood_still_in_its_transaction_goes_on(spark, server, schema):
    url = f"{server.url}&options=-c%20idle_in_transaction_session_timeout%3D500ms"
    sink = sink_of(spark, server, schema, sink__url=url)
    one = batch(shard(), 0, 4)
    staged = sink.write(frame(spark, [one]), [one])
    original, moved = sink._copy, []

    def late(transaction, *more):
        moved.append(transaction.cursor.connection.info.backend_pid)
        while len(moved) == 1 and server.query(
            "select 1 from pg_stat_activity where pid = %s", moved[0]
        ):
            time.sleep(0.1)
        original(transaction, *more)

    sink._copy = late
    assert commit(sink, staged, [one]) == [STANDS]
    assert len(moved) > 1
    assert rows(server, schema) == expected(s0=4)


def test_a_server_that_is_a_standby_for_a_while_costs_one_wait(spark, server, schema):
    server.execute("create role mover login password 'p3'")
    server.execute(f"grant usage, create on schema {schema} to mover")
    more = {"sink__options__user": "mover", "sink__options__password": "p3"}
    sink = sink_of(spark, server, schema, **more)
    one = batch(shard(), 0, 3)
    staged = sink.write(frame(spark, [one]), [one])
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


def test_names_are_texts_in_a_database_without_an_encoding(spark, server):
    with server.connect() as connection:
        connection.autocommit = True
        connection.execute(
            "create database plain encoding 'SQL_ASCII' template template0 locale 'C'"
        )
    url = server.url.replace("/postgres?", "/plain?")
    for begin in (0, 4):
        sink = open_sink(
            spark, sink="jdbc", sink__createTable="true", sink__url=url, sink__table="rows"
        )
        assert (sink.mark(shard()) is None) == (begin == 0)
        write(spark, sink, batch(shard(), begin, begin + 4))
        sink.close()


def test_a_schema_may_have_any_name_and_is_the_same_for_both_connections(spark, server):
    for name in ("50%s", 'My "own', "back\\slash"):
        quoted = '"' + name.replace('"', '""') + '"'
        server.execute(f"create schema {quoted}")
        sink = open_sink(
            spark,
            sink="jdbc",
            sink__createTable="true",
            sink__url=server.url,
            sink__table=f"{quoted}.rows",
        )
        write(spark, sink, batch(shard(), 0, 2))
        more = {"sink__options__currentSchema": quoted}
        sink = open_sink(
            spark,
            sink="jdbc",
            sink__createTable="true",
            sink__url=server.url,
            sink__table="rows",
            **more,
        )
        write(spark, sink, batch(shard(), 2, 4))
        assert server.query(f"select count(*) from {quoted}.rows".replace("%", "%%")) == [(4,)]


def test_two_users_with_other_search_paths_have_one_table_of_marks(server, schema):
    server.execute(f"create table {schema}.rows (n numeric, shard text)")
    found = []
    for number, path in enumerate((f"{schema}_own, {schema}", schema)):
        user = f"{schema}_{number}"
        server.execute(f"create role {user} login superuser password 'p5'")
        server.execute(f"alter role {user} set search_path = {path}")
        if number == 0:
            server.execute(f"create schema {schema}_own")
        more = {"sink__options__user": user, "sink__options__password": "p5"}
        sink = sink_of(None, server, schema, sink__table="rows", **more)
        one = plain.batch(plain.shard(), None, 3)
        found += commit(sink, sink.write(Frame(one), [one]), [one])
        sink.close()
    assert found == [STANDS, STANDS]
    assert server.query(f"select count(*) from {schema}.rows") == [(3,)]
    places = server.query("select schemaname from pg_tables where tablename = 'kcl_mld_marks'")
    assert (schema,) in places
    assert (f"{schema}_own",) not in places


def test_a_row_that_is_too_big_for_an_index_fails_at_once(server, schema):
    server.execute(f"create table {schema}.rows (n numeric, shard text)")
    server.execute(
        f"create function {schema}.big(n numeric) returns text immutable language sql as "
        "$$ select string_agg(md5(i::text), '') from generate_series(1, 1000) i $$"
    )
    server.execute(f"create index on {schema}.rows ({schema}.big(n))")
    sink = sink_of(None, server, schema)
    pauses = []
    one = plain.batch(plain.shard(), None, 1)
    sink._pause = pauses.append
    with pytest.raises(BatchFailed, match="ProgramLimitExceeded"):
        sink.commit_all(sink.write(Frame(one), [one]), [one])
    assert len(pauses) == 2  # the second one looks at the marks


def given(**columns):
    """A frame that Spark need not compute: type in JSON, and array, of each column."""
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, (kind, _) in columns.items()
    ]
    table = pa.table({name: values for name, (_, values) in columns.items()})
    text = json.dumps({"type": "struct", "fields": fields})
    return SimpleNamespace(schema=SimpleNamespace(json=lambda: text), toArrow=lambda: table)


def test_what_is_written_does_not_depend_on_the_settings_of_the_user(server, schema):
    server.execute(f"create table {schema}.rows (t timestamptz, a text[])")
    user = f"{schema}_far"
    server.execute(f"create role {user} login superuser password 'p6'")
    server.execute(f"alter role {user} set timezone = 'America/New_York'")
    server.execute(f"alter role {user} set array_nulls = off")
    more = {"sink__options__user": user, "sink__options__password": "p6"}
    sink = sink_of(None, server, schema, **more)
    one = plain.batch(plain.shard(), None, 1)
    rows = given(
        t=("timestamp_ntz", pa.array([datetime(2024, 5, 1, 12)], pa.timestamp("us"))),  # noqa: DTZ001
        a=(
            {"type": "array", "elementType": "string", "containsNull": True},
            pa.array([["a", None]], pa.list_(pa.string())),
        ),
    )
    assert commit(sink, sink.write(rows, [one]), [one]) == [STANDS]
    found = server.query(f"select (t at time zone 'UTC')::text, a from {schema}.rows")
    assert found == [("2024-05-01 12:00:00", ["a", None])]
    with sink._database.transaction("look") as transaction:
        assert transaction.rows("show timezone") == [("America/New_York",)]


def test_a_value_for_an_identity_column_replaces_the_generated_one(server, schema):
    server.execute(f"create table {schema}.rows (id int generated always as identity, t text)")
    sink = sink_of(None, server, schema)
    one = plain.batch(plain.shard(), None, 1)
    rows = given(id=("integer", pa.array([7], pa.int32())), t=("string", pa.array(["a"])))
    assert commit(sink, sink.write(rows, [one]), [one]) == [STANDS]
    assert server.query(f"select id, t from {schema}.rows") == [(7, "a")]


def test_bytes_that_the_encoding_of_the_database_lacks_are_not_shown(server):
    with server.connect() as connection:
        connection.autocommit = True
        connection.execute("create database latin encoding 'LATIN1' template template0 locale 'C'")
    url = server.url.replace("/postgres?", "/latin?")
    more = {"sink__url": url, "sink__table": "rows", "sink__createTable": "true"}
    sink = open_sink(None, sink="jdbc", **more)
    one = plain.batch(plain.shard(), None, 1)
    staged = sink.write(given(t=("string", pa.array(["\u20ac"]))), [one])
    with pytest.raises(BatchFailed, match="SQLSTATE 22P05, whose message may hold") as caught:
        sink.commit_all(staged, [one])
    assert "0x" not in str(caught.value)
    sink.close()


def test_what_a_trigger_says_of_a_row_is_not_shown(server, schema):
    server.execute(f"create table {schema}.rows (t text)")
    server.execute(
        f"create function {schema}.check_row() returns trigger language plpgsql as "
        "$$ begin raise exception 'no % here', new.t; end $$"
    )
    server.execute(
        f"create trigger c before insert on {schema}.rows "
        f"for each row execute function {schema}.check_row()"
    )
    sink = sink_of(None, server, schema)
    one = plain.batch(plain.shard(), None, 1)
    staged = sink.write(given(t=("string", pa.array(["geheim"]))), [one])
    with pytest.raises(BatchFailed, match=r"check_row\(\): SQLSTATE P0001") as caught:
        sink.commit_all(staged, [one])
    assert "geheim" not in str(caught.value)


def test_of_two_users_the_one_in_the_options_writes_everything(spark, server, schema):
    server.execute("create role insider login password 'p 1'")
    server.execute(f"grant usage, create on schema {schema} to insider")
    more = {"sink__options__user": "insider", "sink__options__password": "p 1"}
    write(spark, sink_of(spark, server, schema, **more), batch(shard(), 0, 2))
    owners = "select distinct tableowner from pg_tables where schemaname = %s"
    assert server.query(owners, schema) == [("insider",)]


def test_a_target_that_may_not_be_read_is_told_with_what_to_grant(spark, server, schema):
    server.execute(f"create table {schema}.rows (n int)")
    server.execute("create role blind login password 'p2'")
    server.execute(f"grant usage, create on schema {schema} to blind")
    server.execute(f"grant insert on {schema}.rows to blind")
    more = {"sink__options__user": "blind", "sink__options__password": "p2"}
    sink = sink_of(spark, server, schema, **more)
    with pytest.raises(BatchFailed, match=r"cannot be read, nor made: .* needs SELECT and INSERT"):
        write(spark, sink, batch(shard(), 0, 2))


def test_marks_of_another_user_that_may_not_be_read_are_told(spark, server, schema):
    sink_of(spark, server, schema)
    server.execute("create role stranger login password 'p4'")
    server.execute(f"grant usage, create on schema {schema} to stranger")
    more = {"sink__options__user": "stranger", "sink__options__password": "p4"}
    with pytest.raises(BatchFailed, match="marks can't be read, nor made: DuplicateTable"):
        sink_of(spark, server, schema, **more)


def test_a_wrong_password_is_told_and_not_shown(spark, server, schema):
    wrong = server.url.replace(server.password, "s3cret-wrong")
    with pytest.raises(SinkUnavailable, match="password authentication failed") as caught:
        open_sink(
            spark,
            sink="jdbc",
            sink__createTable="true",
            sink__url=wrong,
            sink__table=f"{schema}.rows",
        )
    assert "s3cret-wrong" not in str(caught.value)


def test_a_table_is_made_only_if_that_is_said(spark, server, schema):
    server.execute(f"create table {schema}.amounts (n bigint)")
    with pytest.raises(SinkRefused, match=rf'"amuonts" is missing.*there is "{schema}"."amounts"'):
        sink_of(spark, server, schema, sink__table=f"{schema}.amuonts", sink__createTable="false")
    assert sink_of(
        spark, server, schema, sink__createTable="false", sink__table=f"{schema}.amounts"
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("concat('a', char(0))", "the column t has a text with a NUL"),
        ("array(char(0))", "the column t has a text with a NUL"),
        ("date_add(date'0001-01-01', -1)", "the column t has a date before the year 1"),
        ("timestamp_seconds(253402300800)", "the column t has a timestamp before the year 1"),
        ("struct(1)", "the column t has the type struct, .*to_json"),
        ("map(1, 2)", "the column t has the type map, .*to_json"),
        ("array(array(1))", "the column t has the type array of arrays.*to_json"),
        ("null", "the column t has the type void"),
        ("interval 1 day", "the column t has the type interval day"),
    ],
)
def test_what_postgresql_cannot_store_is_told_at_once_with_its_column(
    spark, server, schema, value, why
):
    sink, one = sink_of(spark, server, schema), batch(shard(), 0, 2)
    with pytest.raises(BatchFailed, match=why):
        sink.write(frame(spark, [one], t=F.expr(value)), [one])
    assert sink.mark(shard()) is None


def test_a_value_that_a_column_does_not_take_fails_at_once_and_is_not_shown(spark, server, schema):
    server.execute(f"create table {schema}.rows (shard_id text, t date, n bigint)")
    sink, one = sink_of(spark, server, schema), batch(shard(), 0, 2)
    rows = frame(spark, [one], t=F.lit("geheim")).select("shard_id", "n", "t")
    with pytest.raises(BatchFailed, match="InvalidDatetimeFormat: the column t: inv") as caught:
        sink.commit_all(sink.write(rows, [one]), [one])
    assert "geheim" not in str(caught.value)


def test_a_result_beyond_its_bound_is_not_written(spark, server, schema):
    sink = sink_of(spark, server, schema, sink__maxResultBytes="1m")
    one = batch(shard(), 0, 2)
    with pytest.raises(ResultTooLarge):
        sink.write(frame(spark, [one], t=F.repeat(F.lit("x"), 1_000_000)), [one])


#: An expression for each of Spark's types, PostgreSQL's type of a column that is made, and the text
#: that PostgreSQL shows, of a value and of an edge.
VALUES = [
    ("string", "text", "'a\"b\\\\c,\\n'", 'a"b\\c,\n'),
    ("string", "text", "''", ""),
    ("string", "text", "'\\\\.'", "\\."),
    ("boolean", "boolean", "true", "true"),
    ("tinyint", "smallint", "-128", "-128"),
    ("smallint", "smallint", "32767", "32767"),
    ("int", "integer", "-2147483648", "-2147483648"),
    ("bigint", "bigint", "9223372036854775807", "9223372036854775807"),
    ("float", "real", "1.1", "1.1"),
    ("double", "double precision", "0.1", "0.1"),
    ("double", "double precision", "'NaN'", "NaN"),
    ("double", "double precision", "'-Infinity'", "-Infinity"),
    ("decimal(38,10)", "numeric(38,10)", "-0.0000000001", "-0.0000000001"),
    ("decimal(5,2)", "numeric(5,2)", "123.45", "123.45"),
    ("binary", "bytea", "X'00FF41'", "\\x00ff41"),
    ("date", "date", "'0001-01-01'", "0001-01-01"),
    ("date", "date", "'9999-12-31'", "9999-12-31"),
    ("date", "date", "'1582-10-10'", "1582-10-10"),
    (
        "timestamp",
        "timestamp with time zone",
        "'2024-05-01 12:00:00.000001+02:00'",
        "2024-05-01 10:00:00.000001+00",
    ),
    (
        "timestamp",
        "timestamp with time zone",
        "'0001-01-01 00:00:00+00:00'",
        "0001-01-01 00:00:00+00",
    ),
    (
        "timestamp_ntz",
        "timestamp without time zone",
        "'2024-05-01 12:00:00.5'",
        "2024-05-01 12:00:00.5",
    ),
    (
        "array<string>",
        "text[]",
        "array('a', 'b\"\\\\,}', null, '')",
        '{a,"b\\"\\\\,}",NULL,""}',
    ),
    ("array<int>", "integer[]", "array(1, null)", "{1,NULL}"),
    ("array<int>", "integer[]", "array()", "{}"),
    ("array<double>", "double precision[]", "array('NaN', 1.5)", "{NaN,1.5}"),
    ("array<binary>", "bytea[]", "array(X'00FF')", '{"\\\\x00ff"}'),
    ("array<date>", "date[]", "array(date'2024-01-02')", "{2024-01-02}"),
    (
        "array<timestamp>",
        "timestamp with time zone[]",
        "array(timestamp'2024-01-02 00:00:00Z')",
        '{"2024-01-02 00:00:00+00"}',
    ),
    ("array<decimal(5,2)>", "numeric(5,2)[]", "array(1.5)", "{1.50}"),
    ("array<boolean>", "boolean[]", "array(true, null)", "{t,NULL}"),
]


def test_each_of_sparks_types_goes_into_a_table_that_is_made_and_comes_out_equal(
    spark, server, schema
):
    sink, one = sink_of(spark, server, schema), batch(shard(), 0, 3)
    columns = {
        f"c{number}": F.expr(f"if(n = 2, null, cast({value} as {kind}))")
        for number, (kind, _, value, _) in enumerate(VALUES)
    }
    rows = frame(spark, [one]).withColumns(columns)
    assert commit(sink, sink.write(rows, [one]), [one]) == [STANDS]
    names = ", ".join(f"c{number}::text" for number in range(len(VALUES)))
    with server.connect() as connection:
        connection.execute("set timezone = 'UTC'")
        found = connection.execute(f"select {names} from {schema}.rows order by n").fetchall()
    shown = tuple(text for _, _, _, text in VALUES)
    assert found == [shown, (None,) * len(VALUES), shown]
    types = server.query(
        "select format_type(atttypid, atttypmod) from pg_attribute where attnum > 0 and attrelid ="
        f" '{schema}.rows'::regclass and attname ~ '^c[0-9]+$' order by attnum"
    )
    assert [kind for (kind,) in types] == [kind for _, kind, _, _ in VALUES]


def test_texts_go_into_columns_of_json_and_uuid(spark, server, schema):
    server.execute(f"create table {schema}.rows (shard_id text, n bigint, j jsonb, u uuid)")
    sink, one = sink_of(spark, server, schema), batch(shard(), 0, 1)
    identity = "5ea4b9a6-8f0e-4c38-9b4a-0f4b5d8f1f11"
    rows = frame(spark, [one]).select(
        "shard_id", "n", F.expr("to_json(named_struct('a', n)) as j"), F.lit(identity).alias("u")
    )
    assert commit(sink, sink.write(rows, [one]), [one]) == [STANDS]
    assert server.query(f"select j->>'a', u::text from {schema}.rows") == [("1", identity)]
