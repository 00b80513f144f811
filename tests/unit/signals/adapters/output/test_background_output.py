"""Streams that take every write at once, whoever reads at the other end."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING

import click
import pytest

from kcl_mld.signals.adapters.output.background_output import (
    BackgroundHandler,
    BackgroundOutput,
    background_output,
    dropped_messages,
    unblock_handlers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE_S = 60.0


class Pipe:
    """A pipe with a text stream on its writing end."""

    def __init__(self) -> None:
        self._reading, writing = os.pipe()
        self.stream = open(writing, "w", encoding="utf-8")  # noqa: SIM115 - closed by close()
        self._is_read = True
        self._outputs: list[BackgroundOutput] = []

    def output(self, **bounds: int) -> BackgroundOutput:
        """In the background of this pipe."""
        self._outputs.append(BackgroundOutput(self.stream, **bounds))
        return self._outputs[-1]

    def read(self, until: str) -> str:
        """Everything up to a text."""
        data = b""
        while until.encode() not in data:
            more = os.read(self._reading, 65536)
            assert more, data[-500:]
            data += more
        return data.decode()

    def fill(self) -> None:
        """So that the next write waits."""
        number = self.stream.fileno()
        os.set_blocking(number, False)
        try:
            while True:
                os.write(number, b"." * 4096)
        except BlockingIOError:
            os.set_blocking(number, True)

    def hang_up(self) -> None:
        if self._is_read:
            self._is_read = False
            os.close(self._reading)

    def close(self) -> None:
        self.hang_up()
        for output in self._outputs:  # a thread must not meet another file of this number
            if output._queue._thread is not None:
                output._queue.end(PATIENCE_S)
                output._queue._thread.join(PATIENCE_S)
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def within(seconds: float, fact: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def test_lines_arrive_whole_and_in_order(pipe):
    output = pipe.output()
    for number in range(1000):
        output.write(f"line {number}\n")
    assert pipe.read("line 999\n") == "".join(f"line {number}\n" for number in range(1000))
    assert output.end()


def test_a_line_waits_for_its_end_or_for_a_flush(pipe):
    output = pipe.output()
    print("a", "b", file=output)
    output.write("half")
    assert pipe.read("b\n") == "a b\n"
    output.flush()
    output.flush()
    assert pipe.read("half") == "half"
    output.write("y" * 70_000)  # too long to wait for its end
    assert pipe.read("y" * 70_000)
    output.write("last")
    assert output.end()
    assert pipe.read("last") == "last"


def test_it_stands_for_its_target(pipe):
    output = pipe.output()
    assert output.fileno() == pipe.stream.fileno()
    assert (output.encoding, output.isatty(), output.writable()) == ("utf-8", False, True)
    output.write("\ud83d ü\n")
    assert pipe.read("\n") == "\\ud83d ü\n"
    assert output.end()


def test_a_reader_that_stalls_costs_messages_and_no_time(pipe, caplog):
    pipe.fill()
    output = pipe.output(max_bytes=1000, max_messages=50)
    began = time.monotonic()
    output.write("first\n")
    assert within(PATIENCE_S, lambda: output.write("") == 0 and not output._queue._waiting)
    for _ in range(20):
        output.write("x" * 99 + "\n")
    assert time.monotonic() - began < PATIENCE_S
    assert output.dropped == 10
    output.write("y" * 2000 + "\n")
    assert output.dropped == 11
    with caplog.at_level(logging.WARNING):
        text = pipe.read("x" * 99 + "\n")
        assert "first\n" in text
        assert within(PATIENCE_S, lambda: bool(caplog.records))
    said = caplog.records[0].getMessage()
    assert said.startswith("11 log messages were dropped in the last ")
    output.write("again\n")
    assert pipe.read("again\n").count("y") == 0
    assert output.end()
    assert len(caplog.records) == 1


def test_the_number_of_waiting_messages_is_bounded_as_well(pipe):
    pipe.fill()
    output = pipe.output(max_messages=5)
    output.write("first\n")
    assert within(PATIENCE_S, lambda: not output._queue._waiting)
    for _ in range(9):
        output.write("\n")
    assert output.dropped == 4
    assert not output.end(0.01)


def test_a_message_larger_than_all_room_is_taken_when_nothing_waits(pipe):
    output = pipe.output(max_bytes=10)
    output.write("z" * 500 + "\n")
    assert pipe.read("\n") == "z" * 500 + "\n"
    assert output.end()


def test_the_end_does_not_wait_for_a_reader_that_stalls(pipe):
    pipe.fill()
    output = pipe.output()
    output.write("lost\n")
    began = time.monotonic()
    assert not output.end(0.05)
    assert time.monotonic() - began < PATIENCE_S / 2
    output.write("too late\n")
    assert output.dropped == 0


def test_its_thread_ends_with_it(pipe):
    output = pipe.output()
    assert output.end()  # none was started
    output = pipe.output()
    output.write("x\n")
    thread = output._queue._thread
    assert isinstance(thread, threading.Thread)
    assert thread.daemon
    assert output.end()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_what_waits_for_a_thread_is_written_by_the_first_one_that_starts(pipe, monkeypatch):
    output = pipe.output()
    with monkeypatch.context() as refusing:
        refusing.setattr(threading.Thread, "start", refuse)
        output.write("one\n")
    output.write("two\n")
    assert output.end()
    assert pipe.read("two\n") == "one\ntwo\n"


def test_without_any_thread_all_is_written_at_the_end(pipe, monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", refuse)
    output = pipe.output()
    output.write("why\n")
    output.write("it ended\n")
    assert output.end()
    assert output.dropped == 0
    assert pipe.read("ended\n") == "why\nit ended\n"


def test_a_reader_that_went_away_is_no_error(pipe):
    output = pipe.output()
    pipe.hang_up()
    output.write("nobody\n")
    assert within(PATIENCE_S, lambda: output.dropped == 1)
    assert output.end()


def test_a_descriptor_that_does_not_block_loses_nothing(pipe):
    os.set_blocking(pipe.stream.fileno(), False)
    output = pipe.output()
    text = "".join(f"{number:099}\n" for number in range(5000))
    output.write(text)
    assert pipe.read(f"{4999:099}\n") == text
    assert output.end()


def test_a_stream_without_descriptor_is_written_as_text():
    target = io.StringIO()
    output = BackgroundOutput(target)
    output.write("ü\n")
    assert output.end()
    assert target.getvalue() == "ü\n"


def test_everything_that_writes_to_standard_error_goes_through_it(monkeypatch):
    monkeypatch.setattr(sys, "stderr", kept := io.StringIO())
    monkeypatch.setattr(sys, "stdout", out := io.StringIO())
    with background_output():
        assert isinstance(sys.stderr, BackgroundOutput)
        handler = logging.StreamHandler()
        handler.emit(logging.LogRecord("x", 20, "f", 1, "by logging", (), None))
        print("by print", file=sys.stderr)
        click.echo("by click", err=True)
        try:
            raise KeyError("by traceback")
        except KeyError:
            traceback.print_exc()
        print("to stdout")
    assert sys.stderr is kept
    for text in ("by logging\n", "by print\n", "by click\n", "KeyError: 'by traceback'\n"):
        assert text in kept.getvalue()
    assert out.getvalue() == "to stdout\n"


def test_a_stream_that_takes_nothing_stays_replaced(pipe, monkeypatch):
    monkeypatch.setattr("kcl_mld.signals.adapters.output.background_output.DRAIN_S", 0.05)
    pipe.fill()
    monkeypatch.setattr(sys, "stderr", pipe.stream)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with background_output():
        print("lost", file=sys.stderr)
    assert isinstance(sys.stderr, BackgroundOutput)
    print("ignored", file=sys.stderr)
    pipe.hang_up()
    thread = sys.stderr._queue._thread
    assert thread is not None
    thread.join(PATIENCE_S)


class Stalling(logging.Handler):
    """Waits at its first record."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.go_on = threading.Event()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.go_on.wait(PATIENCE_S)
        self.texts.append(record.getMessage())


