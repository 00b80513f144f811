"""Connections that urllib3 has opened, lent out one request at a time.

urllib3 hands a connection out through three locks and seven layers; between two requests nothing
has to be decided. The connection that was used last is lent first, so that an idle worker needs
few of them and the others may go cold.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from urllib3.util.connection import is_connection_dropped

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection


class KeptConnections:
    """Those of one endpoint; may be used by many threads."""

    def __init__(self) -> None:
        """None yet: botocore connects, see :meth:`learn`."""
        self._idle: list[HTTPConnection] = []
        self._pool: Any = None
        weakref.finalize(self, _close_all, self._idle)

    def learn(self, raw: Any) -> None:
        """Take an answer of urllib3 as proof that its pool has connections of use here.

        Nothing is learned of a pool behind a proxy: requests to it look different.
        """
        pool = getattr(raw, "_pool", None)
        is_known = hasattr(pool, "_get_conn") and hasattr(pool, "_put_conn")
        if is_known and getattr(pool, "proxy", None) is None:
            self._pool = pool

    def take(self) -> HTTPConnection | None:
        """An open connection, or None: then botocore must connect.

        Whoever takes one gives it back by :meth:`keep` or closes it.
        """
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return self._from_pool()
            if not is_connection_dropped(connection):
                return connection
            connection.close()

    def keep(self, connection: HTTPConnection) -> None:
        """Have it for the next request; its last answer was read whole."""
        self._idle.append(connection)

    def _from_pool(self) -> HTTPConnection | None:
        if self._pool is None:
            return None
        connection: HTTPConnection = self._pool._get_conn()  # noqa: SLF001 (no other door)
        if connection.sock is not None:
            return connection
        self._pool._put_conn(connection)  # noqa: SLF001
        return None


def _close_all(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
