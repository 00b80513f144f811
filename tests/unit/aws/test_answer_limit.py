"""Answers that never end, against a server on loopback that goes on sending for as long as it can."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError

from kcl_mld.aws import clients, whole_answers
from kcl_mld.aws.clients import Caller, ClientSettings, make_client
from kcl_mld.aws.prepared import PreparedOperation
from kcl_mld.aws.whole_answers import AnswerLimit, BrokenAnswer, waiting
from kcl_mld.errors import UnknownOutcome
from kcl_mld.kernel.adapters.calls import CallPool
from tests.unit.aws.sessions import quick_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from botocore.client import BaseClient

KEY: dict[str, Any] = {"TableName": "t", "Key": {"leaseKey": {"S": "a"}}}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\n"
WHOLE = HEAD + b"Content-Length: 2\r\n\r\n{}"
#: How an answer without end begins, and what follows again and again.
ENDLESS = {
    "length": (HEAD + b"Content-Length: 1000000000\r\n\r\n{", b" "),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"1\r\n \r\n"),
    "until the end": (HEAD + b"\r\n{", b" "),
}


class Server:
    """Answers one connection after the other; ``endless`` is what the next requests get."""

    def __init__(self) -> None:
        self.endless: tuple[bytes, bytes] | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pause = threading.Event()
        self._connections: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def hang_up(self) -> None:
        """End the connections that there are."""
        for one in self._connections:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._pause.set()
        self.hang_up()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while not self._pause.is_set():
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                with suppress(OSError), connection:
                    self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        while request := connection.recv(65_536):
            while not request.endswith(b"}"):
                request += connection.recv(65_536)
            if self.endless is None:
                connection.sendall(WHOLE)
                continue
            begin, more = self.endless
            connection.sendall(begin)
            while not self._pause.wait(0.002):
                connection.sendall(more)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def client(server: Server) -> Iterator[BaseClient]:
    session = quick_session()
    settings = ClientSettings(
        service="dynamodb",
        region="eu-west-1",
        endpoint=server.url,
        threads=1,
        connect_timeout_s=20.0,
        read_timeout_s=20.0,
    )
    with closing(make_client(session, settings)) as client:
        yield client


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_is_given_up_and_its_thread_is_free_again(
    server: Server, client: BaseClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    pool = CallPool("test", 1)
    patient = Caller(client, pool)
    monkeypatch.setattr(clients, "SILENCES", 0.005)
    hasty = Caller(client, pool)
    server.endless = ENDLESS[kind]

    async def ask() -> dict[str, Any]:
        with pytest.raises(UnknownOutcome, match="SlowAnswer: the answer was not whole after"):
            await hasty.read("get_item", KEY)
        server.endless = None
        return await patient.read("get_item", KEY)

    assert "Item" not in asyncio.run(asyncio.wait_for(ask(), 60))
    pool.close()


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("is_kept", [True, False], ids=["kept connection", "new connection"])
def test_a_prepared_operation_gives_an_answer_without_end_up(
    server: Server, client: BaseClient, kind: str, is_kept: bool
) -> None:
    update = PreparedOperation(client, "update_item")
    update(**KEY)
    if not is_kept:
        server.hang_up()
    server.endless = ENDLESS[kind]

    async def ask() -> bool:
        limit = AnswerLimit(asyncio.get_running_loop(), 0.1)

        def call() -> None:
            with limit.running():
                update(**KEY)

        with suppress(BotoCoreError, BrokenAnswer):
            await asyncio.to_thread(call)
        return limit.has_passed

    assert asyncio.run(asyncio.wait_for(ask(), 60))


class Timers:
    """Of a loop that does nothing else."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], None]]] = []
        self.canceled = 0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timers:
        self.set.append((delay_s, callback))
        return self

    def cancel(self) -> None:
        self.canceled += 1


def test_the_wait_for_a_thread_does_not_count() -> None:
    loop: Any = Timers()
    limit = AnswerLimit(loop, 60.0)
    delay_s, look = loop.set.pop()
    look()
    assert (delay_s, limit.has_passed) == (60.0, False)
    assert [delay_s for delay_s, _ in loop.set] == [60.0]


def test_a_wait_within_a_call_does_not_count() -> None:
    loop: Any = Timers()
    limit = AnswerLimit(loop, 0.0)
    with waiting():
        pass  # no call, no limit
    with limit.running():
        with waiting():
            loop.set.pop()[1]()
            assert not limit.has_passed
        loop.set.pop()[1]()
        assert limit.has_passed


def test_a_call_that_nobody_waits_for_keeps_its_limit() -> None:
    loop: Any = Timers()
    limit = AnswerLimit(loop, 0.0)
    with limit.running():
        limit.drop()
        assert not loop.canceled
        loop.set.pop()[1]()
        assert limit.has_passed
    limit.drop()
    assert loop.canceled


def test_the_shapes_of_answers_are_resolved_before_threads_use_them() -> None:
    """By the attribute in which msgspec keeps what it has resolved."""
    shapes = {*whole_answers._SHAPES.values(), whole_answers._UpdateShape}
    assert all("__msgspec_cache__" in vars(shape) for shape in shapes)
