"""What a child prints besides messages goes to the log, as much of it as a log can bear.

A child that floods its stderr must neither fill the disk nor stop the daemon: lines are cut, and
beyond a rate they are counted instead of written. What was left out is told afterwards, seldom.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mld.decide.children.stderr_tail import StderrTail
from mld.model.masking import mask, printable
from protocol import Action

if TYPE_CHECKING:
    from mld.ports.clock import Clock
    from protocol import JunkLine

log = logging.getLogger("mld.child")

#: Longest part of a line that is logged.
MAX_LINE_BYTES = 8192
#: Lines a child may print at once, and per second in the long run.
BURST_LINES = 1000
LINES_PER_S = 200.0
#: Seconds from the first line that is left out to the warning about it and all others until then.
NOTICE_S = 10.0
#: What amazon_kclpy writes to stderr when a processor raised, before the status with which it goes on.
_CAUGHT = b"Caught exception from action dispatch: "
#: Most characters of what is quoted in the error of a child that failed.
_QUOTED_CHARS = 500


class ChildLog:
    """The log of one child."""

    def __init__(self, shard_id: str, clock: Clock) -> None:
        """Log for a shard's child whose pid is told later."""
        self._shard_id = shard_id
        self._clock = clock
        self._allowance = float(BURST_LINES)
        self._refilled_at = clock.monotonic()
        self._suppressed = 0
        self._suppressed_since = 0.0
        self._tail = StderrTail()
        self._has_caught = False
        self._has_warned_of_glued = False
        self.pid = 0

    @property
    def why_it_failed(self) -> str:
        """What stderr says about the end, fit for an error; empty if it says nothing."""
        said = self._tail.quote(_QUOTED_CHARS // 2).decode("utf-8", "replace")
        text = mask(printable(said.strip()))
        return text if len(text) <= _QUOTED_CHARS else text[: _QUOTED_CHARS - 1] + "…"

    def take_exception(self) -> str | None:
        """What amazon_kclpy said of an exception of the processor since the last call."""
        if not self._has_caught:
            return None
        self._has_caught = False
        return self.why_it_failed

    def stderr(self, line: bytes) -> None:
        """A line of stderr."""
        self._has_caught |= _CAUGHT in line
        self._tail.note(line[:MAX_LINE_BYTES])
        self._write(logging.INFO, "stderr", line, "")

    def stdout(self, event: JunkLine) -> str | None:
        """A line of stdout that is not a message.

        Returns:
            What a message on it comes to that is ignored, as in Java: child and daemon may wait for
            each other. None = there is none.
        """
        meant = event.action
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
        """Say again and again that the child takes long; None = never. Ends by cancellation."""
        if period_s is None:
            return
        began = self._clock.monotonic()
        while True:
            await asyncio.sleep(period_s)
            log.warning(
                "%s: the child (pid %s) has been busy with %s for %.1f s",
                self._shard_id,
                self.pid,
                action,
                self._clock.monotonic() - began,
                extra={"shard_id": self._shard_id, "pid_of_child": self.pid},
            )

    def close(self) -> None:
        """The child is gone: say what was left out."""
        if self._suppressed:
            self._say_suppressed()

    def _write(self, level: int, stream: str, line: bytes, note: str) -> None:
        now = self._clock.monotonic()
        may_write = self._may_write(now)
        if not may_write:
            self._suppressed_since = self._suppressed_since if self._suppressed else now
            self._suppressed += 1
        if self._suppressed and now - self._suppressed_since >= NOTICE_S:
            self._say_suppressed()
        if not may_write:
            return
        text = line[:MAX_LINE_BYTES].decode("utf-8", "replace")
        cut = f" [{len(line) - MAX_LINE_BYTES} bytes more]" if len(line) > MAX_LINE_BYTES else ""
        log.log(
            level,
            "%s %s: %s%s%s",
            self._shard_id,
            stream,
            text,
            cut,
            note,
            extra={"shard_id": self._shard_id, "pid_of_child": self.pid},
        )

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
            self._shard_id,
            self.pid,
            LINES_PER_S,
            self._clock.monotonic() - self._suppressed_since,
            suppressed,
            extra={"shard_id": self._shard_id, "pid_of_child": self.pid},
        )
