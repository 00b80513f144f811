"""SQLite in the place of PostgreSQL, and a frame that Spark need not compute.

Statements are translated where SQLite has another word: it locks the whole database where
PostgreSQL locks rows.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import sqlite3
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pyarrow as pa

from kcl_mld.spark.sinks.database import Database
from kcl_mld.spark.sinks.jdbc import JdbcSink
from tests.unit.spark.batches import config_of

if TYPE_CHECKING:
    from kcl_mld.spark.model import ShardBatch

#: The file that ``connect`` opens, and the schema that it finds a table in.
place = SimpleNamespace(path="", schema="'main'")

TRANSIENT = (sqlite3.OperationalError, sqlite3.InterfaceError)
_PARAMETER = re.compile(r"%\((\w+)\)s")


_COPY = re.compile(r"COPY (.+ \(.+\)) FROM STDIN \(FORMAT csv\)")


#: SQL states that PostgreSQL has for what SQLite says.
_STATES = {"no such table": "42P01", "unknown database": "3F000"}


class _Cursor(sqlite3.Cursor):
    @contextlib.contextmanager
    def copy(self, sql):
        """Takes CSV, and inserts it at the end."""
        target, written = _COPY.fullmatch(sql)[1], []
        yield SimpleNamespace(write=written.append)
        for row in csv.reader(io.StringIO(b"".join(written).decode())):
            values = ", ".join("?" for _ in row)
            self._told(super().execute, f"INSERT INTO {target} VALUES ({values})", row)

    def execute(self, sql, *values):
        return self._told(super().execute, sql, *values)

    def executemany(self, sql, values):
        return self._told(super().executemany, sql, values)

    def _told(self, call, sql, *values):
        if sql.startswith("SET LOCAL"):
            return self
        if "to_regclass" in sql:
            sql = f"SELECT {place.schema}"
        locks = sql.endswith(" FOR UPDATE")
        try:
            if self.connection.has_transactions and not self.connection.in_transaction:
                super().execute("BEGIN IMMEDIATE" if locks else "BEGIN")
            return call(_PARAMETER.sub(r":\1", sql).removesuffix(" FOR UPDATE"), *values)
        except sqlite3.OperationalError as error:
            if "interrupted" in str(error) or "locked" in str(error):
                raise
            told = sqlite3.ProgrammingError(str(error))
            for words, state in _STATES.items():
                if words in str(error):
                    told.sqlstate = state
                    told.diag = SimpleNamespace(context=None, message_primary=str(error))
            raise told from None


class Connection(sqlite3.Connection):
    """A connection with what psycopg's has."""

    has_transactions = True
    closed = False

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


class Frame:
    """Stands for what the function returned: a row of two columns for each record."""

    saved = 0

    def __init__(self, *batches: ShardBatch, error: Exception | None = None) -> None:
        self._batches = batches
        self._error = error

    @property
    def schema(self):
        fields = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("n", "long"), ("shard", "string"))
        ]
        text = json.dumps({"type": "struct", "fields": fields})
        return SimpleNamespace(json=lambda: text)

    def toArrow(self):  # noqa: N802 - Spark's name
        self.saved += 1
        if self._error is not None:
            raise self._error
        rows = [
            (row.position.sequence, each.shard.shard_id[-1])
            for each in self._batches
            for row in each.rows
        ]
        numbers, shards = zip(*rows, strict=True) if rows else ((), ())
        return pa.table(
            {"n": pa.array(numbers, pa.int64()), "shard": pa.array(shards, pa.string())}
        )


def sink_of(path, *, application="app", connect=connect, pause=None, **more: str) -> JdbcSink:
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
        pause=pause or (lambda _: None),
        database=database,
    )


def query(sql: str) -> list[tuple]:
    connection = sqlite3.connect(place.path, timeout=5)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()
