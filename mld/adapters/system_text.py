"""Texts for the system: names of files, arguments and variables of programs; and texts of its own."""

from __future__ import annotations

import errno
import os


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
