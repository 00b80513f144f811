"""SQLite as the database of the jdbc sink, and a frame that Spark need not compute."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING

from mld.spark.model import BATCH_COLUMN
from mld.spark.sinks.jdbc import JdbcSink
from mld.spark.sinks.jdbc_staging import ROW_COLUMN
from tests.unit.spark.batches import config_of

if TYPE_CHECKING:
    from mld.spark.model import ShardBatch

#: The file that ``connect`` opens; the sink calls it without arguments.
place = SimpleNamespace(path="")


def connect() -> sqlite3.Connection:
    return sqlite3.connect(place.path, timeout=5, check_same_thread=False)


def connect_without_transactions() -> sqlite3.Connection:
    return sqlite3.connect(place.path, timeout=5, check_same_thread=False, isolation_level=None)


def refuse() -> sqlite3.Connection:
    raise sqlite3.OperationalError("no way in with password=hunter2 and more")


def no_connection() -> object:
    return object()


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
    """Stands for the united plan: its rows go into the staging table as Spark would put them."""

    def __init__(
        self, *batches: ShardBatch, columns: str = "n", error: Exception | None = None
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
        table = self._options["dbtable"]
        rows = [
            (row.position.sequence, each.batch_id, number)
            for each in self._batches
            for number, row in enumerate(each.rows)
        ]
        connection = connect()
        connection.execute(f"CREATE TABLE {table} ({self._columns}, {BATCH_COLUMN}, {ROW_COLUMN})")
        if self._error is not None:
            connection.close()
            raise self._error
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", rows)
        connection.commit()
        connection.close()


def sink_of(path, *, now: float = 1_000_000.0, **more: str) -> JdbcSink:
    place.path = str(path)
    properties = {
        "sink": "jdbc",
        "sink__url": "jdbc:sqlite:x",
        "sink__table": "rows",
        "sink__connection": "tests.unit.spark.sqlite_kit:connect",
        **more,
    }
    return JdbcSink(config_of(**properties), "app", now_s=lambda: now)


def query(sql: str) -> list[tuple]:
    connection = connect()
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
