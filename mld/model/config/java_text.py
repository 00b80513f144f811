"""Numbers, durations and lists as the JDK reads them.

Compared with recordings of OpenJDK 17 in ``tests/data/java_values.jsonl``.
"""

from __future__ import annotations

import re

_INTEGER = re.compile(r"[+-]?\d+\Z")
_DECIMAL = re.compile(r"([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[dDfF]?\Z")
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<d>[-+]?[0-9]{1,18})D)?"
    r"(?P<time>T(?:(?P<h>[-+]?[0-9]{1,18})H)?(?:(?P<m>[-+]?[0-9]{1,18})M)?"
    r"(?:(?P<s>[-+]?[0-9]{1,18})(?:[.,](?P<f>[0-9]{0,9}))?S)?)?\Z",
    re.IGNORECASE,
)
#: Words of a list: quoted, or letters, digits, dots and dashes; a slash starts a comment.
#: Source: java.io.StreamTokenizer as commons-beanutils sets it up.
_WORD = re.compile(
    r"\"((?:\\[^\r\n]|[^\"\\\r\n])*)\\?\"?"
    r"|'((?:\\[^\r\n]|[^'\\\r\n])*)\\?'?"
    r"|([A-Za-z0-9.\-\u00a0-\uffff\U00010000-\U0010ffff]+)|/[^\r\n]*"
)
_QUOTED_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_QUOTED_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
#: Java's String.trim: everything up to and including the blank.
JAVA_BLANKS = "".join(map(chr, range(0x21)))


def parse_java_int(text: str, bits: int) -> int | None:
    """The number as Java's parseInt or parseLong reads it, or None; no trimming."""
    if not _INTEGER.match(text) or len(text) > 400:
        return None
    number = int(text)
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def parse_java_double(text: str) -> float | None:
    """The number as Java's parseDouble reads it, trimmed, or None; hexadecimal is left out."""
    match = _DECIMAL.match(text.strip(JAVA_BLANKS))
    return float(match[1]) if match else None


def parse_duration(text: str) -> float | None:
    """Seconds of an ISO-8601 duration as Java's Duration.parse reads it, trimmed, or None."""
    match = _DURATION.match(text.strip(JAVA_BLANKS))
    parts = match.groupdict(default="") if match else {}
    if not match or not any(parts[unit] for unit in "dhms") or parts["time"] == "T":
        return None
    scales = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
    seconds = float(sum(int(parts[unit] or 0) * scale for unit, scale in scales.items()))
    fraction = int(parts["f"].ljust(9, "0")) / 1e9 if parts["f"] else 0.0
    seconds += -fraction if parts["s"].startswith("-") else fraction
    return -seconds if parts["sign"] == "-" else seconds


def split_words(text: str) -> tuple[str, ...]:
    """The words of a list, as StreamTokenizer finds them; braces around the list are optional."""
    inner = text.strip(JAVA_BLANKS)
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    words: list[str] = []
    for match in _WORD.finditer(inner):
        quoted = match[1] if match[1] is not None else match[2]
        if quoted is not None:
            words.append(_QUOTED_ESCAPE.sub(_unquote, quoted))
        elif match[3] is not None:
            words.append(match[3])
    return tuple(words)


def _unquote(match: re.Match[str]) -> str:
    escaped = match[1]
    return (
        chr(int(escaped, 8)) if escaped[0] in "01234567" else _QUOTED_ESCAPES.get(escaped, escaped)
    )
