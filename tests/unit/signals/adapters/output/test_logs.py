"""Log lines: their form, what they never contain, and how often they repeat."""

import asyncio
import contextvars
import io
import json
import logging
import sys

import pytest

from kcl_mld.signals.adapters.output.logs import (
    JsonFormatter,
    LogFormat,
    LogSettings,
    RepeatFilter,
    TextFormatter,
    set_up,
)
from kcl_mld.signals.log_facts import CHILD_LOGGER, log_facts, logging_with


class Terminal(io.StringIO):
    def isatty(self):
        return True


pytestmark = pytest.mark.usefixtures("restored_logging")


def record(text, *args, level=logging.INFO, **extra):
    made = logging.LogRecord("mld.x", level, __file__, 1, text, args, None)
    made.created, made.msecs = 1_795_252_280.93, 930.0
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def test_a_json_line_has_time_level_logger_and_message():
    assert json.loads(JsonFormatter().format(record("a %s", "b"))) == {
        "ts": "2026-11-21T09:11:20.930Z",
        "level": "INFO",
        "logger": "mld.x",
        "msg": "a b",
    }


def test_a_json_line_carries_the_known_extras_under_short_names():
    line = JsonFormatter().format(
        record("x", shard_id="shardId-0", worker_id="w", pid=7, payload="no")
    )
    found = json.loads(line)
    assert (found["shard"], found["worker"], found["pid"]) == ("shardId-0", "w", 7)
    assert "payload" not in found


def test_a_json_line_carries_the_stream_and_shard_of_its_task():
    with logging_with(stream="orders", shard="shard-7"), logging_with(shard="shard-8"):
        line = json.loads(JsonFormatter().format(record("a")))
        other = json.loads(JsonFormatter().format(record("a", shard_id="shard-9")))
    assert (line["stream"], line["shard"]) == ("orders", "shard-8")
    assert (other["stream"], other["shard"]) == ("orders", "shard-9")
    assert "stream" not in json.loads(JsonFormatter().format(record("a")))


def test_a_json_line_is_one_line_of_ascii_whatever_it_says():
    line = JsonFormatter().format(record("a\nb é \ud83d", child_fields={"x": "\u2028"}))
    assert line.isascii()
    assert "\n" not in line


def test_a_text_line_cannot_move_the_cursor_of_a_terminal():
    line = TextFormatter().format(record("a\x1b[2Jb\rc\x9bd\ne\tf"))
    assert line.endswith(r"a\x1b[2Jb\x0dc\x9bd" + "\ne\tf")


def test_a_text_line_has_its_context_in_brackets():
    line = TextFormatter().format(record("a", shard="shardId-0", pid=7, level=logging.WARNING))
    assert line[19:] == ",930 WARNING mld.x [shard=shardId-0 pid=7] a"
    assert TextFormatter().format(record("a"))[19:] == ",930 INFO    mld.x a"


def test_the_fields_of_a_childs_own_logger_are_kept():
    made = record("a", child_fields={"order": 7, "ok": None, "in": {"x": [1]}, "stack": "E\nat b"})
    child = {"order": 7, "ok": None, "in": '{"x": [1]}', "stack": "E\nat b"}
    assert json.loads(JsonFormatter().format(made))["child"] == child
    text = TextFormatter().format(made)
    assert text.endswith(' a order=7 ok=None in={"x": [1]} stack=E\n  at b')


def test_a_text_line_names_the_stream_where_there_are_many():
    with logging_with(stream="orders", stream_identifier="1:orders:7", shard="shardId-0"):
        line = TextFormatter().format(record("a", shard="shardId-0"))
    assert line[19:] == ",930 INFO    mld.x [stream=orders shard=shardId-0] a"
    with logging_with(stream="orders", shard="shardId-0"):
        assert TextFormatter().format(record("a"))[19:] == ",930 INFO    mld.x a"


def on_terminal(made):
    stream = Terminal()
    set_up(LogSettings(), stream)
    logging.getLogger().handlers[0].emit(made)
    return stream.getvalue().rstrip("\n")


