"""Findings about a configuration: errors, warnings and remarks, each with its place."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.masking import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What follows in a word is not compared: that takes long.
_COMPARED = 100


class Severity(StrEnum):
    """How much a finding matters.

    ERROR: the daemon refuses to start. WARNING: it starts, and the line does not do what it seems
    to say. INFO: worth knowing, nothing to change.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something about one value, before it is known where the value stands.

    Attributes:
        severity: see :class:`Severity`.
        text: a clause without a full stop; never contains a secret.
        suggestion: the text to write instead; empty = there is none.
    """

    severity: Severity
    text: str
    suggestion: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem with its place.

    Attributes:
        severity: see :class:`Severity`.
        line: from 1; None when something is missing.
        key: property name as written; None = the finding concerns the whole file.
        suggestion: the text to write instead, or empty.
    """

    severity: Severity
    source: str
    line: int | None
    key: str | None
    text: str
    suggestion: str = ""

    @property
    def place(self) -> str:
        """``file:line``, or the file alone."""
        return self.source if self.line is None else f"{self.source}:{self.line}"

    def __str__(self) -> str:
        subject = f"{self.key}: " if self.key is not None else ""
        advice = f" ({printable(self.suggestion)})" if self.suggestion else ""
        return f"{self.place}: {self.severity}: {printable(subject + self.text)}{advice}"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that a written one resembles, whatever the case of letters; None = none does.

    Args:
        cutoff: how alike they are at least, 0..1, as in ``difflib``.
    """
    by_letters = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word[:_COMPARED].lower(), by_letters, n=1, cutoff=cutoff)
    return by_letters[close[0]] if close else None


def did_you_mean(meant: str, written: str) -> str:
    """The suggestion of a name for another one."""
    letters = " Upper and lower case matter." if meant.lower() == written.lower() else ""
    return f"did you mean {meant}?{letters}"
