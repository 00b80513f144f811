"""Answers in every form that HTTP/1.1 allows, and those that it does not, over a socket pair."""

from __future__ import annotations

import socket
import threading
from http.client import HTTPException, IncompleteRead
from typing import TYPE_CHECKING

import pytest

from kcl_mld.aws import http_exchange
from kcl_mld.aws.http_exchange import Answer, BrokenExchange, exchange

if TYPE_CHECKING:
    from collections.abc import Iterator


class Wire:
    """Our end of a connection whose other end answers with given bytes."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(10)

    def ask(self, *pieces: bytes, ends: bool = False) -> Answer:
        """Exchange; the answer comes in pieces, and the connection ends behind them."""

        def answer() -> None:
            assert self.theirs.recv(100) == b"request"
            for piece in pieces:
                self.theirs.sendall(piece)
            if ends:
                self.theirs.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            return exchange(self.ours, b"request")
        finally:
            thread.join()


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.ours.close()
    wire.theirs.close()


def test_an_answer_of_known_length_leaves_the_connection_open(wire: Wire) -> None:
    for _ in range(2):
        answer = wire.ask(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX-Id:  a b \r\n\r\n{  }")
        headers = {"content-length": "4", "x-id": "a b"}
        assert answer == Answer(200, headers, b"{  }", is_reusable=True)


def test_an_answer_may_come_in_pieces(wire: Wire) -> None:
    text = b"HTTP/1.1 400 \r\ncontent-length: 2\r\n\r\n{}"
    answer = wire.ask(*(text[i : i + 1] for i in range(len(text))))
    assert (answer.status, answer.body, answer.is_reusable) == (400, b"{}", True)


def test_chunks_are_put_together_and_trailers_skipped(wire: Wire) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answer = wire.ask(head, b"3;x=y\r\nabc\r\n", b"A\r\n0123456789\r\n", b"0\r\nT: v\r\n\r\n")
    assert (answer.body, answer.is_reusable) == (b"abc0123456789", True)
    assert wire.ask(head, b"0\r\n\r\n").body == b""


def test_without_a_length_the_end_of_the_connection_ends_the_answer(wire: Wire) -> None:
    answer = wire.ask(b"HTTP/1.1 200 OK\r\n\r\nall of it", ends=True)
    assert (answer.body, answer.is_reusable) == (b"all of it", False)


@pytest.mark.parametrize("length", [b"many", b"1, 1", b"-1", "²".encode(), b"1" * 5000])
def test_a_length_that_is_no_number_is_none(wire: Wire, length: bytes) -> None:
    answer = wire.ask(b"HTTP/1.1 200 OK\r\nContent-Length: %b\r\n\r\nab" % length, ends=True)
    assert (answer.body, answer.is_reusable) == (b"ab", False)


def test_two_lengths_are_shown_together(wire: Wire) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n"
    answer = wire.ask(head, b"ab", ends=True)
    assert answer.headers["content-length"] == "2, 3"
    assert (answer.body, answer.is_reusable) == (b"ab", False)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.0 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: foo, close\r\n",
    ],
)
def test_a_connection_that_will_be_closed_is_not_used_again(wire: Wire, head: bytes) -> None:
    answer = wire.ask(head + b"Content-Length: 2\r\n\r\n{}")
    assert (answer.body, answer.is_reusable) == (b"{}", False)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body_whatever_they_say(wire: Wire, status: int) -> None:
    answer = wire.ask(b"HTTP/1.1 %d x\r\nContent-Length: 9\r\n\r\n" % status)
    assert (answer.status, answer.body, answer.is_reusable) == (status, b"", True)


def test_what_comes_before_the_answer_proper_is_skipped(wire: Wire) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    answer = wire.ask(early, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert (answer.status, answer.headers) == (200, {"content-length": "2"})


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed without an answer"),
        (b"ICY 200 OK\r\n\r\n", "not an answer in HTTP/1"),
        (b"HTTP/2 200\r\n\r\n", "not an answer in HTTP/1"),
        (b"HTTP/1.1 abc\r\n\r\n", "not an answer in HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "breaks off"),
        (b"HTTP/1.1 200 OK\r\n", "breaks off"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", "too long a line"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 101 + b"\r\n", "too many lines"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "has no size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n", "has no size"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n", "longer than"),
    ],
)
def test_what_is_no_answer_is_refused(wire: Wire, answer: bytes, why: str) -> None:
    with pytest.raises(BrokenExchange, match=why):
        wire.ask(answer, ends=True)


@pytest.mark.parametrize("framing", [b"Content-Length: 5", b"Transfer-Encoding: chunked"])
def test_a_good_answer_that_breaks_off_is_an_error(wire: Wire, framing: bytes) -> None:
    chunk = b"5\r\n" if b"chunked" in framing else b""
    with pytest.raises(IncompleteRead) as caught:
        wire.ask(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n" + chunk + b"abc", ends=True)
    assert (caught.value.partial, caught.value.expected) == (b"abc", 2)


def test_a_refusal_that_breaks_off_is_read_as_far_as_it_came(wire: Wire) -> None:
    answer = wire.ask(b"HTTP/1.1 400 x\r\nContent-Length: 9\r\n\r\n{}", ends=True)
    assert (answer.status, answer.body, answer.is_reusable) == (400, b"{}", False)


def test_a_huge_answer_is_read_in_pieces(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange, "_AT_ONCE_BYTES", 1000)
    body = b"x" * 150_000
    answer = wire.ask(b"HTTP/1.1 200 OK\r\nContent-Length: 150000\r\n\r\n", body)
    assert (answer.body, answer.is_reusable) == (body, True)


def test_memory_is_not_taken_for_a_length_that_is_only_claimed(wire: Wire) -> None:
    with pytest.raises(IncompleteRead):
        wire.ask(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nab" % 10**15, ends=True)


def test_silence_is_a_timeout(wire: Wire) -> None:
    wire.ours.settimeout(0.05)
    with pytest.raises(TimeoutError):
        wire.ask(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")


def test_a_connection_that_is_closed_cannot_be_written(wire: Wire) -> None:
    wire.theirs.close()
    with pytest.raises((OSError, HTTPException)):
        exchange(wire.ours, b"request")
