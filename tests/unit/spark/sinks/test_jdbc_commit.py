"""The half of the jdbc sink that runs here, over SQLite: rows and mark together or not at all."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from mld.spark.calls import GivenUp, Overdue, call_within
from mld.spark.errors import (
    BatchFailed,
    Fenced,
    MissingPart,
    SinkRefused,
    SinkUnavailable,
    SparkConfigError,
)
from mld.spark.model import Position
from mld.spark.sinks import jdbc_staging
from mld.spark.sinks.dbapi import DatabaseUnavailable
from mld.spark.sinks.jdbc import JdbcSink
from tests.unit.spark import sqlite_kit
from tests.unit.spark.batches import batch, config_of, shard
from tests.unit.spark.sinks.test_dbapi import ENDLESS
from tests.unit.spark.sqlite_kit import Frame, query, sink_of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def sink(path):
    made = sink_of(path)
    made.prepare(sqlite_kit.spark())
    yield made
    made.close()


def write(sink, *batches):
    staged = sink.write(Frame(*batches), batches)
    for each in batches:
        sink.commit(staged, each)
    sink.discard(staged)


def numbers() -> list[int]:
    return [n for (n,) in query("SELECT n FROM rows ORDER BY n")]


def tables() -> list[str]:
    return [name for (name,) in query("SELECT name FROM sqlite_master WHERE type='table'")]


def test_a_fresh_shard_has_no_mark(sink):
    assert sink.mark(shard()) is None


def test_connections_that_commit_each_statement_are_refused(path):
    autocommit = "tests.unit.spark.sqlite_kit:connect_without_transactions"
    made = sink_of(path, sink__connection=autocommit)
    with pytest.raises(SinkRefused, match="turn autocommit off"):
        made.prepare(sqlite_kit.spark())
    assert query("SELECT * FROM kcl_mld_stages") == []
    made.close()


def test_batches_of_two_shards_are_committed_one_by_one(sink):
    one, two = batch(shard(0), None, 3), batch(shard(1), None, 2)
    staged = sink.write(Frame(one, two), (one, two))
    sink.commit(staged, two)
    assert numbers() == [1, 2]
    assert sink.mark(shard(0)) is None
    assert sink.mark(shard(1)) == Position(2)
    sink.commit(staged, one)
    sink.discard(staged)
    assert numbers() == [1, 1, 2, 2, 3]
    assert sorted(tables()) == ["kcl_mld_marks", "kcl_mld_stages", "rows"]


def test_a_commit_that_is_repeated_changes_nothing(sink):
    for one in (batch(shard(), None, 3), batch(shard(), 3, 5)):
        write(sink, one)
        write(sink, one)
    assert numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "late", [batch(shard(), None, 2), batch(shard(), 1, 9), batch(shard(), 3, 9)]
)
def test_a_writer_that_was_overtaken_is_fenced(sink, late):
    write(sink, batch(shard(), None, 3))
    write(sink, batch(shard(), 3, 5))
    with pytest.raises(Fenced, match=r"mark in the database is 5\.0"):
        write(sink, late)
    assert numbers() == [1, 2, 3, 4, 5]


def test_a_mark_that_somebody_removed_is_not_taken_for_a_beginning(sink):
    with pytest.raises(Fenced, match="is missing"):
        write(sink, batch(shard(), 3, 5))


def test_the_second_of_two_first_writers_breaks_the_key(sink, monkeypatch):
    write(sink, batch(shard(), None, 3))
    monkeypatch.setattr(type(sink._tables), "_read", lambda *_: None)
    with pytest.raises(Fenced, match="at the same time"):
        write(sink, batch(shard(), None, 4))
    assert numbers() == [1, 2, 3]


@pytest.fixture
def hanging(sink, monkeypatch):
    """The next move of rows waits, with the mark's row locked, until it is let go."""
    free, began, original = threading.Event(), threading.Event(), type(sink)._move

    def move(self, *arguments):
        monkeypatch.undo()
        began.set()
        free.wait(10)
        original(self, *arguments)

    monkeypatch.setattr(type(sink), "_move", move)
    yield SimpleNamespace(free=free, began=began)
    free.set()


def test_a_commit_that_was_given_up_is_rolled_back_and_the_next_one_counts(sink, hanging):
    one, longer = batch(shard(), None, 3), batch(shard(), None, 5)
    staged, other = (sink.write(Frame(each), [each]) for each in (one, longer))
    with pytest.raises(Overdue) as caught:
        call_within(0.2, lambda: sink.commit(staged, one), name="commit")
    assert hanging.began.is_set()
    assert sink.mark(shard()) is None  # the shard begins again, beside it
    hanging.free.set()
    assert isinstance(caught.value.call.exception(10), GivenUp)
    sink.commit(other, longer)
    assert numbers() == [1, 2, 3, 4, 5]


