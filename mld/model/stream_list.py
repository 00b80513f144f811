"""Which streams a multi-stream worker reads, and what holds for one of them only.

``streams`` lists them: an ARN, ``account:name:epoch`` as it stands in lease keys, or a bare name of
the own account. ``stream.<name>.<option>`` changes an option for one stream, or for all whose names
match a glob. The Java daemon has no such keys: it reads exactly one stream.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.errors import MalformedData
from mld.model.child_command import split_command
from mld.model.findings import Problem, Severity
from mld.model.former_policy import FormerPolicy
from mld.model.masking import mask
from mld.model.sequence import InitialPosition, Sentinel
from mld.model.stream import Stream, StreamArn

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.model.stream_selection import StreamSelection

#: What names of options begin with, before the stream's name.
OPTION_PREFIX = "stream."
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
_FORMS = "write an ARN, account:name:epoch, or the name of a stream of this account"

_LATEST = InitialPosition(Sentinel.LATEST)
_KEPT = FormerPolicy()


@dataclass(frozen=True, slots=True)
class ListedStream:
    """One item of ``streams``; what is None is asked from Kinesis at the start.

    Attributes:
        name: stream name.
        arn: where the item is an ARN.
        account: 12 digits, where the item names one.
        epoch: of ``account:name:epoch``, > 0; lease keys use it as it stands.
    """

    name: str
    arn: StreamArn | None = None
    account: str | None = None
    epoch: int | None = None

    def __str__(self) -> str:
        if self.arn is not None:
            return str(self.arn)
        return self.name if self.epoch is None else f"{self.account}:{self.name}:{self.epoch}"


def may_be(listed: ListedStream, stream: Stream) -> bool:
    """Whether an item of a list may mean a stream: what the item does not say is no difference.

    Args:
        listed: an item as the file has it.
        stream: of a lease.
    """
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
        The streams in their order, and what is wrong; with an error the list must not be used.
    """
    listed: list[ListedStream] = []
    problems: list[Problem] = []
    for item in (part.strip() for part in text.split(",")):
        if not item:
            continue
        try:
            stream = _parse_item(item)
        except MalformedData as error:
            problems.append(Problem(Severity.ERROR, str(error), _FORMS))
            continue
        twin = next((one for one in listed if _is_same(one, stream)), None)
        if twin is not None:
            what = f"{mask(str(stream))} may name the same stream as {mask(str(twin))}"
            problems.append(Problem(Severity.ERROR, what, "keep one of them"))
        listed.append(stream)
    if not listed and not problems:
        problems.append(Problem(Severity.ERROR, "names no stream", _FORMS))
    return tuple(listed), tuple(problems)


def _parse_item(item: str) -> ListedStream:
    if item.startswith("arn:"):
        arn = StreamArn.parse(item)
        _check_name(arn.name)
        return ListedStream(arn.name, arn=arn, account=arn.account)
    if ":" in item:
        stream = Stream.parse_identifier(item)
        _check_name(stream.name)
        return ListedStream(stream.name, account=stream.account, epoch=stream.epoch)
    _check_name(item)
    return ListedStream(item)


def _check_name(name: str) -> None:
    if not _NAME.match(name):
        raise MalformedData(f"{mask(name)!r} is not a valid stream name")


def _is_same(one: ListedStream, other: ListedStream) -> bool:
    """True for one stream in two forms; without an account a name may mean the other one."""
    if one.name != other.name:
        return False
    return one.account == other.account or None in (one.account, other.account)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What holds for some streams only; None = as for all.

    Attributes:
        initial_position: start of their shards without a checkpoint.
        argv: their child program.
        is_pushed: by enhanced fan-out, or polled.
        consumer_arn: of their registered consumer.
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
        text: its value.
        line: of the file.
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


#: Options that a stream may have for itself.
OPTIONS = (
    "executableName",
    "initialPositionInStream",
    "initialPositionInStreamExtended",
    "retrievalMode",
    "consumerArn",
)
#: Values of the option ``retrievalMode``; a stream that has none is read as all are.
_MODES = {"FANOUT": True, "POLLING": False}
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
    why = _why_wrong(found)
    return found, None if why is None else Problem(Severity.ERROR, *why)


