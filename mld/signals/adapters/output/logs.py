"""Logging set-up: text for people, JSON lines for machines, always on stderr.

Payloads and secrets are never formatted: a record's ``extra`` appears only under the names in
``FIELDS``, and what a child's own logger said under ``child``. All texts pass ``kcl_mld.kernel.model.masking``.
Lines that say the same many times in a row are counted instead of printed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from kcl_mld.kernel.model.masking import mask, mask_value
from kcl_mld.signals.log_facts import CHILD_LOGGER, log_facts

if TYPE_CHECKING:
    from collections.abc import Callable

#: Names of ``extra`` that are written, and under which name, in this order; others are dropped.
FIELDS = {
    "worker": "worker",
    "worker_id": "worker",
    "shard": "shard",
    "shard_id": "shard",
    "child_index": "child_index",
    "lease": "lease",
    "lease_key": "lease",
    "pid": "pid",
    "pid_of_child": "pid",
    "action": "action",
    "operation": "operation",
    "error_code": "error_code",
    "count": "count",
    "seconds": "seconds",
    "suppressed": "suppressed",
}
#: After this many equal lines within the window, the rest is counted only.
_BURST = 3
_WINDOW_S = 60.0
#: Distinct lines remembered; beyond it the memory starts afresh.
_REMEMBERED = 1000
#: What a child or a file says must not move the cursor of a terminal: control characters are shown
#: as escapes, all but the line breaks and tabs of our own messages.
_VISIBLE = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"
}
#: On a terminal: of the whole line, so that what went wrong is found among the rest.
_COLORS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[31m"}
_CHILD_COLOR, _NO_COLOR = "\x1b[36m", "\x1b[0m"
#: Libraries whose INFO lines say nothing to an operator.
_CHATTY = ("botocore", "urllib3", "asyncio")
#: Their warnings are about the operator's profiles and logins: a stack of botocore explains nothing.
_WITHOUT_STACK = {"botocore.credentials", "botocore.tokens"}
#: What differs from one failure to the next of the same kind: behind an error code up to the
#: semicolon with which our own sentence goes on, request ids, and times.
_VARIES = re.compile(
    r"(?<=Exception: )[^;]*|(?<=Error: )[^;]*"
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"
    r"|\b[0-9]{4}-?[0-9]{2}-?[0-9]{2}[T ][0-9]{2}:?[0-9]{2}:?[0-9]{2}(?:[.,][0-9]+)?Z?"
    r"|\b[0-9]{2}:[0-9]{2}:[0-9]{2}\b"
)


class LogFormat(StrEnum):
    """How lines look."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """What to log and how.

    Attributes:
        format: None = text on a terminal, JSON elsewhere.
        level: of everything that ``levels`` does not name; a name of the logging module.
        levels: logger name -> level.
    """

    format: LogFormat | None = None
    level: str = "INFO"
    levels: tuple[tuple[str, str], ...] = ()


class TextFormatter(logging.Formatter):
    """``2026-11-21 09:14:39,641 WARNING mld.app [shard=shard-0 pid=7] message``.

    On a terminal, which is narrow and watched: ``09:14:39 WARNING [pid=7] message``, without what
    the message names itself.

    Args:
        is_short: for a terminal.
        is_colored: lines have the color of their level, and those of children one of their own.
    """

    def __init__(self, *, is_short: bool = False, is_colored: bool = False) -> None:
        super().__init__()
        self.converter = time.localtime
        self._is_short = is_short
        self._is_colored = is_colored

    def format(self, record: logging.LogRecord) -> str:
        """One line, or more with a traceback."""
        known = log_facts()
        # Shards of several streams have the same ids.
        stream = {"stream": known["stream"]} if "stream_identifier" in known else {}
        shown = stream | _fields(record)
        message = _message(record)
        if self._is_short:
            stamp = self.formatTime(record, "%H:%M:%S")
            logger = "" if record.name.startswith("mld.") else f" {record.name}"
            shown = {name: value for name, value in shown.items() if str(value) not in message}
        else:
            stamp = f"{self.formatTime(record, '%Y-%m-%d %H:%M:%S')},{int(record.msecs):03d}"
            logger = f" {record.name}"
        facts = " ".join(f"{name}={value}" for name, value in shown.items())
        context = f" [{facts}]" if facts else ""
        more = "".join(f" {name}={value}" for name, value in _child_fields(record).items())
        message += more.replace("\n", "\n  ")
        text = f"{stamp} {record.levelname:<7}{logger}{context} {message.translate(_VISIBLE)}"
        if record.exc_info:
            text += "\n" + mask(self.formatException(record.exc_info))
        color = _COLORS.get(record.levelno) or (record.name == CHILD_LOGGER and _CHILD_COLOR)
        return f"{color}{text}{_NO_COLOR}" if self._is_colored and color else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ``ts``, ``level``, ``logger``, ``msg``, then what is known besides.

    That is the stream and the shard of the task that logs, and what ``extra`` gave.
    """

    def format(self, record: logging.LogRecord) -> str:
        """A line of ASCII JSON without line breaks inside; ``ts`` is UTC."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "ts": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "msg": _message(record),
        }
        line |= log_facts() | _fields(record)
        if child := _child_fields(record):
            line["child"] = child
        if record.exc_info:
            line["exc"] = mask(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


class RepeatFilter(logging.Filter):
    """Lets three equal warnings within a minute pass, then one in a minute with a count.

    Lines are equal when logger, level, text, stream, shard and other context are; request ids,
    times, and what AWS says behind its error code don't count. What a child wrote always passes.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic = monotonic
        #: line -> (start of its window, lines in the window)
        self._seen: dict[tuple[str, int, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False when the line is to be dropped."""
        fields = _fields(record)
        if record.levelno < logging.WARNING or record.name == CHILD_LOGGER:
            return True
        context = str(log_facts() | fields)
        line = (record.name, record.levelno, _VARIES.sub("", record.getMessage()), context)
        now = self._monotonic()
        if len(self._seen) >= _REMEMBERED and line not in self._seen:
            self._seen.clear()
        started_at, count = self._seen.get(line, (now, 0))
        if now - started_at >= _WINDOW_S:
            if count > _BURST:
                record.suppressed = count - _BURST
            started_at, count = now, 0
        self._seen[line] = (started_at, count + 1)
        return count < _BURST


def cause_for_stack(record: logging.LogRecord) -> bool:
    """A filter for handlers: a line about credentials ends with its cause, without the stack."""
    if record.name in _WITHOUT_STACK and record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        record.msg = f"{record.getMessage()} {type(error).__name__}: {error}".strip()
        record.args, record.exc_info, record.exc_text = None, None, None
    return True


def set_up(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Make the root logger write to stderr; replaces handlers that were there.

    Args:
        settings: see :class:`LogSettings`.
        stream: stderr when None.
    """
    stream = stream or sys.stderr
    chosen = settings.format or (LogFormat.TEXT if stream.isatty() else LogFormat.JSON)
    handler = logging.StreamHandler(stream)
    is_terminal = stream.isatty()
    # https://no-color.org
    is_colored = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    text = TextFormatter(is_short=is_terminal, is_colored=is_colored)
    handler.setFormatter(text if chosen is LogFormat.TEXT else JsonFormatter())
    handler.addFilter(cause_for_stack)
    handler.addFilter(RepeatFilter())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(settings.level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    for name, level in settings.levels:
        logging.getLogger(name).setLevel(level)
    # A reader of stderr that went away must not end the daemon with tracebacks.
    logging.raiseExceptions = False


def _message(record: logging.LogRecord) -> str:
    return mask(record.getMessage())


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    given = record.__dict__
    return {
        shown: mask(value) if isinstance(value, str) else value
        for name, shown in FIELDS.items()
        if (value := given.get(name)) is not None
    }


def _child_fields(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a child's log record but level and message; texts and nested values masked."""
    fields = record.__dict__.get("child_fields") or {}
    return {
        mask(name): value
        if value is None or isinstance(value, int | float)
        else mask_value(name, value if isinstance(value, str) else json.dumps(value))
        for name, value in fields.items()
    }
