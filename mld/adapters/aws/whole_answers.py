"""Whether a good answer arrived whole, leads on, and has what its operation must have, all the way down.

botocore gives whatever members came, and leaves out what did not. Where a list or a state is
missing, an empty one or "there is none" would be believed; where a shard has no id, or a tag no key,
the reader would end with a defect's error far from its cause. AWS always sends what is named here;
an answer that lacks it is somebody else's, or damaged, and counts as one that never came.

msgspec compares an answer with its shape: 300 rows take it 0.2 ms. What a shape does not name may be
there or not, of any form. The other looks cost nothing for 10 MB.
"""

from __future__ import annotations

import zlib
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
from msgspec import Meta

#: Where a page of a list begins, in the request, and where the next one does, in the answer.
_PAGES = (("NextToken", "NextToken"), ("ExclusiveStartKey", "LastEvaluatedKey"))


class BrokenAnswer(Exception):
    """An answer that arrived cut, damaged, or from somebody else than AWS."""


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
    if customized_response_dict:  # a more specific hook has looked already and taken the body away
        return
    length, checksum = headers.get("content-length"), headers.get("x-amz-crc32")
    # As texts: what is no number at all (a proxy may repeat a header) differs, too.
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
    """Refuse a page that says to go on where it began: whoever reads on would never end.

    Raises:
        BrokenAnswer: it does.
    """
    for begins, goes_on in _PAGES:
        place = request.get(begins)
        if place is not None and answer.get(goes_on) == place:
            raise BrokenAnswer(f"the page goes on where it began ({goes_on})")


def _is_object(body: bytes) -> bool:
    """Whether it begins and ends like one; a look that costs nothing for 10 MB."""
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


#: Without projections, which nobody asks for, an item has its key at least.
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
}


def check_members(operation: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
    """Refuse a good answer that lacks what it is asked for, at its top or in what it lists.

    Args:
        operation: API name, e.g. ``DescribeTable``.
        request: that was sent.
        answer: as parsed.

    Raises:
        BrokenAnswer: it does; names the member and where it should be.
    """
    shape = _SHAPES.get(operation)
    # What an update has left is part of its answer if that was asked for.
    if operation == "UpdateItem" and request.get("ReturnValues", "NONE") != "NONE":
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
