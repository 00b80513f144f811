"""The half of the jdbc sink that runs here, over SQLite: rows and marks together or not at all."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import psycopg
import pyarrow as pa
import pytest

from kcl_mld.spark.calls import GivenUp, Overdue, call_within
from kcl_mld.spark.errors import (
    BatchFailed,
    MissingPart,
    SinkRefused,
    SinkUnavailable,
)
from kcl_mld.spark.model import Position
from kcl_mld.spark.ports import CancelsCommits, CommitOutcome
from kcl_mld.spark.sinks import jdbc as jdbc_sink
from kcl_mld.spark.sinks.database import DatabaseUnavailable
from kcl_mld.spark.sinks.jdbc import PAUSES_S, JdbcSink
from tests.unit.spark import sqlite_kit
from tests.unit.spark.batches import batch, config_of, shard
from tests.unit.spark.sinks.test_database import ENDLESS
from tests.unit.spark.sqlite_kit import Frame, query, sink_of

STANDS, LOST, AGAIN = CommitOutcome.STANDS, CommitOutcome.LOST, CommitOutcome.AGAIN


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db"


@pytest.fixture
def sink(path):
    made = sink_of(path)
    made.prepare(None)
    yield made
    made.close()


def outcomes(sink, staged, batches) -> list[CommitOutcome]:
    found = sink.commit_all(staged, batches)
    return [found[each.shard] for each in batches]


def write(sink, *batches) -> list[CommitOutcome]:
    """A job from its write to its end."""
    staged = sink.write(Frame(*batches), batches)
    try:
        return outcomes(sink, staged, batches)
    finally:
        sink.discard(staged)


def numbers(number: int = 0) -> list[int]:
    return [n for (n,) in query(f"SELECT n FROM rows WHERE shard = '{number}' ORDER BY n")]


def tables() -> list[str]:
    return [name for (name,) in query("SELECT name FROM sqlite_master WHERE type='table'")]


def execute(sql: str) -> None:
    connection = sqlite3.connect(sqlite_kit.place.path)
    connection.execute(sql)
    connection.commit()
    connection.close()


def test_a_fresh_shard_has_no_mark(sink):
    assert sink.mark(shard()) is None


def test_a_way_to_the_database_that_commits_each_statement_is_refused(path):
    made = sink_of(path, connect=sqlite_kit.connect_without_transactions)
    with pytest.raises(SinkRefused, match="commits each statement by itself"):
        made.prepare(None)
    assert query("SELECT * FROM kcl_mld_marks") == []
    made.close()


def test_the_batches_of_all_shards_are_one_transaction_and_one_computation(sink):
    one, two = batch(shard(0), None, 3), batch(shard(1), None, 2)
    frame = Frame(one, two)
    staged = sink.write(frame, (one, two))
    assert outcomes(sink, staged, (one, two)) == [STANDS, STANDS]
    sink.discard(staged)
    assert frame.saved == 1
    assert (numbers(0), numbers(1)) == ([1, 2, 3], [1, 2])
    assert (sink.mark(shard(0)), sink.mark(shard(1))) == (Position(3), Position(2))
    assert sorted(tables()) == ["kcl_mld_marks", "rows"]


def test_first_marks_and_moved_ones_go_together(sink):
    write(sink, batch(shard(1), None, 2))
    assert write(sink, batch(shard(2), None, 1), batch(shard(1), 2, 4)) == [STANDS, STANDS]
    assert (numbers(1), numbers(2)) == ([1, 2, 3, 4], [1])
    assert (sink.mark(shard(1)), sink.mark(shard(2))) == (Position(4), Position(1))


def test_a_commit_that_is_repeated_changes_nothing(sink):
    for job in (
        (batch(shard(0), None, 3), batch(shard(1), None, 2)),
        (batch(shard(0), 3, 5), batch(shard(1), 2, 3)),
    ):
        assert write(sink, *job) == [STANDS, STANDS]
        assert write(sink, *job) == [STANDS, STANDS]
        assert write(sink, job[0]) == [STANDS]  # written again without a shard that was lost
    assert (numbers(0), numbers(1)) == ([1, 2, 3, 4, 5], [1, 2, 3])


@pytest.mark.parametrize(
    "late", [batch(shard(), None, 2), batch(shard(), 1, 9), batch(shard(), 3, 9)]
)
def test_a_writer_that_was_overtaken_loses_the_shard_and_the_others_are_written_again(sink, late):
    write(sink, batch(shard(), None, 3))
    write(sink, batch(shard(), 3, 5))
    other = batch(shard(1), None, 2)
    assert write(sink, late, other) == [LOST, AGAIN]
    assert sink.mark(shard(1)) is None
    assert write(sink, other) == [STANDS]
    assert (numbers(0), numbers(1)) == ([1, 2, 3, 4, 5], [1, 2])


def test_a_shard_whose_records_another_writer_has_committed_is_lost_in_company(sink):
    """One of the marks at its batch's end is no commit of this job: it would have moved both."""
    ours = batch(shard(0), None, 3), batch(shard(1), None, 2)
    staged = sink.write(Frame(*ours), ours)
    write(sink, batch(shard(0), None, 3))
    assert outcomes(sink, staged, ours) == [LOST, AGAIN]
    assert (numbers(0), numbers(1)) == ([1, 2, 3], [])


