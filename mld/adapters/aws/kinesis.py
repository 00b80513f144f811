"""The port :class:`mld.ports.aws.Kinesis`, by botocore, with GetRecords answers left as bytes.

botocore's parser walks every member of every record, decodes base64 and builds datetimes: 15 to
25 microseconds a record for work that would be undone at once. A ``before-parse`` hook takes the
body away before that; signing, endpoints, credentials and errors stay botocore's.
"""

from __future__ import annotations

import contextlib
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from mld.adapters.aws.clients import Caller
from mld.adapters.aws.shard_subscription import ShardSubscription, watch_subscriptions
from mld.adapters.aws.whole_answers import check_whole
from mld.errors import UnknownOutcome

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from mld.adapters.calls import CallPool
    from mld.ports.aws import Subscription

#: Amazon sends the first; some emulators the second.
_JSON = ("application/x-amz-json", "application/json")

#: Key of the answer under which the hook leaves the body.
_RAW = "MldRawBody"


#: An answer's date has whole seconds, so of dates that are so near each other the latest is right.
_SAME_S = 2.0


class ServiceDates:
    """The time of the service by the dates of its answers; the clock here may be wrong."""

    def __init__(self) -> None:
        """No answer has come."""
        self._text = ""
        self._ahead_s: float | None = None

    def now_s(self) -> float | None:
        """Epoch seconds, right to about a second; None where no answer had a date."""
        return None if self._ahead_s is None else time.monotonic() + self._ahead_s

    def note(self, response_dict: dict[str, Any], **_: Any) -> None:
        """The hook ``before-parse`` of all operations; called in their threads."""
        text = str(response_dict["headers"].get("date", ""))
        if text == self._text:
            return
        self._text = text
        with contextlib.suppress(ValueError):
            ahead_s = parsedate_to_datetime(text).timestamp() - time.monotonic()
            known_s = self._ahead_s
            is_same = known_s is not None and abs(ahead_s - known_s) < _SAME_S
            self._ahead_s = max(ahead_s, known_s) if is_same and known_s is not None else ahead_s


class BotocoreKinesis:
    """Operations on streams and shards; each raises the errors of ``mld.errors`` only.

    Args:
        client: a Kinesis client, see :func:`mld.adapters.aws.clients.make_client`; the hook is added to it.
        control: pool of everything but records.
        retrieval: pool of GetRecords and GetShardIterator.
        subscribing: a client for subscriptions, whose read time-out is how long one may be silent;
            None = the same.
    """

    def __init__(
        self,
        client: BaseClient,
        control: CallPool,
        retrieval: CallPool,
        subscribing: BaseClient | None = None,
    ) -> None:
        self.dates = ServiceDates()
        for one in {client, subscribing or client}:
            one.meta.events.register("before-parse.kinesis", self.dates.note)
        client.meta.events.register("before-parse.kinesis.GetRecords", _take_body)
        self._control = Caller(client, control)
        self._retrieval = Caller(client, retrieval, ("get_records",))
        self._subscribing = subscribing or client
        watch_subscriptions(self._subscribing)

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamSummary."""
        return await self._control.read("describe_stream_summary", request)

    async def list_shards(self, **request: Any) -> dict[str, Any]:
        """ListShards, one page."""
        return await self._control.read("list_shards", request)

    async def list_streams(self, **request: Any) -> dict[str, Any]:
        """ListStreams, one page."""
        return await self._control.read("list_streams", request)

    async def list_tags_for_stream(self, **request: Any) -> dict[str, Any]:
        """ListTagsForStream, one page."""
        return await self._control.read("list_tags_for_stream", request)

    async def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        """GetShardIterator."""
        return await self._retrieval.read("get_shard_iterator", request)

    async def get_records(self, **request: Any) -> bytes:
        """GetRecords: the answer's body as it came, JSON text.

        Raises:
            UnknownOutcome: besides the usual, an answer that is not JSON (a proxy's page).
        """
        answer = await self._retrieval.read("get_records", request)
        body = answer.get(_RAW)
        if not isinstance(body, bytes):
            raise UnknownOutcome("GetRecords", "UnexpectedContentType", "the answer is not JSON")
        return body

    async def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """RegisterStreamConsumer."""
        return await self._control.write("register_stream_consumer", request)

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """DescribeStreamConsumer."""
        return await self._control.read("describe_stream_consumer", request)

    async def subscribe_to_shard(self, **request: Any) -> Subscription:
        """SubscribeToShard, in a thread and on a connection of its own."""
        return await ShardSubscription.open(self._subscribing, request)


def _take_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **more: Any
) -> None:
    """Move the body of a good JSON answer out of the parser's sight, once it is seen whole."""
    check_whole(response_dict, customized_response_dict, **more)
    content_type = str(response_dict["headers"].get("content-type", "")).lower()
    if response_dict["status_code"] < 300 and content_type.startswith(_JSON):
        customized_response_dict[_RAW] = response_dict["body"]
        response_dict["body"] = b"{}"
