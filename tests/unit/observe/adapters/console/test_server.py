"""The console's server, asked by its browser and by strangers."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.observe.adapters.console import server as module
from kcl_mld.observe.adapters.console.server import ConsoleServer, Published

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FLEET = json.dumps({"shards": ["x" * 500] * 8000}).encode()  # 4 MB


def published(number: int = 1) -> Published:
    def shard(key: str) -> bytes | None:
        return b'{"subject": "a:b"}' if key == "a:b" else None

    return Published(FLEET, b'{"look": %d}' % number, shard)


def serve(scene: Callable[[ConsoleServer], Awaitable[None]]) -> None:
    async def run() -> None:
        server = ConsoleServer("127.0.0.1", 0)
        await server.start()
        try:
            async with asyncio.timeout(30):
                await scene(server)
                await until(lambda: server.connections == 0)
        finally:
            await server.close()
            await asyncio.sleep(0)

    asyncio.run(run())


async def until(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - the time-out of the scene bounds it
        await asyncio.sleep(0.001)


class Answer:
    """One answer, whose connection the server closed."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.code = int(lines[0].split(" ")[1])
        self.headers = {
            name.lower(): text for name, _, text in (line.partition(": ") for line in lines[1:])
        }


async def raw(server: ConsoleServer, request: bytes) -> Answer:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return Answer(answer)


def request(
    server: ConsoleServer, path: str, method: str = "GET", host: str | None = None, **more: str
) -> bytes:
    headers = {"Host": host or f"127.0.0.1:{server.port}", **more}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def bearer(server: ConsoleServer) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.token}"}


async def get(server: ConsoleServer, path: str, **more: str) -> Answer:
    """As somebody who has the token."""
    return await raw(server, request(server, path, **bearer(server), **more))


async def open_stream(server: ConsoleServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(request(server, "/api/events", **bearer(server)))
    return reader, writer


def test_the_printed_address_is_traded_for_a_cookie_that_opens_everything() -> None:
    async def scene(server: ConsoleServer) -> None:
        server.publish(published())
        assert server.address == f"http://127.0.0.1:{server.port}/?token={server.token}"
        entry = await raw(server, request(server, f"/?token={server.token}"))
        assert (entry.code, entry.headers["location"]) == (303, "/")
        cookie, *attributes = entry.headers["set-cookie"].split("; ")
        assert set(attributes) == {"Path=/", "HttpOnly", "SameSite=Strict"}
        assert server.token not in cookie
        for path, kind in (
            ("/", "text/html; charset=utf-8"),
            ("/console.js", "text/javascript; charset=utf-8"),
            ("/console.css", "text/css; charset=utf-8"),
            ("/api/fleet", "application/json"),
        ):
            page = await raw(server, request(server, path, Cookie=f"other=1; {cookie}"))
            assert (page.code, page.headers["content-type"]) == (200, kind)
        assert page.body == FLEET

    serve(scene)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": "Basic {token}"},
        {"Cookie": "kcl-mld-console=1"},
        {"Cookie": "{name}={token}"},
        {"Cookie": "{name}="},
        {"Cookie": "\x7f=;;=\x01"},
    ],
)
def test_nothing_is_served_without_the_token(headers: dict[str, str]) -> None:
    async def scene(server: ConsoleServer) -> None:
        server.publish(published())
        entry = await raw(server, request(server, f"/?token={server.token}"))
        name = entry.headers["set-cookie"].partition("=")[0]
        sent = {
            key: text.replace("{token}", server.token).replace("{name}", name)
            for key, text in headers.items()
        }
        for path in ("/", "/console.js", "/api/fleet", "/api/events", "/?token=x", "/none"):
            answer = await raw(server, request(server, path, **sent))
            assert answer.code in (400, 401)
            assert b"shards" not in answer.body
        # The token opens the page alone, so that no other address has it.
        assert (await raw(server, request(server, f"/api/fleet?token={server.token}"))).code == 401

    serve(scene)


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:80", 200),
        ("[::1]", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("10.0.0.1:80", 421),
    ],
)
def test_a_name_that_is_not_this_machine_is_refused(host: str, code: int) -> None:
    async def scene(server: ConsoleServer) -> None:
        server.publish(published())
        for path in ("/api/fleet", f"/?token={server.token}"):
            answer = await raw(server, request(server, path, host=host, **bearer(server)))
            assert answer.code == (303 if code == 200 and "?" in path else code)

    serve(scene)