def test_a_mark_that_somebody_removed_is_not_taken_for_a_beginning(sink, caplog):
    write(sink, batch(shard(), None, 3))
    execute("DELETE FROM kcl_mld_marks")
    assert write(sink, batch(shard(), 3, 5)) == [LOST]
    assert "the mark in the database is missing" in caplog.text


def test_the_second_of_two_first_writers_breaks_the_key_and_looks_again(sink, monkeypatch):
    write(sink, batch(shard(), None, 3))
    tables, locks = type(sink._marks), []
    original = tables.lock

    def lock(self, *arguments):
        locks.append(arguments)
        return original(self, *arguments) if len(locks) > 1 else {}

    monkeypatch.setattr(tables, "lock", lock)
    assert write(sink, batch(shard(), None, 4), batch(shard(1), None, 1)) == [LOST, AGAIN]
    assert len(locks) == 2
    assert (numbers(0), numbers(1)) == ([1, 2, 3], [])


class Flaky:
    """Connections that fail where the test says, as often as it says."""

    def __init__(self):
        self.refusals = 0
        self.lost_answers = 0
        self.opened = 0
        self.pauses = []

    def __call__(self):
        self.opened += 1
        if self.refusals:
            self.refusals -= 1
            sqlite_kit.refuse()
        made = sqlite_kit.connect()
        if self.lost_answers:
            self.lost_answers -= 1
            made.execute("PRAGMA user_version")  # a connection of this outage
            made.loses_answer = True
        return made


@pytest.fixture
def flaky():
    return Flaky()


@pytest.fixture
def shaky(path, flaky, monkeypatch):
    """A sink whose connections fail where ``flaky`` says."""
    commit = sqlite_kit.Connection.commit

    def commit_and_lose(self):
        commit(self)
        if getattr(self, "loses_answer", False):
            raise sqlite3.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(sqlite_kit.Connection, "commit", commit_and_lose)
    made = sink_of(path, connect=flaky, pause=flaky.pauses.append)
    made.prepare(None)
    flaky.pauses.clear()
    yield made
    made.close()


def test_an_outage_costs_one_wait_and_one_write_whatever_the_number_of_shards(shaky, flaky):
    batches = [batch(shard(number), None, 2) for number in range(19)]
    frame = Frame(*batches)
    staged = shaky.write(frame, batches)
    shaky.close()  # the server is gone, and its connections with it
    flaky.refusals = 9
    assert outcomes(shaky, staged, batches) == [STANDS] * 19
    assert frame.saved == 1
    assert flaky.pauses == list(PAUSES_S[:10])
    assert sum(flaky.pauses) > 10  # a database that is started again takes no longer
    assert query("SELECT COUNT(*) FROM rows") == [(38,)]


def test_a_shard_that_begins_during_an_outage_waits_for_its_mark(shaky, flaky):
    """Or after one, with a connection that it has cut: the worker would end otherwise."""
    write(shaky, batch(shard(), None, 3))
    shaky.close()
    flaky.refusals = 9
    assert shaky.mark(shard()) == batch(shard(), None, 3).to
    flaky.pauses.clear()
    shaky.close()
    flaky.refusals = 1000
    with pytest.raises(SinkUnavailable, match="cannot connect"):
        shaky.mark(shard())
    assert flaky.pauses == list(PAUSES_S)
    flaky.refusals = 0


