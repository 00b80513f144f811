"""From the text of a property to its value, with the conversions of the Java daemon.

The daemon converts with commons-beanutils, whose surprises are kept because the same file must
mean the same: a malformed number is 0; 0 and false in a primitive field (classes N0 and B0) mean
"not set", so the library's default stays; in a boxed field (N1, B1) they count. Unlike Java every
surprise is reported. Keys that only kcl-mld knows are strict: malformed is an error.

Source: multilang 3.5.1 with commons-beanutils 1.11, executed; numbers, durations and lists are
compared with recordings of OpenJDK 17 in ``tests/data/java_values.jsonl``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kcl_mld.config.credentials import REGION
from kcl_mld.config.findings import Problem, Severity
from kcl_mld.config.keys import Effect, Key, Kind
from kcl_mld.kernel.model.masking import mask_value

if TYPE_CHECKING:
    from collections.abc import Callable

#: What text can become: tags are pairs, durations seconds.
Value = int | float | str | bool | tuple[str, ...] | tuple[tuple[str, str], ...] | None

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
_TRUE = {"true", "yes", "y", "on", "1"}
_FALSE = {"false", "no", "n", "off", "0"}


@dataclass(frozen=True, slots=True)
class Converted:
    """The outcome for one value.

    Attributes:
        value: None = as if the line were not there, so that the default holds.
        problems: in the order in which they were met.
    """

    value: Value
    problems: tuple[Problem, ...] = field(default=())

    @property
    def is_wrong(self) -> bool:
        """True when the daemon must not start with it."""
        return any(problem.severity is Severity.ERROR for problem in self.problems)


def convert(key: Key, text: str) -> Converted:
    """Read the text of one property; never raises.

    Args:
        text: as the grammar delivers it, untrimmed.
    """
    converted = _CONVERSIONS[key.kind](key, text)
    value = converted.value
    if converted.is_wrong or not isinstance(value, int | float):
        return converted
    if key.least is not None and value < key.least:
        return _too_small(key, text, converted)
    if key.most is not None and value > key.most:
        problem = f"{value}, but the largest value that works is {key.most}"
        return _wrong(problem, f"write {key.name} = {key.most} or less")
    return converted


def _too_small(key: Key, text: str, converted: Converted) -> Converted:
    why = f"; {key.below}" if key.below else ""
    advice = f"write {key.name} = {key.least} or more"
    if key.default is not None:
        advice += ", or remove the line"
    shown = f"{text.strip()!r} counts as {converted.value}" if converted.problems else text.strip()
    return _wrong(f"{shown}, but the smallest value that works is {key.least}{why}", advice)


def _unset_if_zero(key: Key, text: str) -> Converted:
    bits = 32 if key.kind is Kind.N0_INT else 64
    number = parse_java_int(text.strip(JAVA_BLANKS), bits)
    if number is None:
        return _not_a_number(key, text, None, f"ignored as in Java, {_default_of(key)} holds")
    if number == 0:
        return _zero(key)
    return Converted(number)


def _unset_if_zero_double(key: Key, text: str) -> Converted:
    number = parse_java_double(text)
    if number is None:
        return _not_a_number(key, text, None, f"ignored as in Java, {_default_of(key)} holds")
    if number == 0:
        return _zero(key)
    return Converted(number)


def _zero(key: Key) -> Converted:
    if key.default == 0:
        return Converted(None)
    return _noted(None, f"0 means unset, as in Java: {_default_of(key)} holds", "remove the line")


def _zero_counts(key: Key, text: str) -> Converted:
    bits = 32 if key.kind is Kind.N1_INT else 64
    number = parse_java_int(text.strip(JAVA_BLANKS), bits)
    if number is None:
        return _not_a_number(key, text, 0, "counts as 0, as in Java")
    return Converted(number)


def _grace(key: Key, text: str) -> Converted:
    number = parse_java_int(text.strip(JAVA_BLANKS), 64)
    if number is None:
        return _not_a_number(key, text, None, f"ignored, {_default_of(key)} holds")
    if number < 0:
        return _noted(0, f"{number} counts as 0: stop at once", f"write {key.name} = 0")
    return Converted(number)


def _strict_number(key: Key, text: str) -> Converted:
    number = parse_java_int(text, 32 if key.kind is Kind.STRICT_INT else 64)
    if number is None:
        advice = "write a whole number without blanks around it"
        return _wrong(f'For input string: "{mask_value(key.name, text)}"', advice)
    return Converted(number)


def _not_a_number(key: Key, text: str, value: Value, effect: str) -> Converted:
    shown = mask_value(key.name, text)
    if key.effect is Effect.NO_EFFECT:
        return _noted(value, f"{shown!r} is not a number in range", "remove the line")
    advice = f"write a plain decimal number, such as {key.default or key.least or 1}"
    return _noted(value, f"{shown!r} is not a number in range: {effect}", advice)


def _unset_if_false(key: Key, text: str) -> Converted:
    word = text.lower()
    if word in _TRUE:
        return Converted(value=True)
    if word not in _FALSE:
        effect = "true stays" if key.default else "it counts as false, as in Java"
        return _noted(None, f"{text!r} is not a boolean: {effect}", _boolean_advice(text))
    if key.default:
        return _noted(None, "false has no effect, as in Java: true stays", "remove the line")
    return Converted(None)


def _boolean(_key: Key, text: str) -> Converted:
    word = text.lower()
    if word in _TRUE or word in _FALSE:
        return Converted(value=word in _TRUE)
    return _noted(
        value=False,
        text=f"{text!r} is not a boolean: it counts as false, as in Java",
        suggestion=_boolean_advice(text),
    )


def _boolean_advice(text: str) -> str:
    blanks = text.strip().lower() in _TRUE | _FALSE
    return "remove the blanks around the word" if blanks else "write true or false"


def _text(key: Key, text: str) -> Converted:
    if text and text != text.strip() and text.strip():
        shown = mask_value(key.name, text)
        return _noted(text, f"blanks around {shown!r} are part of the value", "remove them")
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        shown = mask_value(key.name, text)
        return _noted(text, f"the quotes around {shown} are part of the value", "remove them")
    return Converted(text)


def _verbatim(_key: Key, text: str) -> Converted:
    return Converted(text)  # kcl_mld.config.child_command checks it


def _choice(key: Key, text: str) -> Converted:
    words = {word.upper(): word for word in key.choices}
    word = words.get(text.upper())
    if word is not None:
        return Converted(word)
    # One is known only so that its own error can name the key that it needs.
    advice = "write one of " + ", ".join(one for one in key.choices if one != "AT_TIMESTAMP")
    if text.strip().upper() in words:
        advice = "remove the blanks around the word"
    return _wrong(f"{text!r} is not one of its values", advice)


def _duration(key: Key, text: str) -> Converted:
    seconds = parse_duration(text)
    if seconds is None:
        advice = "write an ISO-8601 duration such as PT24H"
        return _wrong(f"Text cannot be parsed to a Duration: {text!r}", advice)
    if seconds < 0:
        advice = f"remove the line for {key.default}"
        return _wrong(f"Negative values are not permitted for duration: {text}", advice)
    return Converted(seconds)


def _tags(_key: Key, text: str) -> Converted:
    pairs: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for item in text.split(",") if text.strip() else ():
        # As Java's split: an empty part at the end does not count.
        parts = [part.strip() for part in item.strip().rstrip("=").split("=")]
        if len(parts) == 2:
            pairs.append((parts[0], parts[1]))
        else:
            tag = f"Invalid tag {item.strip()}, ignoring it"
            problems.append(Problem(Severity.WARNING, tag, "write name=value"))
    return Converted(tuple(pairs), tuple(problems))


def _words(_key: Key, text: str) -> Converted:
    return Converted(split_words(text))


def _url(key: Key, text: str) -> Converted:
    advice = f"write {key.name} = http://host:port or https://host"
    shown = mask_value(key.name, text)
    if text.strip() and text != text.strip():
        return _wrong(f"{shown!r} has blanks, which no URL has", "remove the blanks around it")
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and (parts.port is None or parts.port >= 0)
    except ValueError as error:
        return _wrong(f"{shown!r} is not a URL: {error}", advice)
    if not text.strip() or "://" not in text:
        text = (
            f"{shown!r} has no http:// or https:// in front (in Java: The URI scheme of"
            " endpointOverride must not be null.)"
        )
        return _wrong(text, advice)
    if re.search(r"[\s\"<>\\^`{|}]", text):
        return _wrong(f"{shown!r} contains a character that no URL has", advice)
    if parts.scheme.lower() not in {"http", "https"} or not has_host:
        return _wrong(f"{shown!r} is not an http or https URL with a host", advice)
    return Converted(text)


def _region(_key: Key, text: str) -> Converted:
    if not text.strip():
        return _wrong("region must not be blank or empty.", "remove the line or name a region")
    if text != text.strip():
        return _wrong(f"{text!r} has blanks, which break every endpoint", f"write {text.strip()}")
    if not REGION.match(text):
        meant = _region_meant(text)
        advice = f"did you mean {meant}?" if meant else "such as us-east-1"
        if not re.fullmatch(r"[A-Za-z0-9-]+", text):
            return _wrong(f"{text!r} cannot be a region: it breaks every endpoint", advice)
        return _noted(text, f"{text!r} does not look like a region", advice)
    return Converted(text)


def _region_meant(text: str) -> str | None:
    """The region in another spelling, or in the name of an availability zone."""
    words = re.sub(r"[\s_-]+", "-", text.strip("\"'").lower())
    words = re.sub(r"(?<=[a-z])(\d+)[a-z]?\Z", r"-\1", words)
    words = re.sub(r"(-\d+)[a-z]\Z", r"\1", words)
    return words if REGION.match(words) else None


def _refused(key: Key, _text: str) -> Converted:
    return _wrong(key.doc, "remove the line")


def _default_of(key: Key) -> str:
    return "the default" if key.default is None else f"the default {key.default}"


def _noted(value: Value, text: str, suggestion: str = "") -> Converted:
    return Converted(value, (Problem(Severity.WARNING, text, suggestion),))


def _wrong(text: str, suggestion: str = "") -> Converted:
    return Converted(None, (Problem(Severity.ERROR, text, suggestion),))


_CONVERSIONS: dict[Kind, Callable[[Key, str], Converted]] = {
    Kind.N0_INT: _unset_if_zero,
    Kind.N0_LONG: _unset_if_zero,
    Kind.N0_DOUBLE: _unset_if_zero_double,
    Kind.N1_INT: _zero_counts,
    Kind.N1_LONG: _zero_counts,
    Kind.B0: _unset_if_false,
    Kind.B1: _boolean,
    Kind.TEXT: _text,
    Kind.COMMAND: _verbatim,
    Kind.ENUM: _choice,
    Kind.DURATION: _duration,
    Kind.TAGS: _tags,
    Kind.WORDS: _words,
    Kind.STRICT_INT: _strict_number,
    Kind.STRICT_LONG: _strict_number,
    Kind.GRACE: _grace,
    Kind.CREDENTIALS: _verbatim,
    Kind.URL: _url,
    Kind.REGION: _region,
    Kind.REFUSED: _refused,
}


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
