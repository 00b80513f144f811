"""The ports ``Kinesis`` and ``Subscription`` by botocore, with records left as bytes.

botocore's parser walks every member of every record, decodes base64 and builds datetimes: 15 to
25 microseconds a record for work that would be undone at once. A ``before-parse`` hook takes the
body away before that; signing, endpoints, credentials and errors stay botocore's.

A subscription has one thread and one connection. The thread reads a frame when the loop has asked
for one, and not before: what the worker does not take stays with the kernel and, when that is full,
with the service. Frames are read one by one: botocore's decoder of frames copies each four times.

Source of the frames: the event stream encoding ``application/vnd.amazon.eventstream``: total
length, length of the headers, CRC32 of these two, headers, payload, CRC32 of all before it; big
endian.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import zlib
from collections import deque
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Self

from botocore import exceptions as boto
from botocore.eventstream import EventStreamHeaderParser, ParserError
from botocore.exceptions import ClientError
from urllib3.exceptions import HTTPError

from kcl_mld.aws.clients import Caller
from kcl_mld.aws.errors import ca_file_of, client_error, not_sent, service_error
from kcl_mld.aws.service_clock import service_clock_of
from kcl_mld.aws.whole_answers import BrokenAnswer, check_whole, shut_down
from kcl_mld.errors import AwsError, ThreadRefused, UnknownOutcome
from kcl_mld.kernel.adapters.calls import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from botocore.client import BaseClient
    from urllib3.response import HTTPResponse

    from kcl_mld.aws.ports import Subscription
    from kcl_mld.kernel.adapters.calls import CallPool

_PRELUDE = struct.Struct(">III")
_CHECKSUM_BYTES = 4
#: More is no frame: the service's limit for a payload is 24 MiB, for headers 128 KiB.
_LARGEST_BYTES = 24 * 2**20 + 128 * 2**10 + 16
_OPERATION = "SubscribeToShard"
_EVENT = "SubscribeToShardEvent"
#: Reported once, when the service has accepted; no event is empty.
_ACCEPTED = b""
#: Amazon sends the first; some emulators the second.
_JSON = ("application/x-amz-json", "application/json")
#: Key of the answer under which the hook leaves the body.
RAW_BODY = "MldRawBody"


class BrokenFrame(Exception):
    """The bytes are no frame, an incomplete one, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of an event stream."""

    headers: Mapping[str, Any]
    payload: bytes


def read_frame(read: Callable[[int], bytes]) -> Frame | None:
    """The next frame.

    Args:
        read: gives as many bytes as asked for; fewer only at the end of the stream.

    Returns:
        None when the stream ended behind a whole frame.

    Raises:
        BrokenFrame: it is cut or damaged. Its length is believed only when its checksum is right.
        botocore.eventstream.ParserError: its headers make no sense.
    """
    prelude = read(_PRELUDE.size)
    if not prelude:
        return None
    if len(prelude) < _PRELUDE.size:
        raise BrokenFrame("the event stream ended within a frame")
    total, headers_bytes, checksum = _PRELUDE.unpack(prelude)
    if zlib.crc32(prelude[:-_CHECKSUM_BYTES]) != checksum:
        raise BrokenFrame("the checksum of a frame's length differs")
    left = total - _PRELUDE.size
    if not headers_bytes + _CHECKSUM_BYTES <= left <= _LARGEST_BYTES:
        raise BrokenFrame(f"a frame cannot have {total} bytes, {headers_bytes} of them headers")
    rest = read(left)
    if len(rest) < left:
        raise BrokenFrame("the event stream ended within a frame")
    content = memoryview(rest)[:-_CHECKSUM_BYTES]
    expected = int.from_bytes(rest[-_CHECKSUM_BYTES:], "big")
    if zlib.crc32(content, zlib.crc32(prelude)) != expected:
        raise BrokenFrame("the checksum of a frame differs")
    headers = EventStreamHeaderParser().parse(bytes(content[:headers_bytes]))
    return Frame(headers, bytes(content[headers_bytes:]))


def next_payload(read: Callable[[int], bytes], operation: str, event_type: str) -> bytes | None:
    """The payload of the next event of a type; other events are passed over.

    Args:
        read: as for :func:`read_frame`.
        event_type: e.g. ``SubscribeToShardEvent``.

    Returns:
        None at the end of the stream.

    Raises:
        AwsError: an exception in the stream.
        BrokenFrame, ParserError: see :func:`read_frame`.
    """
    while (frame := read_frame(read)) is not None:
        headers = frame.headers
        if headers.get(":message-type") != "event":
            code = headers.get(":exception-type") or headers.get(":error-code") or "Unknown"
            text = headers.get(":error-message") or _message(frame.payload)
            error = {"Error": {"Code": str(code), "Message": str(text)}}
            raise service_error(ClientError(error, operation), writes=False)
        if headers.get(":event-type") == event_type:
            return frame.payload
    return None


def _message(payload: bytes) -> str:
    """The message of an exception; its name if the message is unreadable."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        return ""
    return (
        str(fields.get("message") or fields.get("Message") or "")
        if isinstance(fields, dict)
        else ""
    )


