"""Which streams a multi-stream worker reads, what holds for one of them, and for former ones.

``streams`` lists them: an ARN, ``account:name:epoch`` as it stands in lease keys, or a bare name of
the own account. ``stream.<name>.<option>`` changes an option for one stream, or for all whose names
match a glob. The Java daemon has no such keys: it reads exactly one stream.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from mld.model.children.child_command import split_command
from mld.model.config.keys import Key, Kind, by_rule, flag, named, own_millis, read_as, word
from mld.model.findings import Problem, Severity
from mld.model.masking import mask
from mld.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mld.model.streams.listed_stream import ListedStream
    from mld.model.streams.stream_selection import StreamSelection

STRATEGY_KEY = "formerStreamsLeasesDeletionStrategy"
WAIT_KEY = "formerStreamsLeasesDeletionWaitMillis"
#: The property with the streams whose leases are deleted.
NAMED_KEY = "formerStreamsForLeaseCleanup"
#: What names of options begin with, before the stream's name.
OPTION_PREFIX = "stream."
_LATEST = InitialPosition(Sentinel.LATEST)


class FormerStrategy(StrEnum):
    """``formerStreamsLeasesDeletionStrategy``.

    Source: FormerStreamsLeasesDeletionStrategy.StreamsLeasesDeletionType (KCL 3.5.1).
    """

    #: Leases of former streams stay, and are read on.
    NO_DELETION = "NO_STREAMS_LEASES_DELETION"
    #: Those of every former stream are deleted.
    AUTO_DETECTION = "FORMER_STREAMS_AUTO_DETECTION_DEFERRED_DELETION"
    #: Those of the former streams that the file names are deleted.
    PROVIDED_LIST = "PROVIDED_STREAMS_DEFERRED_DELETION"

    @classmethod
    def read(cls, text: str) -> FormerStrategy:
        """The strategy of a file, which may have the short name."""
        return cls[text] if text in cls.__members__ else cls(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPolicy:
    """What becomes of leases whose stream left the list.

    Attributes:
        named: the streams that the file names, as read at the start.
    """

    # fmt: off
    strategy: FormerStrategy = read_as(FormerStrategy.read, Key(STRATEGY_KEY, Kind.ENUM,
        FormerStrategy.NO_DELETION.value,
        "what becomes of leases whose stream left the list; short names mean the same",
        (*(one.value for one in FormerStrategy), *FormerStrategy.__members__), own=True))
    wait_s: float = own_millis(WAIT_KEY, 3_600_000,
        "how long a stream has to be gone from the list until its leases are deleted", least=0)
    named: tuple[ListedStream, ...] = by_rule((), Key(NAMED_KEY, Kind.TEXT, None,
        "streams whose leases are deleted, as in `streams`; read anew from the file each minute",
        own=True))


_KEPT = FormerPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What holds for some streams only; None = as for all.

    Attributes:
        initial_position: start of their shards without a checkpoint.
        is_pushed: by enhanced fan-out, or polled.
    """

    initial_position: InitialPosition | None = None
    argv: tuple[str, ...] | None = None
    is_pushed: bool | None = None
    consumer_arn: str | None = None


@dataclass(frozen=True, slots=True)
class StreamOption:
    """One line ``stream.<pattern>.<option> = <text>``.

    Attributes:
        pattern: a stream's name, or a glob of names (``*``, ``?``, ``[…]``).
        option: one of :data:`OPTIONS`.
    """

    pattern: str
    option: str
    text: str
    line: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """The property as written."""
        return f"{OPTION_PREFIX}{self.pattern}.{self.option}"

    @property
    def is_exact(self) -> bool:
        """True when the pattern is one name."""
        return not any(letter in self.pattern for letter in "*?[")

    def matches(self, name: str) -> bool:
        """True when it holds for that stream."""
        return fnmatch.fnmatchcase(name, self.pattern)


#: Values of the option ``retrievalMode``; a stream that has none is read as all are.
_MODES = {"FANOUT": True, "POLLING": False}
_POSITIONS = (Sentinel.LATEST, Sentinel.TRIM_HORIZON)
_CONSUMER = re.compile(r"(?P<stream>arn:.+:stream/(?P<name>[^/]+))/consumer/[^/]+\Z")


def parse_option(key: str, text: str, line: int = 0) -> tuple[StreamOption | None, Problem | None]:
    """Read one line whose key begins with :data:`OPTION_PREFIX`.

    Returns:
        The option, and what is wrong with it; None for a line that means nothing.
    """
    pattern, _, option = key.removeprefix(OPTION_PREFIX).rpartition(".")
    if option not in OPTIONS or not pattern:
        known = ", ".join(f"{OPTION_PREFIX}<name>.{name}" for name in OPTIONS)
        return None, Problem(Severity.WARNING, "not a property of kcl-mld", f"known: {known}")
    found = StreamOption(pattern, option, text.strip(), line)
    why = OPTIONS[option].why_wrong(found)
    return found, None if why is None else Problem(Severity.ERROR, *why)


