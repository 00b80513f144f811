"""Which streams a multi-stream worker reads, what holds for one of them, and for former ones.

``streams`` lists them: an ARN, ``account:name:epoch`` as it stands in lease keys, or a bare name of
the own account; or the file gives a rule for the streams of the account.
``stream.<name>.<option>`` changes an option for one stream, or for all whose names match a glob. The
Java daemon has no such keys: it reads exactly one stream.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from kcl_mld.config.child_command import split_command
from kcl_mld.config.findings import Problem, Severity
from kcl_mld.config.keys import (
    Key,
    Kind,
    advanced,
    by_rule,
    flag,
    named,
    own_count,
    own_millis,
    read_as,
    word,
)
from kcl_mld.config.stream import (
    DYNAMODB_STREAMS,
    KINESIS,
    LATEST_LABEL,
    TABLE_STREAM_EPOCH,
    TABLE_STREAM_FORM,
    Stream,
    StreamArn,
    TableStreamArn,
    parse_arn,
    traits_of,
)
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.masking import mask
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kcl_mld.config.stream import SourceTraits

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
_FORMS = "write an ARN, account:name:epoch, or the name of a stream of this account"
STRATEGY_KEY = "formerStreamsLeasesDeletionStrategy"
WAIT_KEY = "formerStreamsLeasesDeletionWaitMillis"
#: The property with the streams whose leases are deleted.
NAMED_KEY = "formerStreamsForLeaseCleanup"
#: What names of options begin with, before the stream's name.
OPTION_PREFIX = "stream."
CHILDREN_KEY = "childrenPerShard"
#: Of one shard.
MOST_CHILDREN = 32
_LATEST = InitialPosition(Sentinel.LATEST)


@dataclass(frozen=True, slots=True)
class ListedStream:
    """One item of ``streams``; parts that are None are requested from Kinesis at the start.

    Attributes:
        arn: where the item is an ARN.
        account: 12 digits, where the item names one.
        epoch: of ``account:name:epoch``, > 0; lease keys use it as it stands. That of a table's
            stream is known.
    """

    name: str
    arn: StreamArn | TableStreamArn | None = None
    account: str | None = None
    epoch: int | None = None

    @property
    def traits(self) -> SourceTraits:
        """What distinguishes streams of its service."""
        return DYNAMODB_STREAMS if isinstance(self.arn, TableStreamArn) else KINESIS

    @property
    def is_latest(self) -> bool:
        """Whether it is the latest stream of a table, which is yet to be looked up."""
        return isinstance(self.arn, TableStreamArn) and self.arn.label == LATEST_LABEL

    def __str__(self) -> str:
        if self.arn is not None:
            return str(self.arn)
        return self.name if self.epoch is None else f"{self.account}:{self.name}:{self.epoch}"


def may_be(listed: ListedStream, stream: Stream) -> bool:
    """Whether an item of a list may stand for a stream; parts that it leaves out are not compared."""
    return (
        listed.name == stream.name
        and listed.account in (None, stream.account)
        and listed.epoch in (None, stream.epoch)
    )


def parse_streams(text: str) -> tuple[tuple[ListedStream, ...], tuple[Problem, ...]]:
    """Read the value of ``streams``.

    Args:
        text: items separated by commas; blanks around them do not count.

    Returns:
        The streams in their order, and the findings; with an error the list must not be used.
    """
    listed: list[ListedStream] = []
    problems: list[Problem] = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        try:
            stream = _parse_item(item)
        except MalformedData as error:
            form = TABLE_STREAM_FORM if traits_of(item) is DYNAMODB_STREAMS else _FORMS
            problems.append(Problem(Severity.ERROR, str(error), form))
            continue
        twin = next((one for one in listed if _is_same(one, stream)), None)
        if twin is not None:
            what = f"{mask(str(stream))} may name the same stream as {mask(str(twin))}"
            problems.append(Problem(Severity.ERROR, what, "keep one of them"))
        listed.append(stream)
    if not listed and not problems:
        problems.append(Problem(Severity.ERROR, "names no stream", _FORMS))
    if len({one.traits for one in listed}) > 1:
        advice = "give the streams of each service a worker and an applicationName of their own"
        problems.append(Problem(Severity.ERROR, "mixes streams of Kinesis and of DynamoDB", advice))
    return tuple(listed), tuple(problems)


def _parse_item(item: str) -> ListedStream:
    if item.startswith("arn:"):
        arn = TableStreamArn.latest_of(item) or parse_arn(item)
        if isinstance(arn, TableStreamArn):
            return listed_of_table(arn)
        _check_name(arn.name)
        return ListedStream(arn.name, arn=arn, account=arn.account)
    if ":" in item:
        stream = Stream.parse_identifier(item)
        _check_name(stream.name)
        return ListedStream(stream.name, account=stream.account, epoch=stream.epoch)
    _check_name(item)
    return ListedStream(item)


def listed_of_table(arn: TableStreamArn) -> ListedStream:
    """The stream of a table as an item of the list."""
    return ListedStream(arn.name, arn, arn.account, TABLE_STREAM_EPOCH)


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise MalformedData(f"{mask(name)!r} is not a valid stream name")


def _is_same(one: ListedStream, other: ListedStream) -> bool:
    """True for one stream in two forms; without an account a name may mean the other one."""
    if one.name != other.name:
        return False
    return one.account == other.account or None in (one.account, other.account)


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
        children: of a shard, 1 to :data:`MOST_CHILDREN`.
    """

    initial_position: InitialPosition | None = None
    argv: tuple[str, ...] | None = None
    is_pushed: bool | None = None
    consumer_arn: str | None = None
    children: int | None = None


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
        The option, and the findings about it; None for a line without a meaning.
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


