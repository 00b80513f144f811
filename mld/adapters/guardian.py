"""The daemon's end of the guardian: a small process that outlives it to end its children.

A parent-death signal would not do: it fires when the *thread* that started the child ends, and it
misses the children of a wrapper script. A pipe closes whatever the end, and a session holds on to
all descendants that did not leave it on purpose.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

_log = logging.getLogger(__name__)

_PROGRAM = Path(__file__).with_name("guardian_main.py")


class Guardian:
    """Starts the process, tells it of sessions; satisfies ``SessionKeeper`` of the launcher.

    The process starts with the first session. If it is ended by somebody, the next session starts
    it again and tells it everything. Without it the daemon works on, with one warning.

    Args:
        python: interpreter for it.
    """

    def __init__(self, python: str = sys.executable) -> None:
        self._python = python
        self._sessions: dict[int, None] = {}  # in order of birth
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None
        self._unsent = b""
        self._warned = False

    @property
    def pid(self) -> int | None:
        """Of the process while it is believed to run."""
        return self._process.pid if self._process is not None else None

    def watch(self, session_id: int) -> None:
        """A session was started: end it when the daemon is gone."""
        self._sessions[session_id] = None
        if self._pipe is None or not self._tell(f"+{session_id}\n"):
            self._start()

    def forget(self, session_id: int) -> None:
        """The session's leader has been reaped; what else is in it stays watched."""
        if session_id in self._sessions:
            del self._sessions[session_id]
            self._tell(f"-{session_id}\n")

    def close(self) -> None:
        """Close the pipe: the guardian ends what is left and then itself. Does not wait."""
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
        if self._process is not None:
            self._process.poll()  # reap the one that was ended
        theirs, ours = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own program
                [self._python, "-I", "-S", "-B", str(_PROGRAM)],
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # it must not wait for a reader that stalls
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            os.close(ours)
            self._warn(f"cannot start: {error}")
            return
        finally:
            os.close(theirs)
        os.set_blocking(ours, False)
        self._pipe = ours
        self._unsent = b""
        if not self._tell("".join(f"+{session}\n" for session in self._sessions)):
            self._warn("ended at once")

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