def _why_no_position(option: StreamOption) -> tuple[str, str] | None:
    if option.text.upper() in _POSITIONS:
        return None
    extended = f"stream.{option.pattern}.initialPositionInStreamExtended"
    return _not_one_of(option, _POSITIONS), f"for a time write {extended}"


def _why_no_time(option: StreamOption) -> tuple[str, str] | None:
    if re.fullmatch(r"\+?[0-9]{1,18}", option.text):
        return None
    return f"{mask(option.text)!r} is not a number of seconds since 1970", ""


def _why_no_mode(option: StreamOption) -> tuple[str, str] | None:
    if option.text.upper() in _MODES:
        return None
    return _not_one_of(option, _MODES), "remove the line for that of all"


def _not_one_of(option: StreamOption, words: Iterable[str]) -> str:
    return f"{mask(option.text)!r} is not one of {', '.join(words)}"


def _why_no_consumer(option: StreamOption) -> tuple[str, str] | None:
    consumer = _CONSUMER.match(option.text)
    if consumer is None:
        form = "write arn:…:stream/<name>/consumer/<consumer>:<time>"
        return f"{mask(option.text)!r} is not the ARN of a consumer", form
    if consumer["name"] != option.pattern:
        return f"a consumer of stream {mask(consumer['name'])}", "name that stream in the key"
    return None


class Option(NamedTuple):
    """An option that a stream may have for itself.

    Attributes:
        field: of :class:`StreamOptions`.
        read: its text, without blanks around it, as the value of the field.
        why_wrong: what is wrong with a line, and what to do; None = nothing.
    """

    field: str
    read: Callable[[str], object]
    why_wrong: Callable[[StreamOption], tuple[str, str] | None]


#: Two names of one field: whichever stands first wins.
OPTIONS = {
    "executableName": Option("argv", split_command, lambda _: None),
    "initialPositionInStream": Option(
        "initial_position",
        lambda text: InitialPosition(Sentinel(text.upper())),
        _why_no_position,
    ),
    "initialPositionInStreamExtended": Option(
        "initial_position",
        lambda text: InitialPosition(Sentinel.AT_TIMESTAMP, float(text)),
        _why_no_time,
    ),
    "retrievalMode": Option("is_pushed", lambda text: _MODES[text.upper()], _why_no_mode),
    "consumerArn": Option("consumer_arn", str, _why_no_consumer),
}


def options_of(name: str, options: Iterable[StreamOption]) -> StreamOptions:
    """What the file says for one stream: its own name wins over globs, an earlier glob over others.

    Args:
        options: in file order, each one valid.
    """
    chosen = _chosen(name, options)
    values: dict[str, Any] = {
        field: OPTIONS[one.option].read(one.text) for field, one in chosen.items()
    }
    return StreamOptions(**values)


def _chosen(name: str, options: Iterable[StreamOption]) -> dict[str, StreamOption]:
    """The line that counts for each field."""
    chosen: dict[str, StreamOption] = {}
    for option in sorted(
        (one for one in options if one.matches(name)), key=lambda one: not one.is_exact
    ):
        chosen.setdefault(OPTIONS[option.option].field, option)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamList:
    """The multi-stream part of the configuration.

    Attributes:
        streams: those that the file lists; none only with a rule.
        selection: a rule for more of them, or None.
        options: of single streams, in file order.
        epoch_unit: ``auto``, ``seconds`` or ``millis``.
        discovery_interval_s: > 0.
    """

    # fmt: off
    streams: tuple[ListedStream, ...] = field(metadata=named("streams",
        "streams to read, separated by commas: ARN, account:name:epoch or name; needs"
        " multiStream = true", own=True))
    selection: StreamSelection | None = None
    options: tuple[StreamOption, ...] = field(default=())
    epoch_unit: str = word("streamCreationEpochUnit", "auto",
        "creation time in new lease keys; auto = as the table has it, else seconds",
        ("auto", "seconds", "millis"), own=True)
    orphan_position: InitialPosition = read_as(lambda value: InitialPosition(Sentinel(value)),
        Key("orphanedStreamInitialPositionInStream", Kind.ENUM, "LATEST",
            "where new shards start whose stream has leases but is not in `streams`",
            ("LATEST", "TRIM_HORIZON"), own=True))
    former: FormerPolicy = _KEPT
    tells_stream: bool = flag("initializeMessageExtras",
        "name the stream in the child's `initialize` message; multi-stream only",
        default=True, own=True)
    discovery_interval_s: float = own_millis("streamDiscoveryIntervalMillis", 60_000,
        "mean time between two looks at which streams there are")
    # fmt: on

    def options_of(self, name: str) -> StreamOptions:
        """What holds for one stream only; see :func:`options_of`."""
        return options_of(name, self.options)

    def program_of(self, name: str) -> StreamOption | None:
        """The line that gives a stream a program of its own, if one does."""
        return _chosen(name, self.options).get("argv")
