"""What a line of a child is in the log: level, text and fields of structured loggers, whole traces."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.model.config.config import ChildLogFormat

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Levels of the logging module.
DEBUG, INFO, WARNING, ERROR, CRITICAL = 10, 20, 30, 40, 50

#: The action of a message that is a record of the log, see ``protocol.additions``.
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
)
#: A longer trace goes on as another record.
_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class ChildRecord:
    """A record of a child's own logger.

    Attributes:
        level: of the logging module.
        text: its message.
        fields: what else the object has.
    """

    level: int
    text: str
    fields: Mapping[str, object] = field(default_factory=dict)


def read_record(line: bytes, log_format: ChildLogFormat) -> ChildRecord | None:
    """What a line in JSON says; None for a line that is text.

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
    """Joins the lines of a stack trace: a headline, its frames, and what ends a Python trace.

    A line that may be a headline is held until the next one shows whether frames follow. Frames are
    indented.
    """

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._is_python = False

    @property
    def holds(self) -> bool:
        """Whether a line waits for the next one."""
        return bool(self._held)

    def add(self, line: bytes) -> list[tuple[int, bytes]]:
        """One more line, without its end.

        Returns:
            what is complete now: level and text, whose lines are separated by newlines.
        """
        if self._held and len(self._held) < _MOST_LINES:
            if line[:1] in {b" ", b"\t"}:
                self._held.append(line)
                return []
            if self._is_python and len(self._held) > 1 and line:
                self._held.append(line)  # the exception, which a Python trace has behind its frames
                return self.flush()
        done = self.flush()
        self._is_python = line.startswith(_PYTHON_TRACE)
        if self._is_python or _HEADLINE.search(line):
            self._held = [line]
        else:
            done.append((INFO, line))
        return done

    def flush(self) -> list[tuple[int, bytes]]:
        """What is held; a trace with frames is an ERROR."""
        held, self._held = self._held, []
        level = ERROR if len(held) > 1 else INFO
        return [(level, b"\n".join(held))] if held else []
