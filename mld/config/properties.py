r"""The grammar of Java ``.properties`` files, exactly, with the line of every entry.

Bytes are ISO-8859-1: one byte is one character, so UTF-8 text arrives as two or more characters
and a byte-order mark is glued to the first key, as in Java. Nothing is reported here but what
Java itself refuses, a malformed ``\uxxxx``, and a file in UTF-16, in which it finds no property.

Source: java.util.Properties.load of JDK 17, executed row by row (see ``ROWS`` in its test).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

_UTF_16 = re.compile(rb"\xff\xfe|\xfe\xff|(?:[\t-~]\0){2}|(?:\0[\t-~]){2}")
_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
#: The key ends at the first separator or blank that no backslash precedes.
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
#: At most one ``=`` or ``:`` is eaten, with the blanks around it.
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(?:u(.{0,4})|(.))", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
#: Characters that Java escapes in the files that it writes; others may be intended, too.
_WRITTEN_BY_JAVA, _CONTROLS = "\\=:#! u", "tnrf"
_DRIVE = re.compile(r"(?<![\w\\])[A-Za-z]\\?:\\")
_HEX4 = re.compile(r"[0-9a-fA-F]{4}")
_NAMED_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``key = value`` of a file.

    Attributes:
        key: unescaped; may be empty.
        value: unescaped; trailing blanks are part of it; may be empty.
        line: number of the line on which the entry starts, from 1; 0 = not of the file.
        meant: how the value would be written if its author took backslashes as they are, as in a
            regular expression or a path of Windows; None where each of them is an escape.
        origin: what set it in place of the file, see ``kcl_mld.config.overrides``; None = nothing.
        written: the value before variables were put in; None where there are none.
        variables: names of those variables.
    """

    key: str
    value: str
    line: int
    meant: str | None = None
    origin: str | None = None
    written: str | None = None
    variables: tuple[str, ...] = ()

    def place(self, source: str) -> str:
        """``file:line``, or what set it; and the variables that it holds."""
        place = self.origin or f"{source}:{self.line}"
        return ", ".join((place, *(f"environment {name}" for name in self.variables)))


def parse(data: bytes, source: str = "properties") -> tuple[Entry, ...]:
    r"""Read all entries in file order; duplicates are kept (in Java the last one wins).

    Args:
        source: the name of the file in an error, normally its path as typed.

    Raises:
        ConfigError: a ``\\u`` is not followed by four hexadecimal digits, or the file is UTF-16;
            names file and line.
    """
    if _UTF_16.match(data):
        raise ConfigError(
            "the file is UTF-16, and properties files are ISO-8859-1: save it as ISO-8859-1, or as"
            " UTF-8 without a byte-order mark if it is all ASCII",
            where=f"{source}:1",
        )
    entries = []
    for line, text in _logical_lines(data.decode("iso-8859-1")):
        key_end = _end(_KEY, text, 0)
        value_start = _end(_SEPARATOR, text, key_end)
        where = f"{source}:{line}"
        key = _unescape(text[:key_end], where)
        value = text[value_start:]
        entries.append(Entry(key, _unescape(value, where), line, _meant(value)))
    return tuple(entries)


def _meant(text: str) -> str | None:
    escaped = [char for char in _ESCAPED.findall(text) if char not in _WRITTEN_BY_JAVA]
    if all(char in _CONTROLS for char in escaped) and not (escaped and _DRIVE.search(text)):
        return None
    return _ESCAPED.sub(lambda m: m[0] if m[1] in _WRITTEN_BY_JAVA else "\\" + m[0], text)


def last_of_each(entries: tuple[Entry, ...]) -> dict[str, Entry]:
    """The entry that counts for each key: the last one, at the place of the first."""
    return {entry.key: entry for entry in entries}


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    assert match is not None, "both patterns match the empty string"
    return match.end()


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines, and where they start."""
    pending, started_at = "", 0
    # A bare backslash at the very end is an entry without key and value.
    is_bare, may_be_bare = False, text.endswith(("\\", "\\\n", "\\\r"))
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_BLANKS)
        # A comment starts only a fresh line; after a bare backslash the line is still fresh.
        if not pending and (not line or line[0] in "#!"):
            is_bare = is_bare and not line
            continue
        if not pending:
            started_at = number
        if _is_continued(line):
            pending += line[:-1]
            is_bare = not pending
            continue
        yield started_at, pending + line
        pending, is_bare = "", False
    if pending or (is_bare and may_be_bare):
        yield started_at, pending


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescape(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        digits, other = match.groups()
        if other is not None:
            return _NAMED_ESCAPES.get(other, other)
        if not _HEX4.fullmatch(digits):
            raise ConfigError(
                rf"Malformed \uxxxx encoding: \u{digits} needs four hexadecimal digits;"
                r" write \\ for a backslash",
                where=where,
            )
        return chr(int(digits, 16))

    # Java strings are UTF-16: two escapes may make up one character.
    units = _ESCAPE.sub(replace, text).encode("utf-16-le", "surrogatepass")
    return units.decode("utf-16-le", "surrogatepass")
