"""Which streams a worker reads, and their descriptions from Kinesis.

The list is the configured one, or all streams of the account that match a rule for names and tags.
It does not contain a stream's account and age, nor whether it exists: a request per stream shows
that.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kcl_mld.config.stream import TableStreamArn
from kcl_mld.config.stream_list import ListedStream, listed_of_table
from kcl_mld.errors import (
    CredentialsRefused,
    Denied,
    LimitExceeded,
    MissingStreams,
    NotFound,
    Throttled,
)
from kcl_mld.kernel.pages import page_numbers
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.streams.rules.existence import DELETING
from kcl_mld.streams.rules.stream_identity import described_stream, resolved_stream
from kcl_mld.streams.rules.stream_list import FoundStreams, KnownTags, found, tags_to_ask

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterable

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.stream import Stream
    from kcl_mld.config.stream_list import StreamList
    from kcl_mld.config.stream_selection import StreamSelection
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.streams")

#: Names per answer.
PAGE = 1000
#: ListStreams and ListTagsForStream are limited to five calls a second and account,
#: DescribeStreamSummary to 20; other workers ask, too, and a fleet that starts meets both limits.
ATTEMPTS = 6
_FIRST_S, _CAP_S = 0.5, 4.0
#: Seconds between two requests for tags.
PAUSE_S = 0.25
#: In these states, a stream has no shards to read.
_NOT_READY = frozenset({"CREATING", DELETING})
_OPERATION = "DescribeStreamSummary"


class StreamNames(Protocol):
    """A source of streams; asked at the start and at every refresh of the ``StreamTracker``."""

    async def names(self) -> tuple[ListedStream, ...]:
        """All streams that are to be read now, each once, in a stable order.

        Raises:
            MldError: the list is not known now; the last one stays in force. An answer that is
                incomplete must be an error, not a shorter list: streams that are missing in it
                are given up.
        """
        ...


class StaticNames:
    """The configured list."""

    def __init__(self, streams: tuple[ListedStream, ...]) -> None:
        self._streams = streams

    async def names(self) -> tuple[ListedStream, ...]:
        """All configured streams; they never change."""
        return self._streams


class LatestOfTables:
    """The configured list, in which the ARN of a table stands for its latest stream.

    That is looked up once. An older stream with leases is one that left the list.
    """

    def __init__(
        self, kinesis: Kinesis, streams: tuple[ListedStream, ...], rng: random.Random
    ) -> None:
        self._kinesis = kinesis
        self._streams = streams
        self._rng = rng
        self._latest: dict[ListedStream, ListedStream] = {}

    async def names(self) -> tuple[ListedStream, ...]:
        """All configured streams; they never change.

        Raises:
            MissingStreams: a table has no stream.
            AwsError: the streams of a table could not be read.
        """
        for one in self._streams:
            if one.is_latest and one not in self._latest:
                self._latest[one] = await self._latest_of(one)
        return tuple(dict.fromkeys(self._latest.get(one, one) for one in self._streams))

    async def _latest_of(self, one: ListedStream) -> ListedStream:
        assert isinstance(one.arn, TableStreamArn), "of a table"
        request = {"TableName": one.arn.table}
        answer = await _patiently(self._rng, self._kinesis.list_streams, request)
        found = [TableStreamArn.parse(each["StreamARN"]) for each in _summaries(answer)]
        own = [each for each in found if replace(each, label=one.arn.label) == one.arn]
        if not own:
            why = "the table has no stream, or is not of the account of the credentials"
            raise MissingStreams(
                (str(one),), NotFound("ListStreams", "ResourceNotFoundException", why)
            )
        return listed_of_table(max(own, key=lambda each: each.label))


class DiscoveredNames:
    """A source of streams, see ``StreamNames``: the configured ones, and those that match its rule.

    A worker requests the whole list each time. Tags are cached, and requested again as
    :func:`kcl_mld.streams.rules.stream_list.tags_to_ask` decides.

    Args:
        fixed: always included; a stream that has the name of one of them is not added again.
        interval_s: mean time between two lists.
    """

    def __init__(
        self,
        kinesis: Kinesis,
        fixed: tuple[ListedStream, ...],
        selection: StreamSelection,
        interval_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._kinesis = kinesis
        self._fixed = fixed
        self._selection = selection
        self._interval_s = interval_s
        self._clock = clock
        self._rng = rng
        self._found = FoundStreams({})
        self._tags: dict[str, KnownTags] = {}
        self._logged: object = None

    async def names(self) -> tuple[ListedStream, ...]:
        """The streams of the file first, then those that were found, by name.

        Raises:
            AwsError: the list, or tags that it needs, could not be read; nothing changes.
        """
        listed = await self._listed()
        fixed = {one.name for one in self._fixed}
        chosen = [name for name in listed if self._selection.has_name(name) and name not in fixed]
        if self._selection.tags:
            await self._learn_tags(chosen)
            chosen = [name for name in chosen if self._has_tags(name)]
        now = self._clock.monotonic()
        self._found = found(self._found.seen, listed, chosen, now, self._selection)
        self._tell()
        return (*self._fixed, *map(ListedStream, self._found.names))

    async def _listed(self) -> list[str]:
        names: list[str] = []
        request: dict[str, Any] = {"Limit": PAGE}
        numbers = page_numbers("ListStreams")
        while True:
            next(numbers)
            page = await _patiently(self._rng, self._kinesis.list_streams, request)
            last = page["StreamNames"][-1:]
            states = {one["StreamName"]: one["StreamStatus"] for one in _summaries(page)}
            names += [one for one in page["StreamNames"] if states.get(one) not in _NOT_READY]
            if not page.get("HasMoreStreams"):
                return names
            if not last or last[0] == request.get("ExclusiveStartStreamName"):
                raise Throttled("ListStreams", "IncompleteList", "a page has no names, but no end")
            request = {**request, "ExclusiveStartStreamName": last[0]}

    # -- tags ----------------------------------------------------------------------------------

    async def _learn_tags(self, names: Iterable[str]) -> None:
        names = set(names)
        self._tags = {name: known for name, known in self._tags.items() if name in names}
        now = self._clock.monotonic()
        for name in tags_to_ask(names, self._tags, now, self._interval_s):
            try:
                tags = await self._tags_of(name)
            except NotFound:
                self._tags.pop(name, None)  # deleted since it was listed
                continue
            except (LimitExceeded, Throttled) as error:
                missing = len(names - self._tags.keys())
                log.warning("Tags of %d streams are not known yet: %s", missing, error)
                return
            self._tags[name] = KnownTags(tags, self._clock.monotonic())
            await asyncio.sleep(PAUSE_S)

    async def _tags_of(self, name: str) -> dict[str, str]:
        tags: dict[str, str] = {}
        request: dict[str, Any] = {"StreamName": name}
        numbers = page_numbers("ListTagsForStream")
        while True:
            next(numbers)
            page = await _patiently(self._rng, self._kinesis.list_tags_for_stream, request)
            tags |= {tag["Key"]: tag.get("Value", "") for tag in page["Tags"]}
            if not page.get("HasMoreTags"):
                return tags
            last = [tag["Key"] for tag in page["Tags"][-1:]]
            if not last or last[0] == request.get("ExclusiveStartTagKey"):
                raise Throttled(
                    "ListTagsForStream", "IncompleteList", "a page has no tags, but no end"
                )
            request = {**request, "ExclusiveStartTagKey": last[0]}

    def _has_tags(self, name: str) -> bool:
        known = self._tags.get(name)
        return known is not None and self._selection.has_tags(known.tags)

    def _tell(self) -> None:
        """Log unusual results, once."""
        what = (self._found.too_many, self._found.ignored_empty, not self._found.seen)
        if what == self._logged:
            return
        self._logged = what
        if self._found.ignored_empty:
            log.warning("Kinesis lists no streams at all; keeping those found before")
        elif not self._found.seen:
            log.warning(
                "No stream matches the rule of the file yet; looking again from time to time"
            )
        if self._found.too_many:
            log.warning(
                "More streams match the rule than maxStreams = %d allows; not read: %s",
                self._selection.max_streams,
                ", ".join(self._found.too_many),
            )


def _summaries(page: dict[str, Any]) -> Iterable[dict[str, Any]]:
    summaries: Iterable[dict[str, Any]] = page.get("StreamSummaries", ())
    return summaries


def configured_names(
    kinesis: Kinesis, listed: StreamList, clock: Clock, rng: random.Random
) -> StreamNames:
    """The source of the streams of a file."""
    if listed.selection is None:
        if any(one.is_latest for one in listed.streams):
            return LatestOfTables(kinesis, listed.streams, rng)
        return StaticNames(listed.streams)
    return DiscoveredNames(
        kinesis, listed.streams, listed.selection, listed.discovery_interval_s, clock, rng
    )


@dataclass(frozen=True, slots=True)
class FoundStream:
    """A stream that exists.

    Attributes:
        stream: with everything that lease keys and requests need.
        created: ``StreamCreationTimestamp`` as answered; None where it may not be asked.
    """

    stream: Stream
    created: object


class StreamResolver:
    """From a name, ARN or identifier to a stream.

    Args:
        epoch_unit: ``streamCreationEpochUnit``.
        identifiers: that of each row of the lease table as last read.
    """

    def __init__(
        self,
        kinesis: Kinesis,
        region: str,
        epoch_unit: str,
        identifiers: Callable[[], Iterable[str]],
        rng: random.Random,
    ) -> None:
        self._kinesis = kinesis
        self._region = region
        self._unit = epoch_unit
        self._identifiers = identifiers
        self._rng = rng

    async def resolve(self, listed: ListedStream) -> FoundStream:
        """A stream of the list.

        Raises:
            NotFound: it does not exist, or is being deleted.
            Denied: it may not be asked for, and the list does not say account and epoch.
            AwsError: it is not known.
            MalformedData: the answer makes no sense.
        """
        try:
            summary = await self._summary(described_stream(listed, self._region))
        except CredentialsRefused:
            raise
        except Denied as error:
            if listed.epoch is None:
                raise Denied(
                    error.operation,
                    error.code,
                    f"{error.message}; allow it for stream {listed.name}, whose creation time is a "
                    "part of its lease keys, or write account:name:epoch in streams",
                ) from error
            summary = None
        known = self._identifiers()
        stream = resolved_stream(listed, self._region, summary, known, self._unit)
        return FoundStream(stream, (summary or {}).get("StreamCreationTimestamp"))

    async def created(self, stream: Stream) -> object:
        """Creation time of the stream that has this name now; None where it may not be asked.

        Raises:
            NotFound: there is none, or it is being deleted.
            AwsError: it is not known.
        """
        try:
            return (await self._summary(stream)).get("StreamCreationTimestamp")
        except CredentialsRefused:
            raise
        except Denied:
            return None

    async def _summary(self, stream: Stream) -> dict[str, Any]:
        answer = await _patiently(
            self._rng, self._kinesis.describe_stream_summary, stream.request()
        )
        summary: dict[str, Any] = answer["StreamDescriptionSummary"]
        if summary.get("StreamStatus") == DELETING:
            what = f"stream {stream.name} is being deleted"
            raise NotFound(_OPERATION, "ResourceNotFoundException", what)
        return summary


async def _patiently(
    rng: random.Random, call: Callable[..., Awaitable[dict[str, Any]]], request: dict[str, Any]
) -> dict[str, Any]:
    attempt = 0
    while True:
        try:
            return await call(**request)
        except (LimitExceeded, Throttled):
            attempt += 1
            if attempt == ATTEMPTS:
                raise
            pause_s = backoff_s(attempt - 1, rng, first_s=_FIRST_S, cap_s=_CAP_S)
            await asyncio.sleep(pause_s)
