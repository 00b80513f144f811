"""Keep-alives: a daemon that waits for a status must not take a child that waits for dead.

Each message of a child starts ``timeoutInSeconds`` again, in Java as well, and ``leaseLost`` is one
that every daemon reads and ignores.

Standard library only: the stub imports it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: As :meth:`kcl_mld_protocol.ChildConnection.keep_alive` writes it.
KEEP_ALIVE = b'{"action":"leaseLost"}\n'
#: Environment variable with the daemon's ``timeoutInSeconds``, if it has one.
TIMEOUT_VARIABLE = "KCL_MLD_TIMEOUT_S"
TIMEOUT_KEY = "timeoutInSeconds"
#: Who sets it would set the time-out, too.
_TELLS_VARIABLE = "KCL_MLD_CAPABILITIES"
#: So many keep-alives within a time-out: two may follow each other late, from two processes.
_PER_TIMEOUT = 4
_LONGEST_S = 5.0
_UNTOLD_S = 1.0


def interval_s(environ: Mapping[str, str], written: str | None) -> float:
    """How often a keep-alive is due while a status is withheld.

    Args:
        written: ``timeoutInSeconds`` of the daemon's file; None if that is not known.

    Returns:
        a quarter of the time-out, at most 5 s; 1 s under a daemon that doesn't tell.
    """
    text = environ.get(TIMEOUT_VARIABLE) or written or ""
    with contextlib.suppress(ValueError):
        timeout_s = float(text)
        if timeout_s > 0:
            return min(_LONGEST_S, timeout_s / _PER_TIMEOUT)
    return _LONGEST_S if _TELLS_VARIABLE in environ else _UNTOLD_S


class KeepAlive:
    """Sends keep-alives in a thread of its own while something else is waited for.

    A context manager; nothing is sent any more once it is left.

    Args:
        send: sends one; an OSError of it ends them, the daemon is gone then.
        longest_s: after so long whatever is waited for counts as hanging, and nothing is sent.
    """

    def __init__(self, send: Callable[[], object], every_s: float, longest_s: float) -> None:
        self._send = send
        self._every_s = every_s
        self._longest_s = longest_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keep-alives", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        until = time.monotonic() + self._longest_s
        with contextlib.suppress(OSError):
            while not self._is_over.wait(self._every_s) and time.monotonic() < until:
                self._send()
