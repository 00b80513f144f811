"""The model behind the port that the daemon's services use, for tests and the simulation."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kcl_mld.errors import (
    CredentialsRefused,
    Denied,
    ExpiredIterator,
    InUse,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    ServiceError,
    Throttled,
)
from kcl_mld.local.kinesis.faults import KinesisFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from kcl_mld.aws.ports import Subscription
    from kcl_mld.local.kinesis.fan_out import LocalSubscription
    from kcl_mld.local.kinesis.model import KinesisModel

    #: Called with service, operation and request; may wait or raise an error of ``kcl_mld.errors``.
    Hook = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]

T = TypeVar("T")

_ERRORS: dict[str, type[ServiceError]] = {
    "ResourceNotFoundException": NotFound,
    "ResourceInUseException": InUse,
    "LimitExceededException": LimitExceeded,
    "ProvisionedThroughputExceededException": Throttled,
    "ThrottlingException": Throttled,
    "KMSThrottlingException": Throttled,
    "KMSAccessDeniedException": Denied,
    "ExpiredIteratorException": ExpiredIterator,
    "InvalidArgumentException": InvalidArgument,
    "AccessDeniedException": Denied,
    "ExpiredTokenException": CredentialsRefused,
}


def raise_as_port_error(operation: str, fault: KinesisFault) -> NoReturn:
    """Raise what an adapter would make of the same answer."""
    kind = _ERRORS.get(fault.code, ServiceError)
    raise kind(operation, fault.code, fault.message) from fault


class FakeKinesis:
    """:class:`kcl_mld.aws.ports.Kinesis` over a :class:`KinesisModel`.

    Args:
        model: shared by all workers of a test.
        before: awaited before the effect: raise to lose the request, wait to slow it down.
        after: awaited after the effect, also when the answer is an error: raise to lose the
            answer.
        on_event: awaited before each look for an event of a subscription, as the operation
            ``SubscribeToShardEvent``: wait for silence, raise to break the connection.
    """

    def __init__(
        self,
        model: KinesisModel,
        *,
        before: Hook | None = None,
        after: Hook | None = None,
        on_event: Hook | None = None,
    ) -> None:
        self.model = model
        self.before = before
        self.after = after
        self.on_event = on_event

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamSummary; StreamCreationTimestamp is a datetime, as botocore gives it."""
        answer = await self._call("DescribeStreamSummary", request)
        summary = answer["StreamDescriptionSummary"]
        return {"StreamDescriptionSummary": _with_datetime(summary, "StreamCreationTimestamp")}

    async def list_streams(self, **request: Any) -> dict[str, Any]:
        """ListStreams; creation times of summaries are epoch seconds."""
        return await self._call("ListStreams", request)

    async def list_tags_for_stream(self, **request: Any) -> dict[str, Any]:
        """ListTagsForStream."""
        return await self._call("ListTagsForStream", request)

    async def list_shards(self, **request: Any) -> dict[str, Any]:
        """ListShards; a filter's Timestamp may be a datetime or epoch seconds."""
        if isinstance(shard_filter := request.get("ShardFilter"), dict):
            request = {**request, "ShardFilter": _with_epoch_seconds(shard_filter)}
        return await self._call("ListShards", request)

    async def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        """GetShardIterator; Timestamp may be a datetime or epoch seconds."""
        return await self._call("GetShardIterator", _with_epoch_seconds(request))

    async def get_records(self, **request: Any) -> bytes:
        """GetRecords: the body as the service would send it."""
        return await self._do("GetRecords", request, partial(self.model.body, "GetRecords"))

    async def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """RegisterStreamConsumer; ConsumerCreationTimestamp is a datetime."""
        answer = await self._call("RegisterStreamConsumer", request)
        return {"Consumer": _with_datetime(answer["Consumer"], "ConsumerCreationTimestamp")}

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamConsumer; ConsumerCreationTimestamp is a datetime."""
        answer = await self._call("DescribeStreamConsumer", request)
        described = answer["ConsumerDescription"]
        return {"ConsumerDescription": _with_datetime(described, "ConsumerCreationTimestamp")}

    async def subscribe_to_shard(self, **request: Any) -> Subscription:
        """SubscribeToShard; the Timestamp of the position may be a datetime or epoch seconds."""
        if isinstance(starting := request.get("StartingPosition"), dict):
            request = {**request, "StartingPosition": _with_epoch_seconds(starting)}
        opened = await self._do("SubscribeToShard", request, self.model.subscribe)
        return FakeSubscription(opened, request, self.on_event)

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        return await self._do(operation, request, partial(self.model.call, operation))

    async def _do(
        self, operation: str, request: dict[str, Any], effect: Callable[[dict[str, Any]], T]
    ) -> T:
        if self.before is not None:
            await self.before("kinesis", operation, request)
        answer: T | KinesisFault
        try:
            answer = effect(request)
        except KinesisFault as fault:
            answer = fault
        if self.after is not None:
            await self.after("kinesis", operation, request)
        if isinstance(answer, KinesisFault):
            raise_as_port_error(operation, answer)
        return answer


class FakeSubscription:
    """:class:`kcl_mld.aws.ports.Subscription` over one of the model.

    It waits on the clock of the running loop, and makes no event before it is asked for one.

    Args:
        opened: as the model accepted it.
        request: what was asked for, for the hook.
        on_event: awaited before each look for an event: wait for silence, raise to break the
            connection.
    """

    def __init__(
        self, opened: LocalSubscription, request: Mapping[str, Any], on_event: Hook | None = None
    ) -> None:
        self._opened = opened
        self._request = request
        self._on_event = on_event
        self._pause_s = 0.0
        self._closed = asyncio.Event()
        self._looking: asyncio.Task[bytes | None] | None = None

    async def next_event(self) -> bytes | None:
        """The next event, None at the end and after :meth:`close`."""
        if self._closed.is_set():
            return None
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(_retrieved)
        # A look that its caller no longer awaits goes on: the next call gets what it finds.
        await asyncio.wait({self._looking})
        looking, self._looking = self._looking, None
        return None if self._closed.is_set() else looking.result()

    def close(self) -> None:
        """End it; who waits for an event gets None."""
        self._closed.set()
        if self._looking is not None:
            self._looking.cancel()

    async def _look(self) -> bytes | None:
        while not self._opened.is_over:
            await asyncio.sleep(self._pause_s)
            if self._on_event is not None:
                await self._on_event("kinesis", "SubscribeToShardEvent", self._request)
            try:
                event = self._opened.next_event()
            except KinesisFault as fault:
                raise_as_port_error("SubscribeToShard", fault)
            self._pause_s = self._opened.pause_s
            if event is not None:
                return event
        return None


def _retrieved(looking: asyncio.Task[bytes | None]) -> None:
    """Nobody may come to ask for its error."""
    if not looking.cancelled():
        looking.exception()


def _with_datetime(described: dict[str, Any], name: str) -> dict[str, Any]:
    return {**described, name: datetime.fromtimestamp(described[name], UTC)}


def _with_epoch_seconds(request: dict[str, Any]) -> dict[str, Any]:
    timestamp = request.get("Timestamp")
    if isinstance(timestamp, datetime):
        return {**request, "Timestamp": timestamp.timestamp()}
    return request