def _why_no_children(option: StreamOption) -> tuple[str, str] | None:
    if re.fullmatch("[1-9][0-9]?", option.text) and int(option.text) <= MOST_CHILDREN:
        return None
    why = f"{mask(option.text)!r} is not a whole number from 1 to {MOST_CHILDREN}"
    return why, "remove the line for that of all"


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
        why_wrong: the error in a line, and its remedy; None = it is valid.
    """

    field: str
    read: Callable[[str], object]
    why_wrong: Callable[[StreamOption], tuple[str, str] | None]


#: Two names of one field: the first one wins.
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
    CHILDREN_KEY: Option("children", int, _why_no_children),
}


def options_of(name: str, options: Iterable[StreamOption]) -> StreamOptions:
    """The options of one stream: its own name wins over globs, an earlier glob over later ones.

    Args:
        options: in file order, each one valid.
    """
    chosen = chosen_options(name, options)
    values: dict[str, Any] = {
        field: OPTIONS[one.option].read(one.text) for field, one in chosen.items()
    }
    return StreamOptions(**values)


def chosen_options(name: str, options: Iterable[StreamOption]) -> dict[str, StreamOption]:
    """The line of one stream that counts for each field of :class:`StreamOptions`."""
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
        "streams to read, separated by commas: ARN, account:name:epoch or name, or the ARN of a"
        " DynamoDB table for its latest stream; needs multiStream = true", own=True))
    selection: StreamSelection | None = None
    options: tuple[StreamOption, ...] = field(default=())
    epoch_unit: str = advanced(word("streamCreationEpochUnit", "auto",
        "creation time in new lease keys; auto = as the table has it, else seconds",
        ("auto", "seconds", "millis"), own=True))
    orphan_position: InitialPosition = read_as(lambda value: InitialPosition(Sentinel(value)),
        Key("orphanedStreamInitialPositionInStream", Kind.ENUM, "LATEST",
            "where new shards start whose stream has leases but is not in `streams`",
            ("LATEST", "TRIM_HORIZON"), own=True))
    former: FormerPolicy = _KEPT
    tells_stream: bool = flag("initializeMessageExtras",
        "name the stream in the child's `initialize` message; multi-stream only",
        default=True, own=True)
    discovery_interval_s: float = advanced(own_millis("streamDiscoveryIntervalMillis", 60_000,
        "mean time between two looks at which streams there are"))
    # fmt: on

    @property
    def traits(self) -> SourceTraits:
        """What distinguishes streams of their service; a rule finds streams of Kinesis."""
        return self.streams[0].traits if self.streams else KINESIS

    def options_of(self, name: str) -> StreamOptions:
        """What holds for one stream only; see :func:`options_of`."""
        return options_of(name, self.options)

    def program_of(self, name: str) -> StreamOption | None:
        """The line that gives a stream a program of its own, if one does."""
        return chosen_options(name, self.options).get("argv")


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