def test_a_line_on_a_terminal_is_short_and_has_the_color_of_its_level(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert on_terminal(record("a"))[8:] == " INFO    a"
    yellow = on_terminal(record("of shardId-0", shard="shardId-0", pid=7, level=logging.WARNING))
    assert yellow.startswith("\x1b[33m")
    assert yellow.endswith(" WARNING [pid=7] of shardId-0\x1b[0m")
    assert on_terminal(record("a", level=logging.ERROR)).startswith("\x1b[31m")
    of_child = record("a")
    of_child.name = CHILD_LOGGER
    assert on_terminal(of_child).startswith("\x1b[36m")


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colors_are_left_out_where_they_are_not_wanted(monkeypatch, variable, value):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(variable, value)
    assert on_terminal(record("a", level=logging.ERROR))[8:] == " ERROR   a"


def test_of_another_library_a_terminal_shows_the_name():
    made = record("a")
    made.name = "botocore.x"
    assert on_terminal(made)[8:] == " INFO    botocore.x a"


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_no_line_shows_a_secret(formatter):
    try:
        raise ValueError("password=geheim")
    except ValueError:
        fields = {"url": "http://u:geheim@x", "password": "geheim", "in": {"token": "geheim"}}
        failed = record("AKIAIOSFODNN7EXAMPLE", child_fields=fields)
        failed.exc_info = sys.exc_info()
    line = formatter.format(failed)
    assert "geheim" not in line
    assert "AKIA" not in line
    assert "ValueError" in line


@pytest.mark.parametrize(
    ("stream", "chosen", "is_json"),
    [
        (Terminal(), None, False),
        (io.StringIO(), None, True),
        (Terminal(), LogFormat.JSON, True),
        (io.StringIO(), LogFormat.TEXT, False),
    ],
)
def test_lines_are_json_where_nobody_watches(stream, chosen, is_json):
    set_up(LogSettings(format=chosen), stream)
    logging.getLogger("mld.x").info("hello")
    assert stream.getvalue().startswith("{") is is_json


def test_levels_are_set_by_name_and_libraries_are_quiet():
    stream = io.StringIO()
    set_up(LogSettings(level="DEBUG", levels=(("mld.x", "ERROR"), ("urllib3", "DEBUG"))), stream)
    logging.getLogger("mld.x").warning("no")
    logging.getLogger("botocore").info("no")
    logging.getLogger("urllib3").debug("yes")
    logging.getLogger("mld.y").debug("yes")
    assert [json.loads(line)["msg"] for line in stream.getvalue().splitlines()] == ["yes", "yes"]
    assert logging.getLogger().level == logging.DEBUG


def test_setting_up_twice_does_not_double_lines():
    stream = io.StringIO()
    set_up(LogSettings(), io.StringIO())
    set_up(LogSettings(), stream)
    logging.getLogger("mld.x").info("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_trouble_with_credentials_is_one_line_with_its_cause():
    stream = io.StringIO()
    set_up(LogSettings(format=LogFormat.TEXT), stream)
    for name in ("botocore.credentials", "botocore.tokens", "botocore.other"):
        try:
            raise RuntimeError("%s is no key")
        except RuntimeError:
            logging.getLogger(name).warning("In the %s period.", "last", exc_info=True)
    first, token, second, *stack = stream.getvalue().splitlines()
    assert first.endswith("botocore.credentials In the last period. RuntimeError: %s is no key")
    assert token.endswith("botocore.tokens In the last period. RuntimeError: %s is no key")
    assert second.endswith("botocore.other In the last period.")
    assert stack[0].startswith("Traceback")


def test_standard_error_is_where_lines_go(capsys):
    set_up(LogSettings())
    logging.getLogger("mld.x").info("hello")
    captured = capsys.readouterr()
    assert "hello" in captured.err
    assert captured.out == ""


def warning(text, *args, **extra):
    return record(text, *args, level=logging.WARNING, **extra)


def test_equal_warnings_are_counted_after_the_third():
    now = 0.0
    repeated = RepeatFilter(lambda: now)
    passed = [repeated.filter(warning("a %s", "b", shard="1")) for _ in range(15)]
    assert passed == [True] * 3 + [False] * 12
    assert repeated.filter(warning("a %s", "c", shard="1"))
    assert repeated.filter(warning("a %s", "b", shard="2"))
    now = 60.0
    later = warning("a %s", "b", shard="1")
    assert repeated.filter(later)
    assert later.suppressed == 12
    assert repeated.filter(again := warning("a %s", "b", shard="1"))
    assert not hasattr(again, "suppressed")


def test_failures_that_differ_in_request_ids_and_times_only_are_equal():
    repeated = RepeatFilter(lambda: 0.0)

    def failure(number: int, code: str = "AccessDeniedException") -> logging.LogRecord:
        said = (
            f"no access at 2026-11-28T10:00:{number:02d}Z, request"
            f" 1b3e22ce-9b41-4f2d-8f0f-{number:012d}"
        )
        return warning(
            "%s: cannot fetch: %s; trying again", "shard-1", f"GetRecords: {code}: {said}"
        )

    assert [repeated.filter(failure(number)) for number in range(9)] == [True] * 3 + [False] * 6
    assert repeated.filter(failure(1, "InternalFailureException"))


def test_equal_lines_of_two_shards_are_not_equal():
    repeated = RepeatFilter(lambda: 0.0)
    for shard in ("1", "2"):
        with logging_with(stream="orders", shard=shard):
            passed = [repeated.filter(warning("the child is slow")) for _ in range(4)]
        assert passed == [True] * 3 + [False]


def test_plain_lines_and_what_a_child_wrote_always_pass():
    repeated = RepeatFilter(lambda: 0.0)
    assert all(repeated.filter(record("a")) for _ in range(50))
    of_child = warning("a")
    of_child.name = CHILD_LOGGER
    assert all(repeated.filter(of_child) for _ in range(50))


def test_the_memory_of_repeated_lines_is_bounded():
    repeated = RepeatFilter(lambda: 0.0)
    assert all(repeated.filter(warning("%d", number)) for number in range(2500))
    assert len(repeated._seen) <= 1000


def test_a_task_that_never_ended_is_closed_quietly_in_another_context():
    async def task():
        with logging_with(shard="shardId-1"):
            await asyncio.sleep(0)

    never_ends = task()
    contextvars.copy_context().run(never_ends.send, None)
    never_ends.close()
    assert log_facts() == {}