def test_a_commit_of_a_shard_that_is_lost_meanwhile_is_rolled_back(sink):
    one = batch(shard(), None, 3)
    staged = sink.write(Frame(one), [one])
    with pytest.raises(GivenUp):
        call_within(10, lambda: sink.commit(staged, one), name="commit", is_wanted=lambda: False)
    assert sink.mark(shard()) is None
    assert numbers() == []


def test_a_commit_can_be_cancelled_and_tried_again(sink, monkeypatch):
    one = batch(shard(), None, 3)
    staged = sink.write(Frame(one), [one])
    sink.cancel(one)
    original = type(sink)._move

    def endless(self, transaction, *more):
        monkeypatch.setattr(type(sink), "_move", original)
        transaction.rows(ENDLESS)

    monkeypatch.setattr(type(sink), "_move", endless)
    with pytest.raises(Overdue) as caught:
        call_within(
            0.2, lambda: sink.commit(staged, one), name="commit", interrupt=lambda: sink.cancel(one)
        )
    assert isinstance(caught.value.call.exception(10), DatabaseUnavailable)
    sink.commit(staged, one)
    assert numbers() == [1, 2, 3]


def test_libpq_is_told_to_notice_a_dead_peer_unless_the_url_says_otherwise(monkeypatch):
    calls = []
    fake = SimpleNamespace(connect=lambda **arguments: calls.append(arguments))
    monkeypatch.setitem(sys.modules, "psycopg", fake)
    url = "jdbc:postgresql://h/d?connectTimeout=3"
    sink = JdbcSink(config_of(sink="jdbc", sink__url=url, sink__table="rows"), "app")
    with pytest.raises((SparkConfigError, SinkUnavailable)):
        sink.mark(shard())
    assert calls[0]["tcp_user_timeout"] == "60000"
    assert calls[0]["connect_timeout"] == "3"


def test_a_row_that_the_target_refuses_leaves_the_mark_where_it_was(sink):
    connection = sqlite_kit.connect()
    connection.execute("CREATE TABLE rows (n CHECK (n < 5))")
    connection.close()
    write(sink, batch(shard(), None, 3))
    with pytest.raises(BatchFailed, match="IntegrityError"):
        write(sink, batch(shard(), 3, 6))
    assert sink.mark(shard()) == Position(3)
    assert numbers() == [1, 2, 3]


def test_columns_that_the_target_lacks_are_named_and_the_staging_table_goes(sink):
    connection = sqlite_kit.connect()
    connection.execute("CREATE TABLE rows (N_, other)")
    connection.close()
    with pytest.raises(BatchFailed, match="no column n; it has N_, other"):
        write(sink, batch(shard(), None, 3))
    assert not [name for name in tables() if "stage_" in name]


def test_a_job_that_fails_leaves_no_staging_table(sink):
    one = batch(shard(), None, 3)
    with pytest.raises(RuntimeError, match="spark"):
        sink.write(Frame(one, error=RuntimeError("spark failed")), [one])
    assert not [name for name in tables() if "stage_" in name]


def test_a_password_in_an_error_of_spark_is_not_shown(path):
    sink = sink_of(path, sink__options__password="hunter2")
    sink.prepare(sqlite_kit.spark())
    one = batch(shard(), None, 3)
    with pytest.raises(DatabaseUnavailable, match=r"cannot open jdbc:x\?password=\*\*\*") as caught:
        sink.write(Frame(one, error=RuntimeError("cannot open jdbc:x?password=hunter2\nat")), [one])
    assert caught.value.__cause__ is None
    sink.close()


def test_an_empty_frame_moves_the_mark_only(sink):
    nothing = replace(batch(shard(), None, 3), rows=())
    write(sink, nothing)
    after = replace(batch(shard(), 3, 4), rows=())
    staged = sink.write(None, [after])
    sink.commit(staged, after)
    sink.discard(staged)
    assert sink.mark(shard()) == Position(4)
    assert numbers() == []


def test_a_function_that_returned_none_is_told_so(sink):
    with pytest.raises(BatchFailed, match=r"returned None.*spark\.sink=jdbc"):
        sink.write(None, [batch(shard(), None, 3)])


def test_what_a_dead_job_left_is_swept_after_an_hour(sink, path):
    one = batch(shard(), None, 3)
    sink.write(Frame(one), [one])
    for later_s, left in ((3599, 1), (3601, 0)):
        again = sink_of(path, now=1_000_000.0 + later_s)
        again.prepare(sqlite_kit.spark())
        assert len([name for name in tables() if "stage_" in name]) == left
        again.close()


