"""Connections and transactions of the jdbc sink, over SQLite: errors without secrets."""

from __future__ import annotations

import sqlite3
import threading
from types import SimpleNamespace

import psycopg
import pytest

from kcl_mld.config.spark.addresses import table_parts
from kcl_mld.config.spark.keys import COMPRESSION, MERGE_SCHEMA, PARTITION_BY, SINK_OPTIONS
from kcl_mld.config.spark.postgres import libpq_parameters
from kcl_mld.spark.calls import Overdue, call_within
from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.sinks import database
from kcl_mld.spark.sinks.database import (
    Database,
    DatabaseUnavailable,
    Transaction,
    brief,
    masked,
    open_database,
)
from tests.unit.spark import sqlite_kit
from tests.unit.spark.sqlite_kit import TRANSIENT


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "jdbc:x://h/d?user=a&password=geheim&ssl=true",
            "jdbc:x://h/d?user=a&password=***&ssl=true",
        ),
        ("postgresql://a:geheim@h/d", "postgresql://a:***@h/d"),
        ("host=h PASSWORD = geheim user=a", "host=h PASSWORD = *** user=a"),
        ("refused for geheim", "refused for ***"),
        ("nothing secret here", "nothing secret here"),
    ],
)
def test_passwords_do_not_show(text, shown):
    assert masked(text, ["geheim", ""]) == shown


def test_an_error_is_one_line():
    assert brief(ValueError("duplicate key\nDETAIL: Key (a)=(5)")) == "ValueError: duplicate key"
    assert brief(ValueError()) == "ValueError: "


class OfAValue(Exception):
    """As psycopg has it."""

    sqlstate = "22P02"


@pytest.mark.parametrize(
    ("said", "context", "told"),
    [
        (
            'invalid input syntax for type integer: "geheim"',
            'COPY rows, line 1, column a b: "geheim"',
            "OfAValue: the column a b: invalid input syntax for type integer: …",
        ),
        (
            "ungültige Eingabesyntax für Typ integer: »geheim«",
            "COPY rows, Zeile 1, Spalte a: »geheim«",
            "OfAValue: the column a: ungültige Eingabesyntax für Typ integer: …",
        ),
        ("division by zero", None, "OfAValue: division by zero"),
    ],
)
def test_a_value_that_a_column_does_not_take_is_not_shown(said, context, told):
    error = OfAValue(f"{said}\nCONTEXT: {context}")
    error.diag = SimpleNamespace(message_primary=said, context=context)
    assert brief(error) == told


@pytest.mark.parametrize(
    ("state", "context", "told"),
    [
        (
            "P0001",
            'PL/pgSQL function shop.check_row() line 3 at RAISE\nCOPY rows, line 1: "geheim"',
            "the function shop.check_row(): SQLSTATE P0001, whose message may hold a value",
        ),
        (
            "23514",
            "PL/pgSQL-Funktion check_row() Zeile 3 bei RAISE",
            "the function check_row(): SQLSTATE 23514, whose message may hold a value",
        ),
        ("23514", "PL/pgSQL function f() line 3 at SQL statement", "geheim"),
        ("P0001", None, "SQLSTATE P0001, whose message may hold a value"),
        ("22021", "COPY rows, line 1", "SQLSTATE 22021, whose message may hold a value"),
        ("22P05", "COPY rows, line 1", "SQLSTATE 22P05, whose message may hold a value"),
        ("23505", 'COPY rows, line 1: "geheim"', "geheim"),
    ],
)
def test_a_message_that_may_hold_a_value_anywhere_is_not_shown(state, context, told):
    error = OfAValue("geheim")
    error.sqlstate, error.diag = state, SimpleNamespace(message_primary="geheim", context=context)
    assert brief(error) == f"OfAValue: {told}"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:postgresql:orders", {"host": "localhost", "dbname": "orders"}),
        ("jdbc:postgresql:", {"host": "localhost"}),
        ("jdbc:postgresql:/", {"host": "localhost"}),
        ("jdbc:postgresql:///orders", {"host": "localhost", "dbname": "orders"}),
        ("jdbc:postgresql://:5433/d", {"host": "localhost", "port": "5433", "dbname": "d"}),
        ("jdbc:postgresql:d?host=/run/postgresql", {"host": "/run/postgresql"}),
        ("jdbc:postgresql:d?hostaddr=127.0.0.1", {"hostaddr": "127.0.0.1"}),
        ("jdbc:postgresql:d?service=s", {"service": "s"}),
        ("jdbc:postgresql:d?targetServerType=ANY", {"target_session_attrs": "any"}),
        ("jdbc:postgresql://h/", {"host": "h"}),
        (
            "jdbc:postgresql://h1:1,[::1]:2,[::2]/a%20b",
            {"host": "h1,::1,::2", "port": "1,2,", "dbname": "a b"},
        ),
        (
            "jdbc:postgresql://h/d?user=u&password=p%26q&sslmode=require&connectTimeout=3",
            {
                "host": "h",
                "dbname": "d",
                "user": "u",
                "password": "p&q",
                "sslmode": "require",
                "connect_timeout": "3",
            },
        ),
        (
            "jdbc:postgresql:d?ssl=true&currentSchema=s&targetServerType=primary",
            {
                "dbname": "d",
                "sslmode": "verify-full",
                "options": "-csearch_path=s",
                "target_session_attrs": "read-write",
            },
        ),
        ("jdbc:postgresql:d?ssl", {"dbname": "d", "sslmode": "verify-full"}),
        ("jdbc:postgresql:d?ssl=false", {"dbname": "d"}),
        ("jdbc:postgresql:d?target_session_attrs=any", {"target_session_attrs": "any"}),
        (
            "jdbc:postgresql:d?currentSchema=My%20own\\&options=-c%20statement_timeout=5s",
            {"options": "-c statement_timeout=5s -csearch_path=My\\ own\\\\"},
        ),
    ],
)
def test_a_url_is_what_libpq_is_told(monkeypatch, url, expected):
    found = _told(monkeypatch, url)
    ours = set(database._PATIENCE) | set(database._ALWAYS)
    if "sql:d" in url:
        here = {} if {"host", "hostaddr", "service"} & set(expected) else {"host": "localhost"}
        expected = {"dbname": "d"} | here | expected
    assert {
        name: text for name, text in found.items() if name in expected or name not in ours
    } == expected