@pytest.mark.parametrize("lost", range(1, 9))
def test_a_worker_that_starts_waits_while_answers_are_lost(shaky, flaky, path, lost):
    """Else it would end, and its Spark server with it."""
    shaky.close()
    flaky.lost_answers = lost
    late = sink_of(path, connect=flaky, pause=flaky.pauses.append)
    late.prepare(None)
    assert flaky.pauses == list(PAUSES_S[: lost + 1])
    assert write(late, batch(shard(), None, 2)) == [STANDS]
    late.close()


def test_a_worker_that_starts_tells_of_an_outage_that_lasts_and_at_once_of_no_connection(
    shaky, flaky, path
):
    shaky.close()
    late = sink_of(path, connect=flaky, pause=flaky.pauses.append)
    flaky.lost_answers = 1000
    with pytest.raises(SinkUnavailable, match="closed the connection unexpectedly"):
        late.prepare(None)
    assert flaky.pauses == list(PAUSES_S)
    flaky.pauses.clear()
    flaky.lost_answers, flaky.refusals = 0, 1000
    with pytest.raises(SinkUnavailable, match="cannot connect"):
        late.prepare(None)
    assert flaky.pauses == [0.0]


def test_an_outage_that_lasts_is_told_and_the_batches_are_found_committed_or_not(shaky, flaky):
    one = batch(shard(), None, 3)
    staged = shaky.write(Frame(one), [one])
    shaky.close()
    flaky.refusals = len(PAUSES_S)
    with pytest.raises(SinkUnavailable, match=r"cannot connect: .*password=\*\*\*"):
        shaky.commit_all(staged, [one])
    assert outcomes(shaky, staged, [one]) == [STANDS]
    assert numbers() == [1, 2, 3]


def test_a_commit_whose_answer_was_lost_is_found_by_its_marks(shaky, flaky):
    ours = batch(shard(0), None, 3), batch(shard(1), None, 2)
    staged = shaky.write(Frame(*ours), ours)
    shaky.close()
    flaky.lost_answers = 1
    before = flaky.opened
    assert outcomes(shaky, staged, ours) == [STANDS, STANDS]
    assert flaky.opened == before + 2  # looked at over another connection
    assert (numbers(0), numbers(1)) == ([1, 2, 3], [1, 2])


@pytest.fixture
def hanging(sink, monkeypatch):
    """The next move of rows waits, with the marks locked, until it is let go."""
    free, began, original = threading.Event(), threading.Event(), type(sink)._copy

    def move(self, *arguments):
        monkeypatch.undo()
        began.set()
        free.wait(10)
        original(self, *arguments)

    monkeypatch.setattr(type(sink), "_copy", move)
    yield SimpleNamespace(free=free, began=began)
    free.set()


def test_a_commit_that_was_given_up_is_rolled_back_and_the_next_one_counts(sink, hanging):
    one, longer = batch(shard(), None, 3), batch(shard(), None, 5)
    staged, other = (sink.write(Frame(each), [each]) for each in (one, longer))
    with pytest.raises(Overdue) as caught:
        call_within(0.2, lambda: sink.commit_all(staged, [one]), name="commit")
    assert hanging.began.is_set()
    assert sink.mark(shard()) is None  # the shard begins again, beside it
    hanging.free.set()
    assert isinstance(caught.value.call.exception(10), GivenUp)
    assert outcomes(sink, other, [longer]) == [STANDS]
    assert numbers() == [1, 2, 3, 4, 5]


def test_a_commit_of_a_shard_that_is_lost_before_it_begins_does_not_begin(sink):
    one = batch(shard(), None, 3)
    staged = sink.write(Frame(one), [one])
    with pytest.raises(GivenUp):
        call_within(
            10, lambda: sink.commit_all(staged, [one]), name="commit", is_wanted=lambda: False
        )
    assert sink.mark(shard()) is None
    assert numbers() == []


def test_a_commit_of_a_shard_that_is_lost_meanwhile_is_rolled_back(sink, monkeypatch):
    one, two = batch(shard(0), None, 3), batch(shard(1), None, 2)
    staged = sink.write(Frame(one, two), [one, two])
    lost, original = [], type(sink)._copy

    def move(self, *arguments):
        original(self, *arguments)
        lost.append(1)

    monkeypatch.setattr(type(sink), "_copy", move)
    with pytest.raises(GivenUp):
        call_within(
            10, lambda: sink.commit_all(staged, [one, two]), name="c", is_wanted=lambda: not lost
        )
    assert sink.mark(shard(0)) is sink.mark(shard(1)) is None
    assert numbers(0) == numbers(1) == []


