"""SQLite in the place of PostgreSQL, and a frame that Spark need not compute.

Statements are translated where SQLite has another word: it locks the whole database where
PostgreSQL locks rows.
"""

from __future__ import annotations

import re
import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING

from mld.spark.sinks.database import Database
from mld.spark.sinks.jdbc import JdbcSink
from mld.spark.sinks.jdbc_staging import ROW_COLUMN
from tests.unit.spark.batches import config_of

if TYPE_CHECKING:
    from mld.spark.model import ShardBatch

#: The file that ``connect`` opens, and what happens to it.
place = SimpleNamespace(path="")

TRANSIENT = (sqlite3.OperationalError, sqlite3.InterfaceError)
_PARAMETER = re.compile(r"%\((\w+)\)s")


class _Cursor(sqlite3.Cursor):
    def execute(self, sql, *values):
        return self._told(super().execute, sql, *values)

    def executemany(self, sql, values):
        return self._told(super().executemany, sql, values)

    def _told(self, call, sql, *values):
        locks = sql.endswith(" FOR UPDATE")
        try:
            if self.connection.has_transactions and not self.connection.in_transaction:
                super().execute("BEGIN IMMEDIATE" if locks else "BEGIN")
            return call(_PARAMETER.sub(r":\1", sql).removesuffix(" FOR UPDATE"), *values)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error) or "locked" in str(error):
                raise
            raise sqlite3.ProgrammingError(str(error)) from None


class Connection(sqlite3.Connection):
    """A connection with what psycopg's has."""

    has_transactions = True

    def cursor(self):
        return super().cursor(_Cursor)

    def cancel(self):
        self.interrupt()


def connect() -> Connection:
    return sqlite3.connect(
        place.path, timeout=5, check_same_thread=False, isolation_level=None, factory=Connection
    )


def connect_without_transactions() -> Connection:
    made = connect()
    made.has_transactions = False
    return made


def refuse() -> Connection:
    raise sqlite3.OperationalError("no way in with password=hunter2 and more")


class Reader:
    """Stands for ``spark.read``: Spark reaches the database, or fails as it is told to."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def format(self, _: str):
        return self

    def options(self, **_: str):
        return self

    def option(self, *_: str):
        return self

    def load(self):
        if self._error is not None:
            raise self._error
        return SimpleNamespace(schema=None)


def spark(error: Exception | None = None):
    return SimpleNamespace(read=Reader(error))


class Frame:
    """Stands for what the function returned: its rows go where Spark would put them."""

    saved = 0

    def __init__(
        self, *batches: ShardBatch, columns: str = "n, shard", error: Exception | None = None
    ) -> None:
        self._batches = batches
        self._columns = columns
        self._error = error
        self._options: dict[str, str] = {}

    def selectExpr(self, *expressions: str):  # noqa: N802 - Spark's name
        assert expressions == ("*", f"monotonically_increasing_id() AS {ROW_COLUMN}")
        return self

    @property
    def write(self):
        return self

    def format(self, name: str):
        assert name == "jdbc"
        return self

    def options(self, **options: str):
        self._options |= options
        return self

    def option(self, name: str, text: str):
        return self.options(**{name: text})

    def save(self) -> None:
        self.saved += 1
        table = self._options["dbtable"]
        rows = [
            (row.position.sequence, each.shard.shard_id[-1])
            for each in self._batches
            for row in each.rows
        ]
        numbered = [(*row, number) for number, row in enumerate(rows)]
        connection = sqlite3.connect(place.path, timeout=5)
        connection.execute(f"CREATE TABLE {table} ({self._columns}, {ROW_COLUMN})")
        if self._error is not None:
            connection.close()
            raise self._error
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", numbered)
        connection.commit()
        connection.close()


def sink_of(
    path, *, now: float = 1_000_000.0, application="app", connect=connect, pause=None, **more: str
) -> JdbcSink:
    place.path = str(path)
    properties = {
        "sink": "jdbc",
        "sink__url": "jdbc:postgresql:x",
        "sink__table": "rows",
        "sink__createTable": "true",
        **more,
    }
    config = config_of(**properties)
    database = Database(connect, TRANSIENT, [config.sink_options.get("password", "")])
    return JdbcSink(
        config,
        application,
        now_s=lambda: now,
        pause=pause or (lambda _: None),
        database=database,
    )


def query(sql: str) -> list[tuple]:
    connection = sqlite3.connect(place.path, timeout=5)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
