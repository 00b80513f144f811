"""Which streams a multi-stream worker reads, and what becomes of leases of former ones.

``streams`` lists them: an ARN, ``account:name:epoch`` as it stands in lease keys, or a bare name of
the own account; or the file gives a rule for the streams of the account
(:mod:`~kcl_mld.config.stream_selection`). The Java daemon has no such keys: it reads exactly one
stream.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from kcl_mld.config.findings import Problem, Severity
from kcl_mld.config.keys import (
    Key,
    Kind,
    advanced,
    by_rule,
    flag,
    named,
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
from kcl_mld.config.stream_options import chosen_options, options_of
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.masking import mask
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from kcl_mld.config.stream import SourceTraits
    from kcl_mld.config.stream_options import StreamOption, StreamOptions
    from kcl_mld.config.stream_selection import StreamSelection

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
_FORMS = "write an ARN, account:name:epoch, or the name of a stream of this account"
STRATEGY_KEY = "formerStreamsLeasesDeletionStrategy"
WAIT_KEY = "formerStreamsLeasesDeletionWaitMillis"
#: The property with the streams whose leases are deleted.
NAMED_KEY = "formerStreamsForLeaseCleanup"


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
