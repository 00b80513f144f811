"""The words of the places where Java takes options from: ``@files`` and variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Parts of the text of a file: space, a quoted part, which the end of a line closes, a character.
_OF_FILE = re.compile(
    r"(?P<space>\s+)"
    r'|"(?P<double>(?:\\(?:\r\n|[\s\S])|[^"\\\r\n])*)"?'
    r"|'(?P<single>(?:\\(?:\r\n|[\s\S])|[^'\\\r\n])*)'?"
    r"|(?P<comment>#[^\n]*)"
    r"|(?P<plain>[^\s\"'])"
)
_OF_VARIABLE = re.compile(
    r"(?P<space>\s+)"
    r'|"(?P<double>[^"]*)"'
    r"|'(?P<single>[^']*)'"
    r"|(?P<open>[\"'])"
    r"|(?P<plain>[^\s\"'])"
)
#: Within quotes of a file: the end of a line and the indent of the next one, or a character.
_ESCAPE = re.compile(r"\\(?:\r?\n[ \t\f]*|([\s\S]))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def words_of_file(text: str) -> list[str]:
    """The words of an ``@file``: quotes of both kinds, escapes within them, ``#`` comments."""
    return list(_words(text, _OF_FILE))


def words_of_variable(text: str, name: str) -> list[str]:
    """The words of a variable with options: quotes of both kinds, no escapes.

    Raises:
        ConfigError: a quote is not closed.
    """
    if any(part["open"] for part in _OF_VARIABLE.finditer(text)):
        raise ConfigError(f"Unmatched quote in {name}")
    return list(_words(text, _OF_VARIABLE))


def _words(text: str, parts: re.Pattern[str]) -> Iterator[str]:
    word: str | None = None
    for part in parts.finditer(text):
        kind, content = part.lastgroup, part[part.lastgroup or 0]
        if kind == "space" or (kind == "comment" and word is None):
            if word is not None:
                yield word
            word = None
        elif kind in {"double", "single"} and parts is _OF_FILE:
            word = (word or "") + _ESCAPE.sub(_unescaped, content)
        else:
            word = (word or "") + content
    if word is not None:
        yield word


def _unescaped(match: re.Match[str]) -> str:
    char: str | None = match[1]
    return "" if char is None else _ESCAPED.get(char, char)
