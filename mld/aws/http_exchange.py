"""One HTTP/1.1 request and its answer, on a connection that urllib3 has opened.

Connecting, TLS and proxies are urllib3's, and botocore's settings of them. What is left is to write
a few lines and to read a few: the general code for that costs most of the CPU of an idle worker.
urllib3 hands a connection out through three locks and seven layers; between two requests nothing
has to be decided.

This module alone uses names that botocore and urllib3 do not promise. Where one is missing, calls
go botocore's own way, and one warning says so.

Source: RFC 9112.
"""

from __future__ import annotations

import logging
import re
import weakref
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING, Any

from urllib3.util.connection import is_connection_dropped

if TYPE_CHECKING:
    import socket
    from io import BufferedReader

    from botocore.client import BaseClient
    from urllib3.connection import HTTPConnection

log = logging.getLogger("mld.aws")

#: Missing parts that were already reported.
_missing: set[str] = set()

#: Longest line of an answer's head, and most lines, as in http.client.
_LINE_BYTES = 65_536
_LINES = 100
#: What is longer than this (twice the largest answer there is) is read in pieces: one reading
#: takes the memory first, whatever comes.
_AT_ONCE_BYTES = 32 * 2**20
_PIECE_BYTES = 65_536

_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


class BrokenExchange(HTTPException):
    """The server closed the connection before it answered, or does not use HTTP/1."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it was received.

    Attributes:
        headers: names in lower case; the last one counts where a name is repeated, but for
            ``content-length``, whose values are joined by ``, ``.
        is_reusable: the connection may carry another request.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    is_reusable: bool


def exchange(connection: socket.socket, request: bytes) -> Answer:
    """Send a request and read its answer whole.

    Args:
        connection: connected, its time-out set; nothing unread on it.

    Raises:
        OSError: the connection failed or was silent for too long (``TimeoutError``).
        HTTPException: the answer breaks off or is none. After any error close the connection.
    """
    connection.sendall(request)
    with connection.makefile("rb") as reader:
        return _read(reader)


def _read(reader: BufferedReader) -> Answer:
    status, is_modern = 100, True
    headers: dict[str, str] = {}
    while status < 200:  # what comes before the answer proper
        status, is_modern = _status(reader)
        headers = _headers(reader)
    is_reusable = is_modern and "close" not in headers.get("connection", "").lower()
    length = headers.get("content-length", "")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = _chunks(reader)
    elif status in {204, 304}:
        body = b""
    elif _LENGTH.fullmatch(length):
        body = _exactly(reader, int(length))
        if len(body) < int(length):
            is_reusable = False
            if status < 300:
                raise IncompleteRead(body, int(length) - len(body))
    else:
        body, is_reusable = reader.read(), False
    return Answer(status, headers, body, is_reusable)


def _status(reader: BufferedReader) -> tuple[int, bool]:
    """The status, and whether the connection stays open by default."""
    line = reader.readline(_LINE_BYTES)
    if not line:
        raise BrokenExchange("the connection was closed without an answer")
    code = line[9:12]
    if not line.startswith(b"HTTP/1.") or line[8:9] != b" " or not code.isdigit():
        raise BrokenExchange(f"not an answer in HTTP/1: {line[:80]!r}")
    return int(code), line[7:8] == b"1"


def _headers(reader: BufferedReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_LINES):
        line = reader.readline(_LINE_BYTES)
        if line in {b"\r\n", b"\n"}:
            return headers
        if not line.endswith(b"\n"):
            raise BrokenExchange("the head of the answer breaks off or has too long a line")
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.lower(), value.strip()
        if name == "content-length" and name in headers:
            value = f"{headers[name]}, {value}"
        headers[name] = value
    raise BrokenExchange("the head of the answer has too many lines")


def _exactly(reader: BufferedReader, length: int) -> bytes:
    """That many bytes, or fewer if the connection ends before."""
    if length <= _AT_ONCE_BYTES:
        return reader.read(length)
    pieces = []
    while length > 0 and (piece := reader.read(min(length, _PIECE_BYTES))):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def _chunks(reader: BufferedReader) -> bytes:
    pieces: list[bytes] = []
    while True:
        line = reader.readline(_LINE_BYTES)
        size_text = line.partition(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(size_text):
            raise BrokenExchange(f"a chunk has no size: {line[:20]!r}")
        size = int(size_text, 16)
        if size == 0:
            _headers(reader)
            return b"".join(pieces)
        piece = _exactly(reader, size)
        if len(piece) < size:
            raise IncompleteRead(b"".join([*pieces, piece]), size - len(piece))
        if reader.readline(_LINE_BYTES) != b"\r\n":
            raise BrokenExchange("a chunk is longer than it says")
        pieces.append(piece)


def http_session_of(client: BaseClient) -> Any:
    """What a client sends its requests with, by ``send``; None = this botocore has it elsewhere."""
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    if hasattr(session, "send"):
        return session
    _warn_once("endpoint with an HTTP session", "an answer that never ends is waited for")
    return None


def _warn_once(missing: str, so: str) -> None:
    if missing not in _missing:
        _missing.add(missing)
        text = "The installed botocore or urllib3 has no %s: calls take more CPU, and %s"
        log.warning(text, missing, so)


class KeptConnections:
    """Those of one endpoint, lent out one request at a time; may be used by many threads.

    The one that was used last is lent first, so that an idle worker needs few of them and the
    others may go cold.
    """

    def __init__(self) -> None:
        self._idle: list[HTTPConnection] = []
        self._pool: Any = None
        weakref.finalize(self, _close_all, self._idle)

    def learn(self, raw: Any) -> None:
        """Take an answer of urllib3 as proof that its pool has connections that can be used here.

        A pool behind a proxy is not used, because its requests have another form.
        """
        pool = getattr(raw, "_pool", None)
        if not (hasattr(pool, "_get_conn") and hasattr(pool, "_put_conn")):
            _warn_once("pool that lends a connection", "urllib3 hands out each one")
        elif getattr(pool, "proxy", None) is None:
            self._pool = pool

    def take(self) -> HTTPConnection | None:
        """An open connection, or None: then botocore must connect.

        The caller gives it back by :meth:`keep` or closes it.
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
