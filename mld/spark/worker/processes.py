"""Processes around the host: the daemon, whose end is noticed, and what the host has left behind.

What the host's own session still holds when it ends are Spark's Python workers, above all. They end
when the server's end reaches them, by SIGHUP. One that was just being forked ignores that signal,
goes on in vain, and the daemon does not know it. So the host looks once more before it goes.
It does so on Linux only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

from mld.spark.host_socket import start_time

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_S = 0.02


class DaemonWatch:
    """Watches one process, by a descriptor of the kernel where there is one.

    Attributes:
        descriptor: becomes readable when it ends; None: :meth:`has_ended` must be asked.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start_time = start_time(pid)
        self.descriptor: int | None = None
        self._has_ended = False
        try:
            self.descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._has_ended = True
        except (AttributeError, OSError):
            pass  # no such call here, or not allowed: it is asked for

    def has_ended(self) -> bool:
        """True once it is gone; a zombie is."""
        self._has_ended = (
            self._has_ended
            or is_gone(self._pid)
            or self._start_time != start_time(self._pid)
            or _is_zombie(self._pid)
        )
        return self._has_ended


def is_gone(pid: int) -> bool:
    """True if there is no process of that number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def end_leftovers(patience_s: float) -> None:
    """Kill everything else in this process's session, if it leads one; return once that is empty.

    Args:
        patience_s: how long to look, in s: what forks may slip through a look.
    """
    if os.getsid(0) != os.getpid():
        return  # the session is somebody else's, and so are its processes
    until = time.monotonic() + patience_s
    while left := list(_others_in_session()):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= until:
            return
        time.sleep(_LOOK_S)


def _others_in_session() -> Iterator[int]:
    """Living processes of our session, zombies left out."""
    own = os.getpid()
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):
            pid = int(name)
            with contextlib.suppress(OSError):
                if pid != own and os.getsid(pid) == own and not _is_zombie(pid):
                    yield pid


def _is_zombie(pid: int) -> bool:
    """True for one that has ended and waits for its parent; False where that can't be known."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in {b"Z", b"X"}
    return False
