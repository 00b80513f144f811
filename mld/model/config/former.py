"""The part of the configuration that says what becomes of leases of former streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.errors import ConfigError
from mld.model.config.properties import last_of_each, parse
from mld.model.findings import Problem, Severity
from mld.model.streams.former_policy import FormerPolicy, FormerStrategy
from mld.model.streams.listed_stream import parse_streams

if TYPE_CHECKING:
    from mld.model.config.settings import Settings
    from mld.model.streams.listed_stream import ListedStream

#: The property with the streams whose leases are deleted.
NAMED = "formerStreamsForLeaseCleanup"
_STRATEGY = "formerStreamsLeasesDeletionStrategy"
_WAIT = "formerStreamsLeasesDeletionWaitMillis"
FORMER_KEYS = (_STRATEGY, _WAIT, NAMED)


def former_policy_of(settings: Settings) -> FormerPolicy:
    """The policy of a file; reports what is wrong with it."""
    text = str(settings.value(_STRATEGY))
    is_short = text in FormerStrategy.__members__
    strategy = FormerStrategy[text] if is_short else FormerStrategy(text)
    named: tuple[ListedStream, ...] = ()
    if settings[NAMED].is_set:
        if strategy is not FormerStrategy.PROVIDED_LIST:
            settings.warn(NAMED, f"has no effect with {_STRATEGY} = {text}", "remove the line")
        try:
            named = _parsed(settings.text(NAMED) or "")
        except ConfigError as error:
            settings.report(NAMED, Problem(Severity.ERROR, error.why))
    if settings[_WAIT].is_set and strategy is FormerStrategy.NO_DELETION:
        settings.warn(_WAIT, f"has no effect with {_STRATEGY} = {text}", "remove the line")
    return FormerPolicy(strategy=strategy, wait_s=settings.seconds(_WAIT), named=named)


def named_in(data: bytes, source: str) -> tuple[ListedStream, ...]:
    """The streams that a properties file names now in ``formerStreamsForLeaseCleanup``.

    Args:
        data: the file.
        source: what errors call it.

    Raises:
        ConfigError: the file's grammar is broken, or an item is no stream.
    """
    for entry in last_of_each(parse(data, source)).values():
        if entry.key == NAMED:
            return _parsed(entry.value)
    return ()


def _parsed(text: str) -> tuple[ListedStream, ...]:
    """Streams, none of them in blank text.

    Raises:
        ConfigError: an item is no stream.
    """
    if not text.strip():
        return ()
    listed, problems = parse_streams(text)
    if problems:
        raise ConfigError(f"{problems[0].text} ({problems[0].suggestion})", key=NAMED)
    return listed
