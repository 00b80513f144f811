"""The system's clocks, random ids, and texts for it and of it."""

from __future__ import annotations

import errno
import os
import time
import uuid
from typing import TYPE_CHECKING

from mld.kernel.ports import Clock

if TYPE_CHECKING:
    from collections.abc import Callable

#: Counts while the machine is suspended, where there is such a clock: a lease must not be believed
#: after a night's sleep because CLOCK_MONOTONIC stood still.
_AGES = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: The dates of answers have whole seconds: an offset up to this is none.
ROUNDED_S = 2.0


def boot_time() -> float:
    """Seconds that never step and go on during suspension; not the event loop's zero."""
    return time.clock_gettime(_AGES)


def _undated() -> float | None:
    """Where no answer has a date."""
    return None


class SystemClock(Clock):
    """Both clocks of this machine.

    Args:
        service_s: epoch seconds by the dates of AWS's answers; None = not known.
    """

    def __init__(self, service_s: Callable[[], float | None] = _undated) -> None:
        self._service_s = service_s

    def monotonic(self) -> float:
        """See :func:`boot_time`."""
        return boot_time()

    def wall(self) -> float:
        """Epoch seconds."""
        return time.time()

    def ahead_s(self) -> float | None:
        """See the port; right to about two seconds."""
        service_s = self._service_s()
        if service_s is None:
            return None
        ahead_s = time.time() - service_s
        return 0.0 if abs(ahead_s) <= ROUNDED_S else ahead_s


class RandomIds:
    """Random UUIDs; satisfies :class:`mld.kernel.ports.IdSource`."""

    def new_id(self) -> str:
        """A fresh UUID, e.g. ``2c0b1c0e-7f0e-4a63-8d7e-0d1f5a3b9c55``."""
        return str(uuid.uuid4())


def system_text(text: str) -> str:
    """The text in a form that the system can be given, in whatever locale this process runs.

    What comes from a properties file may have letters that the locale has not (of ``C``, all that
    are not ASCII): such a text is meant in UTF-8, as names of files and the texts of programs are
    today. Never fails; a text that the locale can write is given back as it is.
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
