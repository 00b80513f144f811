"""The port ``Kinesis`` by DynamoDB Streams: its answers have the form of Kinesis' answers.

What Kinesis says in one answer takes several calls here. A closed shard does not name its children,
and they may be listed seconds after its last record: GetRecords answers without records until they
are, or until it is known that none comes. So an iterator of ours says more than the service's: the
shard, what is to be left out, and whether only the children are missing.

Source: AmazonDynamoDBStreamsAdapterClient, DynamoDBStreamsDataFetcher
(dynamodb-streams-kinesis-adapter 2.3.0).
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

from kcl_mld.aws.clients import Caller
from kcl_mld.aws.kinesis import RAW_BODY, take_body
from kcl_mld.aws.rules.change_record import kinesis_answer, read_changes
from kcl_mld.aws.rules.shard_lineage import asks_again, child_shards, children_of, listed_shards
from kcl_mld.aws.service_clock import service_clock_of
from kcl_mld.config.stream import DYNAMODB_STREAMS, TableStreamArn
from kcl_mld.errors import (
    AwsError,
    Denied,
    InvalidArgument,
    LimitExceeded,
    MalformedData,
    ServiceError,
    Throttled,
    UnknownOutcome,
)
from kcl_mld.kernel.pages import page_numbers

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from botocore.client import BaseClient

    from kcl_mld.aws.ports import Subscription
    from kcl_mld.kernel.adapters.calls import CallPool

#: DescribeStream allows ten calls a second and stream, which a fleet shares.
PAGE_PAUSE_S = 0.1
#: Before a page that was throttled is asked for again.
PAGE_PAUSES_S = (0.2, 0.4, 0.8)
#: More is refused.
MOST_RECORDS = 1000
#: Records are kept for 24 hours, always.
RETENTION_HOURS = 24
_REFUSED = "ValidationException"
_AT_TIMESTAMP, _CHILD_SHARDS = "AT_TIMESTAMP", "CHILD_SHARDS"
#: States as Kinesis names them; the others are of streams that are disabled, which Kinesis lacks.
_STATUS = {"ENABLED": "ACTIVE", "ENABLING": "CREATING"}
#: Answers of this size are converted in a thread.
_OFFLOAD_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class _Iterator:
    """What our iterators are made of.

    Attributes:
        since_ms: epoch milliseconds; changes before it are left out. None = all are passed on.
        ended_at_s: when the end of the shard was met; None = it was not. Likewise ``asked_at_s``,
            when its children were asked for the last time. Both by the clock of the process.
        inner: the service's; empty at the end of the shard.
    """

    shard_id: str
    since_ms: int | None = None
    ended_at_s: float | None = None
    asked_at_s: float | None = None
    inner: str = ""

    def __str__(self) -> str:
        fields = (self.shard_id, self.since_ms, self.ended_at_s, self.asked_at_s)
        return json.dumps([*fields, self.inner], separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one that was made here.

        Raises:
            InvalidArgument: it was not.
        """
        try:
            return cls(*json.loads(text))
        except (ValueError, TypeError) as error:
            raise InvalidArgument("GetRecords", _REFUSED, f"no iterator: {text:.60}") from error