def test_a_commit_whose_time_is_over_is_cancelled_and_may_be_made_again(sink, monkeypatch):
    one = batch(shard(), None, 3)
    staged = sink.write(Frame(one), [one])
    assert isinstance(sink, CancelsCommits)
    sink.cancel([one])
    original = type(sink)._copy

    def endless(self, transaction, *more):
        monkeypatch.setattr(type(sink), "_copy", original)
        transaction.rows(ENDLESS)

    monkeypatch.setattr(type(sink), "_copy", endless)
    with pytest.raises(Overdue) as caught:
        call_within(
            0.2,
            lambda: sink.commit_all(staged, [one]),
            name="commit",
            interrupt=lambda: sink.cancel([one]),
        )
    assert isinstance(caught.value.call.exception(10), GivenUp)
    assert outcomes(sink, staged, [one]) == [STANDS]
    assert numbers() == [1, 2, 3]


def test_a_row_that_the_target_refuses_leaves_the_marks_where_they_were(sink):
    execute("CREATE TABLE rows (n INTEGER CHECK (n < 5), shard)")
    write(sink, batch(shard(), None, 3))
    with pytest.raises(BatchFailed, match="IntegrityError"):
        write(sink, batch(shard(), 3, 6), batch(shard(1), None, 1))
    assert (sink.mark(shard()), sink.mark(shard(1))) == (Position(3), None)
    assert numbers() == [1, 2, 3]


def test_columns_that_the_target_lacks_are_named(sink):
    execute("CREATE TABLE rows (N_, shard)")
    with pytest.raises(BatchFailed, match="no column n; it has N_, shard"):
        write(sink, batch(shard(), None, 3))


def test_an_empty_frame_moves_the_mark_only(sink):
    nothing = replace(batch(shard(), None, 3), rows=())
    assert write(sink, nothing) == [STANDS]
    after = replace(batch(shard(), 3, 4), rows=())
    assert write(sink, after) == [STANDS]
    assert sink.mark(shard()) == Position(4)
    assert numbers() == []


def test_another_application_has_other_marks(sink, path):
    write(sink, batch(shard(application="app"), None, 3))
    other = sink_of(path, application="other")
    other.prepare(None)
    assert other.mark(shard(application="other")) is None
    other.close()


def test_workers_that_make_the_tables_at_once_agree(path, monkeypatch):
    sink, looks = sink_of(path), []
    original = type(sink._marks)._is_there

    def late(self):
        looks.append(1)
        if len(looks) == 1:
            other = sink_of(path)
            other._marks.create()
            other.close()
            return False
        return original(self)

    monkeypatch.setattr(type(sink._marks), "_is_there", late)
    sink.prepare(None)
    assert sink.mark(shard()) is None
    sink.close()


def test_a_database_that_lets_nobody_in_is_told_without_its_password(path):
    sink = sink_of(path, connect=sqlite_kit.refuse)
    with pytest.raises(SinkUnavailable, match=r"cannot connect: .*password=\*\*\* and more"):
        sink.prepare(None)
    with pytest.raises(SinkUnavailable, match="mark of shardId-000000000000"):
        sink.mark(shard())
    one = batch(shard(), None, 1)
    with pytest.raises(DatabaseUnavailable, match='look at "rows"'):
        sink.write(Frame(one), [one])


def test_a_mark_that_is_no_position_is_told(sink):
    write(sink, batch(shard(), None, 3))
    execute("UPDATE kcl_mld_marks SET mark = 'x'")
    with pytest.raises(BatchFailed, match="the mark of shardId-000000000000: ValueError"):
        sink.mark(shard())


def test_a_target_that_cannot_be_read_is_not_taken_for_a_missing_one(sink):
    execute("CREATE VIEW rows AS SELECT nowhere(1) AS n")
    one = batch(shard(), None, 1)
    with pytest.raises(BatchFailed, match='"rows" cannot be read: ProgrammingError: no such func'):
        sink.write(Frame(one), [one])


