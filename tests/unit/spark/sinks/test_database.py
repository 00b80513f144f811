"""Connections and transactions of the jdbc sink, over SQLite: errors without secrets."""

from __future__ import annotations

import sqlite3
import threading
from types import SimpleNamespace

import pytest

from mld.spark.calls import Overdue, call_within
from mld.spark.errors import SparkConfigError
from mld.spark.sinks.database import Database, DatabaseUnavailable, Transaction, brief, masked
from mld.spark.sinks.jdbc_tables import split_name
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


class Flaky:
    """Connections to SQLite that count, and whose commit can be made to fail."""

    def __init__(self, path):
        self._path = path
        self.opened = 0

    def __call__(self):
        self.opened += 1
        return sqlite3.connect(self._path)


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

    class Stuck(sqlite3.Connection):
        def rollback(self):
            if is_gone.is_set():
                is_closing.set()
                assert is_back.wait(120)
            super().rollback()

    def connect():
        kind = sqlite3.Connection if is_gone.is_set() else Stuck
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
    assert split_name(name) == parts


@pytest.mark.parametrize("name", ["a.", ".a", 'a"b', '"a', "a..b"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(SparkConfigError, match=r"schema\.table"):
        split_name(name)
