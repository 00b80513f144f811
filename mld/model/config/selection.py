"""The part of the configuration that chooses streams by a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mld.errors import MalformedData
from mld.model.streams.stream_selection import NamePattern, StreamSelection, parse_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config.settings import Settings

#: A rule needs one of these.
_RULES = ("streamNamePattern", "streamTags")
_REFINEMENTS = ("streamNameExcludePattern", "streamDiscoveryGraceMillis", "maxStreams")
SELECTION_KEYS = (*_RULES, *_REFINEMENTS)

T = TypeVar("T")


def selection_of(settings: Settings) -> StreamSelection | None:
    """The rule of the file; None without one, or with one that can't be read."""
    if not any(settings[name].is_set for name in _RULES):
        for name in _REFINEMENTS:
            if settings[name].is_set:
                settings.error(name, "needs streamNamePattern or streamTags", "remove the line")
        return None
    return StreamSelection(
        names=_parsed(settings, "streamNamePattern", NamePattern.parse),
        excluded=_parsed(settings, "streamNameExcludePattern", NamePattern.parse),
        tags=_parsed(settings, "streamTags", parse_tags) or (),
        grace_s=settings.seconds("streamDiscoveryGraceMillis"),
        max_streams=settings.number("maxStreams"),
    )


def _parsed(settings: Settings, name: str, parse: Callable[[str], T]) -> T | None:
    text = settings.text(name)
    if text is None:
        return None
    try:
        return parse(text.strip())
    except MalformedData as error:
        settings.error(name, str(error))
        return None
