"""The system's clocks, random ids, and texts for it and of it."""

from __future__ import annotations

import errno
import os
import time
import uuid

#: Counts while the machine is suspended, where there is such a clock: a lease must not be believed
#: after a night's sleep because CLOCK_MONOTONIC stood still.
_AGES = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Both clocks of this machine; satisfies :class:`mld.ports.runtime.Clock`."""

    def monotonic(self) -> float:
        """Seconds that never step and go on during suspension; not the event loop's zero."""
        return time.clock_gettime(_AGES)

    def wall(self) -> float:
        """Epoch seconds."""
        return time.time()


class RandomIds:
    """Random UUIDs; satisfies :class:`mld.ports.runtime.IdSource`."""

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
