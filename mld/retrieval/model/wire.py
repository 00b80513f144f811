"""Bodies of GetRecords answers and of pushed events -> batches -> records.

The envelope is read when an answer arrives, its records only when they are delivered: until then
they are bytes, a tenth of what Python objects would take.

Invariant: whatever the bytes are, nothing but ``MalformedData`` comes out of here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from kcl_mld.errors import MalformedData
from kcl_mld.retrieval.model.record import Batch, KinesisRecord
from kcl_mld.streams.model.shard import ChildShard, HashRange


class _HashKeyRange(msgspec.Struct, gc=False, rename="pascal"):
    starting_hash_key: str
    ending_hash_key: str


class _Child(msgspec.Struct, gc=False, rename="pascal"):
    shard_id: str
    parent_shards: list[str]
    hash_key_range: _HashKeyRange


class _Envelope(msgspec.Struct, gc=False, rename="pascal"):
    records: msgspec.Raw
    millis_behind_latest: int | None = None
    child_shards: list[_Child] | None = None
    #: Of a DynamoDB stream, where none was listed for long.
    ended_without_children: bool = False


class _Answer(_Envelope, gc=False, rename="pascal"):
    following: str | None = msgspec.field(default=None, name="NextShardIterator")


class _AnswerWithoutRecords(_Answer, gc=False, rename="pascal", forbid_unknown_fields=True):
    """An answer after its records are cut out: an unknown member may have some, too."""


class _Event(_Envelope, gc=False, rename="pascal"):
    following: str | None = msgspec.field(default=None, name="ContinuationSequenceNumber")


class _EventWithoutRecords(_Event, gc=False, rename="pascal", forbid_unknown_fields=True):
    """As :class:`_AnswerWithoutRecords`."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Form:
    """How one kind of envelope is read.

    Attributes:
        what: for messages.
        following: names the begin of the next one, for messages.
        whole: decodes it with its records.
        remainder: decodes it when they are cut out.
    """

    what: str
    following: str
    whole: msgspec.json.Decoder[Any]
    remainder: msgspec.json.Decoder[Any]


_ANSWER = _Form(
    "a GetRecords answer",
    "a next iterator",
    msgspec.json.Decoder(_Answer),
    msgspec.json.Decoder(_AnswerWithoutRecords),
)
_EVENT = _Form(
    "a SubscribeToShard event",
    "a continuation number",
    msgspec.json.Decoder(_Event),
    msgspec.json.Decoder(_EventWithoutRecords),
)
_RECORDS = msgspec.json.Decoder(list[KinesisRecord])
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_SEQUENCE_FIELD = b'"SequenceNumber"'
#: Where the list of records begins, and its end as seen from within its last record.
_OPENING = re.compile(rb'"Records"\s*:\s*(?=\[\s*\{)')
_CLOSING = re.compile(rb"\}\s*\]")
#: The list begins within this many bytes, after an iterator and some child shards.
_HEAD_BYTES = 8192
_ARRIVAL = re.compile(
    rb'"ApproximateArrivalTimestamp"\s*:\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)'
)
_SEQUENCE_VALUE = re.compile(rb'"SequenceNumber"\s*:\s*"([0-9]+)"')


def read_batch(body: bytes) -> Batch:
    """The batch of one GetRecords answer.

    Args:
        body: JSON text as received; it is kept, not copied.

    Raises:
        MalformedData: not such an answer, or one that contradicts itself: there must be either a
            next iterator or child shards, and every child must name a parent. Ask again with the
            same iterator.

    Source: DataRetrievalUtil.isValidResult, KinesisDataFetcher.getRecords (3.5.1).
    """
    return _batch(_ANSWER, body)


def read_event(body: bytes) -> Batch:
    """The batch of one SubscribeToShardEvent; its continuation number is its ``next_iterator``.

    Args:
        body: JSON text as received; it is kept, not copied.

    Raises:
        MalformedData: as for :func:`read_batch`. Subscribe again behind the last good event.

    Source: FanOutRecordsPublisher.recordsReceived (3.5.1).
    """
    return _batch(_EVENT, body)


def _batch(form: _Form, body: bytes) -> Batch:
    envelope, records, body = _cut(form, body) or _whole(form, body)
    children = tuple(_child(form, child) for child in envelope.child_shards or ())
    is_end = bool(children) or envelope.ended_without_children
    if (envelope.following is None) != is_end:
        raise MalformedData(f"{form.what} must have either {form.following} or child shards")
    return Batch(
        records=records,
        size_bytes=records.nbytes,
        next_iterator=envelope.following,
        millis_behind_latest=envelope.millis_behind_latest,
        child_shards=children,
        last_sequence_number=_last_sequence_number(form, body, records),
    )


