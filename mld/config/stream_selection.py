"""The rule by which a worker finds more streams of its own account: names and tags."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.config.keys import Key, Kind, by_rule, own_count, own_millis
from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_regular(text: str) -> bool:
    """Whether a pattern is a ``/regular expression/``."""
    return len(text) > 2 and text.startswith("/") and text.endswith("/")


@dataclass(frozen=True, slots=True)
class NamePattern:
    """A rule for names of streams.

    Attributes:
        compiled: matches the whole name.
    """

    text: str
    compiled: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> NamePattern:
        """Read ``/regular expression/``, or globs (``*``, ``?``, ``[…]``) separated by commas.

        Both have to match a whole name.

        Raises:
            MalformedData: the regular expression is none, or a glob is empty.
        """
        if is_regular(text):
            try:
                return cls(text, re.compile(text[1:-1]))
            except re.error as error:
                raise MalformedData(f"{text!r} is not a regular expression: {error}") from None
        globs = [glob.strip() for glob in text.split(",")]
        if not all(globs):
            raise MalformedData(f"{text!r} has an empty pattern")
        return cls(text, re.compile("|".join(map(fnmatch.translate, globs))))

    def matches(self, name: str) -> bool:
        """Whether a stream of that name is selected."""
        return self.compiled.fullmatch(name) is not None


def parse_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Read ``key=value, key=value``; values may be empty and may have ``=`` in them.

    Raises:
        MalformedData: an item without ``=`` or without a key, or a key twice.
    """
    tags: dict[str, str] = {}
    for item in (part.strip() for part in text.split(",")):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not key:
            raise MalformedData(f"{item!r} is not of the form key=value")
        if key in tags:
            raise MalformedData(f"the tag {key!r} is there twice")
        tags[key] = value
    return tuple(tags.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSelection:
    """A rule that chooses streams of the own account.

    Attributes:
        names: None = any name.
        excluded: None = none.
        tags: key and value; empty = any tags.
        max_streams: 0 = no limit.
    """

    # fmt: off
    names: NamePattern | None = by_rule(None, Key("streamNamePattern", Kind.TEXT, None,
        "read the streams of the account with such names, too: globs separated by commas, or"
        " /regular expression/", own=True))
    excluded: NamePattern | None = by_rule(None, Key("streamNameExcludePattern", Kind.TEXT, None,
        "but not those with such names", own=True))
    tags: tuple[tuple[str, str], ...] = by_rule((), Key("streamTags", Kind.TEXT, None,
        "read the streams with all of these tags, too: key=value, separated by commas", own=True))
    grace_s: float = own_millis("streamDiscoveryGraceMillis", 0,
        "a stream that pattern and tags find no more leaves the list only after this", least=0)
    max_streams: int = own_count("maxStreams", 0,
        "upper bound of streams read because of pattern and tags; 0 = none", least=0)
    # fmt: on

    def __str__(self) -> str:
        parts = [f"of names {self.names.text}"] if self.names is not None else []
        if self.excluded is not None:
            parts.append(f"not of names {self.excluded.text}")
        if self.tags:
            parts.append("with tags " + ", ".join(f"{key}={value}" for key, value in self.tags))
        return "all streams " + ", ".join(parts)

    def has_name(self, name: str) -> bool:
        """Whether a stream of that name may be selected."""
        if self.names is not None and not self.names.matches(name):
            return False
        return self.excluded is None or not self.excluded.matches(name)

    def has_tags(self, tags: Mapping[str, str]) -> bool:
        """Whether a stream with these tags is selected."""
        return all(tags.get(key) == value for key, value in self.tags)
