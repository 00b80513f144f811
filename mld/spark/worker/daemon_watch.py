"""Notices that the daemon has ended."""

from __future__ import annotations

import os

from mld.spark.rendezvous import start_time


class DaemonWatch:
    """Watches one process, by a descriptor of the kernel where there is one.

    Args:
        pid: of the daemon.

    Attributes:
        descriptor: becomes readable when it ends; None: :meth:`has_ended` must be asked.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._start_time = start_time(pid)
        self.descriptor: int | None = None
        self._is_gone = False
        try:
            self.descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._is_gone = True
        except (AttributeError, OSError):
            pass  # no such call here, or not allowed: it is asked for

    @staticmethod
    def is_gone(pid: int) -> bool:
        """True if there is no process of that number."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return False

    def has_ended(self) -> bool:
        """True once it is gone; a zombie is."""
        if self._is_gone:
            return True
        self._is_gone = (
            self.is_gone(self._pid)
            or self._start_time != start_time(self._pid)
            or _is_zombie(self._pid)
        )
        return self._is_gone


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"Z"
    except (OSError, IndexError):
        return False