def test_only_get_and_head() -> None:
    async def scene(server: ConsoleServer) -> None:
        server.publish(published())
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH"):
            answer = await raw(server, request(server, "/api/fleet", method, **bearer(server)))
            assert (answer.code, answer.headers["allow"]) == (405, "GET, HEAD")
        for path in ("/", "/api/fleet", "/api/events"):
            answer = await raw(server, request(server, path, "HEAD", **bearer(server)))
            assert (answer.code, answer.body) == (200, b"")
        answer = await raw(server, request(server, "/api/fleet", "HEAD", **bearer(server)))
        assert answer.headers["content-length"] == str(len(FLEET))

    serve(scene)


def test_every_answer_says_what_a_browser_may_do_with_it() -> None:
    async def scene(server: ConsoleServer) -> None:
        for answer in (
            await get(server, "/"),
            await get(server, "/none"),
            await raw(server, request(server, f"/?token={server.token}")),
            await raw(server, request(server, "/")),
        ):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "http" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert "server" not in answer.headers

    serve(scene)


def test_before_the_first_look_and_what_there_is_not() -> None:
    async def scene(server: ConsoleServer) -> None:
        answer = await get(server, "/api/fleet")
        assert (answer.code, answer.headers["retry-after"]) == (503, "1")
        server.publish(published())
        assert (await get(server, "/api/shard?key=a%3Ab")).body == b'{"subject": "a:b"}'
        assert (await get(server, "/api/shard?key=c")).code == 404
        assert (await get(server, "/api/shard")).code == 404
        assert (await get(server, "/../server.py")).code == 404

    serve(scene)


def test_a_stream_says_of_each_look_that_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE_EVERY_S", 0.2)

    async def scene(server: ConsoleServer) -> None:
        server.publish(published(1))
        reader, writer = await open_stream(server)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head
        for number in (1, 2, 3):
            await reader.readuntil(b'event: look\ndata: {"look": %d}\n\n' % number)
            server.publish(published(number + 1))
        writer.close()
        await until(lambda: server.connections == 0)

    serve(scene)


def test_a_stream_without_news_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE_EVERY_S", 0.01)

    async def scene(server: ConsoleServer) -> None:
        reader, writer = await open_stream(server)
        for _ in range(3):
            await reader.readuntil(b": alive\n\n")
        writer.transport.abort()

    serve(scene)


def test_a_client_that_does_not_read_costs_its_own_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "WRITE_TIMEOUT_S", 0.5)

    async def scene(server: ConsoleServer) -> None:
        server.publish(published())
        slow = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(10)]
        for reader, writer in slow:
            reader._transport.pause_reading()
            writer.write(request(server, "/api/fleet", **bearer(server)))
        await until(lambda: server.connections == 10)
        assert (await get(server, "/api/fleet")).body == FLEET
        await until(lambda: server.connections == 0)
        for _reader, writer in slow:
            writer.transport.abort()

    serve(scene)


def test_connections_and_streams_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALIVE_EVERY_S", 0.2)
    monkeypatch.setattr(module, "MAX_STREAMS", 2)
    monkeypatch.setattr(module, "MAX_CONNECTIONS", 4)
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 0.5)

    async def scene(server: ConsoleServer) -> None:
        server.publish(published())
        streams = [await open_stream(server) for _ in range(2)]
        for reader, _writer in streams:
            await reader.readuntil(b"event: look")
        assert (await get(server, "/api/events")).code == 503
        await until(lambda: server.connections == 2)
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(2)]
        await until(lambda: server.connections == 4)
        reader, refused = await asyncio.open_connection("127.0.0.1", server.port)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await until(lambda: server.connections == 2)  # those that asked nothing are gone
        assert (await get(server, "/api/fleet")).code == 200
        for _reader, writer in (*streams, *idle, (reader, refused)):
            writer.transport.abort()

    serve(scene)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 9000, 431),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
    ],
)
def test_what_is_no_request_is_refused(sent: bytes, code: int) -> None:
    async def scene(server: ConsoleServer) -> None:
        assert (await raw(server, sent)).code == code

    serve(scene)


def test_a_client_that_goes_before_the_end_of_its_request() -> None:
    async def scene(server: ConsoleServer) -> None:
        _reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HT")
        await writer.drain()
        writer.close()
        await until(lambda: server.connections == 0)

    serve(scene)


def test_an_address_that_is_taken() -> None:
    async def scene(server: ConsoleServer) -> None:
        with pytest.raises(ConfigError, match="cannot listen on 127"):
            await ConsoleServer("127.0.0.1", server.port).start()

    serve(scene)


def test_an_address_of_ipv6_is_written_in_brackets() -> None:
    assert ConsoleServer("::1", 80).address.startswith("http://[::1]:80/?token=")
