"""The daemon's end of the guardian: a small process that outlives the daemon to end its children.

A parent-death signal does not work: it fires when the *thread* that started the child ends, and it
misses the children of a wrapper script. A pipe is closed however the daemon ends, and a session
includes all descendants that did not leave it on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from kcl_mld.children.adapters.guardian_main import Watch

_log = logging.getLogger("mld.children")

_PROGRAM = Path(__file__).with_name("guardian_main.py")
#: Number of reaped leaders that are remembered, because their descendants may still run.
_FORGOTTEN = 64
#: A guardian that ran for less than this failed early; so did one that could not be started.
_SHORT_LIFE_S = 5.0
#: After more than this many early failures in a row, each next start is delayed.
_SHORT_LIVES = 3
_REST_S = 5.0


class Guardian:
    """Starts the guardian, and sends it the sessions to end when the daemon dies.

    The guardian starts with the first session. If it ends, another one is started as soon as a
    running event loop or the next session notices, and gets the whole state; at most once per
    ``_REST_S``. Without it, the daemon continues, with one warning.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._sessions: dict[int, None] = {}  # in order of start
        self._forgotten: dict[int, None] = {}  # in order of their leaders' ends
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._short_lives = 0  # in a row
        self._rests_until = -math.inf
        self._pipe: int | None = None
        self._life: int | None = (
            None  # read end of a pipe that only the guardian writes to: it ends with it
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._unsent = b""
        self._warned = False

    @property
    def pid(self) -> int | None:
        """Process id of the guardian while it is thought to run."""
        return self._process.pid if self._process and self._pipe is not None else None

    def watch(self, session_id: int) -> None:
        """Watch a started session: it is ended when the daemon is gone."""
        self._forgotten.pop(session_id, None)
        self._sessions[session_id] = None
        if not self._tell(f"+{session_id}\n"):
            self._next()

    def forget(self, session_id: int) -> None:
        """The session's leader has been reaped; its other processes stay watched."""
        if session_id in self._sessions:
            del self._sessions[session_id]
            self._forgotten[session_id] = None
            if len(self._forgotten) > _FORGOTTEN:
                del self._forgotten[next(iter(self._forgotten))]
            self._tell(f"-{session_id}\n")

    def close(self) -> None:
        """Close the pipe: the guardian ends remaining sessions and exits. Does not wait."""
        self._start_later(None)
        if self._life is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._life)
            os.close(self._life)
            self._life = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def wait(self, timeout_s: float) -> int | None:
        """Exit status after :meth:`close`; None after the timeout. Blocks: for tests and exits."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _next(self) -> None:
        """Start another guardian, because there is none or it ended.

        At once, or after a delay if many in a row failed early.
        """
        if self._pipe is not None:
            self.close()  # else the loop would report the same end again
            self._count_life(time.monotonic() - self._started_at)
        if time.monotonic() >= self._rests_until:
            if self._start():
                self._start_later(None)
                return
            self._count_life(0.0)
        self._start_later(self._rests_until - time.monotonic())

    def _count_life(self, seconds: float) -> None:
        self._short_lives = self._short_lives + 1 if seconds < _SHORT_LIFE_S else 0
        if self._short_lives > _SHORT_LIVES:
            self._rests_until = time.monotonic() + _REST_S

    def _start_later(self, delay_s: float | None) -> None:
        """Let a running loop start the next one, else the next session; None = don't."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if delay_s is not None:
            with contextlib.suppress(RuntimeError):
                loop = asyncio.get_running_loop()
                self._restart = loop.call_later(max(0.0, delay_s), self._next)

    def _start(self) -> bool:
        """Start a guardian with the whole state; False when that is not possible now."""
        before = self._process
        with contextlib.ExitStack() as undo:
            try:
                theirs, ours, life, alive = *_pipe(undo), *_pipe(undo)
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    [self._python, "-I", "-S", "-B", str(_PROGRAM)],
                    stdin=theirs,
                    stdout=alive,
                    stderr=subprocess.DEVNULL,  # it must not wait for a slow reader
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                self._warn(f"cannot start: {error}")
                return False
            undo.pop_all()
        os.close(theirs)
        os.close(alive)
        os.set_blocking(ours, False)
        self._pipe, self._life = ours, life
        self._started_at = time.monotonic()
        self._watch(life)
        self._unsent = b""
        left = self._left_behind()
        known = [f"+{one}\n" for one in self._sessions] + [f"+{one}\n-{one}\n" for one in left]
        if not self._tell("".join(known)):
            self._warn("ended at once")
        elif before is not None:
            text = "The guardian process %d ended (status %s); process %d takes its place"
            _log.warning(text, before.pid, _status(before), self._process.pid)
        return True

    def _watch(self, life: int) -> None:
        with contextlib.suppress(RuntimeError):  # no loop runs: the next session notices
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(life, self._next)

    def _left_behind(self) -> set[int]:
        """Sessions whose leader was reaped while other processes are left in them."""
        if not self._forgotten:
            return set()
        watch = Watch()
        watch.orphaned = set(self._forgotten)
        watch.left()
        return watch.orphaned

    def _tell(self, lines: str) -> bool:
        """Write to the guardian; False without a reader.

        What a full pipe rejects is sent with the next write.
        """
        if self._pipe is None:
            return False
        self._unsent += lines.encode("ascii")
        try:
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]
        except BlockingIOError:  # stopped by a signal; closing the pipe would end the children
            return True
        except BrokenPipeError:
            return False
        return True

    def _warn(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "the guardian process %s: children of a killed daemon must be ended by hand", why
            )


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for end in ends:
        undo.callback(os.close, end)
    return ends


def _status(process: subprocess.Popen[bytes]) -> int | None:
    """Exit status of a process that has closed its pipes, negative = signal number."""
    try:
        return process.wait(0.1)
    except subprocess.TimeoutExpired:
        return None
