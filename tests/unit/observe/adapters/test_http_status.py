"""The status pages, asked by friends and by strangers."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.observe.adapters import http_status
from kcl_mld.observe.adapters.http_status import BadQuery, HttpStatus, Query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def fail(_query: Query) -> tuple[bool, dict[str, Any]]:
    raise KeyError("secret detail")


def echo(query: Query) -> tuple[bool, dict[str, Any]]:
    if "bad" in query:
        raise BadQuery("bad is bad")
    return True, dict(query)


PAGES = {
    "/echo": echo,
    "/livez": lambda _: (True, {"alive": True}),
    "/readyz": lambda _: (False, {"why": "no leases yet"}),
    "/leases": lambda _: (True, {"leases": [{"shard": "s", "lag_s": 1.5}] * 5000}),
    "/broken": fail,
}


async def text() -> tuple[int, str, bytes]:
    await asyncio.sleep(0)
    return 200, "text/plain; charset=utf-8", b"up 1\n"


async def break_down() -> tuple[int, str, bytes]:
    raise KeyError("secret detail")


CONTENTS = {"/text": text, "/broken-text": break_down}


def serve(scene: Callable[[HttpStatus], Awaitable[None]]) -> None:
    async def run() -> None:
        server = HttpStatus("127.0.0.1", 0, PAGES, {"/echo": ("a", "b", "c", "bad")}, CONTENTS)
        await server.start()
        try:
            async with asyncio.timeout(20):
                await scene(server)
            await until(lambda: server.connections == 0)
        finally:
            await server.close()
            await asyncio.sleep(0)

    asyncio.run(run())


async def until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - the time-out of the scene bounds it
        await asyncio.sleep(0.001)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def ask(server: HttpStatus, request: bytes) -> tuple[int, dict[str, str], bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    await hang_up(writer)
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    return int(first.split()[1]), dict(field.split(": ", 1) for field in fields), body


@pytest.mark.parametrize(
    ("target", "code", "body"),
    [
        ("/livez", 200, {"alive": True}),
        ("/livez?verbose=1", 200, {"alive": True}),
        ("/readyz", 503, {"why": "no leases yet"}),
        ("/echo?a=1&b=%20x&a=2&c", 200, {"a": ["1", "2"], "b": [" x"], "c": [""]}),
        ("/echo?A=1", 400, {"error": "unknown parameter A: it is called a"}),
        ("/echo?bad=1", 400, {"error": "bad is bad"}),
        ("/", 404, {"pages": sorted({*PAGES, *CONTENTS})}),
        ("/../livez", 404, {"pages": sorted({*PAGES, *CONTENTS})}),
        ("/broken", 500, {"error": "the page failed; the log says why"}),
        ("/broken-text", 500, {"error": "the page failed; the log says why"}),
    ],
)
def test_each_path_has_its_answer(target: str, code: int, body: dict[str, Any]) -> None:
    async def scene(server: HttpStatus) -> None:
        request = f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        got, fields, content = await ask(server, request)
        assert (got, json.loads(content)) == (code, body)
        assert fields["Content-Length"] == str(len(content))
        assert fields["Connection"] == "close"

    serve(scene)


@pytest.mark.parametrize(("method", "body"), [("GET", b"up 1\n"), ("HEAD", b"")])
def test_a_page_may_be_no_json(method: str, body: bytes) -> None:
    async def scene(server: HttpStatus) -> None:
        request = f"{method} /text?x=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        code, fields, content = await ask(server, request)
        assert (code, content, fields["Content-Length"]) == (200, body, "5")
        assert fields["Content-Type"] == "text/plain; charset=utf-8"

    serve(scene)


def test_a_large_page_arrives_whole() -> None:
    async def scene(server: HttpStatus) -> None:
        _, _, body = await ask(server, b"GET /leases HTTP/1.0\r\n\r\n")
        assert len(json.loads(body)["leases"]) == 5000

    serve(scene)


def test_head_has_the_length_of_get_and_no_body() -> None:
    async def scene(server: HttpStatus) -> None:
        code, fields, body = await ask(server, b"HEAD /livez HTTP/1.1\r\n\r\n")
        assert (code, body, fields["Content-Length"]) == (200, b"", "15")

    serve(scene)


@pytest.mark.parametrize(
    ("request_text", "code"),
    [
        (b"POST /livez HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n", 405),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /livez\r\n\r\n", 400),
        (b"GET /li vez HTTP/1.1\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /\xff\xfe HTTP/1.1\r\n\r\n", 404),
    ],
)
def test_what_is_not_a_get_is_refused_in_a_word(request_text: bytes, code: int) -> None:
    async def scene(server: HttpStatus) -> None:
        got, fields, body = await ask(server, request_text)
        assert got == code
        assert json.loads(body)
        assert ("Allow" in fields) == (code == 405)

    serve(scene)


def test_a_head_without_end_is_cut_off() -> None:
    async def scene(server: HttpStatus) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /livez HTTP/1.1\r\n" + b"x" * 20_000)
        try:
            answer = await reader.read()
        except ConnectionResetError:  # closing with unread input resets the connection
            answer = b""
        assert answer[:12] in {b"", b"HTTP/1.1 431"}
        await hang_up(writer)
        assert (await ask(server, b"GET /livez HTTP/1.1\r\n\r\n"))[0] == 200

    serve(scene)


def test_a_client_that_says_nothing_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_status, "REQUEST_TIMEOUT_S", 0.05)

    async def scene(server: HttpStatus) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /liv")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        await hang_up(writer)

    serve(scene)


def test_a_client_that_hangs_up_early_is_no_error() -> None:
    async def scene(server: HttpStatus) -> None:
        for request in (b"", b"GET", b"GET /leases HTTP/1.1\r\n\r\n"):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(request)
            writer.write_eof()
            await hang_up(writer)
        assert (await ask(server, b"GET /livez HTTP/1.1\r\n\r\n"))[0] == 200

    serve(scene)


def test_a_client_that_does_not_read_is_dropped_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_status, "REQUEST_TIMEOUT_S", 0.1)
    closed = asyncio.Event()

    async def scene(_: HttpStatus) -> None:
        huge = HttpStatus("127.0.0.1", 0, {"/": lambda _: (True, {"x": "y" * 30_000_000})})
        await huge.start()
        _, writer = await asyncio.open_connection("127.0.0.1", huge.port, limit=1000)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        writer.transport.pause_reading()
        await until(lambda: huge.connections == 1)
        await until(lambda: huge.connections == 0)
        closed.set()
        await hang_up(writer)
        await huge.close()

    serve(scene)
    assert closed.is_set()


def test_connections_that_stay_open_shut_out_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    # Or the oldest one would end by itself, sooner or later.
    monkeypatch.setattr(http_status, "REQUEST_TIMEOUT_S", 3600.0)

    async def scene(server: HttpStatus) -> None:
        idle = []
        for _ in range(200):
            idle.append(await asyncio.open_connection("127.0.0.1", server.port))
            idle[-1][1].write(b"GET /livez HTTP/1.1\r\n")
        code, _, body = await ask(server, b"GET /livez HTTP/1.1\r\n\r\n")
        assert (code, json.loads(body)) == (200, {"alive": True})
        assert server.connections <= http_status.MAX_CONNECTIONS
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await idle[0][0].readexactly(1)  # the oldest was dropped
        for _, writer in idle:
            await hang_up(writer)

    serve(scene)


def test_a_port_in_use_is_a_configuration_error() -> None:
    async def scene(server: HttpStatus) -> None:
        with pytest.raises(ConfigError, match="cannot listen on"):
            await HttpStatus("127.0.0.1", server.port, PAGES).start()

    serve(scene)


@pytest.mark.parametrize(
    ("host", "port"), [("192.0.2.1", 0), ("no.such.host.invalid", 0), ("127.0.0.1", 99999)]
)
def test_an_address_that_is_not_ours_is_a_configuration_error(host: str, port: int) -> None:
    async def scene() -> None:
        server = HttpStatus(host, port, PAGES)
        assert server.port == port
        with pytest.raises(ConfigError, match="--http"):
            await server.start()
        await server.close()

    asyncio.run(scene())
