"""Calls that may never return, and the clock of this process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

#: How long an interrupted call has to come to its end before its thread is given up, in s.
GRACE_S = 5.0


class Overdue(Exception):
    """A call did not return in time; its thread is given up if it does not end by itself."""


class SystemClock:
    """The real one; implements ``ports.Clock``."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


def call_within(
    seconds: float,
    work: Callable[[], _T],
    *,
    name: str,
    interrupt: Callable[[], None] | None = None,
    grace_s: float = GRACE_S,
) -> _T:
    """Call ``work`` in a thread of its own, and wait for it only so long.

    A Python thread cannot be ended from outside: one that never returns is left behind, and with
    it whatever it holds. It is a daemon thread, so it does not keep the process alive.

    Args:
        seconds: how long to wait, >= 0.
        work: its result or exception is this function's.
        name: of the thread.
        interrupt: called when time is up, to make ``work`` end.
        grace_s: how long to wait after the interrupt.

    Raises:
        Overdue: time is up.
    """
    done: Future[_T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - it is raised where it was called
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    wait([done], max(0.0, seconds))
    if done.done():
        return done.result()
    if interrupt is not None:
        interrupt()
        wait([done], grace_s)
    raise Overdue(f"{name} did not end within {seconds:.3g} s")
