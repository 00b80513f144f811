"""Whether an answer comes whole, within its time, and has what its operation must have.

The time-outs of a connection are for one silence. A service, or something on the way to it, that
sends a byte now and then or a body without an end would hold its caller for ever. So a timer of the
loop ends the connection of a call that takes many times that silence; its thread then fails as if
the service had closed the connection.

botocore gives whatever members came, and leaves out what did not. Where a list or a state is
missing, an empty one or "there is none" would be believed; where a shard has no id, or a tag no key,
the reader would end with a defect's error far from its cause. AWS always sends what is named here;
an answer that lacks it counts as one that never came.

msgspec compares an answer with its shape: 300 rows take it 0.2 ms. What a shape does not name may be
there or not, of any form. The other checks cost nothing for 10 MB.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import zlib
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, Protocol, TypedDict

import msgspec
from botocore import exceptions as boto
from msgspec import Meta
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

from kcl_mld.aws.http_exchange import http_session_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient

#: Silences that one answer may last: with those of Kinesis (30 s) two minutes for 10 MB.
SILENCES = 4
_thread = threading.local()
#: Before the names of operations of DynamoDB Streams, some of which Kinesis has, too.
TABLE_STREAMS = "DynamoDBStreams."
#: Where a page of a list begins, in the request, and where the next one does, in the answer.
_PAGES = (("NextToken", "NextToken"), ("ExclusiveStartKey", "LastEvaluatedKey"))


class Connection(Protocol):
    """Something that is read from: a socket, or an answer of urllib3."""

    def fileno(self) -> int:
        """Of the socket beneath; an error where there is none any more."""


class AnswerLimit:
    """The limit of one call; made and timed by the loop, kept by the thread that calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> None:
        """Time counts from :meth:`running`: a call may wait long for its thread."""
        self.limit_s = limit_s
        self.has_passed = False
        self.was_read = False  #: whether an answer came, to its end or not
        self._loop = loop
        self._lock = threading.Lock()  # guards the two below
        self._read_from: Connection | None = None
        self._is_over = False
        self._began_at: float | None = None
        self._waits = False
        self._timer = loop.call_later(limit_s, self._look)

    def drop(self) -> None:
        """By the loop, when it waits no more; a call that is under way keeps its limit."""
        if self._began_at is None or self._is_over:
            self._timer.cancel()

    def _look(self) -> None:
        began_at = None if self._waits else self._began_at
        left_s = self.limit_s if began_at is None else began_at + self.limit_s - time.monotonic()
        if began_at is None or left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
            return
        with self._lock:
            self.has_passed = not self._is_over
            if self._read_from is not None:
                shut_down(self._read_from)

    # -- in the thread -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While this thread makes the call."""
        _thread.limit, self._began_at = self, time.monotonic()
        try:
            yield
        finally:
            self._is_over, _thread.limit = True, None

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While this thread waits for what it needs to send the request; the limit begins after it."""
        self._waits = True
        try:
            yield
        finally:
            self._began_at = time.monotonic()
            self._waits = False

    def read_from(self, connection: Connection | None) -> None:
        """What the answer comes from; None = nothing more of it is to come."""
        with self._lock:
            self.was_read = connection is None
            self._read_from = connection
            if connection is not None and self.has_passed:
                shut_down(connection)


def waiting() -> contextlib.AbstractContextManager[None]:
    """While this thread waits for something else than the answer to its call, if it makes one."""
    limit: AnswerLimit | None = getattr(_thread, "limit", None)
    return contextlib.nullcontext() if limit is None else limit.waiting()


@contextlib.contextmanager
def limited(connection: Connection) -> Iterator[None]:
    """While the answer to this thread's call is read from a connection."""
    limit: AnswerLimit | None = getattr(_thread, "limit", None)
    if limit is None:
        yield
        return
    limit.read_from(connection)
    try:
        yield
    finally:
        limit.read_from(None)


def limit_answers(client: BaseClient) -> None:
    """Have a client read the bodies of its answers within the limits of their calls."""
    session = http_session_of(client)
    if session is None:
        return

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        """The hook ``before-send``; a stream is left to botocore."""
        return None if request.stream_output else send_limited(session.send, request)

    client.meta.events.register_last("before-send", send)


def send_limited(send: Callable[[Any], Any], request: AWSPreparedRequest) -> AWSResponse:
    """Send a request and read its answer whole, as botocore does, within the limit of the call.

    Args:
        request: no stream.

    Raises:
        BotoCoreError: there was no answer, or not all of it.
    """
    request.stream_output = True
    response: AWSResponse = send(request)
    with limited(response.raw):
        try:
            _ = response.content
        except ReadTimeoutError as error:
            raise boto.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except ProtocolError as error:
            raise boto.ConnectionClosedError(endpoint_url=request.url, error=error) from error
        except (HTTPError, OSError) as error:
            raise boto.HTTPClientError(error=error) from error
    return response