@pytest.fixture
def logger(restored_logging: None) -> Iterator[logging.Logger]:
    made = logging.getLogger("mld.test_background_output")
    made.propagate = False
    made.setLevel(logging.DEBUG)
    yield made
    made.handlers.clear()
    del logging.Logger.manager.loggerDict[made.name]


def test_a_handler_that_waits_holds_up_nobody(logger, monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    stalling = Stalling()
    with background_output():
        quick = logging.StreamHandler()  # to the replaced stderr
        logger.handlers[:] = [stalling, quick, logging.NullHandler()]
        unblock_handlers()
        unblock_handlers()
        assert isinstance(logger.handlers[0], BackgroundHandler)
        assert logger.handlers[1] is quick
        began = time.monotonic()
        for number in range(100):
            logger.info("number %d", number)
        logger.debug("below its level")
        assert time.monotonic() - began < PATIENCE_S / 2
        assert stalling.texts == []
        stalling.go_on.set()
    assert stalling.texts == [f"number {number}" for number in range(100)]


def test_what_a_handler_did_not_take_is_told(logger, caplog):
    stalling = Stalling()
    stalling.set_name("syslog")
    handler = BackgroundHandler(stalling, max_messages=3)
    logger.addHandler(handler)
    logger.info("first")
    assert within(PATIENCE_S, lambda: not handler.waiting._waiting)
    for _ in range(5):
        logger.info("more")
    assert handler.waiting.dropped == dropped_messages() == 2
    with caplog.at_level(logging.WARNING):
        stalling.go_on.set()
        assert handler.waiting.end(PATIENCE_S)
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "2 log messages were dropped in the last 0 s: syslog did not take them in time"
    ]
    assert stalling.texts == ["first", "more", "more", "more"]


class Raising(Stalling):
    """Fails at every record that says so, as a faulty handler of a user's own may."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if self.texts[-1] == "bad":
            raise RuntimeError(self.texts.pop())


def test_a_handler_that_raises_costs_that_record_only(logger, caplog):
    raising = Raising()
    raising.set_name("own")
    handler = BackgroundHandler(raising)
    logger.addHandler(handler)
    with caplog.at_level(logging.WARNING):
        for text in ("good", "bad", "better", "best"):
            logger.info(text)
        raising.go_on.set()
        assert handler.waiting.end(PATIENCE_S)
    assert raising.texts == ["good", "better", "best"]
    assert handler.waiting.dropped == 1
    (told,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert told.startswith("1 log messages were dropped")


def test_what_a_handler_cannot_write_is_counted(logger, tmp_path):
    full = logging.FileHandler("/dev/full")
    handler = BackgroundHandler(full)
    logger.addHandler(handler)
    for _ in range(3):
        logger.info("lost")
    assert handler.waiting.end(PATIENCE_S)
    assert handler.waiting.dropped == 3
    with contextlib.suppress(OSError):
        full.close()


def test_a_handler_that_never_goes_on_does_not_keep_the_process(logger, monkeypatch):
    monkeypatch.setattr("kcl_mld.signals.adapters.output.background_output.DRAIN_S", 0.05)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    unregistered: list[object] = []
    monkeypatch.setattr("atexit.unregister", unregistered.append)
    stalling = Stalling()
    with background_output():
        logger.addHandler(stalling)
        unblock_handlers()
        logger.info("lost")
    assert unregistered == [logging.shutdown]
    stalling.go_on.set()
