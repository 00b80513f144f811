"""The model behind the port that the daemon's services use, for tests and the simulation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn

from mld.errors import (
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
from mld.local.kinesis.faults import KinesisFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mld.local.kinesis.model import KinesisModel
    from mld.ports.aws import Subscription

    #: Called with service, operation and request; may wait or raise an error of ``mld.errors``.
    Hook = Callable[[str, str, Mapping[str, Any]], Awaitable[None]]

_ERRORS: dict[str, type[ServiceError]] = {
    "ResourceNotFoundException": NotFound,
    "ResourceInUseException": InUse,
    "LimitExceededException": LimitExceeded,
    "ProvisionedThroughputExceededException": Throttled,
    "ThrottlingException": Throttled,
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
    """:class:`mld.ports.aws.Kinesis` over a :class:`KinesisModel`.

    Args:
        model: shared by all workers of a test.
        before: awaited before the effect: raise to lose the request, wait to slow it down.
        after: awaited after the effect, also when the answer is an error: raise to lose the
            answer.
    """

    def __init__(
        self, model: KinesisModel, *, before: Hook | None = None, after: Hook | None = None
    ) -> None:
        self.model = model
        self.before = before
        self.after = after

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamSummary; StreamCreationTimestamp is a datetime, as botocore gives it."""
        answer = await self._call("DescribeStreamSummary", request)
        summary = answer["StreamDescriptionSummary"]
        created = datetime.fromtimestamp(summary["StreamCreationTimestamp"], UTC)
        return {"StreamDescriptionSummary": {**summary, "StreamCreationTimestamp": created}}

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
        if self.before is not None:
            await self.before("kinesis", "GetRecords", request)
        try:
            body: bytes | KinesisFault = self.model.body("GetRecords", request)
        except KinesisFault as fault:
            body = fault
        if self.after is not None:
            await self.after("kinesis", "GetRecords", request)
        if isinstance(body, KinesisFault):
            raise_as_port_error("GetRecords", body)
        return body

    async def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """RegisterStreamConsumer."""
        return await self._call("RegisterStreamConsumer", request)

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamConsumer."""
        return await self._call("DescribeStreamConsumer", request)

    async def subscribe_to_shard(self, **request: Any) -> Subscription:
        """SubscribeToShard."""
        raise NotImplementedError

    async def _call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        if self.before is not None:
            await self.before("kinesis", operation, request)
        try:
            answer: dict[str, Any] | KinesisFault = self.model.call(operation, request)
        except KinesisFault as fault:
            answer = fault
        if self.after is not None:
            await self.after("kinesis", operation, request)
        if isinstance(answer, KinesisFault):
            raise_as_port_error(operation, answer)
        return answer


def _with_epoch_seconds(request: dict[str, Any]) -> dict[str, Any]:
    timestamp = request.get("Timestamp")
    if isinstance(timestamp, datetime):
        return {**request, "Timestamp": timestamp.timestamp()}
    return request