def test_another_application_keeps_its_marks_and_staging_tables(sink, path):
    one = batch(shard(application="app"), None, 3)
    write(sink, one)
    sink.write(Frame(one), [one])
    config = config_of(
        sink="jdbc",
        sink__url="jdbc:sqlite:x",
        sink__table="rows",
        sink__connection="tests.unit.spark.sqlite_kit:connect",
    )
    other = JdbcSink(config, "other", now_s=lambda: 9e9)
    other.prepare(sqlite_kit.spark())
    assert other.mark(shard(application="other")) is None
    assert len([name for name in tables() if "stage_" in name]) == 1
    other.close()


def test_workers_that_make_the_tables_at_once_agree(path, monkeypatch):
    sink, looks = sink_of(path), []
    original = type(sink._tables)._is_there

    def late(self, table):
        looks.append(table)
        if len(looks) == 1:
            original_sink = sink_of(path)
            original_sink._tables._ensure(table, "application, stream, shard, epoch, mark")
            original_sink.close()
            return False
        return original(self, table)

    monkeypatch.setattr(type(sink._tables), "_is_there", late)
    sink.prepare(sqlite_kit.spark())
    assert sink.mark(shard()) is None
    sink.close()


def test_a_database_that_lets_nobody_in_is_told_without_its_password():
    config = config_of(
        sink="jdbc",
        sink__url="jdbc:x:",
        sink__table="rows",
        sink__connection="tests.unit.spark.sqlite_kit:refuse",
    )
    sink = JdbcSink(config, "app")
    with pytest.raises(SinkUnavailable, match=r"cannot connect: .*password=\*\*\* and more"):
        sink.prepare(sqlite_kit.spark())
    with pytest.raises(SinkUnavailable, match="mark of shardId-000000000000"):
        sink.mark(shard())
    one = batch(shard(), None, 1)
    with pytest.raises(DatabaseUnavailable, match="staging table"):
        sink.write(Frame(one), [one])


def test_what_the_function_of_the_user_gives_must_be_a_connection():
    config = config_of(
        sink="jdbc",
        sink__url="jdbc:x:",
        sink__table="rows",
        sink__connection="tests.unit.spark.sqlite_kit:no_connection",
    )
    with pytest.raises(SparkConfigError, match="connection of a DB-API driver"):
        JdbcSink(config, "app").prepare(sqlite_kit.spark())


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        ("java.sql.SQLException: No suitable driver", MissingPart, "no JDBC driver"),
        ("ClassNotFoundException: a.B", MissingPart, r"spark\.conf\.spark\.jars"),
        ("refused", SinkUnavailable, "the Spark server cannot read"),
    ],
)
def test_a_server_that_does_not_reach_the_database_is_told(path, error, kind, text):
    sink = sink_of(path)
    with pytest.raises(kind, match=text):
        sink.prepare(sqlite_kit.spark(RuntimeError(error)))
    sink.close()


def test_names_with_quotes_are_quoted(path):
    sink = sink_of(path, sink__table='"odd ""name"')
    sink.prepare(sqlite_kit.spark())
    write(sink, batch(shard(), None, 2))
    assert query('SELECT COUNT(*) FROM "odd ""name"') == [(2,)]
    sink.close()


@pytest.mark.parametrize("missing", ["sink__url", "sink__table"])
def test_url_and_table_have_to_be_named(missing):
    given = {"sink__url": "jdbc:x:", "sink__table": "rows"}
    del given[missing]
    with pytest.raises(SparkConfigError, match=r"spark\.sink\.url and spark\.sink\.table"):
        JdbcSink(config_of(sink="jdbc", **given), "app")


def test_postgresql_is_opened_by_its_url_and_its_password_never_shows():
    url = "jdbc:postgresql://127.0.0.1:1/d?user=u&password=geheim"
    sink = JdbcSink(config_of(sink="jdbc", sink__url=url, sink__table="rows"), "app")
    with pytest.raises(SinkUnavailable, match="cannot connect: OperationalError") as caught:
        sink.mark(shard())
    assert "geheim" not in str(caught.value)


def test_a_missing_psycopg_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    config = config_of(sink="jdbc", sink__url="jdbc:postgresql:d", sink__table="rows")
    with pytest.raises(MissingPart, match=r"pip install 'kcl-mld\[postgres\]'"):
        JdbcSink(config, "app")


def test_a_target_that_another_worker_makes_first_is_taken(sink, monkeypatch):
    original, looks = jdbc_staging.table_columns, []

    def late(database, table):
        looks.append(table)
        if looks.count(sink._target) == 1 and table == sink._target:
            connection = sqlite_kit.connect()
            connection.execute("CREATE TABLE rows (n)")
            connection.close()
            return None
        return original(database, table)

    monkeypatch.setattr(jdbc_staging, "table_columns", late)
    write(sink, batch(shard(), None, 3))
    assert numbers() == [1, 2, 3]


def test_a_target_that_cannot_be_made_is_told(path):
    sink = sink_of(path, sink__table="nowhere.rows")
    with pytest.raises(SinkUnavailable, match="nowhere"):
        sink.prepare(sqlite_kit.spark())
    sink.close()
