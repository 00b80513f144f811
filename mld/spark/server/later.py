"""A command that is run later, in a process that is started now.

A process that has threads, or that has imported delta-rs, should not make another one. So a small
process waits for a word, and then becomes the command, with the lowest priority. Standard library
only: it is a program, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOWEST = 19
_KEPT_BYTES = 2000


class Later:
    """One command; make it in the main thread, and run it from any.

    Args:
        command: program and arguments; nothing secret.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._waiting: subprocess.Popen[bytes] | None = None
        self._running: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._waiting = subprocess.Popen(  # noqa: S603 - our command
                [sys.executable, "-I", "-S", __file__, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )

    def run(self, timeout_s: float) -> str:
        """Run it to its end; its exit code, and what it printed last. Once.

        Args:
            timeout_s: it is ended then.
        """
        with self._lock:
            process, self._waiting = self._waiting, None
            self._running = process
        if process is None:
            return "it could not be started"
        with process:
            try:
                said, _ = process.communicate(b"!", timeout_s)
            except (OSError, subprocess.TimeoutExpired) as error:
                process.kill()
                return str(error)
        return f"{process.returncode}\n{said[-_KEPT_BYTES:].decode(errors='replace')}"

    def stop(self) -> None:
        """End it, whether it runs or waits."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
            running, self._running = self._running, None
        if running is not None:
            running.kill()  # and ``run`` returns
        if waiting is not None:
            with waiting:
                waiting.kill()


def main() -> None:
    """Wait for one byte, and become the command; end if there is none."""
    # Ctrl-C is for the host, which ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.read(0, 1):
        os.nice(_LOWEST)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out in spite of all, it is this process's fault
        os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606 - a command of ours


if __name__ == "__main__":
    main()
