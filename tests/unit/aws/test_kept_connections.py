"""Which connection is lent, and that none is left open."""

from __future__ import annotations

import gc
import socket
from typing import Any

from kcl_mld.aws.http_exchange import KeptConnections


class Connection:
    """One half of a socket pair, as far as urllib3's connection is asked."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.sock, self.other = socket.socketpair() if is_open else (None, None)

    @property
    def is_connected(self) -> bool:
        return self.sock is not None and self.other is not None and self.other.fileno() >= 0

    def close(self) -> None:
        for one in (self.sock, self.other):
            if one is not None:
                one.close()
        self.sock = None


class Pool:
    """urllib3's pool: the last one given back comes first."""

    def __init__(self, *connections: Connection, proxy: str | None = None) -> None:
        self.proxy = proxy
        self.connections = list(connections)

    def _get_conn(self) -> Connection:
        return self.connections.pop()

    def _put_conn(self, connection: Connection) -> None:
        self.connections.append(connection)


class Raw:
    def __init__(self, pool: Any) -> None:
        self._pool = pool


def kept(*connections: Connection, proxy: str | None = None) -> tuple[KeptConnections, Pool]:
    pool, made = Pool(*connections, proxy=proxy), KeptConnections()
    made.learn(Raw(pool))
    return made, pool


def test_nothing_is_lent_before_urllib3_has_connected() -> None:
    assert KeptConnections().take() is None
    connection = Connection(is_open=False)
    made, pool = kept(connection)
    assert made.take() is None
    assert pool.connections == [connection]


def test_an_open_connection_of_the_pool_is_taken_over_for_good() -> None:
    connection = Connection()
    made, pool = kept(connection)
    for _ in range(2):
        assert made.take() is connection
        assert not pool.connections
        made.keep(connection)  # type: ignore[arg-type]
    connection.close()


def test_the_one_used_last_is_lent_first() -> None:
    first, second = Connection(), Connection()
    made, _ = kept()
    made.keep(first)  # type: ignore[arg-type]
    made.keep(second)  # type: ignore[arg-type]
    assert made.take() is second
    assert made.take() is first
    first.close()
    second.close()


def test_one_that_the_other_side_closed_is_passed_over_and_closed() -> None:
    good, dropped = Connection(), Connection()
    made, _ = kept()
    made.keep(good)  # type: ignore[arg-type]
    made.keep(dropped)  # type: ignore[arg-type]
    assert dropped.other is not None
    dropped.other.close()
    assert made.take() is good
    assert dropped.sock is None
    good.close()


def test_nothing_is_lent_from_behind_a_proxy_or_from_an_unknown_urllib3() -> None:
    connection = Connection()
    made, _ = kept(connection, proxy="http://proxy")
    assert made.take() is None
    made.learn(Raw(object()))
    made.learn(object())
    assert made.take() is None
    connection.close()


def test_connections_are_closed_with_their_keeper() -> None:
    connection = Connection()
    made, _ = kept()
    made.keep(connection)  # type: ignore[arg-type]
    del made
    gc.collect()
    assert connection.sock is None
