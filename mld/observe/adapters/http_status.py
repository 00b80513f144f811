"""A tiny HTTP server for probes and metrics, GET and HEAD only.

It answers strangers, so it trusts nothing: a request head is bounded in size and time, a body is
never read, each connection serves one request, and only so many are open at a time: a further one
takes the place of the oldest, so that half-open ones don't shut out a probe. It never delays the
daemon: an answer is made from what the services say at that moment.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs

from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import brief

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

_log = logging.getLogger("mld.observe")

#: True = 200, False = 503; and the body.
Status: TypeAlias = "tuple[bool, dict[str, Any]]"
#: Code, content type and content of a page that is no JSON.
Content: TypeAlias = "tuple[int, str, bytes]"
#: What follows ``?`` in a request: name -> values.
Query: TypeAlias = "Mapping[str, list[str]]"

MAX_HEAD_BYTES = 8192
MAX_CONNECTIONS = 32
REQUEST_TIMEOUT_S = 5.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}


class BadQuery(ValueError):
    """A query is invalid; the text has the reason, and is shown with code 400."""


class HttpStatus:
    """Serves the results of the given functions.

    Args:
        host: address to listen on, e.g. ``127.0.0.1``.
        port: 0 = any free one, see :attr:`port`.
        pages: path -> function from the query to (is 200, body); called in the event loop, so it
            must be quick. It may raise :class:`BadQuery`.
        parameters: path -> names that its query may have; of other pages, none.
        contents: path -> what makes a page that is no JSON, or that takes longer.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Callable[[Query], Status]],
        parameters: Mapping[str, Collection[str]] | None = None,
        contents: Mapping[str, Callable[[], Awaitable[Content]]] | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._pages = dict(pages)
        self._parameters = dict(parameters or {})
        self._contents = dict(contents or {})
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._open)

    @property
    def port(self) -> int:
        """The port in use while it is started."""
        if self._server is None:
            return self._port
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Begin to listen.

        Raises:
            ConfigError: the address is taken, not ours, or not to be had without privileges.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=MAX_HEAD_BYTES
            )
        except (OSError, OverflowError) as error:
            why = f"cannot listen on {self._host}:{self._port}: {error}"
            raise ConfigError(why, key="--http") from error

    async def close(self) -> None:
        """Stop listening at once; requests under way are cut off with the loop's other tasks."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=0)  # drain() waits for the last byte
        if len(self._open) >= MAX_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._answer(reader, writer)
        except (TimeoutError, OSError):
            writer.transport.abort()  # slow or gone: close() would wait for it to read
        finally:
            self._open.pop(writer, None)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            answer, method = _json(431, _error("the request is too large")), ""
        else:
            answer, method = await self._page(head)
        writer.write(_response(*answer, with_body=method != "HEAD"))
        await writer.drain()

    async def _page(self, head: bytes) -> tuple[Content, str]:
        """The answer to a request's head, and its method."""
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _json(400, _error("not an HTTP/1 request")), ""
        method = words[0].decode("latin-1")
        if method not in {"GET", "HEAD"}:
            return _json(405, _error("only GET and HEAD")), method
        path, _, query = words[1].decode("latin-1").partition("?")
        try:
            if path in self._contents:
                return await self._contents[path](), method
            return self._status(path, query), method
        except BadQuery as error:
            return _json(400, _error(str(error))), method
        except Exception:  # noqa: BLE001 - the page of a probe must not end the daemon
            _log.exception("a status page failed")
            return _json(500, _error("the page failed; the log says why")), method

    def _status(self, path: str, query: str) -> Content:
        page = self._pages.get(path)
        if page is None:
            return _json(404, {"pages": sorted({*self._pages, *self._contents})})
        asked = parse_qs(query, keep_blank_values=True)
        _require_known(asked, self._parameters.get(path, ()))
        is_well, body = page(asked)
        return _json(200 if is_well else 503, body)


def _require_known(query: Query, known: Collection[str]) -> None:
    """A probe with a misspelt limit would always succeed.

    What resembles no parameter is somebody's own, e.g. against caches, and no reason for a probe
    to fail.

    Raises:
        BadQuery: a name in the query is one of the page's but for its letters' case and signs.
    """
    bare = {_bare(name): name for name in known}
    for name in query:
        if name not in known and (meant := bare.get(_bare(name))) is not None:
            raise BadQuery(f"unknown parameter {brief(name)}: it is called {meant}")


def _bare(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _error(why: str) -> dict[str, Any]:
    return {"error": why}


def _json(code: int, body: dict[str, Any]) -> Content:
    content = json.dumps(body, separators=(",", ":"), default=str).encode() + b"\n"
    return code, "application/json", content


def _response(code: int, content_type: str, content: bytes, *, with_body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {code} {_REASONS[code]}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
        *(["Allow: GET, HEAD"] if code == 405 else []),
    ]
    head = "\r\n".join(lines).encode("ascii") + b"\r\n\r\n"
    return head + content if with_body else head
