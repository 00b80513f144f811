"""DynamoDB Streams of one account: lineages of shards over the changes of tables.

A shard is replaced after four hours, and what is older than 24 hours is gone. Requests and answers
are those of the JSON protocol: names as in the API reference, times as epoch seconds. Where AWS
documents no error for a bad argument this is a ``ValidationException``.

Source: API reference of Amazon DynamoDB Streams; "Change data capture for DynamoDB Streams" in the
developer guide.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from bisect import bisect_left
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from kcl_mld.local.kinesis.faults import KinesisFault, malformed, not_found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

#: Members of a change with its images, by ``StreamViewType``.
_IMAGES = {
    "KEYS_ONLY": frozenset[str](),
    "NEW_IMAGE": frozenset({"NewImage"}),
    "OLD_IMAGE": frozenset({"OldImage"}),
    "NEW_AND_OLD_IMAGES": frozenset({"NewImage", "OldImage"}),
}
VIEW_TYPES = frozenset(_IMAGES)
_MOST_SHARDS = 100
_MOST_STREAMS = 100
_MOST_RECORDS = 1000
_MOST_BYTES = 1024 * 1024
#: Numbers have 28 digits, as seen in the field; 21 to 40 are allowed.
_FIRST_NUMBER = 10**27
_DIGITS = range(21, 41)
#: Hashes of partition keys are below it.
_HASHES = 1 << 32

_Seconds = Annotated[float, Meta(ge=0, le=3.2e8)]


@dataclass(frozen=True, slots=True)
class TableStreamSettings:
    """What tests may change.

    Attributes:
        shard_s: age at which a shard is replaced by another one.
        retention_s: age at which records, closed shards and disabled streams are gone.
        iterator_s: life of an iterator.
        listing_delay_s: a shard is listed so long after it was created.
    """

    shard_s: Annotated[float, Meta(ge=0.1, le=3.2e8)] = 4 * 3600.0
    retention_s: _Seconds = 24 * 3600.0
    iterator_s: _Seconds = 15 * 60.0
    listing_delay_s: _Seconds = 0.0


@dataclass(slots=True)
class _Shard:
    """A shard with the records that are not trimmed.

    Attributes:
        hashes: first hash of a partition key and the one after the last.
        start: its StartingSequenceNumber; that of no record.
        trimmed: sequence number of the last record that is gone, at first ``start``.
        records: time and text of each record, at the same place as in ``numbers``.
        end: its EndingSequenceNumber; None = it is open.
    """

    shard_id: str
    parent: str | None
    hashes: tuple[int, int]
    created_s: float
    start: int
    trimmed: int
    numbers: list[int] = field(default_factory=list)
    records: list[tuple[float, str]] = field(default_factory=list)
    end: int | None = None
    closed_s: float = 0.0

    def close(self, now_s: float) -> None:
        self.closed_s = now_s
        self.end = self.numbers[-1] if self.numbers else self.trimmed

    def trim(self, horizon_s: float) -> None:
        count = bisect_left(self.records, (horizon_s, ""))
        if count:
            self.trimmed = self.numbers[count - 1]
            del self.numbers[:count], self.records[:count]

    def described(self) -> dict[str, Any]:
        numbers = {"StartingSequenceNumber": str(self.start)}
        if self.end is not None:
            numbers["EndingSequenceNumber"] = str(self.end)
        shown: dict[str, Any] = {"ShardId": self.shard_id, "SequenceNumberRange": numbers}
        return shown if self.parent is None else {**shown, "ParentShardId": self.parent}


@dataclass(slots=True)
class _Stream:
    """The stream of a table: ``shards`` in the order of their creation."""

    table_arn: str
    label: str
    view_type: str
    key_schema: list[dict[str, str]]
    created_s: float
    disabled_s: float | None = None
    shards: list[_Shard] = field(default_factory=list)
    number: int = _FIRST_NUMBER
    made: int = 0

    @property
    def arn(self) -> str:
        return f"{self.table_arn}/stream/{self.label}"

    @property
    def region(self) -> str:
        return self.table_arn.split(":")[3]

    @property
    def table(self) -> str:
        return self.table_arn.rpartition("/")[2]

    def summary(self) -> dict[str, Any]:
        return {"StreamArn": self.arn, "StreamLabel": self.label, "TableName": self.table}

    def open_shards(self) -> list[_Shard]:
        return [shard for shard in self.shards if shard.end is None]

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def add_shard(self, now_s: float, hashes: tuple[int, int], parent: str | None = None) -> None:
        self.made += 1
        start = self.next_number()
        shard_id = f"shardId-{int(now_s * 1000):020d}-{self.made:08x}"
        self.shards.append(_Shard(shard_id, parent, hashes, now_s, start, start))

    def replace(self, shard: _Shard, now_s: float, count: int) -> None:
        shard.close(now_s)
        first, stop = shard.hashes
        cuts = [first + (stop - first) * part // count for part in range(count + 1)]
        for hashes in pairwise(cuts):
            self.add_shard(now_s, hashes, shard.shard_id)

    def settle(self, now_s: float, settings: TableStreamSettings) -> None:
        """Do what is due: replace shards, and forget."""
        horizon_s = now_s - settings.retention_s
        for shard in self.shards:  # those that are added meanwhile included
            if shard.end is None:
                # After a long jump of the clock a shard that would be gone by now is not made.
                due_s = max(shard.created_s + settings.shard_s, horizon_s - settings.shard_s)
                if due_s <= now_s:
                    self.replace(shard, due_s, 1)
            shard.trim(horizon_s)
        gone = [one for one in self.shards if one.end is not None and one.closed_s < horizon_s]
        if gone:
            self.shards = [shard for shard in self.shards if shard not in gone]

    def append(self, change: Mapping[str, Any], now_s: float) -> None:
        """Add a change to the shard of its partition key."""
        keys = change["dynamodb"]["Keys"]
        hash_key = next(one["AttributeName"] for one in self.key_schema if one["KeyType"] == "HASH")
        digest = hashlib.sha256(json.dumps(keys[hash_key]).encode()).digest()
        place = int.from_bytes(digest[:4])
        shard = next(one for one in self.open_shards() if place in range(*one.hashes))
        left_out = _IMAGES["NEW_AND_OLD_IMAGES"] - _IMAGES[self.view_type]
        number = self.next_number()
        inner = {name: value for name, value in change["dynamodb"].items() if name not in left_out}
        inner |= {
            "ApproximateCreationDateTime": int(now_s),  # AWS rounds down, too
            "SequenceNumber": str(number),
            "StreamViewType": self.view_type,
        }
        record = {**change, "eventVersion": "1.1", "awsRegion": self.region, "dynamodb": inner}
        shard.numbers.append(number)
        shard.records.append((now_s, json.dumps(record, ensure_ascii=False, separators=(",", ":"))))


class TableStreams:
    """The streams of all tables.

    Args:
        clock: epoch seconds; must not go back.
    """

    def __init__(
        self, clock: Callable[[], float], settings: TableStreamSettings | None = None
    ) -> None:
        self.clock = clock
        #: The behavior now; assign a new one to change it.
        self.settings = settings or TableStreamSettings()
        #: To be held around every use, where there are several threads.
        self.lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}

    def enable(self, table_arn: str, view_type: str, key_schema: list[dict[str, str]]) -> str:
        """Begin a stream of a table and return its ARN."""
        now_s = self.clock()
        while True:
            label = datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds")
            stream = _Stream(table_arn, label[:23], view_type, key_schema, now_s)
            if stream.arn not in self._streams:
                break
            now_s += 0.001
        stream.add_shard(stream.created_s, (0, _HASHES))
        self._streams[stream.arn] = stream
        return stream.arn

    def append(self, arn: str, changes: Iterable[Mapping[str, Any]]) -> None:
        """Add changes, in order, which happened just now.

        Args:
            changes: records of the API with both images.
        """
        stream = self._settled(arn)
        for change in changes:
            stream.append(change, self.clock())

    def disable(self, arn: str) -> None:
        """End a stream, which stays readable until its records are gone."""
        stream, now_s = self._settled(arn), self.clock()
        stream.disabled_s = now_s
        for shard in stream.open_shards():
            shard.close(now_s)

    def replace_shards(self, count: int) -> None:
        """Replace every open shard by that many children."""
        for arn in list(self._streams):
            stream = self._settled(arn)
            for shard in stream.open_shards():
                stream.replace(shard, self.clock(), count)

    def call(self, operation: str, request: Mapping[str, Any], region: str) -> str:
        """Answer an operation, as JSON text.

        Raises:
            KinesisFault: the service's error.
        """
        if operation == "GetRecords":
            return self._get_records(request)
        if operation == "DescribeStream":
            answer = self._describe_stream(request)
        elif operation == "GetShardIterator":
            answer = self._get_shard_iterator(request)
        elif operation == "ListStreams":
            answer = self._list_streams(request, region)
        else:
            raise KinesisFault("UnknownOperationException", f"{operation} is not served here.")
        return json.dumps(answer)

    def _list_streams(self, request: Mapping[str, Any], region: str) -> dict[str, Any]:
        table = request.get("TableName")
        self._forget()
        found = [
            one.summary()
            for one in self._streams.values()
            if one.region == region and table in {None, one.table}
        ]
        last = request.get("ExclusiveStartStreamArn")
        page, more = _page(found, "StreamArn", last, _limit(request, _MOST_STREAMS))
        return {"Streams": page, **({"LastEvaluatedStreamArn": more} if more else {})}

    def _describe_stream(self, request: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._settled(request.get("StreamArn"))
        listed_s = self.clock() - self.settings.listing_delay_s
        shards = [one for one in stream.shards if one.parent is None or one.created_s <= listed_s]
        wanted = request.get("ShardFilter")
        if wanted is not None:
            if wanted.get("Type") != "CHILD_SHARDS" or not wanted.get("ShardId"):
                raise malformed("ShardFilter needs the Type CHILD_SHARDS and a ShardId.")
            shards = [one for one in shards if one.parent == wanted["ShardId"]]
        last = request.get("ExclusiveStartShardId")
        described = [one.described() for one in shards]
        page, more = _page(described, "ShardId", last, _limit(request, _MOST_SHARDS))
        shown = {
            **stream.summary(),
            "StreamStatus": "ENABLED" if stream.disabled_s is None else "DISABLED",
            "StreamViewType": stream.view_type,
            "CreationRequestDateTime": int(stream.created_s),
            "KeySchema": stream.key_schema,
            "Shards": page,
        }
        if more:
            shown["LastEvaluatedShardId"] = more
        return {"StreamDescription": shown}

    def _get_shard_iterator(self, request: Mapping[str, Any]) -> dict[str, Any]:
        stream = self._settled(request.get("StreamArn"))
        shard = _shard_of(stream, request.get("ShardId"))
        kind = request.get("ShardIteratorType")
        if kind == "TRIM_HORIZON":
            number = shard.trimmed + 1
        elif kind == "LATEST":
            number = stream.number + 1
        elif kind in {"AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"}:
            number = self._number(stream, shard, request)
        elif kind == "AT_TIMESTAMP":
            number = self._number_at(stream, shard, request.get("Timestamp"))
        else:
            raise malformed(f"Invalid ShardIteratorType: {kind}")
        return {"ShardIterator": self._iterator(stream.arn, shard.shard_id, number)}

    def _number(self, stream: _Stream, shard: _Shard, request: Mapping[str, Any]) -> int:
        text = request.get("SequenceNumber")
        if not isinstance(text, str) or not text.isdecimal() or len(text) not in _DIGITS:
            raise malformed("SequenceNumber needs 21 to 40 digits.")
        number = int(text)
        if not shard.start <= number <= (stream.number if shard.end is None else shard.end):
            raise malformed(f"Invalid SequenceNumber: {text} is not in {shard.shard_id}")
        if request["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER":
            number += 1
        number = max(number, shard.start + 1)
        if number <= shard.trimmed:
            raise _trimmed(shard)
        return number

    def _number_at(self, stream: _Stream, shard: _Shard, time_s: object) -> int:
        if not isinstance(time_s, int | float) or time_s > self.clock():
            raise malformed("Timestamp is to be a time in the past.")
        times_s = [int(created_s) for created_s, _ in shard.records]
        place = bisect_left(times_s, time_s)
        if place < len(shard.numbers):
            return shard.numbers[place] if place else shard.trimmed + 1
        return stream.number + 1

    def _iterator(self, arn: str, shard_id: str, number: int) -> str:
        state = json.dumps([shard_id, number, self.clock()]).encode()
        return f"{arn}|1|{base64.b64encode(state).decode()}"

    def _get_records(self, request: Mapping[str, Any]) -> str:
        limit = _limit(request, _MOST_RECORDS)
        try:
            arn, _, text = str(request.get("ShardIterator")).split("|")
            shard_id, number, made_s = json.loads(base64.b64decode(text, validate=True))
        except (ValueError, TypeError):
            raise malformed("Invalid ShardIterator") from None
        if self.clock() >= made_s + self.settings.iterator_s:
            raise KinesisFault("ExpiredIteratorException", "The iterator is too old.")
        shard = _shard_of(self._settled(arn), shard_id)
        if number <= shard.trimmed:
            raise _trimmed(shard)
        first = stop = bisect_left(shard.numbers, number)
        size = 0
        for _, record in shard.records[first : first + limit]:
            size += len(record.encode())
            if size > _MOST_BYTES and stop > first:
                break
            stop += 1
        following = ""
        if shard.end is None or stop < len(shard.numbers):
            number = shard.numbers[stop - 1] + 1 if stop > first else number
            following = f',"NextShardIterator":"{self._iterator(arn, shard_id, number)}"'
        records = ",".join(text for _, text in shard.records[first:stop])
        return f'{{"Records":[{records}]{following}}}'

    def _settled(self, arn: object) -> _Stream:
        """A stream as it is now.

        Raises:
            KinesisFault: it is not there.
        """
        self._forget()
        stream = self._streams.get(arn) if isinstance(arn, str) else None
        if stream is None:
            raise not_found(f"Requested resource not found: Stream: {arn} not found")
        stream.settle(self.clock(), self.settings)
        return stream

    def _forget(self) -> None:
        """Forget the streams that were disabled long ago."""
        horizon_s = self.clock() - self.settings.retention_s
        for arn, stream in list(self._streams.items()):
            if stream.disabled_s is not None and stream.disabled_s < horizon_s:
                del self._streams[arn]


def _shard_of(stream: _Stream, shard_id: object) -> _Shard:
    for shard in stream.shards:
        if shard.shard_id == shard_id:
            return shard
    raise not_found(f"Requested resource not found: Shard does not exist: {shard_id}")


def _trimmed(shard: _Shard) -> KinesisFault:
    why = f"Records of {shard.shard_id} up to {shard.trimmed} have been trimmed."
    return KinesisFault("TrimmedDataAccessException", why)


def _limit(request: Mapping[str, Any], most: int) -> int:
    limit = request.get("Limit", most)
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise malformed(f"Limit is to be from 1 to {most}.")
    return limit


def _page(
    entries: Iterable[dict[str, Any]], key: str, last: str | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """The entries whose key comes after ``last``, and where the next page goes on."""
    rest = [one for one in sorted(entries, key=itemgetter(key)) if one[key] > (last or "")]
    return rest[:limit], rest[limit - 1][key] if limit < len(rest) else None
