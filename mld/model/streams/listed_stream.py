"""The items of ``streams``: which stream each of them means, as far as the file says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mld.errors import MalformedData
from mld.model.findings import Problem, Severity
from mld.model.masking import mask
from mld.model.streams.stream import Stream, StreamArn

_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
_FORMS = "write an ARN, account:name:epoch, or the name of a stream of this account"


@dataclass(frozen=True, slots=True)
class ListedStream:
    """One item of ``streams``; what is None is asked from Kinesis at the start.

    Attributes:
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
    """Whether an item of a list may mean a stream: what the item does not say is no difference."""
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
