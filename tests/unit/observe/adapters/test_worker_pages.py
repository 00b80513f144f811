"""Pages of workers, asked over real sockets."""

import asyncio
import contextlib
import http.server
import json
import socket
import threading

import pytest

import kcl_mld.observe.adapters.worker_pages
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import SystemClock
from kcl_mld.observe.adapters.http_status import HttpStatus
from kcl_mld.observe.adapters.worker_pages import WorkerPages

V4, V6 = socket.AF_INET, socket.AF_INET6
PAGE = {"worker_id": "w", "leases": [{"lease_key": "k", "state": "PROCESSING"}]}


def asked(*urls, threads=4):
    """The pages; asked without a worker of ours."""

    async def ask():
        pool = CallPool("pages", threads)
        try:
            return await WorkerPages(urls, pool, SystemClock()).ask()
        finally:
            pool.close()

    return asyncio.run(ask())


@contextlib.contextmanager
def answering(status, body, **headers):
    """Some server on loopback; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/leases"
        finally:
            server.shutdown()
            thread.join()


def test_the_page_of_our_own_server_is_read():
    async def ask():
        server = HttpStatus("127.0.0.1", 0, {"/leases": lambda _query: (True, PAGE)})
        await server.start()
        pool = CallPool("pages", 1)
        url = f"http://127.0.0.1:{server.port}/leases"
        try:
            return await WorkerPages((url,), pool, SystemClock()).ask()
        finally:
            pool.close()
            await server.close()

    (page,) = asyncio.run(ask())
    assert (page.worker, page.failure, list(page.shards)) == ("w", None, ["k"])


def resolving(monkeypatch, *found):
    """Names have these addresses, whichever is asked for."""

    def look_up(_host, port, *_args, **_named):
        return [(family, socket.SOCK_STREAM, 6, "", (address, port)) for family, address in found]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_each_address_of_a_name_is_asked(monkeypatch):
    resolving(monkeypatch, (V4, "127.0.0.2"), (V4, "127.0.0.1"), (V4, "127.0.0.2"), (V6, "::1"))
    pages = asked("http://pods:1/leases", "http://127.0.0.1:1/leases")
    assert [page.url for page in pages] == [
        "http://127.0.0.1:1/leases",
        "http://127.0.0.2:1/leases",
    ]
    assert all(page.failure for page in pages)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://localhost:1/leases", ((V6, "::1"), (V4, "127.0.0.1"))),
        ("https://pods:1/leases", ((V4, "127.0.0.1"), (V4, "127.0.0.2"))),
    ],
)
def test_a_name_stays_that_is_one_worker_or_has_a_certificate(url, found, monkeypatch):
    resolving(monkeypatch, *found)
    assert [page.url for page in asked(url)] == [url]


def test_a_name_that_is_not_known_is_a_failure(monkeypatch):
    def fails(*_args, **_named):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    (page,) = asked("http://pods:1/leases")
    assert page.url == "http://pods:1/leases"
    assert "not known" in page.failure


def test_an_address_is_asked_for_the_host_that_was_typed(monkeypatch):
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers["Host"])
            self.send_error(404)

        def log_message(self, *_args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        resolving(monkeypatch, (V4, "127.0.0.1"), (V4, "127.0.0.2"))
        asked(f"http://worker.example:{server.server_port}/leases")
        server.shutdown()
        thread.join()
    assert set(seen) == {f"worker.example:{server.server_port}"}


def test_who_waits_for_a_thread_is_not_silent(monkeypatch):
    """Those before it hang for as long as they may."""
    monkeypatch.setattr(kcl_mld.observe.adapters.worker_pages, "TIMEOUT_S", 1.0)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        urls = [f"http://127.0.0.1:{one.getsockname()[1]}/leases" for one in silent]
        good = stack.enter_context(answering(200, json.dumps(PAGE).encode()))
        *hanging, page = asked(*urls, good, threads=1)
    assert page.failure is None
    assert all("within" in one.failure or "timed out" in one.failure for one in hanging)


def test_addresses_of_version_6_are_in_brackets(monkeypatch):
    resolving(monkeypatch, (V6, "::1"), (V6, "::2"))
    assert [page.url for page in asked("http://pods/leases")] == [
        "http://[::1]:80/leases",
        "http://[::2]:80/leases",
    ]


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (404, b"{}", "it answers 404"),
        (302, b"", "it answers 302"),
        (200, b"<html>", "it is not the page /leases of a worker"),
        (200, json.dumps(PAGE).encode() + b" " * 2000, "its answer has more than 1000 bytes"),
    ],
)
def test_what_is_no_page_is_said(monkeypatch, status, body, failure):
    monkeypatch.setattr(kcl_mld.observe.adapters.worker_pages, "_MOST_BYTES", 1000)
    with answering(status, body, Location="http://127.0.0.1:1/") as url:
        (page,) = asked(url)
    assert page.failure.startswith(failure)
    assert (page.url, page.worker, page.shards) == (url, "", {})


def test_one_that_fails_costs_the_others_nothing():
    with answering(200, json.dumps(PAGE).encode()) as url:
        bad, good = asked("http://127.0.0.1:1/leases", url)
    assert "refused" in bad.failure
    assert good.worker == "w"


def test_one_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(kcl_mld.observe.adapters.worker_pages, "TIMEOUT_S", 0.2)

    async def ask():
        ended = asyncio.Event()

        async def silent(_reader, writer):
            await ended.wait()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = CallPool("pages", 1)
        try:
            return await WorkerPages(
                (f"http://127.0.0.1:{port}/leases",), pool, SystemClock()
            ).ask()
        finally:
            ended.set()
            pool.close()
            server.close()
            await server.wait_closed()
            await asyncio.sleep(0.1)  # its connection ends

    (page,) = asyncio.run(ask())
    assert "timed out" in page.failure or "no answer within 0.2 s" in page.failure