def _told(monkeypatch, url, **options):
    calls = []

    def connect(**arguments):
        calls.append(arguments)
        raise psycopg.OperationalError("refused")

    monkeypatch.setattr(psycopg, "connect", connect)
    with (
        pytest.raises(DatabaseUnavailable),
        open_database(url, options).transaction("test"),
    ):
        pass
    return calls[0]


def test_user_and_password_come_from_the_options_before_the_url(monkeypatch):
    url = "jdbc:postgresql:d?password=url&currentSchema=b"
    found = _told(monkeypatch, url, password="option", currentSchema="a", user="u")
    assert (found["user"], found["password"]) == ("u", "option")
    assert found["options"] == "-csearch_path=b"
    assert libpq_parameters({"user": "u", "password": ""}) == {"user": "u"}


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("jdbc:postgresql://kcl:geheim@h/d", "spark.sink.url has user and password"),
        ("jdbc:mysql://h/d", "writes to PostgreSQL only"),
        ("jdbc:postgresql:d?reWriteBatchedInserts=true", 'connection option "reWriteBatchedIns'),
        ("jdbc:postgresql:d?client_encoding=latin1", "client_encoding is no parameter of this"),
        ("jdbc:postgresql:d?dbname=e", "dbname is no parameter .*behind the host; take it out"),
        ("jdbc:postgresql:d?replication=true", "replication is no parameter of this sink"),
        (
            "jdbc:postgresql:d?targetServerType=secondary",
            "targetServerType must be one of pri",
        ),
        ("jdbc:postgresql:d?target_session_attrs=read-only", "attrs must be .*: the sink writes"),
        ("jdbc:postgresql:d?loginTimeout=1s", "loginTimeout must be a whole number"),
        ("jdbc:postgresql:d?connectTimeout=1.5", "connectTimeout must be a whole number"),
        ("jdbc:postgresql:d?keepalives_idle=x", "keepalives_idle must be a whole number"),
        ("jdbc:postgresql:d?port=x", "port must be a whole number"),
        ("jdbc:postgresql://a:1,b:65536/d?password=geheim", "port must be a whole number from 1"),
        ("jdbc:postgresql://[::1/d?password=geheim", "spark.sink.url, .*IPv6"),
    ],
)
def test_what_libpq_does_not_know_is_refused_without_a_password(url, why):
    with pytest.raises(SparkConfigError, match=why) as caught:
        open_database(url, {})
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    "name", sorted({*SINK_OPTIONS} - {COMPRESSION, PARTITION_BY, MERGE_SCHEMA})
)
def test_every_option_that_is_known_is_one_of_libpq(name):
    open_database("jdbc:postgresql:d", {name: "any" if name == "targetServerType" else "1"})


def test_percent_signs_in_names_are_no_parameters():
    said = []
    cursor = SimpleNamespace(
        execute=lambda *args: said.append(args),
        executemany=lambda *args: said.append(args),
        rowcount=0,
    )
    transaction = Transaction(cursor)
    transaction.run('DELETE FROM "100%s" WHERE a = %(a)s', a=1)
    transaction.run_each('INSERT INTO "5%" VALUES (%(a)s)', [{"a": 1}])
    transaction.run('DROP TABLE "100%s"')
    assert said == [
        ('DELETE FROM "100%%s" WHERE a = %(a)s', {"a": 1}),
        ('INSERT INTO "5%%" VALUES (%(a)s)', [{"a": 1}]),
        ('DROP TABLE "100%s"',),
    ]


