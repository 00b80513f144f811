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

from kcl_mld.config.spark.postgres import libpq_connection
from kcl_mld.spark.errors import MissingPart, SinkUnavailable, SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_SINK = "spark.sink=jdbc"
_SECRET = re.compile(r"((?:password|passwd|pwd|secret|token)\s*[=:]\s*)[^\s&;,'\"]+", re.IGNORECASE)
_PERCENT = re.compile(r"%(?!\()")
#: Class of the SQL states of limits, as of a row that is too big for an index. psycopg takes them
#: for operational errors, but the same exceeds them again.
_OF_A_LIMIT = "54"
#: Class of the SQL states of data exceptions, whose messages quote the value, in any language.
_OF_A_VALUE = "22"
_QUOTED = re.compile('["»«„“”].*', re.DOTALL)
#: Where ``COPY`` was, in any language: table, line, column, and the value.
_COPIED = re.compile(r"^COPY .+?, \S+ \d+, \S+ (.+?): ", re.MULTILINE)
#: Classes of the SQL states of errors whose messages hold a value where nothing marks it: what
#: ``RAISE`` says in a function, and bytes in a wrong encoding.
_UNMARKED = ("P0", "22021", "22P05")
#: The innermost function, in any language, and what it was at.
_IN_FUNCTION = re.compile(r"PL/pgSQL\S* (?:\S+ )?(\S+\(\S*\)).*?(\bRAISE)?$", re.MULTILINE)
_USER_INFO = re.compile(r"(//[^/\s:@]+:)[^@\s/]+@")

#: Options of libpq unless the user sets others: a dead peer is noticed within a minute.
_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
#: Names come as texts, whatever encoding the database has; and nothing is left in a session that
#: something in between may hand to another one.
_ALWAYS: Mapping[str, Any] = {"client_encoding": "utf8", "prepare_threshold": None}
#: What says where the server is; without one it is on this host, as for pgJDBC.
_PLACES = ("host", "hostaddr", "service")


class DatabaseUnavailable(SinkUnavailable):
    """The database does not answer, or an answer was lost: it may be tried again."""


class NoConnection(DatabaseUnavailable):
    """Nothing was asked yet: the database can't be reached, or lets nobody in."""


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
    """First line of a driver's message, without passwords; further lines may quote a row.

    Of a value that a column does not take, the message without the value, and the column. Of what a
    function raises, and of bytes in a wrong encoding, the SQL state only, and where.
    """
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    if state := getattr(error, "sqlstate", None) or "":
        text = _without_values(state, error.diag, text)  # type: ignore[attr-defined] # psycopg's
    return f"{type(error).__name__}: {masked(text, secrets)}"


def _without_values(state: str, diagnosis: Any, text: str) -> str:
    context = diagnosis.context or ""
    function = _IN_FUNCTION.match(context)
    if state.startswith(_UNMARKED) or (function and function[2]):
        where = f"the function {function[1]}: " if function else ""
        return f"{where}SQLSTATE {state}, whose message may hold a value"
    if not state.startswith(_OF_A_VALUE):
        return text
    text = _QUOTED.sub("…", diagnosis.message_primary or "")
    found = _COPIED.search(context)
    return f"the column {found[1]}: {text}" if found else text


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
            is_gone = connection.closed
            _close_all([connection])
            if self._is_transient(error, is_gone=is_gone):
                self.close()  # the others were opened to the same server
                raise DatabaseUnavailable(f"{_SINK}: {what}: {self.explain(error)}") from None
            raise
        finally:
            if self._busy.get(what) is connection:
                del self._busy[what]
        with self._lock:
            self._idle.append(connection)

    def _is_transient(self, error: BaseException, *, is_gone: bool) -> bool:
        """Whether the same may succeed when it is repeated.

        Behind a proxy a lost connection shows in any error: libpq reads what does not belong there.
        """
        if (getattr(error, "sqlstate", None) or "").startswith(_OF_A_LIMIT):
            return False
        return isinstance(error, self._transient) or (is_gone and isinstance(error, Exception))

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
            raise NoConnection(f"{_SINK}: {what}: {why}") from None


def open_database(url: str, options: Mapping[str, str]) -> Database:
    """The database of a URL; no connection is opened yet.

    Args:
        url: ``jdbc:postgresql://host:port/database?parameter=value``.
        options: ``spark.sink.options.*``; ``user`` and ``password`` count before those of the URL,
            other parameters behind them.

    Raises:
        SparkConfigError: it is no such URL, or libpq does not know a parameter.
        MissingPart: psycopg is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415
        from psycopg.conninfo import conninfo_to_dict, make_conninfo  # noqa: PLC0415
    except ImportError as error:
        raise MissingPart(
            "spark.sink=jdbc: psycopg is not installed: pip install 'kcl-mld[postgres]'"
        ) from error
    try:
        server, given = libpq_connection(url, options)
        found = conninfo_to_dict(make_conninfo(f"postgresql:{server}", **given))
    except ValueError as error:
        raise SparkConfigError(f"spark.sink.url {error}") from error
    except psycopg.Error as error:
        why = masked(str(error).strip(), [options.get("password", "")])
        raise SparkConfigError(f"spark.sink.url, spark.sink.options: {why}") from None
    here = {} if any(found.get(name) for name in _PLACES) else {"host": "localhost"}
    arguments = {**_PATIENCE, **here, **found, **_ALWAYS}
    # The last ones: of a server that was the primary, and of a process that stood still.
    transient = (
        psycopg.OperationalError,
        psycopg.InterfaceError,
        psycopg.errors.ReadOnlySqlTransaction,
        psycopg.errors.IdleInTransactionSessionTimeout,
    )
    return Database(
        lambda: psycopg.connect(**arguments), transient, [str(found.get("password", ""))]
    )


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

    def copy(self, sql: str, parts: Iterable[bytes]) -> None:
        """Execute a ``COPY … FROM STDIN``, with what it reads."""
        with self.cursor.copy(sql) as copy:
            for part in parts:
                copy.write(part)

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
