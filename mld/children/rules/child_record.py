"""The meaning of a child's output lines: log records, whole stack traces, and why it ended.

The last line seldom says why a program ended. The reason is followed by the frames of a Java or
JavaScript trace, the closing frame of a Python exception group, a caret, or a second line of the
same message.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcl_mld.config.config import ChildLogFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Lines around a reason that are not one: frames, rules, hints how to see more frames.
_NOISE = re.compile(
    rb"\s+at \S|\s*\.{3} \d+ (?:more|common frames omitted)|\s*Driver stacktrace:"
    rb"|[\s+|]*-{5}|note: run with `RUST_BACKTRACE|Node\.js v\d"
)
_TRACE = b"Traceback (most recent call last):"
#: Lines that name the error of a program in another language; frames follow.
_CAUSE_LINE = re.compile(rb'Exception in thread "|panic: |fatal error: |thread \'.*\' panicked at ')
#: This many lines after the headline may still belong to its message.
_MESSAGE_LINES = 20
_SEPARATOR = b" \xe2\x80\xa6 "
#: Levels of the logging module.
DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50
#: The action of a message that is a record of the log, see ``kcl_mld_protocol.additions``.
_LOG_ACTION = "log"
_LEVEL_KEYS = ("level", "levelname", "severity")
_TEXT_KEYS = ("msg", "message", "event")
_LEVELS = {
    "trace": DEBUG,
    "debug": DEBUG,
    "info": INFO,
    "information": INFO,
    "notice": INFO,
    "default": INFO,
    "warn": WARNING,
    "warning": WARNING,
    "err": ERROR,
    "error": ERROR,
    "crit": CRITICAL,
    "critical": CRITICAL,
    "fatal": CRITICAL,
    "alert": CRITICAL,
    "emerg": CRITICAL,
    "emergency": CRITICAL,
}
#: pino and bunyan number their levels: 10 is trace, 60 is fatal.
_NUMBERED = (
    (60, CRITICAL),
    (50, ERROR),
    (40, WARNING),
    (30, INFO),
)
_PYTHON_TRACE = b"Traceback (most recent call last):"
#: Lines that frames may follow: an error of JavaScript, .NET or Java, a panic.
_HEADLINE = re.compile(
    rb"\b\w*(?:Error|Exception)\b|^(?:panic|thread '.*' panicked)\b|^Caused by: "
    rb"|\(most recent call first\):$"
)
#: A longer trace continues as another record.
_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """A record of a child's own logger.

    Attributes:
        level: of the logging module.
        text: its message.
        fields: the other keys of the object.
    """

    level: int
    text: str
    fields: Mapping[str, object] = field(default_factory=dict)


def read_record(line: bytes, log_format: ChildLogFormat) -> ChildRecord | None:
    """The record in a JSON line; None for a line of text.

    With ``auto`` an object is a record if it has a text under ``msg``, ``message`` or ``event``;
    with ``json`` any object is one; with ``text`` none is, except a message of the action ``log``.
    """
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        value = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    is_message = value.get("action") == _LOG_ACTION
    if log_format is ChildLogFormat.TEXT and not is_message:
        return None
    left = {key: one for key, one in value.items() if key != "action" or not is_message}
    text_key = next((key for key in _TEXT_KEYS if isinstance(left.get(key), str)), None)
    if text_key is None and log_format is ChildLogFormat.AUTO and not is_message:
        return None
    level_key = next((key for key in _LEVEL_KEYS if _level(left.get(key)) is not None), None)
    level = _level(left.pop(level_key)) if level_key else None
    text = str(left.pop(text_key)) if text_key else ""
    return ChildRecord(INFO if level is None else level, text, left)


def _refuse(name: str) -> None:
    """NaN and Infinity are not JSON, and the log is."""
    raise ValueError(name)


def _level(value: object) -> int | None:
    if isinstance(value, str):
        return _LEVELS.get(value.strip().lower())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return next((level for least, level in _NUMBERED if value >= least), DEBUG)


class Traces:
    """Joins the lines of a stack trace: a headline, its frames, and the end of a Python trace.

    A line that may be a headline is held until the next one shows whether frames follow. Frames are
    indented.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._is_python = False

    @property
    def holds(self) -> bool:
        """Whether a line is held."""
        return bool(self._held)

    def add(self, line: bytes) -> list[tuple[int, bytes]]:
        """Add one line, without its end.

        Returns:
            completed records: level and text, whose lines are separated by newlines.
        """
        if self._held and len(self._held) < _MOST_LINES:
            if line[:1] in {b" ", b"\t"}:
                self._held.append(line)
                return []
            if self._is_python and len(self._held) > 1 and line:
                self._held.append(line)  # the exception, which follows the frames in a Python trace
                return self.flush()
        done = self.flush()
        self._is_python = line.startswith(_PYTHON_TRACE)
        if self._is_python or _HEADLINE.search(line):
            self._held = [line]
        else:
            done.append((INFO, line))
        return done

    def flush(self) -> list[tuple[int, bytes]]:
        """The held lines; a trace with frames is an ERROR."""
        held, self._held = self._held, []
        level = ERROR if len(held) > 1 else INFO
        return [(level, b"\n".join(held))] if held else []


class StderrTail:
    """Reads all lines, and selects what to quote if the program ends now."""

    def __init__(self) -> None:
        self._last = b""
        self._detail = b""
        self._headline = b""
        self._behind = 0
        self._trace_indent: int | None = None

    def note(self, line: bytes) -> None:
        """Add one line.

        Args:
            line: without its end.
        """
        words = line.strip(b" \t\r|+")
        if words:
            self._last = line.strip()
        if not any(map(_is_telling, words)) or _NOISE.match(line):
            return
        if words.endswith(_TRACE):
            self._trace_indent = _indent(line)
        elif self._trace_indent is not None:
            if _indent(line) <= self._trace_indent:
                self._trace_indent = None
                self._headline, self._behind, self._detail = words, 0, b""
        elif _CAUSE_LINE.match(words):
            self._headline, self._behind, self._detail = words, 0, b""
        else:
            self._detail = words
            self._behind += 1

    def quote(self, most_bytes: int) -> bytes:
        """The error that ended the program: the headline and the last line after it.

        B"" if there is none.

        Args:
            most_bytes: limit for the headline; the last line follows in full.
        """
        if not self._headline or self._behind > _MESSAGE_LINES:
            return self._detail or self._last
        headline = self._headline[:most_bytes]
        return headline + _SEPARATOR + self._detail if self._detail else headline


def _is_telling(character: int) -> bool:
    """A letter, a digit, or part of one that is not ASCII."""
    return character >= 0x80 or chr(character).isalnum()


def _indent(line: bytes) -> int:
    """The indentation of a line; the rules of an exception group count as blanks."""
    return len(line) - len(line.lstrip(b" \t|+"))
