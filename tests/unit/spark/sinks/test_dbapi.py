"""Any DB-API driver: parameters in its style, errors without secrets."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from mld.spark.calls import Overdue, call_within
from mld.spark.errors import SparkConfigError
from mld.spark.sinks.dbapi import Database, DatabaseUnavailable, Driver, brief, load_connect, masked
from mld.spark.sinks.jdbc_tables import split_name

SQL = "UPDATE t SET a = :to WHERE b = :shard AND c = :to"
VALUES = {"to": 1, "shard": "x", "unused": 0}


@pytest.mark.parametrize(
    ("style", "text", "values"),
    [
        ("qmark", "UPDATE t SET a = ? WHERE b = ? AND c = ?", (1, "x", 1)),
        ("format", "UPDATE t SET a = %s WHERE b = %s AND c = %s", (1, "x", 1)),
        ("numeric", "UPDATE t SET a = :1 WHERE b = :2 AND c = :3", (1, "x", 1)),
        ("named", SQL, {"to": 1, "shard": "x"}),
        (
            "pyformat",
            "UPDATE t SET a = %(to)s WHERE b = %(shard)s AND c = %(to)s",
            {"to": 1, "shard": "x"},
        ),
    ],
)
def test_each_parameter_style_is_spoken(style, text, values):
    driver = Driver(style, Exception, Exception, ())
    assert driver.render(SQL, VALUES) == (text, values)


def test_the_driver_is_found_by_its_connection():
    connection = sqlite3.connect(":memory:")
    driver = Driver.of(connection)
    connection.close()
    assert (driver.paramstyle, driver.integrity_error) == ("qmark", sqlite3.IntegrityError)


def test_what_is_no_connection_is_refused():
    with pytest.raises(SparkConfigError, match=r"gave a builtins\.int"):
        Driver.of(1)


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
    database = Database(connect, '"')
    for _ in range(3):
        with database.transaction("test") as transaction:
            transaction.run("CREATE TABLE IF NOT EXISTS t (a PRIMARY KEY)")
    assert connect.opened == 1
    with pytest.raises(sqlite3.IntegrityError), database.transaction("test") as transaction:
        transaction.run("INSERT INTO t VALUES (:a), (:b), (:a)", a=1, b=2)
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
    place = tmp_path / "db"
    database = Database(lambda: sqlite3.connect(place, check_same_thread=False), '"')
    began = threading.Event()

    def endless():
        with database.transaction("endless") as transaction:
            began.set()
            transaction.rows(ENDLESS)

    def cancel():
        assert began.wait(10)
        database.cancel("another")
        database.cancel("endless")

    with pytest.raises(Overdue) as caught:
        call_within(0.2, endless, name="endless", interrupt=cancel)
    assert isinstance(caught.value.call.exception(10), DatabaseUnavailable)
    database.cancel("endless")


def test_a_driver_that_cannot_cancel_is_left_alone():
    class Plain(sqlite3.Connection):
        interrupt = None

    database = Database(lambda: sqlite3.connect(":memory:", factory=Plain), '"')
    with database.transaction("test") as transaction:
        database.cancel("test")
        assert transaction.rows("SELECT 1") == [(1,)]
    database.close()


def test_connections_that_cannot_be_closed_keep_nobody_from_a_new_one():
    """Their server is gone without a word, and their driver waits for its answer for ever."""
    is_gone, is_closing, is_back = threading.Event(), threading.Event(), threading.Event()

    class Stuck(sqlite3.Connection):
        def rollback(self):
            if is_gone.is_set():
                is_closing.set()
                assert is_back.wait(10)
            super().rollback()

    def connect():
        kind = sqlite3.Connection if is_gone.is_set() else Stuck
        return sqlite3.connect(":memory:", factory=kind, check_same_thread=False)

    database = Database(connect, '"')
    with database.transaction("first"):
        pass
    is_gone.set()
    closing = threading.Thread(target=database.close)
    closing.start()
    assert is_closing.wait(10)

    def use():
        with database.transaction("second") as transaction:
            return transaction.rows("SELECT 1")

    try:
        assert call_within(5, use, name="second") == [(1,)]
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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nocolon", "module:function"),
        ("a:", "module:function"),
        ("no_such_module:f", "No module"),
        ("math:nothing", "nothing"),
        ("math:pi", "cannot be called"),
    ],
)
def test_a_function_that_cannot_be_had_is_told(name, why):
    with pytest.raises(SparkConfigError, match=why):
        load_connect(name)