#: What reading raises when the stream is cut, silent or damaged. urllib3's and not botocore's: the
#: head of the answer was read long ago.
_BROKEN = (HTTPError, HTTPException, ParserError, BrokenFrame, OSError, ValueError)


class _Accepted(Exception):
    """How the body gets past botocore's parser."""

    def __init__(self, body: HTTPResponse) -> None:
        super().__init__()
        self.body = body


def watch_subscriptions(client: BaseClient) -> None:
    """Prepare a Kinesis client for :class:`ShardSubscription`; once.

    Args:
        client: its read time-out is how long a subscription may be silent.
    """
    client.meta.events.register("before-parse.kinesis.SubscribeToShard", _take_stream)


def _take_stream(response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] < 300:
        raise _Accepted(response_dict["body"])


class ShardSubscription:
    """See the port. Everything but :meth:`_serve` and what it calls belongs to the loop."""

    def __init__(self, client: BaseClient, request: dict[str, Any]) -> None:
        self._client = client
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._received: deque[bytes | AwsError | None] = deque()
        self._is_asked = False
        self._demand = threading.Semaphore(0)
        self._lock = threading.Lock()  # guards the two below
        self._body: HTTPResponse | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, client: BaseClient, request: dict[str, Any]) -> Self:
        """Subscribe; returns when the service has accepted.

        Args:
            client: see :func:`watch_subscriptions`.

        Raises:
            AwsError: it has not.

        Cancellation: the thread closes what it gets and ends, after the time-out of the client at
        the latest.
        """
        subscription = cls(client, request)
        try:
            start_thread(subscription._serve, f"subscription-{request['ShardId']}")
        except ThreadRefused as error:
            raise not_sent(error, _OPERATION) from error
        try:
            await subscription.next_event()
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def next_event(self) -> bytes | None:
        """The next event; see the port."""
        while not self._is_closed:
            if self._received:
                return self._take()
            if not self._is_asked:
                self._is_asked = True
                self._demand.release()
            self._arrived.clear()
            await self._arrived.wait()
        return None

    def close(self) -> None:
        """End it now: a thread that reads is woken by the end of its connection."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._body is not None:
                shut_down(self._body)
        self._received.clear()
        self._demand.release()
        self._arrived.set()

    def _take(self) -> bytes | None:
        """The next item of the thread; the last one stays."""
        item = self._received[0]
        if isinstance(item, bytes):
            self._received.popleft()
            self._is_asked = False
            return item
        if item is None:
            return None
        raise item

    def _receive_item(self, item: bytes | AwsError | None) -> None:
        if not self._is_closed:
            self._received.append(item)
            self._arrived.set()

    # -- in the thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Everything that blocks, until the end of the stream or :meth:`close`."""
        last: AwsError | None = None
        try:
            self._receive()
        except AwsError as error:
            last = error
        except boto.ClientError as error:
            last = service_error(error, writes=False)
        except (boto.BotoCoreError, BrokenAnswer) as error:
            last = client_error(error, _OPERATION, ca_file_of(self._client))
        except _BROKEN as error:
            last = UnknownOutcome(_OPERATION, type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - or the loop would wait for ever
            last = UnknownOutcome(_OPERATION, type(error).__name__, f"unexpected: {error}")
        self._pass_on(last)

    def _receive(self) -> None:
        self._demand.acquire()
        body = self._accepted()
        try:
            with self._lock:
                self._body = body
            self._pass_on(_ACCEPTED)
            while self._is_wanted():
                event = next_payload(body.read, _OPERATION, _EVENT)
                if event is None:
                    return
                self._pass_on(event)
        finally:
            with self._lock:  # the loop must not shut down another one's connection
                self._body = None
                body.close()

    def _accepted(self) -> HTTPResponse:
        """The body of the answer, nothing of it read."""
        try:
            self._client.subscribe_to_shard(**self._request)
        except _Accepted as accepted:
            return accepted.body
        raise UnknownOutcome(_OPERATION, "UnexpectedAnswer", "the answer is not an event stream")

    def _is_wanted(self) -> bool:
        """Wait until the loop asks for an event; False when it asks for no more."""
        if not self._is_closed:
            self._demand.acquire()
        return not self._is_closed

    def _pass_on(self, item: bytes | AwsError | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and all its subscriptions
            self._loop.call_soon_threadsafe(self._receive_item, item)


class BotocoreKinesis:
    """Operations on streams and shards; each raises the errors of ``kcl_mld.errors`` only.

    Args:
        client: a Kinesis client, see :func:`kcl_mld.aws.clients.make_client`; the hook is added to it.
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
        #: Its time.
        self.clock = service_clock_of(client)
        #: Where requests go.
        self.endpoint_url = str(client.meta.endpoint_url)
        client.meta.events.register("before-parse.kinesis.GetRecords", take_body)
        self._control = Caller(client, control)
        self._retrieval = Caller(client, retrieval, ("get_records", "get_shard_iterator"))
        self._subscribing = subscribing or client
        watch_subscriptions(self._subscribing)

    async def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        return await self._control.read("describe_stream_summary", request)

    async def list_shards(self, **request: Any) -> dict[str, Any]:
        return await self._control.read("list_shards", request)

    async def list_streams(self, **request: Any) -> dict[str, Any]:
        return await self._control.read("list_streams", request)

    async def list_tags_for_stream(self, **request: Any) -> dict[str, Any]:
        return await self._control.read("list_tags_for_stream", request)

    async def get_shard_iterator(self, **request: Any) -> dict[str, Any]:
        return await self._retrieval.read("get_shard_iterator", request)

    async def get_records(self, **request: Any) -> bytes:
        """GetRecords: the answer's body as it came, JSON text.

        Raises:
            UnknownOutcome: also for an answer that is not JSON, such as a proxy's page.
        """
        answer = await self._retrieval.read("get_records", request)
        body = answer.get(RAW_BODY)
        if not isinstance(body, bytes):
            raise UnknownOutcome("GetRecords", "UnexpectedContentType", "the answer is not JSON")
        return body

    async def register_stream_consumer(self, **request: Any) -> dict[str, Any]:
        return await self._control.write("register_stream_consumer", request)

    async def describe_stream_consumer(self, **request: Any) -> dict[str, Any]:
        return await self._control.read("describe_stream_consumer", request)

    async def list_stream_consumers(self, **request: Any) -> dict[str, Any]:
        """ListStreamConsumers, one page; of commands only."""
        return await self._control.read("list_stream_consumers", request)

    async def deregister_stream_consumer(self, **request: Any) -> dict[str, Any]:
        """DeregisterStreamConsumer; of commands only."""
        return await self._control.write("deregister_stream_consumer", request)

    async def subscribe_to_shard(self, **request: Any) -> Subscription:
        """SubscribeToShard, in a thread and on a connection of its own."""
        return await ShardSubscription.open(self._subscribing, request)


def take_body(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **more: Any
) -> None:
    """Move the body of a good JSON answer out of the parser's sight, once it is seen whole."""
    check_whole(response_dict, customized_response_dict, **more)
    content_type = str(response_dict["headers"].get("content-type", "")).lower()
    if response_dict["status_code"] < 300 and content_type.startswith(_JSON):
        customized_response_dict[RAW_BODY] = response_dict["body"]
        response_dict["body"] = b"{}"
