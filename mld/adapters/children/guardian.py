"""The daemon's end of the guardian: a small process that outlives it to end its children.

A parent-death signal would not do: it fires when the *thread* that started the child ends, and it
misses the children of a wrapper script. A pipe closes whatever the end, and a session holds on to
all descendants that did not leave it on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from mld.adapters.children.guardian_main import Watch

_log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("guardian_main.py")
#: Reaped leaders that are remembered, because what they started may live on.
_FORGOTTEN = 64
#: A guardian that lives no longer has a short life. After some of them in a row the next one is
#: started only after as long.
_SHORT_LIFE_S = 5.0
_SHORT_LIVES = 3


class Guardian:
    """Starts the process, tells it of sessions; satisfies ``SessionKeeper`` of the launcher.

    The process starts with the first session. If somebody ends it, a running event loop notices at
    once, else the next session does; another one is started and told of everything. Without it the
    daemon works on, with one warning.

    Args:
        python: interpreter for it.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._sessions: dict[int, None] = {}  # in order of birth
        self._forgotten: dict[int, None] = {}  # in order of their leaders' ends
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._short_lives = 0  # in a row
        self._pipe: int | None = None
        self._life: int | None = (
            None  # the reading end of a pipe that only it writes to: ends with it
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._unsent = b""
        self._warned = False

    @property
    def pid(self) -> int | None:
        """Of the process while it is believed to run."""
        return self._process.pid if self._process is not None else None

    def watch(self, session_id: int) -> None:
        """A session was started: end it when the daemon is gone."""
        self._forgotten.pop(session_id, None)
        self._sessions[session_id] = None
        if self._restart is None and (self._pipe is None or not self._tell(f"+{session_id}\n")):
            self._start()

    def forget(self, session_id: int) -> None:
        """The session's leader has been reaped; what else is in it stays watched."""
        if session_id in self._sessions:
            del self._sessions[session_id]
            self._forgotten[session_id] = None
            if len(self._forgotten) > _FORGOTTEN:
                del self._forgotten[next(iter(self._forgotten))]
            self._tell(f"-{session_id}\n")

    def close(self) -> None:
        """Close the pipe: the guardian ends what is left and then itself. Does not wait."""
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        if self._life is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._life)
            os.close(self._life)
            self._life = None
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def wait(self, timeout_s: float) -> int | None:
        """Exit status after :meth:`close`; None when it took longer. Blocks: for tests and exits."""
        if self._process is None:
            return 0
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _start(self) -> None:
        self.close()
        before = self._process
        theirs, ours = os.pipe()
        life, alive = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [self._python, "-I", "-S", "-B", str(_PROGRAM)],
                stdin=theirs,
                stdout=alive,
                stderr=subprocess.DEVNULL,  # it must not wait for a reader that stalls
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(ours)
            os.close(life)
            self._warn(f"cannot start: {error}")
            return
        finally:
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

    def _watch(self, life: int) -> None:
        with contextlib.suppress(RuntimeError):  # no loop runs: the next session notices
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(life, self._ended)

    def _left_behind(self) -> set[int]:
        """Sessions whose leader was reaped while others are left in them."""
        if not self._forgotten:
            return set()
        watch = Watch()
        watch.orphaned = set(self._forgotten)
        watch.left()
        return watch.orphaned

    def _ended(self) -> None:
        """Somebody ended it: start another, which is told of the living children."""
        is_short = time.monotonic() - self._started_at < _SHORT_LIFE_S
        self._short_lives = self._short_lives + 1 if is_short else 0
        if self._short_lives <= _SHORT_LIVES or self._loop is None:
            self._start()
            return
        self.close()
        self._restart = self._loop.call_later(_SHORT_LIFE_S, self._start)

    def _tell(self, lines: str) -> bool:
        """Write; False when nobody listens. What a full pipe does not take goes with the next."""
        if self._pipe is None:
            return False
        self._unsent += lines.encode("ascii")
        try:
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]
        except BlockingIOError:  # stopped by somebody; closing the pipe would end the children
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


def _status(process: subprocess.Popen[bytes]) -> int | None:
    """Exit status of a process that has closed its pipes, negative = signal number."""
    try:
        return process.wait(0.1)
    except subprocess.TimeoutExpired:
        return None
