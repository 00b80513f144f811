"""Which lines of a program that ended with an error say why. Pure.

The last line seldom does: behind the reason come the frames of a Java or JavaScript trace, the
closing frame of a Python exception group, a caret, or a second line of the same message.
"""

from __future__ import annotations

import re

#: What stands around a reason and is none: frames, rules, hints how to see more frames.
_NOISE = re.compile(
    rb"\s+at \S|\s*\.{3} \d+ (?:more|common frames omitted)|\s*Driver stacktrace:"
    rb"|[\s+|]*-{5}|note: run with `RUST_BACKTRACE|Node\.js v\d"
)
_TRACE = b"Traceback (most recent call last):"
#: Lines that say what ended a program of another language; frames follow.
_HEADLINE = re.compile(rb'Exception in thread "|panic: |fatal error: |thread \'.*\' panicked at ')
#: So many lines behind the headline may still be its message; more are of something else.
_MESSAGE_LINES = 20
_SEPARATOR = b" \xe2\x80\xa6 "


class StderrTail:
    """Reads along, line by line, and knows what to quote if the program ends now."""

    def __init__(self) -> None:
        self._last = b""
        self._said = b""
        self._headline = b""
        self._behind = 0
        self._trace_indent: int | None = None

    def note(self, line: bytes) -> None:
        """One more line.

        Args:
            line: without its end.
        """
        words = line.strip(b" \t\r|+")
        if words:
            self._last = line.strip()
        if not any(map(_is_telling, words)) or _NOISE.match(line):
            return
        if words.endswith(_TRACE):
            self._trace_indent = _indent(line)
        elif self._trace_indent is not None:
            if _indent(line) <= self._trace_indent:
                self._trace_indent = None
                self._headline, self._behind, self._said = words, 0, b""
        elif _HEADLINE.match(words):
            self._headline, self._behind, self._said = words, 0, b""
        else:
            self._said = words
            self._behind += 1

    def quote(self, most_bytes: int) -> bytes:
        """What ended it: the headline, and what was said last behind it; b"" if it said nothing.

        Args:
            most_bytes: of the headline; the last line follows whole.
        """
        if not self._headline or self._behind > _MESSAGE_LINES:
            return self._said or self._last
        headline = self._headline[:most_bytes]
        return headline + _SEPARATOR + self._said if self._said else headline


def _is_telling(character: int) -> bool:
    """A letter, a digit, or part of one that is not ASCII."""
    return character >= 0x80 or chr(character).isalnum()


def _indent(line: bytes) -> int:
    """How far in a line begins; the rules of an exception group count as blanks."""
    return len(line) - len(line.lstrip(b" \t|+"))