def test_a_target_without_a_schema_gets_the_one_of_the_connection(path, monkeypatch):
    sink = sink_of(path)
    sink.prepare(None)
    assert sink._target == '"main"."rows"'
    sink.prepare(None)
    assert sink._target == '"main"."rows"'
    sink.close()
    monkeypatch.setattr(sqlite_kit.place, "schema", "NULL")
    with pytest.raises(SinkRefused, match=r'"rows" is in no schema .* write it as schema\.table'):
        sink_of(path).prepare(None)


def test_a_column_whose_name_postgresql_would_cut_is_refused_in_a_table_that_is_made(
    sink, monkeypatch
):
    name = "ä" * 32
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}}]
    schema = SimpleNamespace(json=lambda: json.dumps({"type": "struct", "fields": fields}))
    frame = SimpleNamespace(schema=schema, toArrow=lambda: pa.table({name: pa.array([1])}))
    with pytest.raises(BatchFailed, match=f"column {name} has a name of more than 63 bytes"):
        sink.write(frame, [])
    assert "rows" not in tables()


def test_a_frame_without_columns_is_refused(sink):
    schema = SimpleNamespace(json=lambda: '{"type": "struct", "fields": []}')
    with pytest.raises(BatchFailed, match="has no columns: select some"):
        sink.write(SimpleNamespace(schema=schema), [])


def test_names_with_quotes_are_quoted(path):
    sink = sink_of(path, sink__table='"odd ""name"')
    sink.prepare(None)
    write(sink, batch(shard(), None, 2))
    assert query('SELECT COUNT(*) FROM "odd ""name"') == [(2,)]
    sink.close()


def test_postgresql_is_opened_by_its_url_and_its_password_never_shows():
    url = "jdbc:postgresql://127.0.0.1:1/d?user=u&password=geheim"
    config = config_of(sink="jdbc", sink__url=url, sink__table="rows")
    sink = JdbcSink(config, "app", pause=lambda _: None)
    with pytest.raises(SinkUnavailable, match="cannot connect: OperationalError") as caught:
        sink.mark(shard())
    assert "geheim" not in str(caught.value)


def test_a_dead_peer_is_noticed_unless_the_url_says_otherwise(monkeypatch):
    calls = []

    def connect(**arguments):
        calls.append(arguments)
        raise psycopg.OperationalError("refused")

    monkeypatch.setattr(psycopg, "connect", connect)
    url = "jdbc:postgresql://h/d?connectTimeout=3"
    config = config_of(sink="jdbc", sink__url=url, sink__table="rows")
    sink = JdbcSink(config, "app", pause=lambda _: None)
    with pytest.raises(SinkUnavailable):
        sink.mark(shard())
    assert (calls[0]["client_encoding"], calls[0]["prepare_threshold"]) == ("utf8", None)
    assert calls[0]["tcp_user_timeout"] == "60000"
    assert calls[0]["connect_timeout"] == "3"


def test_a_missing_psycopg_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    config = config_of(sink="jdbc", sink__url="jdbc:postgresql:d", sink__table="rows")
    with pytest.raises(MissingPart, match=r"pip install 'kcl-mld\[postgres\]'"):
        JdbcSink(config, "app")


def test_a_target_that_another_worker_makes_first_is_taken(sink, monkeypatch):
    original, looks = jdbc_sink.table_columns, []

    def late(database, table):
        looks.append(table)
        if looks.count(sink._target) == 1 and table == sink._target:
            execute("CREATE TABLE rows (n INTEGER, shard)")
            return None
        return original(database, table)

    monkeypatch.setattr(jdbc_sink, "table_columns", late)
    write(sink, batch(shard(), None, 3))
    assert numbers() == [1, 2, 3]


def test_a_schema_that_is_not_there_is_told(path):
    sink = sink_of(path, sink__table="nowhere.rows")
    with pytest.raises(BatchFailed, match="nowhere"):
        sink.prepare(None)
    sink.close()


def test_a_missing_table_is_made_only_if_that_is_said(path):
    made = sink_of(path, sink__createTable="false")
    with pytest.raises(SinkRefused, match=r'"rows" is missing.*spark\.sink\.createTable = true'):
        made.prepare(None)
    assert "rows" not in tables()
    execute("CREATE TABLE rows (n INTEGER, shard)")
    made.prepare(None)
    assert write(made, batch(shard(), None, 2)) == [STANDS]
    made.close()
