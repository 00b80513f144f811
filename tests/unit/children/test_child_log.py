"""What a child prints, and how much of it the log bears."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kcl_mld.children.child_log import (
    BURST_LINES,
    LINES_PER_S,
    NOTICE_S,
    TRACE_WAIT_S,
    ChildLog,
)
from kcl_mld.children.model.child_name import ChildName
from kcl_mld_protocol import JunkLine


class HandClock:
    """Goes as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def child_log(clock, caplog) -> ChildLog:
    caplog.set_level(logging.INFO, "mld.child")
    log = ChildLog(ChildName("shard-1"), clock)
    log.pid = 7
    return log


def warnings(caplog) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_a_flood_of_a_minute_is_told_of_every_ten_seconds(child_log, clock, caplog):
    for number in range(60_000):  # a thousand lines a second
        clock.now = 100 + number / 1000
        child_log.stderr(b"line")
    lines = [one for one in caplog.records if one.levelno == logging.INFO]
    assert len(lines) <= BURST_LINES + 60 * LINES_PER_S + 1
    assert 5 <= len(warnings(caplog)) <= 60 / NOTICE_S
    child_log.close()
    told = [int(text.split()[-4]) for text in warnings(caplog)]
    assert sum(told) + len(lines) == 60_000
    assert warnings(caplog)[0].startswith(
        "shard-1: the child (pid 7) prints more than 200 lines a second: in 10 s, "
    )


def test_what_was_left_out_before_a_silence_is_told_with_the_next_line(child_log, clock, caplog):
    for _ in range(BURST_LINES + 5):
        child_log.stdout(JunkLine(b"x", "not a message"))
    assert warnings(caplog) == []
    clock.now += 3600
    child_log.stderr(b"after")
    (told,) = warnings(caplog)
    assert told.endswith("in 3600 s, 5 were left out")
    assert caplog.records[-1].getMessage() == "shard-1 stderr: after"
    child_log.close()
    assert len(warnings(caplog)) == 1


def test_a_line_that_may_begin_a_trace_waits_a_moment_for_its_frames(child_log, caplog):
    async def printing() -> None:
        child_log.stderr(b"ValueError: one")
        assert caplog.records == []
        await asyncio.sleep(2 * TRACE_WAIT_S)
        assert [one.getMessage() for one in caplog.records] == ["shard-1 stderr: ValueError: one"]
        child_log.stderr(b"ValueError: two")
        child_log.stderr(b"  at a")
        child_log.stderr(b'{"msg":"b\\nc"}')
        child_log.stderr(b"ValueError: three")
        child_log.close()

    asyncio.run(printing())
    assert [one.getMessage() for one in caplog.records[1:]] == [
        "shard-1 stderr: ValueError: two\n    at a",
        "shard-1 stderr: b\n  c",
        "shard-1 stderr: ValueError: three",
    ]


def test_a_record_that_is_too_long_is_cut_as_a_line(child_log, caplog):
    child_log.stdout(JunkLine(b'{"level":"error","msg":"%s"}' % (b"x" * 9000), "not a message"))
    (line,) = caplog.records
    assert line.levelno == logging.INFO
    assert "bytes more]" in line.getMessage()


def test_a_child_that_prints_little_is_not_told_of(child_log, clock, caplog):
    for _ in range(100):
        clock.now += 1
        for _ in range(150):
            child_log.stderr(b"x")
    child_log.close()
    assert warnings(caplog) == []
    assert len(caplog.records) == 15_000
