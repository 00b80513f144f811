"""Asks Kinesis for what a list does not say of a stream: its account, its age, whether it is there."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.decide.backoff import backoff_s
from mld.decide.streams.presence import DELETING
from mld.decide.streams.stream_identity import described_stream, resolved_stream
from mld.errors import CredentialsRefused, Denied, LimitExceeded, NotFound, Throttled

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from mld.model.streams.listed_stream import ListedStream
    from mld.model.streams.stream import Stream
    from mld.ports.aws import Kinesis

#: DescribeStreamSummary is limited to 20 a second and account, which a fleet that starts meets.
ATTEMPTS = 6
_FIRST_S = 0.5
_CAP_S = 4.0
_OPERATION = "DescribeStreamSummary"


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
    """From a name, ARN or identifier to a stream."""

    def __init__(
        self,
        kinesis: Kinesis,
        region: str,
        epoch_unit: str,
        identifiers: Callable[[], Iterable[str]],
        rng: random.Random,
    ) -> None:
        """Nothing is asked yet.

        Args:
            kinesis: asked.
            region: of its client.
            epoch_unit: ``streamCreationEpochUnit``.
            identifiers: that of each row of the lease table as last read.
            rng: spreads what was refused together.
        """
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
        summary: dict[str, Any] = (await self._described(stream))["StreamDescriptionSummary"]
        if summary.get("StreamStatus") == DELETING:
            what = f"stream {stream.name} is being deleted"
            raise NotFound(_OPERATION, "ResourceNotFoundException", what)
        return summary

    async def _described(self, stream: Stream) -> dict[str, Any]:
        failures = 0
        while True:
            try:
                return await self._kinesis.describe_stream_summary(**stream.request())
            except (LimitExceeded, Throttled):
                failures += 1
                if failures == ATTEMPTS:
                    raise
                pause_s = backoff_s(failures - 1, self._rng, first_s=_FIRST_S, cap_s=_CAP_S)
                await asyncio.sleep(pause_s)
