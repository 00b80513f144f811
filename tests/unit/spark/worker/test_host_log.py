"""The pump of the host: whole lines, to a living stub, never in anybody's way."""

import contextlib
import logging
import os
import select
import threading

import pytest

from kcl_mld.spark.worker.host_log import KEPT_BYTES, LinePump, ShardLogHandler


class Pumped:
    """A pump with the pipe that it reads."""

    def __init__(self, *, first=False):
        source, self.sink = os.pipe()
        self.source = source
        self.first, first_sink = os.pipe() if first else (None, None)
        self.pump = LinePump(source, first_sink)
        self.ends = []

    def print(self, data):
        os.write(self.sink, data)

    def stub(self, key):
        """Reading end of a stub's standard error."""
        reading, writing = os.pipe()
        self.pump.add(key, writing)
        self.ends.append(reading)
        return reading

    def close(self):
        for key in range(1, 1 + len(self.ends)):
            self.pump.remove(key)
        self.pump.close(5.0)
        for descriptor in [
            *self.ends,
            self.source,
            self.sink,
            self.pump._wake_read,
            self.pump._wake_write,
        ]:
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def pumped():
    pumped = Pumped()
    pumped.pump.start()
    yield pumped
    pumped.close()


def read_until(descriptor, text, patience_s=5.0):
    """What is read until it holds a text."""
    found = b""
    while text not in found:
        ready, _, _ = select.select([descriptor], [], [], patience_s)
        assert ready, f"{text!r} is not in {found!r}"
        chunk = os.read(descriptor, 65_536)
        assert chunk, f"{text!r} is not in {found!r}"
        found += chunk
    return found


def test_lines_go_to_the_oldest_stub_and_then_to_the_next(pumped):
    first, second = pumped.stub(1), pumped.stub(2)
    pumped.print(b"one\n")
    assert read_until(first, b"one\n") == b"one\n"
    pumped.pump.remove(1)
    assert os.read(first, 100) == b""
    pumped.print(b"two\n")
    assert read_until(second, b"two\n") == b"two\n"


def test_only_whole_lines_are_passed_on(pumped):
    stub = pumped.stub(1)
    pumped.print(b"half")
    pumped.pump.say(1, "between")
    assert read_until(stub, b"between\n") == b"between\n"
    pumped.print(b" and half\n")
    assert read_until(stub, b"\n") == b"half and half\n"


def test_a_line_without_an_end_is_broken_somewhere(pumped):
    stub = pumped.stub(1)
    threading.Thread(target=pumped.print, args=(b"x" * 70_000,), daemon=True).start()
    found = read_until(stub, b"\n")
    assert set(found) == set(b"x\n")


def test_the_last_words_wait_for_a_stub(pumped):
    pumped.print(b"one\ntwo\n")
    assert read_until(pumped.stub(1), b"two\n") == b"one\ntwo\n"


def test_nobody_reading_blocks_nobody_and_the_newest_lines_are_kept(pumped):
    line = b"%06d" + b"-" * 92 + b"\n"
    count = 3 * KEPT_BYTES // 99
    for number in range(count):
        pumped.print(line % number)
    found = read_until(pumped.stub(1), line % (count - 1)).splitlines()
    assert found[0].endswith(b" lines were dropped here: nobody read them)")
    number = 0
    for text in found:  # a stub that comes while lines still arrive may find more than one gap
        number += int(text.split()[0][1:]) if text.startswith(b"(") else int(text[:6]) == number
    assert number == count


def test_a_stub_that_does_not_read_blocks_neither_the_writer_nor_other_stubs(pumped):
    deaf, other = pumped.stub(1), pumped.stub(2)
    for _ in range(3000):
        pumped.print(b"-" * 98 + b"\n")
    pumped.pump.say(2, "to the other")
    assert read_until(other, b"to the other\n") == b"to the other\n"
    assert os.read(deaf, 1) == b"-"


def test_a_stub_that_died_unnoticed_does_not_keep_its_lines(pumped):
    first, second = pumped.stub(1), pumped.stub(2)
    os.close(first)
    pumped.ends.remove(first)
    pumped.print(b"for whoever lives\n")
    assert read_until(second, b"lives\n") == b"for whoever lives\n"


def test_lines_of_a_shard_go_to_its_stub_or_to_the_oldest(pumped):
    first, second = pumped.stub(1), pumped.stub(2)
    pumped.pump.say(2, "of two\nwith more")
    assert read_until(second, b"more\n") == b"of two\n  with more\n"
    pumped.pump.say(7, "of nobody")
    pumped.pump.say(None, "of all")
    assert read_until(first, b"of all\n") == b"of nobody\nof all\n"


def test_a_stub_that_goes_gets_what_was_said_to_it():
    pumped = Pumped()
    stub = pumped.stub(1)
    pumped.pump.say(1, "last words")
    pumped.pump.remove(1)
    pumped.pump.remove(1)
    assert os.read(stub, 100) == b"last words\n"
    assert os.read(stub, 100) == b""
    pumped.close()


def test_before_the_first_stub_the_starter_reads():
    pumped = Pumped(first=True)
    pumped.pump.start()
    pumped.print(b"first words\n")
    assert read_until(pumped.first, b"words\n") == b"first words\n"
    stub = pumped.stub(1)
    assert os.read(pumped.first, 100) == b"", "it is let go"
    pumped.print(b"more\n")
    assert read_until(stub, b"more\n") == b"more\n"
    pumped.ends.append(pumped.first)
    pumped.close()


def test_what_came_before_the_end_is_written(pumped):
    stub = pumped.stub(1)
    pumped.print(b"a\nb\nhalf")
    pumped.pump.close(5.0)
    assert os.read(stub, 100) == b"a\nb\nhalf\n"


def test_what_a_thread_logs_goes_to_the_stub_that_it_serves(pumped):
    first, second = pumped.stub(1), pumped.stub(2)
    handler = ShardLogHandler(pumped.pump)
    logger = logging.getLogger("of.a.test")
    logger.handlers = [handler]

    def serve():
        handler.serve(2)
        logger.warning("of %s", "two")

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join()
    logger.error("of nobody")
    assert read_until(second, b"\n") == b"WARNING of.a.test: of two\n"
    assert read_until(first, b"\n") == b"ERROR of.a.test: of nobody\n"
    logger.handlers = []
