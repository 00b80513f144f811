"""The door of the model: an operation's name and its request in, the answer out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec.json

from kcl_mld.local.kinesis import control, fan_out, records
from kcl_mld.local.kinesis.fan_out import subscribe
from kcl_mld.local.kinesis.faults import KinesisFault
from kcl_mld.local.kinesis.records import put_record, put_records
from kcl_mld.local.kinesis.state import KinesisSettings, KinesisState

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from kcl_mld.local.kinesis.fan_out import LocalSubscription
    from kcl_mld.local.kinesis.stream import LocalStream

__all__ = ["OPERATIONS", "KinesisModel", "KinesisSettings"]

_OPERATIONS: dict[str, Callable[[KinesisState, Mapping[str, Any]], dict[str, Any]]] = {
    "AddTagsToStream": control.add_tags_to_stream,
    "CreateStream": control.create_stream,
    "DecreaseStreamRetentionPeriod": control.change_retention,
    "DeleteStream": control.delete_stream,
    "DeregisterStreamConsumer": fan_out.deregister_stream_consumer,
    "DescribeLimits": control.describe_limits,
    "DescribeStream": control.describe_stream,
    "DescribeStreamConsumer": fan_out.describe_stream_consumer,
    "DescribeStreamSummary": control.describe_stream_summary,
    "GetShardIterator": records.get_shard_iterator,
    "IncreaseStreamRetentionPeriod": control.change_retention,
    "ListShards": control.list_shards,
    "ListStreamConsumers": fan_out.list_stream_consumers,
    "ListStreams": control.list_streams,
    "ListTagsForStream": control.list_tags_for_stream,
    "MergeShards": control.merge_shards,
    "PutRecord": put_record,
    "PutRecords": put_records,
    "RegisterStreamConsumer": fan_out.register_stream_consumer,
    "RemoveTagsFromStream": control.remove_tags_from_stream,
    "SplitShard": control.split_shard,
    "UpdateShardCount": control.update_shard_count,
}
#: Everything that is served, by its name in the API.
OPERATIONS = frozenset({*_OPERATIONS, "GetRecords", "SubscribeToShard"})


class KinesisModel:
    """Kinesis Data Streams of one account in one region.

    Requests and answers are those of the JSON protocol: names as in the API reference, blobs as
    base64 text, times as epoch seconds. The same calls at the same times give the same answers.

    Args:
        clock: epoch seconds; may not go back by more than the caller can bear (arrival times in a
            shard never do).
        rng: source of chance for :attr:`KinesisSettings.spare_answer_probability`.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        rng: random.Random,
        settings: KinesisSettings | None = None,
    ) -> None:
        self._state = KinesisState(clock, rng, settings or KinesisSettings())
        #: Called before each operation with its name and request. It may raise a
        #: :class:`KinesisFault`, which becomes the answer.
        self.before: Callable[[str, Mapping[str, Any]], None] | None = None

    @property
    def settings(self) -> KinesisSettings:
        """The behavior now; assign a new one to change it."""
        return self._state.settings

    @settings.setter
    def settings(self, settings: KinesisSettings) -> None:
        self._state.settings = settings

    def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer an operation.

        Raises:
            KinesisFault: the service's error; nothing was changed.
        """
        if operation == "GetRecords":
            answer: dict[str, Any] = msgspec.json.decode(self.body(operation, request))
            return answer
        self._begin(operation, request)
        handler = _OPERATIONS.get(operation)
        if handler is None:
            raise KinesisFault("UnknownOperationException", f"{operation} is not served here.")
        return handler(self._state, request)

    def body(self, operation: str, request: Mapping[str, Any]) -> bytes:
        """As :meth:`call`, with the answer as JSON text; empty where the service sends nothing."""
        if operation == "GetRecords":
            self._begin(operation, request)
            return records.get_records_body(self._state, request)
        answer = self.call(operation, request)
        return msgspec.json.encode(answer) if answer else b""

    def subscribe(self, request: Mapping[str, Any]) -> LocalSubscription:
        """Answer SubscribeToShard; its events are asked for.

        Raises:
            KinesisFault: the service's error; nothing was changed.
        """
        self._begin("SubscribeToShard", request)
        return subscribe(self._state, request)

    def adopt_consumer(self, arn: str) -> None:
        """Have a consumer of that ARN, which a configuration names.

        Raises:
            KinesisFault: it can have none: the stream is not here.
        """
        fan_out.adopt_consumer(self._state, arn)

    def stream(self, name: str) -> LocalStream:
        """The stream itself, for judges and tests: everything due is done first."""
        return self._state.named(name, active=False)

    def _begin(self, operation: str, request: Mapping[str, Any]) -> None:
        if self.before is not None:
            self.before(operation, request)
