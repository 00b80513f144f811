"""The system's clocks, random ids, and text conversion for the system."""

from __future__ import annotations

import errno
import os
import time
import uuid
from typing import TYPE_CHECKING

from kcl_mld.kernel.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

#: Also counts while the machine is suspended, where there is such a clock: a lease must not count
#: as held after a suspension because CLOCK_MONOTONIC stood still.
_AGES = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: The dates of answers have whole seconds: an offset up to this is none.
ROUNDED_S = 2.0


def boot_time() -> float:
    """Seconds that never step and continue during suspension; not the event loop's zero."""
    return time.clock_gettime(_AGES)


def _undated() -> float | None:
    """Default: no answer has a date."""
    return None


class SystemClock(Clock):
    """Both clocks of this machine.

    Args:
        service_s: epoch seconds by the dates of AWS's answers; None = unknown.
    """

    def __init__(self, service_s: Callable[[], float | None] = _undated) -> None:
        self._service_s = service_s

    def monotonic(self) -> float:
        """Monotonic seconds; see :func:`boot_time`."""
        return boot_time()

    def wall(self) -> float:
        """Epoch seconds."""
        return time.time()

    def ahead_s(self) -> float | None:
        """Seconds by which this machine's clock is ahead of AWS, precise to about two seconds."""
        service_s = self._service_s()
        if service_s is None:
            return None
        ahead_s = time.time() - service_s
        return 0.0 if abs(ahead_s) <= ROUNDED_S else ahead_s


class RandomIds:
    """Random UUIDs; satisfies :class:`kcl_mld.kernel.ports.IdSource`."""

    def new_id(self) -> str:
        """A fresh UUID, e.g. ``2c0b1c0e-7f0e-4a63-8d7e-0d1f5a3b9c55``."""
        return str(uuid.uuid4())


def system_text(text: str) -> str:
    """The text in a form that the system accepts, in any locale of this process.

    A properties file may have characters that the locale lacks (``C`` has only ASCII): such a text
    is encoded in UTF-8, as names of files and the texts of programs are today. Never fails; a text
    that the locale can encode is returned unchanged.
    """
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return os.fsdecode(_utf8(text))
    return text


def _utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")  # bytes of the system stay what they are
    except UnicodeEncodeError:  # half of a pair, which no name of a file has
        return text.encode("utf-8", "surrogatepass")


def limit_advice(text: str) -> str:
    """What to do about a limit of the system that an error names, as the end of its text, or ""."""
    if any(os.strerror(number) in text for number in (errno.EMFILE, errno.ENFILE)):
        return " (raise the limit of open files: ulimit -n, LimitNOFILE of systemd)"
    return ""
