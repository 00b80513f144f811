"""Answers of DynamoDB Streams -> answers of Kinesis; changes -> the data that a child gets.

The data of a record is the JSON text that the adapter's 1.x daemon passes on: compact, its members
in a fixed order, without those that the change does not have. Images are copied as they came and
never parsed. Members that are not known stand behind the known ones.

Source: RecordObjectMapper, RecordAdapter (dynamodb-streams-kinesis-adapter 1.6.1), whose output was
recorded.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from kcl_mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Members of a record and of its change, in the order in which they are written.
_RECORD = ("eventID", "eventName", "eventVersion", "eventSource", "awsRegion")
_CHANGE, _IDENTITY = "dynamodb", "userIdentity"
_TIME, _SEQUENCE = "ApproximateCreationDateTime", "SequenceNumber"
_CHANGE_MEMBERS = (
    *("Keys", "NewImage", "OldImage"),
    *(_SEQUENCE, "SizeBytes", "StreamViewType"),
)
#: As the wire has them, and as the data has them.
_IDENTITY_NAMES = {"PrincipalId": "principalId", "Type": "type"}


class _ChangesPage(msgspec.Struct, gc=False):
    records: list[dict[str, msgspec.Raw]] = msgspec.field(name="Records", default_factory=list)
    following: str | None = msgspec.field(name="NextShardIterator", default=None)


_PAGE = msgspec.json.Decoder(_ChangesPage)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class ChangePage(msgspec.Struct, gc=False):
    """One GetRecords answer.

    Attributes:
        records: each as Kinesis writes one, JSON text.
        following: the next iterator; None at the end of a closed shard.
        last_ms: epoch milliseconds of the last change; None without one.
    """

    records: list[bytes]
    following: str | None
    last_ms: int | None


def read_changes(body: bytes, since_ms: int | None = None) -> ChangePage:
    """Read a GetRecords answer.

    Args:
        body: JSON text as received.
        since_ms: epoch milliseconds; changes before it are left out.

    Raises:
        MalformedData: it is no such answer, or a change has no sequence number.
    """
    try:
        page = _PAGE.decode(body)
        records, last_ms = [], None
        for record in page.records:
            change = _MEMBERS.decode(record[_CHANGE])
            at_ms = _milliseconds(change.get(_TIME))
            last_ms = at_ms if last_ms is None or at_ms is not None else last_ms
            if since_ms is None or at_ms is None or at_ms >= since_ms:
                records.append(_kinesis_record(record, change, at_ms))
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        raise MalformedData(f"a GetRecords answer cannot be read: {error}") from error
    return ChangePage(records, page.following, last_ms)


def _kinesis_record(
    record: Mapping[str, msgspec.Raw], change: Mapping[str, msgspec.Raw], at_ms: int | None
) -> bytes:
    number = bytes(change[_SEQUENCE])
    data = base64.b64encode(change_data(record, change, at_ms))
    arrived = b""
    if at_ms is not None:
        arrived = b',"ApproximateArrivalTimestamp":%d.%03d' % divmod(at_ms, 1000)
    return b'{"SequenceNumber":%b,"PartitionKey":%b,"Data":"%b"%b}' % (
        number,
        number,
        data,
        arrived,
    )


def change_data(
    record: Mapping[str, msgspec.Raw], change: Mapping[str, msgspec.Raw], at_ms: int | None
) -> bytes:
    """The data of a record, JSON text.

    Args:
        record: its members as they came.
        change: those of its member ``dynamodb``.
        at_ms: time of the change, epoch milliseconds; None = it has none.
    """
    inner = [] if at_ms is None else [(_TIME, b"%d" % at_ms)]
    inner += _ordered(change, _CHANGE_MEMBERS, {_TIME})
    outer = _ordered(record, _RECORD, {_CHANGE, _IDENTITY})
    at = sum(name in record for name in _RECORD)
    outer.insert(at, (_CHANGE, _object(inner)))
    identity = record.get(_IDENTITY)
    if identity is not None and bytes(identity) != b"null":
        members = _MEMBERS.decode(identity).items()
        renamed = [(_IDENTITY_NAMES.get(name, name), bytes(value)) for name, value in members]
        outer.insert(at + 1, (_IDENTITY, _object(renamed)))
    return _object(outer)


def _ordered(
    members: Mapping[str, msgspec.Raw], first: tuple[str, ...], left_out: set[str]
) -> list[tuple[str, bytes]]:
    known = [name for name in first if name in members]
    others = [name for name in members if name not in first and name not in left_out]
    return [(name, bytes(members[name])) for name in (*known, *others)]


def _object(members: Iterable[tuple[str, bytes]]) -> bytes:
    written = [b"%b:%b" % (json.dumps(name).encode(), value) for name, value in members]
    return b"{%b}" % b",".join(written)


def _milliseconds(seconds: msgspec.Raw | None) -> int | None:
    """Epoch milliseconds of a number of seconds as it stands in the answer, cut off.

    Raises:
        ValueError: it is no number.
    """
    if seconds is None:
        return None
    try:
        found = int(Decimal(bytes(seconds).decode()) * 1000)
    except ArithmeticError as error:
        raise ValueError(f"{seconds!r} is not a time") from error
    return found


def kinesis_answer(
    records: Iterable[bytes], following: str | None, behind_ms: int | None, children: bytes = b""
) -> bytes:
    """A GetRecords answer of Kinesis.

    Args:
        following: the next iterator; None at the end of a shard.
        behind_ms: ``MillisBehindLatest``; None = not known.
        children: the members that say how the shard goes on, JSON text that begins with a comma.
    """
    behind = b"null" if behind_ms is None else b"%d" % behind_ms
    return b'{"NextShardIterator":%b,"MillisBehindLatest":%b%b,"Records":[%b]}' % (
        json.dumps(following).encode(),
        behind,
        children,
        b",".join(records),
    )