def _cut(form: _Form, body: bytes) -> tuple[_Answer | _Event, memoryview, bytes] | None:
    """Envelope and records without a look at the records, which takes as long as their number.

    The list is cut out from its bracket to the one behind the last sequence number, and what is
    left must be an envelope with members that we know, of which none but the list has a sequence
    number. A bracket within a text cannot be mistaken for the end: what is left would begin in the
    middle of that text.

    Returns:
        None when it takes a whole reading: no records, an unknown member, or not such an answer.
    """
    opening = _OPENING.search(body, 0, _HEAD_BYTES)
    last = body.rfind(_SEQUENCE_FIELD)
    closing = _CLOSING.search(body, last) if opening and last > opening.end() else None
    if opening is None or closing is None:
        return None
    start, end = opening.end(), closing.end()
    try:
        envelope = form.remainder.decode(b"%b[]%b" % (body[:start], body[end:]))
    except _UNREADABLE:
        return None
    return envelope, memoryview(body)[start:end], body


def _whole(form: _Form, body: bytes) -> tuple[_Answer | _Event, memoryview, bytes]:
    """Envelope, records and the text they are in, every byte looked at."""
    try:
        envelope = form.whole.decode(body)
    except _UNREADABLE:
        body = _cleaned(form.what, body)
        envelope = _decoded(form.what, form.whole, body)
    return envelope, memoryview(envelope.records), body


def _child(form: _Form, child: _Child) -> ChildShard:
    if not child.parent_shards:
        raise MalformedData(f"child shard {child.shard_id} of {form.what} has no parent")
    keys = child.hash_key_range
    return ChildShard(
        shard_id=child.shard_id,
        parent_shard_ids=tuple(sorted(child.parent_shards)),
        hash_range=HashRange.parse(keys.starting_hash_key, keys.ending_hash_key),
    )


def _last_sequence_number(form: _Form, body: bytes, records: memoryview) -> str | None:
    """Of the last record, found from the back; None when there is no record."""
    if records.nbytes < 64 and not bytes(records).strip(b"[] \t\r\n"):
        return None
    end = len(body)
    while (at := body.rfind(_SEQUENCE_FIELD, 0, end)) >= 0:
        # A partition key may be that very word: then no colon follows, and the search goes on.
        if match := _SEQUENCE_VALUE.match(body, at):
            return match[1].decode()
        end = at
    raise MalformedData(f"the records of {form.what} have no sequence number")


def decode_records(records: memoryview) -> list[KinesisRecord]:
    """The records of a batch, in order.

    Texts that are no texts do not stop a shard: invalid UTF-8 becomes U+FFFD, a lone surrogate
    becomes a question mark (as Java writes it), in a second, slower attempt.

    Raises:
        MalformedData: not a list of records.
    """
    try:
        return _RECORDS.decode(records)
    except _UNREADABLE:
        return _decoded(
            "a list of records", _RECORDS, _cleaned("a list of records", bytes(records))
        )


def _decoded(what: str, decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    try:
        return decoder.decode(text)
    except _UNREADABLE as error:
        raise MalformedData(f"{what} cannot be read: {error}") from error


def _cleaned(what: str, text: bytes) -> bytes:
    """The same JSON in valid UTF-8 without lone surrogates."""
    try:
        parsed: Any = json.loads(text.decode("utf-8", "replace"))
        return json.dumps(parsed, ensure_ascii=False).encode("utf-8", "replace")
    except _UNREADABLE as error:
        raise MalformedData(f"{what} cannot be read: {error}") from error


def first_arrival_s(records: memoryview | None) -> float | None:
    """Epoch seconds at which the first record of a batch arrived; None if it is not given."""
    found = None if records is None else _ARRIVAL.search(records)
    return None if found is None else float(found[1])


def first_sequence_number(records: memoryview | None) -> str | None:
    """Of the first record of a batch; None if there is none."""
    found = None if records is None else _SEQUENCE_VALUE.search(records)
    return None if found is None else found[1].decode()


#: Seconds to milliseconds, by the least that a float can be too large (0.0004 ms today): the nearest
#: float of a time with whole milliseconds may lie just below it, and the rest is cut off.
MS_PER_S = 1000.0000000000002


def arrival_ms(seconds: float | None) -> int | None:
    """Epoch milliseconds of an arrival time in seconds.

    Exact for whole milliseconds of the years 1 to 9999, cut off as in Java for what is finer.

    Raises:
        MalformedData: beyond what a number of milliseconds can be.
    """
    if seconds is None:
        return None
    try:
        return int(seconds * MS_PER_S)
    except (OverflowError, ValueError) as error:
        raise MalformedData(f"arrival time {seconds} is out of range") from error
