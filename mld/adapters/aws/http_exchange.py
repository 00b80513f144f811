"""One HTTP/1.1 request and its answer on a connection that is open already.

Connecting, TLS and proxies are urllib3's, and botocore's settings of them. What is left is to write
a few lines and to read a few: the general code for that costs most of the CPU of an idle worker.

Source: RFC 9112.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket
    from io import BufferedReader

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
    """The other side ended the connection before it answered, or does not speak HTTP/1."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

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
        request: head and body.

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
    """The status, and whether the connection stays open by itself."""
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