class Plain(sqlite3.Connection):
    closed = False


class Flaky:
    """Connections to SQLite that count, and whose commit can be made to fail."""

    def __init__(self, path):
        self._path = path
        self.opened = 0

    def __call__(self):
        self.opened += 1
        return sqlite3.connect(self._path, factory=Plain)


def test_a_connection_is_used_again_and_given_up_after_an_error(tmp_path):
    connect = Flaky(tmp_path / "db")
    database = Database(connect, TRANSIENT)
    for _ in range(3):
        with database.transaction("test") as transaction:
            transaction.run("CREATE TABLE IF NOT EXISTS t (a PRIMARY KEY)")
    assert connect.opened == 1
    with pytest.raises(sqlite3.IntegrityError), database.transaction("test") as transaction:
        transaction.run_each("INSERT INTO t VALUES (:a)", [{"a": 1}, {"a": 2}, {"a": 1}])
    with database.transaction("test") as transaction:
        assert transaction.rows("SELECT * FROM t") == []
        assert transaction.columns("t") == ["a"]
    assert connect.opened == 2
    with pytest.raises(DatabaseUnavailable, match="test: OperationalError"):  # noqa: SIM117
        with database.transaction("test") as transaction:
            transaction.run("SELECT nonsense FROM nowhere")
    database.close()


@pytest.mark.parametrize(
    ("error", "is_closed", "is_outage"),
    [
        (psycopg.OperationalError("server closed the connection"), True, True),
        (psycopg.errors.SerializationFailure("again"), False, True),
        (psycopg.InternalError("received 2 results from command 'COMMIT'"), True, True),
        (ValueError("too many values to unpack"), True, True),
        (psycopg.ProgrammingError("COPY cannot be mixed with other operations"), True, True),
        (ValueError("too many values to unpack"), False, False),
        (psycopg.errors.ProgramLimitExceeded("index row size 6000 exceeds"), False, False),
        (psycopg.errors.TooManyColumns("tables can have at most 1600 columns"), False, False),
        (KeyboardInterrupt(), True, False),
    ],
)
def test_an_outage_is_a_connection_that_is_gone_or_an_error_that_may_not_come_again(
    error, is_closed, is_outage
):
    closed = []
    connection = SimpleNamespace(
        closed=is_closed,
        cursor=lambda: SimpleNamespace(close=lambda: None),
        rollback=lambda: None,
        close=lambda: closed.append(1),
    )
    database = Database(lambda: connection, (psycopg.OperationalError,))
    with (
        pytest.raises(DatabaseUnavailable if is_outage else type(error)),
        database.transaction("test"),
    ):
        raise error
    assert closed == [1]


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"


def test_a_running_transaction_is_cancelled_by_its_name(tmp_path):
    sqlite_kit.place.path = str(tmp_path / "db")
    database = Database(sqlite_kit.connect, TRANSIENT)
    began = threading.Event()

    def endless():
        with database.transaction("endless") as transaction:
            began.set()
            transaction.rows(ENDLESS)

    def cancel():
        assert began.wait(120)
        database.cancel("another")
        database.cancel("endless")

    with pytest.raises(Overdue) as caught:
        call_within(0.2, endless, name="endless", interrupt=cancel)
    assert isinstance(caught.value.call.exception(10), DatabaseUnavailable)
    database.cancel("endless")


def test_connections_that_cannot_be_closed_keep_nobody_from_a_new_one():
    """Their server is gone without a word, and their driver waits for its answer for ever."""
    is_gone, is_closing, is_back = threading.Event(), threading.Event(), threading.Event()

    class Stuck(Plain):
        def rollback(self):
            if is_gone.is_set():
                is_closing.set()
                assert is_back.wait(120)
            super().rollback()

    def connect():
        kind = Plain if is_gone.is_set() else Stuck
        return sqlite3.connect(":memory:", factory=kind, check_same_thread=False)

    database = Database(connect, TRANSIENT)
    with database.transaction("first"):
        pass
    is_gone.set()
    closing = threading.Thread(target=database.close)
    closing.start()
    assert is_closing.wait(120)

    def use():
        with database.transaction("second") as transaction:
            return transaction.rows("SELECT 1")

    try:
        assert call_within(120, use, name="second") == [(1,)]
    finally:
        is_back.set()
        closing.join(10)
    database.close()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("rows", ("rows",)),
        ("public.rows", ("public", "rows")),
        ('"my.schema"."a ""b"', ("my.schema", 'a "b')),
        ("db.public.Rows", ("db", "public", "Rows")),
    ],
)
def test_a_name_has_its_parts(name, parts):
    assert table_parts(name) == parts


@pytest.mark.parametrize("name", ["a.", ".a", 'a"b', '"a', "a..b"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match=r"schema\.table"):
        table_parts(name)