class BotocoreDynamoDbStreams:
    """Operations on the stream of a table; each raises the errors of ``kcl_mld.errors`` only.

    Requests name the stream by ``StreamARN``; ``StreamName`` is for others to read.

    Args:
        client: a client of ``dynamodbstreams``, see :func:`kcl_mld.aws.clients.make_client`; a hook is
            added to it.
        control: pool of everything but records.
        retrieval: pool of GetRecords and GetShardIterator.
        patience_s: a shard that was read to its end waits so long for the listing of a child.
        monotonic: clock of the process, in seconds.
    """

    def __init__(
        self,
        client: BaseClient,
        control: CallPool,
        retrieval: CallPool,
        patience_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        #: Its time.
        self.clock = service_clock_of(client)
        #: Where requests go.
        self.endpoint_url = str(client.meta.endpoint_url)
        client.meta.events.register("before-parse.dynamodb-streams.GetRecords", take_body)
        self._control = Caller(client, control)
        self._retrieval = Caller(client, retrieval)
        self._pool = retrieval
        self._patience_s = patience_s
        self._monotonic = monotonic
        #: botocore that is older than a member of a request does not know it.
        self._filters = _knows(client, "DescribeStream", "ShardFilter")
        self._takes_time = _knows(client, "GetShardIterator", "Timestamp")

    # -- shards ------------------------------------------------------------------------------------

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamSummary; a stream that is disabled stays readable until it is gone.

        Then ``NewerStreamARN`` is that of its table's next stream, if one is found, and
        ``NewerStreamDenied`` says whether the policy forbids ListStreams.
        """
        stream = await self._page(request["StreamARN"], Limit=1)
        status = _STATUS.get(stream["StreamStatus"], stream["StreamStatus"])
        summary = {
            "StreamName": request.get("StreamName"),
            "StreamARN": stream["StreamArn"],
            "StreamStatus": status,
            "StreamCreationTimestamp": stream.get("CreationRequestDateTime"),
            "RetentionPeriodHours": RETENTION_HOURS,
        }
        if status not in _STATUS.values():
            summary |= await self._newer(request["StreamARN"])
        return {"StreamDescriptionSummary": summary}

    async def _newer(self, arn: str) -> dict[str, Any]:
        own = TableStreamArn.parse(arn)
        try:
            listed = await self._streams_of(own.table)
        except (AwsError, MalformedData) as error:
            return {"NewerStreamARN": None, "NewerStreamDenied": isinstance(error, Denied)}
        newest = max(listed, key=lambda one: one.label, default=own)
        newer = str(newest) if newest.label > own.label else None
        return {"NewerStreamARN": newer, "NewerStreamDenied": False}

    async def list_streams(self, **request: Any) -> dict[str, Any]:
        """ListStreams of the table ``TableName``; refused without one."""
        if "TableName" not in request:
            _refuse("ListStreams", request)
        listed = await self._streams_of(request["TableName"])
        summaries = [{"StreamName": one.name, "StreamARN": str(one)} for one in listed]
        names = [one.name for one in listed]
        return {"StreamNames": names, "StreamSummaries": summaries, "HasMoreStreams": False}

    async def _streams_of(self, table: str) -> list[TableStreamArn]:
        answer = await _mapped(self._control.read("list_streams", {"TableName": table}))
        return [TableStreamArn.parse(one["StreamArn"]) for one in answer["Streams"]]

    async def list_shards(self, **request: Any) -> dict[str, Any]:
        """ListShards in one answer.

        Args:
            request: with ``ShardFilter`` of the type ``CHILD_SHARDS``, which Kinesis does not have,
                only the children of one shard are listed.
        """
        only = request.get("ShardFilter", {})
        if only.get("Type") == _CHILD_SHARDS:
            _, entries = await self._children(request["StreamARN"], only["ShardId"])
        else:
            _, entries = await self._stream(request["StreamARN"])
        return {"Shards": listed_shards(entries)}

    async def _stream(self, arn: str, **shard_filter: Any) -> tuple[str, list[dict[str, Any]]]:
        """Status of a stream and all entries of its pages."""
        entries: list[dict[str, Any]] = []
        place: dict[str, Any] = {}
        numbers = page_numbers("DescribeStream")
        while True:
            next(numbers)
            stream = await self._page(arn, **shard_filter, **place)
            entries += stream.get("Shards", ())
            last = stream.get("LastEvaluatedShardId")
            if not last:
                return str(stream["StreamStatus"]), entries
            if last == place.get("ExclusiveStartShardId"):
                why = "the page goes on where it began (LastEvaluatedShardId)"
                raise UnknownOutcome("DescribeStream", "BrokenAnswer", why)
            place = {"ExclusiveStartShardId": last}
            await asyncio.sleep(PAGE_PAUSE_S)

    async def _page(self, arn: str, **request: Any) -> dict[str, Any]:
        request["StreamArn"] = arn
        for pause_s in PAGE_PAUSES_S:  # a list of many pages is not begun again for each refusal
            try:
                return await self._described(request)
            except Throttled:
                await asyncio.sleep(pause_s)
        return await self._described(request)

    async def _described(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = await _mapped(self._control.read("describe_stream", request))
        stream: dict[str, Any] = answer["StreamDescription"]
        return stream

    async def _children(self, arn: str, shard_id: str) -> tuple[str, list[dict[str, Any]]]:
        """Status of a stream, and the listed children of a shard."""
        if self._filters:
            only = {"Type": _CHILD_SHARDS, "ShardId": shard_id}
            try:
                status, entries = await self._stream(arn, ShardFilter=only)
            except InvalidArgument:
                self._filters = False  # a server that does not know it
            else:
                return status, children_of(shard_id, entries)
        status, entries = await self._stream(arn)
        return status, children_of(shard_id, entries)

    # -- records -----------------------------------------------------------------------------------

    async def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        """GetShardIterator; a time that the service does not take is looked for among the records."""
        asked = {
            "StreamArn": request["StreamARN"],
            "ShardId": request["ShardId"],
            "ShardIteratorType": request["ShardIteratorType"],
        }
        if "StartingSequenceNumber" in request:
            number = request["StartingSequenceNumber"]
            asked["SequenceNumber"] = number.zfill(DYNAMODB_STREAMS.least_digits)
        found = _Iterator(request["ShardId"])
        if asked["ShardIteratorType"] == _AT_TIMESTAMP:
            answer, found = await self._at_time(asked, request["Timestamp"], found)
        else:
            answer = await self._iterator(asked)
        return {"ShardIterator": str(replace(found, inner=answer["ShardIterator"]))}

    async def _iterator(self, asked: dict[str, Any]) -> dict[str, Any]:
        return await _mapped(self._retrieval.read("get_shard_iterator", asked))

    async def _at_time(
        self, asked: dict[str, Any], time_s: float, found: _Iterator
    ) -> tuple[dict[str, Any], _Iterator]:
        time_s = math.floor(time_s)  # as the times of records are
        if self._takes_time:
            try:
                return await self._iterator({**asked, "Timestamp": time_s}), found
            except InvalidArgument:  # unknown to the server, or a time that is yet to come
                pass
        answer = await self._iterator({**asked, "ShardIteratorType": "TRIM_HORIZON"})
        return answer, replace(found, since_ms=time_s * 1000)

    async def get_records(self, **request: Any) -> bytes:
        """GetRecords: an answer of Kinesis, JSON text.

        Raises:
            MalformedData: besides the usual, the answer can't be read.
        """
        iterator = _Iterator.parse(request["ShardIterator"])
        if iterator.ended_at_s is not None:
            return await self._end(request["StreamARN"], iterator)
        asked = {
            "ShardIterator": iterator.inner,
            "Limit": min(MOST_RECORDS, request.get("Limit", MOST_RECORDS)),
        }
        answer = await _mapped(self._retrieval.read("get_records", asked))
        body = answer.get(RAW_BODY)
        if not isinstance(body, bytes):
            raise MalformedData("a GetRecords answer is not JSON")
        if len(body) < _OFFLOAD_BYTES:
            return self._converted(iterator, body)
        return await self._pool.run(self._converted, iterator, body)

    def _converted(self, iterator: _Iterator, body: bytes) -> bytes:
        page = read_changes(body, iterator.since_ms)
        if page.following is None:
            now = self._monotonic()
            following = replace(iterator, ended_at_s=now, asked_at_s=0.0, inner="")
        else:
            following = replace(iterator, inner=page.following)
        now_s = self.clock.now_s()
        behind_ms = None
        if page.last_ms is not None and now_s is not None:
            behind_ms = max(0, int(now_s * 1000) - page.last_ms)
        return kinesis_answer(page.records, str(following), behind_ms)

    async def _end(self, arn: str, iterator: _Iterator) -> bytes:
        """The children of a shard that was read to its end, as soon as one is listed."""
        now, ended_at_s = self._monotonic(), iterator.ended_at_s or 0.0
        waited_s = now - ended_at_s
        if not asks_again(waited_s, now - (iterator.asked_at_s or 0.0)):
            return kinesis_answer((), str(iterator), None)
        status, children = await self._children(arn, iterator.shard_id)
        if children:
            named = child_shards(iterator.shard_id, children)
            text = b',"ChildShards":%b' % json.dumps(named).encode()
            return kinesis_answer((), None, None, text)
        if status == "DISABLED" or waited_s >= self._patience_s:
            return kinesis_answer((), None, None, b',"EndedWithoutChildren":true')
        return kinesis_answer((), str(replace(iterator, asked_at_s=now)), None)

    # -- what DynamoDB Streams does not have -------------------------------------------------------

    async def list_tags_for_stream(self, **request: Any) -> dict[str, Any]:
        """Refused: streams of tables have no tags."""
        _refuse("ListTagsForStream", request)

    async def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """Refused, as all of fan-out."""
        _refuse("RegisterStreamConsumer", request)

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """Refused, as all of fan-out."""
        _refuse("DescribeStreamConsumer", request)

    async def list_stream_consumers(self, **request: Any) -> dict[str, Any]:
        """Refused, as all of fan-out."""
        _refuse("ListStreamConsumers", request)

    async def deregister_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """Refused, as all of fan-out."""
        _refuse("DeregisterStreamConsumer", request)

    async def subscribe_to_shard(self, **request: Any) -> Subscription:
        """Refused, as all of fan-out."""
        _refuse("SubscribeToShard", request)


def _refuse(operation: str, request: dict[str, Any]) -> NoReturn:
    what = request.get("StreamARN", "")
    why = f"DynamoDB Streams has no such operation: {what or 'no stream is named'}"
    raise ServiceError(operation, "UnsupportedOperation", why)


def _knows(client: BaseClient, operation: str, member: str) -> bool:
    """Whether this botocore knows a member of a request."""
    shape = client.meta.service_model.operation_model(operation).input_shape
    return shape is not None and member in shape.members


async def _mapped(call: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The answer of a call; its errors as Kinesis' operations have them."""
    try:
        return await call
    except LimitExceeded as error:
        raise Throttled(error.operation, error.code, error.message) from error
    except AwsError as error:
        if error.code != _REFUSED:
            raise
        raise InvalidArgument(error.operation, error.code, error.message) from error
