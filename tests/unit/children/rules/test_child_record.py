"""Lines of a child's own logger, and stack traces."""

from __future__ import annotations

import logging

import pytest

from kcl_mld.children.rules.child_record import Traces, read_record
from kcl_mld.config.config import ChildLogFormat

AUTO, TEXT, JSON = ChildLogFormat.AUTO, ChildLogFormat.TEXT, ChildLogFormat.JSON


@pytest.mark.parametrize(
    ("line", "level", "text", "fields"),
    [
        (b'{"level":"error","msg":"no disk","disk":7}', logging.ERROR, "no disk", {"disk": 7}),
        (b'{"levelname":"WARNING","message":"late"}', logging.WARNING, "late", {}),
        (b'{"severity":"NOTICE","event":"begun"}', logging.INFO, "begun", {}),
        (b'{"level":30,"time":1,"msg":"pino"}', logging.INFO, "pino", {"time": 1}),
        (b'{"level":60,"msg":"pino"}', logging.CRITICAL, "pino", {}),
        (b'{"level":20.5,"msg":"pino"}', logging.DEBUG, "pino", {}),
        (b'{"level":"loud","msg":"a"}', logging.INFO, "a", {"level": "loud"}),
        (b'{"level":true,"severity":"err","msg":"a"}', logging.ERROR, "a", {"level": True}),
        (b'  {"msg":"a","message":"b"}', logging.INFO, "a", {"message": "b"}),
        (b'{"msg":7,"event":"b"}', logging.INFO, "b", {"msg": 7}),
        (b'{"action":"drop","msg":"b"}', logging.INFO, "b", {"action": "drop"}),
    ],
)
def test_an_object_with_a_message_is_a_record(line, level, text, fields):
    for log_format in (AUTO, JSON):
        record = read_record(line, log_format)
        assert record is not None
        assert (record.level, record.text, record.fields) == (level, text, fields)
    assert read_record(line, TEXT) is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"text",
        b'["a"]',
        b"{'msg': 'a'}",
        b'{"msg":"a"} more',
        b'{"msg":"a","x":NaN}',
        b'{"a":' * 20_000,
        b'{"msg":"a"',
        b'"{"',
        b'{"msg":"\xff"}',
    ],
)
@pytest.mark.parametrize("log_format", ChildLogFormat)
def test_other_lines_are_text(line, log_format):
    assert read_record(line, log_format) is None


def test_an_object_without_a_message_is_a_record_only_where_all_are():
    line = b'{"level":"warn","n":1}'
    assert read_record(line, AUTO) is None
    record = read_record(line, JSON)
    assert record is not None
    assert (record.level, record.text, record.fields) == (logging.WARNING, "", {"n": 1})


@pytest.mark.parametrize("log_format", ChildLogFormat)
def test_the_log_message_is_a_record_in_every_format(log_format):
    record = read_record(b'{"action":"log","level":"debug","order":7}', log_format)
    assert record is not None
    assert (record.level, record.text, record.fields) == (logging.DEBUG, "", {"order": 7})


def joined(lines: list[bytes]) -> list[tuple[int, bytes]]:
    traces = Traces()
    return [one for line in lines for one in traces.add(line)] + traces.flush()


PYTHON = [
    b"Traceback (most recent call last):",
    b'  File "app.py", line 3, in <module>',
    b"    main()",
    b"KeyError: 'order'",
]
NODE = [b"TypeError: x is not a function", b"    at main (app.js:3:5)", b"    at app.js:9:1"]
JAVA = [b'Exception in thread "main" a.B: no', b"\tat a.C(D.java:1)"]
CAUSE = [b"Caused by: a.B: no", b"\tat a.C(D.java:1)", b"\t... 3 more"]


STACKS = [b"Current thread 0x7f (most recent call first):", b'  File "a.py", line 7 in run']


@pytest.mark.parametrize("trace", [STACKS, PYTHON, NODE, JAVA, CAUSE])
def test_a_trace_is_one_record_between_plain_lines(trace):
    assert joined([b"before", *trace, b"after"]) == [
        (logging.INFO, b"before"),
        (logging.ERROR, b"\n".join(trace)),
        (logging.INFO, b"after"),
    ]


def test_a_chain_of_python_exceptions_is_one_record_for_each():
    between = [b"", b"During handling of the above exception, another exception occurred:", b""]
    levels = [level for level, _ in joined([*PYTHON, *between, *PYTHON])]
    assert levels == [logging.ERROR, logging.INFO, logging.INFO, logging.INFO, logging.ERROR]


def test_a_python_trace_without_frames_is_plain_lines():
    lines = [PYTHON[0], b"KeyError", b"after"]
    assert joined(lines) == [(logging.INFO, line) for line in lines]


def test_a_headline_without_frames_is_a_plain_line_and_waits_for_the_next():
    traces = Traces()
    assert traces.add(b"ValueError: bad") == []
    assert traces.holds
    assert traces.add(b"next") == [(logging.INFO, b"ValueError: bad"), (logging.INFO, b"next")]
    assert not traces.holds
    assert traces.flush() == []


def test_indented_lines_behind_plain_ones_are_plain():
    lines = [b"usage:", b"  --help"]
    assert joined(lines) == [(logging.INFO, line) for line in lines]


def test_a_very_long_trace_is_cut_into_records():
    found = joined([PYTHON[0], *[b"  frame"] * 450, PYTHON[-1]])
    assert found[0][1].count(b"\n") == 199
    assert b"\n".join(text for _, text in found).count(b"frame") == 450
