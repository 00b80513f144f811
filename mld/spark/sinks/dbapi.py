"""A database through Python's DB-API (PEP 249), whatever its driver's parameter style.

The statements that use it are plain SQL: the driver says how parameters are marked, the URL how
names are quoted. Texts of errors are cleaned before they leave: a driver may quote the password of
a connection string or the values of a row.
"""

from __future__ import annotations

import contextlib
import re
import sys
import threading
import weakref
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_PARAMETER = re.compile(r":([a-z]+)")
_SECRET = re.compile(r"((?:password|passwd|pwd|secret|token)\s*[=:]\s*)[^\s&;,'\"]+", re.IGNORECASE)
_USER_INFO = re.compile(r"(//[^/\s:@]+:)[^@\s/]+@")


class DatabaseUnavailable(Exception):
    """The database does not answer, or an answer was lost: the batch may be tried again."""


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


@dataclass(frozen=True, slots=True)
class Driver:
    """What differs between drivers.

    Attributes:
        paramstyle: as in PEP 249.
        error: parent of all errors of the driver.
        integrity_error: for a violated key.
        transient: classes that say that the database does not answer.
    """

    paramstyle: str
    error: type[Exception]
    integrity_error: type[Exception]
    transient: tuple[type[Exception], ...]

    @classmethod
    def of(cls, connection: Any) -> Driver:
        """The driver that a connection belongs to.

        Raises:
            SparkConfigError: it is not a connection of a DB-API module.
        """
        for name in _modules(type(connection)):
            module = sys.modules.get(name)
            if module is not None and hasattr(module, "paramstyle"):
                names = ("Error", "IntegrityError", "OperationalError", "InterfaceError")
                found = [getattr(module, name) for name in names]
                return cls(module.paramstyle, found[0], found[1], (found[2], found[3]))
        raise SparkConfigError(
            f"spark.sink.connection gave a {type(connection).__module__}."
            f"{type(connection).__qualname__}; it has to give a connection of a DB-API driver"
        )

    def render(self, sql: str, values: Mapping[str, Any]) -> tuple[str, Any]:
        """A statement with ``:name`` parameters, and its values, in the driver's style.

        Args:
            sql: each parameter as ``:name``, lower-case letters; no colon or percent sign besides.
            values: by name.
        """
        names = _PARAMETER.findall(sql)
        match self.paramstyle:
            case "qmark":
                return _PARAMETER.sub("?", sql), tuple(values[name] for name in names)
            case "format":
                return _PARAMETER.sub("%s", sql), tuple(values[name] for name in names)
            case "pyformat":
                return _PARAMETER.sub(r"%(\1)s", sql), {name: values[name] for name in names}
            case "numeric":
                places = iter(range(1, len(names) + 1))
                text = _PARAMETER.sub(lambda _: f":{next(places)}", sql)
                return text, tuple(values[name] for name in names)
            case _:
                return sql, {name: values[name] for name in names}


def _modules(kind: type) -> Iterator[str]:
    """Modules that a class and its parents may belong to, the innermost first."""
    for each in kind.__mro__:
        parts = each.__module__.split(".")
        yield from (".".join(parts[:length]) for length in range(len(parts), 0, -1))


class Database:
    """Connections that are opened when needed and kept for the next transaction."""

    def __init__(self, connect: Callable[[], Any], quote: str, secrets: Sequence[str] = ()) -> None:
        """Open nothing yet.

        Args:
            connect: opens a connection; autocommit off.
            quote: character around names.
            secrets: values that must not show in errors.
        """
        self._connect = connect
        self._quote = quote
        self._secrets = tuple(secrets)
        self._idle: list[Any] = []
        self._busy: dict[str, Any] = {}
        self._lock = threading.Lock()
        # A process that ends, or drops the sink, leaves no connection open.
        weakref.finalize(self, _close_all, self._idle)

    def name(self, *parts: str) -> str:
        """A quoted name, e.g. schema and table."""
        mark = self._quote
        return ".".join(mark + part.replace(mark, mark * 2) + mark for part in parts)

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
        connection, driver = self._take(what)
        self._busy[what] = connection
        try:
            with contextlib.closing(connection.cursor()) as cursor:
                yield Transaction(cursor, driver)
            connection.commit()
        except BaseException as error:
            _close_all([connection])
            if isinstance(error, driver.transient):
                self.close()  # the others were opened to the same server
                raise DatabaseUnavailable(f"{what}: {self.explain(error)}") from None
            raise
        finally:
            if self._busy.get(what) is connection:
                del self._busy[what]
        with self._lock:
            self._idle.append(connection)

    def cancel(self, what: str) -> None:
        """Interrupt the statement of a running transaction, where the driver offers it.

        PEP 249 has no call for this; ``cancel`` (psycopg, oracledb) and ``interrupt`` (sqlite3) are
        made for other threads. Quiet if there is no such transaction or no such call.

        Args:
            what: as it was named when it began.
        """
        connection = self._busy.get(what)
        for name in ("cancel", "interrupt"):
            if callable(call := getattr(connection, name, None)):
                call()
                return

    def close(self) -> None:
        """Close the idle connections; without the lock, because a driver may wait for ever."""
        with self._lock:
            idle = self._idle.copy()
            self._idle.clear()
        _close_all(idle)

    def _take(self, what: str) -> tuple[Any, Driver]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        try:
            connection = connection or self._connect()
        except Exception as error:  # noqa: BLE001 - the user's function may raise anything
            raise DatabaseUnavailable(f"{what}: cannot connect: {self.explain(error)}") from None
        return connection, Driver.of(connection)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Statements of one transaction."""

    cursor: Any
    driver: Driver

    def run(self, sql: str, **values: Any) -> int:
        """Execute a statement; the number of rows it changed."""
        self.cursor.execute(*self._rendered(sql, values))
        return int(self.cursor.rowcount)

    def rows(self, sql: str, **values: Any) -> list[tuple[Any, ...]]:
        """Execute a query; all its rows."""
        self.cursor.execute(*self._rendered(sql, values))
        return [tuple(row) for row in self.cursor.fetchall()]

    def columns(self, table: str) -> list[str]:
        """Names of a table's columns.

        Args:
            table: quoted.
        """
        self.cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")  # noqa: S608
        return [str(column[0]) for column in self.cursor.description]

    def _rendered(self, sql: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
        # Without parameters a driver of the format styles takes percent signs as they are.
        return self.driver.render(sql, values) if values else (sql,)


def _close_all(connections: list[Any]) -> None:
    """Roll back, close and forget; a connection that failed may fail at that too."""
    while connections:
        connection = connections.pop()
        with contextlib.suppress(Exception):
            connection.rollback()
        with contextlib.suppress(Exception):
            connection.close()


def load_connect(name: str) -> Callable[[], Any]:
    """The user's function that opens a connection.

    Args:
        name: ``module:function``.

    Raises:
        SparkConfigError: it cannot be found.
    """
    module, colon, function = name.partition(":")
    if not colon or not function:
        raise SparkConfigError(f"spark.sink.connection={name}: write it as module:function")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise SparkConfigError(f"spark.sink.connection={name}: {error}") from error
    if not callable(found):
        raise SparkConfigError(f"spark.sink.connection={name}: it cannot be called")
    return found  # type: ignore[no-any-return]
