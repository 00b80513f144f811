"""How a property is declared: one field of a section of the configuration, with its key.

A field names its key, how text becomes a value, what holds when the key is absent, and what it
means, by one of the functions at the end. Names, `kcl-mld properties`, `kcl-mld validate`, advice
for misspelt names and the pages follow from the fields. Defaults are those of the Java daemon
3.5.1, in the unit of the key, except where ``doc`` says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


class Kind(StrEnum):
    """How text becomes a value. N0, N1, B0, B1 and so on are explained in ``kcl_mld.config.values``."""

    N0_INT = "number (int), 0 = unset"
    N0_LONG = "number (long), 0 = unset"
    N0_DOUBLE = "decimal, 0 = unset"
    N1_INT = "number (int), 0 counts"
    N1_LONG = "number (long), 0 counts"
    B0 = "boolean, false = unset"
    B1 = "boolean"
    TEXT = "text"
    COMMAND = "command line"
    ENUM = "one of several words"
    DURATION = "ISO-8601 duration"
    TAGS = "list of name=value"
    WORDS = "list of words"
    STRICT_INT = "number (int), nothing else"
    STRICT_LONG = "number (long), nothing else"
    GRACE = "milliseconds, 0 counts"
    CREDENTIALS = "credentials chain"
    URL = "URL"
    REGION = "region"
    REFUSED = "refused"
    # Of ``spark.*`` keys, which kcl_mld.config.spark.keys reads.
    WHOLE = "whole number"
    SIZE = "bytes, with k, m or g"
    SPAN = "duration, with ms, s, m or h"


class Effect(StrEnum):
    """What setting a key does in kcl-mld."""

    EFFECTIVE = "effective"
    UNNEEDED = "accepted, has no counterpart here"
    NO_EFFECT = "no effect in the Java daemon either"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Key:
    """One property, as the declaration of a field has it.

    Attributes:
        name: as written in a file, case-sensitive.
        default: effective value when absent, in the unit of the name; None = nothing or derived.
        choices: the words of an ENUM.
        least: smallest value that works; below it the daemon refuses to start.
        below: what the Java daemon does below it.
        most: largest value that works; None = no bound.
        effect: see :class:`Effect`.
        own: True when only kcl-mld knows the key; then malformed text is an error.
        advanced: the default suits everybody; for tests, and for advice of the maintainers.
    """

    name: str
    kind: Kind
    default: int | float | str | bool | None
    doc: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    below: str = ""
    effect: Effect = Effect.EFFECTIVE
    own: bool = False
    advanced: bool = False
    most: float | None = None

    @property
    def meaning(self) -> str:
        """The text of the key in a table of keys."""
        return f"advanced: {self.doc}" if self.advanced else self.doc


INT32_MAX = 2**31 - 1
DOUBLE_MAX = 1.7976931348623157e308
#: What the Java daemon does with values that are too small.
NO_START = "the Java daemon fails 20 initialization attempts and exits 0"
REFUSES = "the Java daemon refuses to start"
PASSED_ON = "the Java daemon passes negative values on unchecked"

_KEYS, _READ = "keys", "read"


def keys_of(section: Any) -> Iterator[Key]:
    """Keys of the fields of a dataclass, in their order."""
    for one in fields(section):
        yield from one.metadata.get(_KEYS, ())


def readers_of(section: Any) -> Iterator[tuple[str, Key, Callable[[Any], object]]]:
    """Fields of a dataclass that no rule has to give: name, key, and what reads the key's value."""
    for one in fields(section):
        if _READ in one.metadata:
            yield one.name, one.metadata[_KEYS][0], one.metadata[_READ]


def named(
    name: str, doc: str, kind: Kind = Kind.TEXT, *, own: bool = False
) -> Mapping[str, object]:
    """Metadata of a field without a default, which a rule gives from the value of its key."""
    return {_KEYS: (Key(name, kind, None, doc, own=own),)}


def by_rule(default: T, *keys: Key) -> T:
    """A field that a rule gives from these keys; ``default`` holds without a file."""
    return field(default=default, metadata={_KEYS: keys})


def read_as(read: Callable[[Any], T], key: Key, *, default: T | None = None) -> T:
    """A field that holds what ``read`` makes of the value of its key.

    Args:
        read: takes the value in the unit of the file.
        default: holds without a file; None = what ``read`` makes of the default of the key.
    """
    value = read(key.default) if default is None else default
    return field(default=value, metadata={_KEYS: (key,), _READ: read})


def advanced(declared: T) -> T:
    """The same field, whose keys users should not need to set."""
    one: Any = declared
    marked = tuple(replace(key, advanced=True) for key in one.metadata[_KEYS])
    copy: T = field(default=one.default, metadata={**one.metadata, _KEYS: marked})
    return copy


def from_millis(value: Any) -> float:
    """Milliseconds as seconds."""
    return float(value) / 1000


def millis(
    name: str,
    default: int,
    doc: str,
    *,
    least: int | None = 0,
    below: str = PASSED_ON,
    kind: Kind = Kind.N0_LONG,
) -> float:
    """Seconds, of milliseconds in the file."""
    return read_as(from_millis, Key(name, kind, default, doc, least=least, below=below))


def count(name: str, default: int, doc: str, *, least: int = 0, below: str = PASSED_ON) -> int:
    """A whole number."""
    return read_as(int, Key(name, Kind.N0_INT, default, doc, least=least, below=below))


def own_millis(name: str, default: int, doc: str, *, least: int = 1) -> float:
    """Seconds, of milliseconds that only kcl-mld knows."""
    return read_as(from_millis, Key(name, Kind.STRICT_LONG, default, doc, least=least, own=True))


def own_count(name: str, default: int, doc: str, *, least: int = 1, most: int | None = None) -> int:
    """A whole number that only kcl-mld knows."""
    return read_as(int, Key(name, Kind.STRICT_INT, default, doc, least=least, own=True, most=most))


def decimal(name: str, default: float, doc: str) -> float:
    """A decimal."""
    return read_as(float, Key(name, Kind.N0_DOUBLE, default, doc, least=0, below=PASSED_ON))


def flag(
    name: str, doc: str, *, default: bool = False, kind: Kind = Kind.B1, own: bool = False
) -> bool:
    """True or false."""
    return read_as(bool, Key(name, kind, default, doc, own=own))


def text(name: str, doc: str, *, kind: Kind = Kind.TEXT, own: bool = False) -> str | None:
    """A text; None where it is absent or empty."""
    return read_as(_text_or_none, Key(name, kind, None, doc, own=own))


def _text_or_none(value: Any) -> str | None:
    return str(value) if value else None


def word(name: str, default: str, doc: str, choices: tuple[str, ...], *, own: bool = False) -> str:
    """One of several words."""
    return read_as(str, Key(name, Kind.ENUM, default, doc, choices, own=own))


def own_member(name: str, default: E, doc: str) -> E:
    """One of the words of an enumeration, of a key that only kcl-mld knows."""
    choices = tuple(one.value for one in type(default))
    return read_as(type(default), Key(name, Kind.ENUM, default.value, doc, choices, own=True))


def own_switch(name: str, doc: str, choices: tuple[str, str], *, on: str) -> bool:
    """One of two words, of a key that only kcl-mld knows: True for ``on``, which is no default."""
    (default,) = (one for one in choices if one != on)
    return read_as(on.__eq__, Key(name, Kind.ENUM, default, doc, choices, own=True))