def _why_wrong(option: StreamOption) -> tuple[str, str] | None:
    positions = (Sentinel.LATEST, Sentinel.TRIM_HORIZON)
    match option.option:
        case "initialPositionInStream" if option.text not in positions:
            known = ", ".join(positions)
            extended = f"stream.{option.pattern}.initialPositionInStreamExtended"
            return f"{mask(option.text)!r} is not one of {known}", f"for a time write {extended}"
        case "initialPositionInStreamExtended" if not re.fullmatch(r"[0-9]{1,18}", option.text):
            return f"{mask(option.text)!r} is not a number of seconds since 1970", ""
        case "retrievalMode" if option.text.upper() not in _MODES:
            known = ", ".join(_MODES)
            return f"{mask(option.text)!r} is not one of {known}", "remove the line for that of all"
        case "consumerArn":
            return _why_no_consumer(option)
        case _:
            return None


def _why_no_consumer(option: StreamOption) -> tuple[str, str] | None:
    consumer = _CONSUMER.match(option.text)
    if consumer is None:
        form = "write arn:…:stream/<name>/consumer/<consumer>:<time>"
        return f"{mask(option.text)!r} is not the ARN of a consumer", form
    if consumer["name"] != option.pattern:
        return f"a consumer of stream {mask(consumer['name'])}", "name that stream in the key"
    return None


def options_of(name: str, options: Iterable[StreamOption]) -> StreamOptions:
    """What the file says for one stream: its own name wins over globs, an earlier glob over others.

    Args:
        name: of the stream.
        options: in file order, each one valid.
    """
    chosen = _chosen(name, options)
    position, program = chosen.get("position"), chosen.get("program")
    mode, consumer = chosen.get("mode"), chosen.get("consumer")
    return StreamOptions(
        initial_position=None if position is None else _position(position),
        argv=None if program is None else split_command(program.text),
        is_pushed=None if mode is None else _MODES[mode.text.upper()],
        consumer_arn=None if consumer is None else consumer.text,
    )


def _chosen(name: str, options: Iterable[StreamOption]) -> dict[str, StreamOption]:
    """The line that counts of each kind."""
    chosen: dict[str, StreamOption] = {}
    for option in sorted(
        (one for one in options if one.matches(name)), key=lambda one: not one.is_exact
    ):
        chosen.setdefault(_FIELD[option.option], option)
    return chosen


#: Two names of one thing: whichever stands first wins.
_FIELD = {
    "executableName": "program",
    "initialPositionInStream": "position",
    "initialPositionInStreamExtended": "position",
    "retrievalMode": "mode",
    "consumerArn": "consumer",
}


def _position(option: StreamOption) -> InitialPosition:
    if option.option == "initialPositionInStreamExtended":
        return InitialPosition(Sentinel.AT_TIMESTAMP, float(option.text))
    return InitialPosition(Sentinel(option.text))


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamList:
    """The multi-stream part of the configuration.

    Attributes:
        streams: those that the file lists; none only with a rule.
        selection: a rule for more of them, or None.
        options: of single streams, in file order.
        epoch_unit: ``auto``, ``seconds`` or ``millis``: how creation times stand in new lease keys.
        orphan_position: start of shards whose stream is in the table but not in the list.
        former: what becomes of leases whose stream left the list.
        tells_stream: ``initialize`` messages have extra keys that name the stream.
        discovery_interval_s: mean time between two looks at which streams there are, > 0.
    """

    streams: tuple[ListedStream, ...]
    selection: StreamSelection | None = None
    options: tuple[StreamOption, ...] = field(default=())
    epoch_unit: str = "auto"
    orphan_position: InitialPosition = _LATEST
    former: FormerPolicy = _KEPT
    tells_stream: bool = True
    discovery_interval_s: float = 60.0

    def options_of(self, name: str) -> StreamOptions:
        """What holds for one stream only; see :func:`options_of`."""
        return options_of(name, self.options)

    def program_of(self, name: str) -> StreamOption | None:
        """The line that gives a stream a program of its own, if one does."""
        return _chosen(name, self.options).get("program")
