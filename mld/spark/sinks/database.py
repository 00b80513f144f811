"""Connections to the database of the jdbc sink, one transaction at a time.

Statements have parameters in psycopg's style, ``%(name)s``. Texts of errors are cleaned before they
leave: a driver may quote the password of a connection string or the values of a row.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.spark.errors import SinkUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_SINK = "spark.sink=jdbc"
_SECRET = re.compile(r"((?:password|passwd|pwd|secret|token)\s*[=:]\s*)[^\s&;,'\"]+", re.IGNORECASE)
_PERCENT = re.compile(r"%(?!\()")
_USER_INFO = re.compile(r"(//[^/\s:@]+:)[^@\s/]+@")


class DatabaseUnavailable(SinkUnavailable):
    """The database does not answer, or an answer was lost: it may be tried again."""


def masked(text: str, secrets: Sequence[str] = ()) -> str:
    """A text without passwords.

    Args:
        text: of an error or a URL.
        secrets: values that must not show, wherever they stand.
    """
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    return _USER_INFO.sub(r"\1***@", _SECRET.sub(r"\1***", text))


def brief(error: BaseException, secrets: Sequence[str] = ()) -> str:
    """First line of a driver's message, without passwords; further lines may quote a row."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {masked(lines[0] if lines else '', secrets)}"


class Database:
    """Connections that are opened when needed and kept for the next transaction.

    Args:
        connect: opens a connection; autocommit off.
        transient: the driver's classes of errors that say that the database does not answer, or
            that the same may succeed when it is repeated.
        secrets: values that must not show in errors.
    """

    def __init__(
        self,
        connect: Callable[[], Any],
        transient: tuple[type[Exception], ...],
        secrets: Sequence[str] = (),
    ) -> None:
        self._connect = connect
        self._transient = transient
        self._secrets = tuple(secrets)
        self._idle: list[Any] = []
        self._busy: dict[str, Any] = {}
        self._lock = threading.Lock()
        # A process that ends, or drops the sink, leaves no connection open.
        weakref.finalize(self, _close_all, self._idle)

    def explain(self, error: BaseException) -> str:
        """An error for people: one line, no passwords."""
        return brief(error, self._secrets)

    @contextlib.contextmanager
    def transaction(self, what: str) -> Iterator[Transaction]:
        """One transaction: committed at the end, rolled back by an exception.

        Args:
            what: is done, for the error.

        Raises:
            DatabaseUnavailable: the database does not answer; the outcome may be unknown.
        """
        connection = self._take(what)
        self._busy[what] = connection
        try:
            with contextlib.closing(connection.cursor()) as cursor:
                yield Transaction(cursor)
            connection.commit()
        except BaseException as error:
            _close_all([connection])
            if isinstance(error, self._transient):
                self.close()  # the others were opened to the same server
                raise DatabaseUnavailable(f"{_SINK}: {what}: {self.explain(error)}") from None
            raise
        finally:
            if self._busy.get(what) is connection:
                del self._busy[what]
        with self._lock:
            self._idle.append(connection)

    def cancel(self, what: str) -> None:
        """Interrupt the statement of a running transaction; quiet if there is none.

        Args:
            what: as it was named when it began.
        """
        if (connection := self._busy.get(what)) is not None:
            connection.cancel()

    def close(self) -> None:
        """Close the idle connections; without the lock, because a driver may wait for ever."""
        with self._lock:
            idle = self._idle.copy()
            self._idle.clear()
        _close_all(idle)

    def _take(self, what: str) -> Any:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        try:
            return connection or self._connect()
        except Exception as error:  # noqa: BLE001 - whatever it is, there is no connection
            why = f"cannot connect: {self.explain(error)}"
            raise DatabaseUnavailable(f"{_SINK}: {what}: {why}") from None


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements of one transaction."""

    cursor: Any

    def run(self, sql: str, **values: Any) -> int:
        """Execute a statement; the number of rows it changed."""
        self._execute(sql, values)
        return int(self.cursor.rowcount)

    def run_each(self, sql: str, each: Sequence[Mapping[str, Any]]) -> None:
        """Execute a statement once for each set of values, in that order."""
        self.cursor.executemany(_escaped(sql), each)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute a query; all its rows."""
        self._execute(sql, values)
        return [tuple(row) for row in self.cursor.fetchall()]

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns.

        Args:
            table: quoted.
        """
        self.cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")  # noqa: S608
        return [str(column[0]) for column in self.cursor.description]

    def _execute(self, sql: str, values: Mapping[str, Any]) -> None:
        # Without values psycopg takes percent signs as they are.
        self.cursor.execute(*((_escaped(sql), values) if values else (sql,)))


def _escaped(sql: str) -> str:
    """A statement in which percent signs that begin no parameter are part of a name."""
    return _PERCENT.sub("%%", sql)


def quoted(*parts: str) -> str:
    """A quoted name, e.g. schema and table."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _close_all(connections: list[Any]) -> None:
    """Roll back, close and forget; a connection that failed may fail at that too."""
    while connections:
        connection = connections.pop()
        with contextlib.suppress(Exception):
            connection.rollback()
        with contextlib.suppress(Exception):
            connection.close()
