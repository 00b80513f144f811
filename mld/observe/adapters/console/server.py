"""The console's HTTP server: a page, its data as JSON, and a stream of events for new data.

It is for one person's browser on the machine that it runs on, and answers nobody else. Each request
wants the token that was printed, or the cookie that it is traded for; a name in ``Host`` that is not
this machine's own is refused, since a page of a stranger may lead its name here (DNS rebinding).
What the page may load and who may show it is in the content security policy. Each connection serves
one request, in bounded time, and is written to in small pieces: a client that does not read costs
its own connection only.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import h11

from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_HEAD_BYTES = 8192
MAX_CONNECTIONS = 64
#: Of them, streams of events.
MAX_STREAMS = 16
REQUEST_TIMEOUT_S = 5.0
#: In which a client must take a piece of an answer.
WRITE_TIMEOUT_S = 10.0
PIECE_BYTES = 1 << 16
#: A comment in a stream, so that both ends notice when the other is gone.
ALIVE_EVERY_S = 5.0

#: What a browser on this machine calls it; a tunnel's port may differ from ours.
_OWN_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
_PAGE = files("kcl_mld.observe.adapters.console")
_FILES = {
    "/": ("console.html", "text/html; charset=utf-8"),
    "/console.css": ("console.css", "text/css; charset=utf-8"),
    "/console.js": ("console.js", "text/javascript; charset=utf-8"),
}
_JSON = "application/json"
_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Published:
    """The documents of one snapshot, encoded once for all clients.

    Attributes:
        fleet: body of ``/api/fleet``.
        summary: data of the event for new data; one line.
        shard: body of ``/api/shard`` for a lease key; None = there is no such shard.
    """

    fleet: bytes
    summary: bytes
    shard: Callable[[str], bytes | None]


@dataclass(frozen=True, slots=True)
class _Reply:
    code: int
    body: bytes
    kind: str = _JSON
    more: tuple[tuple[str, str], ...] = ()


class ConsoleServer:
    """Serves the documents that were published last.

    Args:
        host: a loopback address to listen on.
        port: 0 = any free one, see :attr:`port`.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self.token = secrets.token_urlsafe(32)
        self._session = secrets.token_urlsafe(32)
        # Cookies don't know ports: consoles on one machine must not take each other's.
        self._cookie = f"kcl-mld-console-{secrets.token_hex(4)}"
        self._server: asyncio.Server | None = None
        self._published: Published | None = None
        self._renewed = asyncio.Event()
        self._connections = 0
        self._streams = 0

    @property
    def connections(self) -> int:
        """Open now."""
        return self._connections

    @property
    def port(self) -> int:
        """The port in use while it is started."""
        return self._port if self._server is None else self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        """What a person opens: with the token."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}/?token={self.token}"

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the address is taken, not ours, or not to be had without privileges.
        """
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)
        except (OSError, OverflowError) as error:
            why = f"cannot listen on {self._host}:{self._port}: {error}"
            raise ConfigError(why, key="--listen") from error

    def publish(self, published: Published) -> None:
        """Serve this from now on, and notify all streams."""
        self._published = published
        self._renewed.set()
        self._renewed = asyncio.Event()

    async def close(self) -> None:
        """Stop listening; requests under way end with the loop's other tasks."""
        if self._server is not None:
            self._server.close()
            self._server = None

    # -- one connection ----------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections += 1
        writer.transport.set_write_buffer_limits(high=0)  # drain() waits for the last byte
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await _request(connection, reader)
            if request is not None:
                await self._respond(connection, request, reader, writer)
        except h11.RemoteProtocolError as error:
            with suppress(TimeoutError, OSError):
                await _send(connection, writer, _refused(error.error_status_hint, "not HTTP/1.1"))
        except (TimeoutError, OSError):
            writer.transport.abort()  # slow or gone: close() would wait for it to read
        except asyncio.CancelledError:
            # The loop ends. asyncio's own callback would log a failure.
            writer.transport.abort()
        finally:
            self._connections -= 1
            writer.close()

    async def _respond(
        self,
        connection: h11.Connection,
        request: h11.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        headers = {name.decode("latin-1"): text.decode("latin-1") for name, text in request.headers}
        path, _, query = request.target.decode("latin-1").partition("?")
        refused = self._refusal(request.method, headers, path, query)
        is_head = request.method == b"HEAD"
        if refused is not None:
            await _send(connection, writer, refused, is_head=is_head)
        elif path == "/api/events" and not is_head:
            await self._stream(connection, reader, writer)
        else:
            await _send(connection, writer, self._answer(path, query), is_head=is_head)

    def _refusal(
        self, method: bytes, headers: Mapping[str, str], path: str, query: str
    ) -> _Reply | None:
        """Why a request is not served, or what its token is traded for; None = it is served."""
        if method not in {b"GET", b"HEAD"}:
            return _refused(405, "only GET and HEAD", ("Allow", "GET, HEAD"))
        if _name(headers.get("host", "")) not in _OWN_NAMES:
            return _refused(421, "open it as 127.0.0.1 or localhost")
        given = parse_qs(query).get("token", [""])[0]
        if path == "/" and _same(given, self.token):
            cookie = f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"
            return _Reply(303, b"", more=(("Location", "/"), ("Set-Cookie", cookie)))
        scheme, _, sent = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(sent.strip(), self.token):
            return None
        if _same(_cookie(headers.get("cookie", ""), self._cookie), self._session):
            return None
        return _refused(
            401,
            "open the address that kcl-mld console printed; if you did, load this page again",
            ("WWW-Authenticate", "Bearer"),
        )

    def _answer(self, path: str, query: str) -> _Reply:
        if path in _FILES:
            name, kind = _FILES[path]
            return _Reply(200, _PAGE.joinpath(name).read_bytes(), kind)
        if path == "/api/events":
            return _Reply(200, b"", "text/event-stream")
        if path not in {"/api/fleet", "/api/shard"}:
            return _refused(404, "pages: /, /api/fleet, /api/shard?key=..., /api/events")
        if self._published is None:
            return _refused(
                503, "the first look at the table is not over yet", ("Retry-After", "1")
            )
        if path == "/api/fleet":
            return _Reply(200, self._published.fleet)
        body = self._published.shard(parse_qs(query).get("key", [""])[0])
        return _refused(404, "no such shard") if body is None else _Reply(200, body)

    async def _stream(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Send an event for each snapshot, until the client closes the stream or does not read."""
        if self._streams >= MAX_STREAMS:
            await _send(connection, writer, _refused(503, "too many streams are open"))
            return
        self._streams += 1
        try:
            head = _head(200, "text/event-stream", ())
            await _write(writer, connection.send(head))
            delivered = None
            while not reader.at_eof():
                renewed = self._renewed
                if self._published is not None and self._published is not delivered:
                    delivered = self._published
                    text = b"event: look\ndata: " + delivered.summary + b"\n\n"
                else:
                    text = b": alive\n\n"
                await _write(writer, connection.send(h11.Data(text)))
                with suppress(TimeoutError):
                    async with asyncio.timeout(ALIVE_EVERY_S):
                        await renewed.wait()
        finally:
            self._streams -= 1


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The head of a request; None = the client went before its end. A body is never read."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(MAX_HEAD_BYTES))
    return event if isinstance(event, h11.Request) else None


async def _send(
    connection: h11.Connection,
    writer: asyncio.StreamWriter,
    answer: _Reply,
    *,
    is_head: bool = False,
) -> None:
    length = ("Content-Length", str(len(answer.body)))
    await _write(writer, connection.send(_head(answer.code, answer.kind, (length, *answer.more))))
    for at in range(0, 0 if is_head else len(answer.body), PIECE_BYTES):
        await _write(writer, connection.send(h11.Data(answer.body[at : at + PIECE_BYTES])))


async def _write(writer: asyncio.StreamWriter, piece: bytes | None) -> None:
    if piece:
        writer.write(piece)
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            await writer.drain()


def _head(code: int, kind: str, more: tuple[tuple[str, str], ...]) -> h11.Response:
    headers = {**_HEADERS, "Content-Type": kind}
    return h11.Response(status_code=code, headers=[*headers.items(), *more])


def _refused(code: int, why: str, *more: tuple[str, str]) -> _Reply:
    return _Reply(code, json.dumps({"error": why}).encode(), more=more)


def _name(host: str) -> str:
    """A ``Host`` header without its port."""
    head, colon, tail = host.lower().rpartition(":")
    return head if colon and not tail.endswith("]") else host.lower()


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(), wanted.encode())


def _cookie(header: str, name: str) -> str:
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