def shut_down(connection: Connection) -> None:
    """Wake the reader of a connection; closing it would not."""
    # An answer that is read to its end may have no connection any more, and no file either.
    with (
        contextlib.suppress(OSError, ValueError, AttributeError),
        socket.socket(fileno=os.dup(connection.fileno())) as twin,
    ):
        twin.shutdown(socket.SHUT_RDWR)


class BrokenAnswer(Exception):
    """An answer that is incomplete, damaged, or not from AWS."""


def check_whole(
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    operation_model: Any = None,
    **_: Any,
) -> None:
    """Refuse a good answer whose body is not what the service sent; a ``before-parse`` hook.

    botocore accepts a body shorter than its Content-Length, and reads a successful answer that is
    no JSON (a proxy's page, a cut body) as one without any members. A table scan would then see no
    lease, and a lost write would look like a done one.

    Raises:
        BrokenAnswer: the length or the checksum differs, or JSON was promised and did not come.
    """
    headers, body = response_dict["headers"], response_dict["body"]
    if response_dict["status_code"] >= 300 or not isinstance(body, bytes):
        return
    if customized_response_dict:  # a more specific hook has checked and removed the body
        return
    length, checksum = headers.get("content-length"), headers.get("x-amz-crc32")
    # As texts: a value that is no number (a proxy may repeat a header) differs, too.
    if length is not None and length.strip() != str(len(body)):
        raise BrokenAnswer(f"{len(body)} of {length} bytes arrived")
    if checksum is not None and checksum.strip() != str(zlib.crc32(body)):
        raise BrokenAnswer("the checksum differs")
    kind = str(headers.get("content-type", "")).lower()
    # Operations that answer nothing (of CloudWatch, of consumers) have an empty body.
    is_due = bool(body) or (operation_model is not None and operation_model.output_shape)
    if is_due and "xml" not in kind and "cbor" not in kind and not _is_object(body):
        raise BrokenAnswer(f"not a JSON object ({kind or 'no content type'})")


