"""Logs what a child prints besides messages, within limits.

A line of a structured logger keeps its level and its fields, and a stack trace is one record. A
child that floods its stderr must neither fill the disk nor stop the daemon: long lines are cut, and
lines beyond a rate are counted instead of written; a regular warning has the count.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from kcl_mld.children.rules.child_record import ChildRecord, StderrTail, Traces, read_record
from kcl_mld.config.config import ChildLogFormat
from kcl_mld.kernel.model.masking import mask, printable
from kcl_mld.signals.log_facts import CHILD_LOGGER
from kcl_mld_protocol import Action

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kcl_mld.children.model.child_name import ChildName
    from kcl_mld.kernel.ports import Clock
    from kcl_mld_protocol import JunkLine

log = logging.getLogger("mld.children")
_of_child = logging.getLogger(CHILD_LOGGER)

#: Longest part of a line, or of a stack trace, that is logged.
MAX_LINE_BYTES = 8192
#: Lines a child may print in a burst, and per second in the long run.
BURST_LINES = 1000
LINES_PER_S = 200.0
#: Seconds from the first omitted line to the warning that counts them.
NOTICE_S = 10.0
#: Seconds that a line that may begin a stack trace waits for the next one.
TRACE_WAIT_S = 0.1
#: Lines of stderr in a dead letter.
TAIL_LINES = 20
#: Longest part of each line: a queue accepts 256 KiB.
TAIL_BYTES = 1024
#: What amazon_kclpy writes to stderr when a processor raised, before its status.
_CAUGHT = b"Caught exception from action dispatch: "
#: Most characters that the error of a failed child quotes.
_QUOTED_CHARS = 500


class ChildLog:
    """The log of one child."""

    def __init__(
        self, name: ChildName, clock: Clock, log_format: ChildLogFormat = ChildLogFormat.AUTO
    ) -> None:
        """Log for a shard's child; set ``pid`` once it runs."""
        self.name = name
        self._clock = clock
        self._format = log_format
        self._traces = Traces()
        self._trace_end: asyncio.TimerHandle | None = None
        self._allowance = float(BURST_LINES)
        self._refilled_at = clock.monotonic()
        self._suppressed = 0
        self._suppressed_since = 0.0
        self._tail = StderrTail()
        self._has_caught = False
        self._has_warned_of_glued = False
        self.pid = 0
        #: Its last lines of stderr, if requested: see :meth:`keep_lines`.
        self._lines: deque[bytes] | None = None

    @property
    def facts(self) -> dict[str, object]:
        """Which child it is, for ``extra`` of a log record."""
        return {**self.name.facts, "pid_of_child": self.pid}

    @property
    def why_it_failed(self) -> str:
        """What stderr says about the end, for an error message; empty if it says nothing."""
        quoted = self._tail.quote(_QUOTED_CHARS // 2).decode("utf-8", "replace")
        text = mask(printable(quoted.strip()))
        return text if len(text) <= _QUOTED_CHARS else text[: _QUOTED_CHARS - 1] + "…"

    def keep_lines(self) -> None:
        """Keep the last lines of stderr for :attr:`last_lines`."""
        self._lines = deque(maxlen=TAIL_LINES)

    @property
    def last_lines(self) -> str | None:
        """The last lines of stderr without secrets; None = they were not kept."""
        if self._lines is None:
            return None
        return "\n".join(mask(printable(one.decode("utf-8", "replace"))) for one in self._lines)

    def take_exception(self) -> str | None:
        """The text of the processor's exception, written by amazon_kclpy since the last call."""
        if not self._has_caught:
            return None
        self._has_caught = False
        return self.why_it_failed

    def stderr(self, line: bytes) -> None:
        """Process a line of stderr."""
        self._has_caught |= _CAUGHT in line
        self._tail.note(line[:MAX_LINE_BYTES])
        if self._lines is not None:
            self._lines.append(line[:TAIL_BYTES])
        if (record := self._record(line)) is not None:
            self._end_trace()
            self._write_record("stderr", record)
            return
        for level, text in self._traces.add(line):
            self._write(level, "stderr", text, "")
        if self._traces.holds and self._trace_end is None:
            loop = asyncio.get_running_loop()
            self._trace_end = loop.call_later(TRACE_WAIT_S, self._end_trace)

    def _end_trace(self) -> None:
        """Log the lines that are held."""
        if self._trace_end is not None:
            self._trace_end.cancel()
            self._trace_end = None
        for level, text in self._traces.flush():
            self._write(level, "stderr", text, "")

    def stdout(self, event: JunkLine) -> str | None:
        """Process a line of stdout that is not a message.

        Returns:
            The reason if the line contains a message that is ignored, as in Java: child and daemon
            may wait for each other. None = it contains none.
        """
        meant = event.action
        if meant is None and (record := self._record(event.line)) is not None:
            self._write_record("stdout", record)
            return None
        if meant is None:
            self._write(logging.INFO, "stdout", event.line, f" ({event.reason})")
            return None
        waits = "the daemon still waits for one" if meant == Action.STATUS else "it gets no answer"
        note = f"ignored: this {meant} message cannot be read, {event.reason}; {waits}"
        # A program may log a copy of each message that it sends.
        level = logging.INFO if event.is_glued and self._has_warned_of_glued else logging.WARNING
        self._has_warned_of_glued |= event.is_glued
        self._write(level, "stdout", event.line, f" ({note})")
        return note

    async def say_busy(self, action: Action, period_s: float | None) -> None:
        """Log periodically that the child takes long; None = never. Runs until cancelled."""
        if period_s is None:
            return
        began = self._clock.monotonic()
        while True:
            await asyncio.sleep(period_s)
            log.warning(
                "%s: the child (pid %s) has been busy with %s for %.1f s",
                self.name,
                self.pid,
                action,
                self._clock.monotonic() - began,
                extra=self.facts,
            )

    def close(self) -> None:
        """The child is gone: log held lines and the count of omitted ones."""
        self._end_trace()
        if self._suppressed:
            self._say_suppressed()

    def _record(self, line: bytes) -> ChildRecord | None:
        return read_record(line, self._format) if len(line) <= MAX_LINE_BYTES else None

    def _write_record(self, stream: str, record: ChildRecord) -> None:
        if self._is_written():
            self._log(record.level, f"{stream}: {_indented(record.text)}", record.fields)

    def _write(self, level: int, stream: str, line: bytes, note: str) -> None:
        if not self._is_written():
            return
        text = line[:MAX_LINE_BYTES].decode("utf-8", "replace")
        cut = f" [{len(line) - MAX_LINE_BYTES} bytes more]" if len(line) > MAX_LINE_BYTES else ""
        self._log(level, f"{stream}: {_indented(text)}{cut}{note}")

    def _log(self, level: int, text: str, fields: Mapping[str, object] | None = None) -> None:
        _of_child.log(
            level,
            "%s %s",
            self.name,
            text,
            extra={**self.facts, "child_fields": fields},
        )

    def _is_written(self) -> bool:
        """Whether one more line may be logged now; counts it if not."""
        now = self._clock.monotonic()
        may_write = self._may_write(now)
        if not may_write:
            self._suppressed_since = self._suppressed_since if self._suppressed else now
            self._suppressed += 1
        if self._suppressed and now - self._suppressed_since >= NOTICE_S:
            self._say_suppressed()
        return may_write

    def _may_write(self, now: float) -> bool:
        earned = (now - self._refilled_at) * LINES_PER_S
        self._allowance = min(float(BURST_LINES), self._allowance + earned)
        self._refilled_at = now
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True

    def _say_suppressed(self) -> None:
        suppressed, self._suppressed = self._suppressed, 0
        log.warning(
            "%s: the child (pid %d) prints more than %.0f lines a second: in %.0f s, %d were left out",
            self.name,
            self.pid,
            LINES_PER_S,
            self._clock.monotonic() - self._suppressed_since,
            suppressed,
            extra=self.facts,
        )


def _indented(text: str) -> str:
    """The text with its further lines indented.

    This way, none can be mistaken for a line of the daemon.
    """
    return text.replace("\n", "\n  ")
