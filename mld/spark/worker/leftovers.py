"""What the host's own session still holds when the host ends: Spark's Python workers, above all.

They end when the server's end reaches them, by SIGHUP. One that was just being forked ignores that
signal, computes on for nobody, and the daemon does not know it. So the host looks once more before
it goes. Elsewhere than on Linux nobody looks.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK_S = 0.02


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
            with contextlib.suppress(OSError, IndexError):
                if pid != own and os.getsid(pid) == own and not _is_zombie(pid):
                    yield pid


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in {b"Z", b"X"}