def check_page(request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Refuse a page that continues where it began: its reader would never end.

    Raises:
        BrokenAnswer: it does.
    """
    for begins, goes_on in _PAGES:
        place = request.get(begins)
        if place is not None and answer.get(goes_on) == place:
            raise BrokenAnswer(f"the page goes on where it began ({goes_on})")


def _is_object(body: bytes) -> bool:
    """Whether it begins and ends like one; a check whose cost does not depend on the size."""
    return body[:16].lstrip()[:1] == b"{" and body[-16:].rstrip()[-1:] == b"}"


_Text = Annotated[str, Meta(min_length=1)]
#: Decimal digits that a number can be made of; real ones have at most 56.
_DigitsText = Annotated[str, Meta(pattern=r"^[0-9]{1,400}$")]


class _AttributeShape(TypedDict, total=False):
    """A value of DynamoDB, under the name of its type."""

    S: str
    N: str
    B: bytes
    SS: list[str]
    NS: list[str]
    BS: list[bytes]
    BOOL: bool
    NULL: bool
    M: dict[str, _AttributeShape]
    L: list[_AttributeShape]


#: Without projections, which are not used, an item has its key at least.
_ItemShape = Annotated[dict[str, _AttributeShape], Meta(min_length=1)]


class _CapacityShape(TypedDict):
    ReadCapacityUnits: int
    WriteCapacityUnits: int


class _KeyPartShape(TypedDict):
    AttributeName: str
    KeyType: str


class _IndexShape(TypedDict):
    IndexName: str
    IndexStatus: NotRequired[str]


class _TableShape(TypedDict):
    TableStatus: str
    TableSizeBytes: NotRequired[int]
    KeySchema: NotRequired[list[_KeyPartShape]]
    ProvisionedThroughput: NotRequired[_CapacityShape]
    GlobalSecondaryIndexes: NotRequired[list[_IndexShape]]


class _DescribeTableShape(TypedDict):
    Table: _TableShape


class _PageShape(TypedDict):
    Items: list[_ItemShape]
    LastEvaluatedKey: NotRequired[_ItemShape]


class _GetItemShape(TypedDict):
    Item: NotRequired[_ItemShape]


class _UpdateShape(TypedDict):
    Attributes: _ItemShape


class _StreamDescriptionShape(TypedDict):
    StreamARN: _Text
    StreamStatus: _Text


class _DescribeStreamSummaryShape(TypedDict):
    StreamDescriptionSummary: _StreamDescriptionShape


class _HashKeysShape(TypedDict):
    StartingHashKey: _DigitsText
    EndingHashKey: _DigitsText


class _SequenceShape(TypedDict):
    StartingSequenceNumber: _DigitsText
    EndingSequenceNumber: NotRequired[_DigitsText]


class _ShardShape(TypedDict):
    ShardId: _Text
    HashKeyRange: _HashKeysShape
    SequenceNumberRange: _SequenceShape
    ParentShardId: NotRequired[str]
    AdjacentParentShardId: NotRequired[str]


class _ListShardsShape(TypedDict):
    Shards: list[_ShardShape]
    NextToken: NotRequired[str]


class _TableShardShape(TypedDict):
    ShardId: _Text
    SequenceNumberRange: _SequenceShape
    ParentShardId: NotRequired[str]


class _TableStreamShape(TypedDict):
    StreamArn: _Text
    StreamStatus: _Text
    Shards: NotRequired[list[_TableShardShape]]
    LastEvaluatedShardId: NotRequired[str]


class _DescribeStreamShape(TypedDict):
    StreamDescription: _TableStreamShape


class _TableStreamNameShape(TypedDict):
    StreamArn: _Text


class _ListTableStreamsShape(TypedDict):
    Streams: list[_TableStreamNameShape]


class _StreamSummaryShape(TypedDict):
    StreamName: _Text
    StreamStatus: _Text


class _ListStreamsShape(TypedDict):
    StreamNames: list[_Text]
    HasMoreStreams: bool
    StreamSummaries: NotRequired[list[_StreamSummaryShape]]


class _TagShape(TypedDict):
    Key: _Text
    Value: NotRequired[str]


class _ListTagsShape(TypedDict):
    Tags: list[_TagShape]
    HasMoreTags: bool


class _GetShardIteratorShape(TypedDict):
    ShardIterator: _Text


class _ConsumerShape(TypedDict):
    ConsumerARN: _Text
    ConsumerStatus: _Text


class _DescribeStreamConsumerShape(TypedDict):
    ConsumerDescription: _ConsumerShape


class _GetSchemaVersionShape(TypedDict):
    SchemaArn: _Text
    DataFormat: _Text
    SchemaDefinition: _Text


class _GetCallerIdentityShape(TypedDict):
    Account: _Text


_SHAPES: dict[str, Any] = {
    "DescribeTable": _DescribeTableShape,
    "GetItem": _GetItemShape,
    "Scan": _PageShape,
    "Query": _PageShape,
    "DescribeStreamSummary": _DescribeStreamSummaryShape,
    "ListShards": _ListShardsShape,
    "ListStreams": _ListStreamsShape,
    "ListTagsForStream": _ListTagsShape,
    "GetShardIterator": _GetShardIteratorShape,
    "DescribeStreamConsumer": _DescribeStreamConsumerShape,
    "GetSchemaVersion": _GetSchemaVersionShape,
    "GetCallerIdentity": _GetCallerIdentityShape,
    f"{TABLE_STREAMS}DescribeStream": _DescribeStreamShape,
    f"{TABLE_STREAMS}GetShardIterator": _GetShardIteratorShape,
    f"{TABLE_STREAMS}ListStreams": _ListTableStreamsShape,
}

# msgspec resolves a type when it is first used. If two threads do so at the same time, a garbage
# collection meanwhile can crash the process (seen with msgspec 0.22 on Python 3.11.2).
for _shape in (*_SHAPES.values(), _UpdateShape, _ItemShape):
    msgspec.json.Decoder(_shape)


def check_members(operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Refuse a successful answer that lacks a requested member, at its top or in its lists.

    Args:
        operation: API name, e.g. ``DescribeTable``; of DynamoDB Streams with
            :data:`TABLE_STREAMS` before it.

    Raises:
        BrokenAnswer: it does; names the member and where it should be.
    """
    shape = _SHAPES.get(operation)
    # What an update has left is part of its answer if that was asked for; before it there may have
    # been no item.
    if operation == "UpdateItem" and request.get("ReturnValues", "NONE").endswith("NEW"):
        shape = _UpdateShape
    if shape is None:
        return
    try:
        msgspec.convert(answer, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BrokenAnswer(f"the answer is not whole: {error}") from None


def is_item(value: object) -> bool:
    """Whether it is an item as DynamoDB has them, and not an empty one."""
    try:
        msgspec.convert(value, _ItemShape)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True
