"""Finds the record that comes before a place of a shard, because a checkpoint names what is done.

Kinesis reads forward only. So the search begins a few seconds before the place and reads up to it;
where nothing lies between, it begins further back, up to the oldest record. What it reads twice are
stretches without records.

DynamoDB Streams does not say that the tip is reached. There, after several answers without records
it is taken for reached. If it was not, the checkpoint is one of an earlier record: some come again,
none is left out.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import InvalidArgument, MalformedData, MoveRefused, Throttled, TrimmedData
from kcl_mld.kernel.model.sequence import AT_TIMESTAMP, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.retrieval.model.wire import decode_records, read_batch
from kcl_mld.retrieval.rules.peek import records_behind

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.stream import Stream
    from kcl_mld.retrieval.model.record import Batch, KinesisRecord

#: How far before the place a search begins, in seconds; then it begins at the oldest record.
WINDOWS_S = (10.0, 120.0, 1800.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0)
#: The same for shards that live four hours.
SHORT_WINDOWS_S = WINDOWS_S[:3]
#: A search that takes more reads is given up: Kinesis passes over a stretch without records in steps.
MOST_READS = 2000
#: A shard has five reads a second for all who read it; a search takes two of them.
PAUSE_S = 0.5
#: Answers without records, one after the other, that mean the tip where none says so.
EMPTY_READS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPosition:
    """What was found.

    Attributes:
        position: of the last user record before the place; TRIM_HORIZON = there is none.
        arrived_s: epoch seconds at which that record arrived; None = there is none, or not known.
        reads: calls of GetRecords.
        records: that were read.
    """

    position: ExtendedSequenceNumber
    arrived_s: float | None
    reads: int
    records: int


class PositionSearch:
    """Searches of one shard; use one for each place."""

    def __init__(self, kinesis: Kinesis, stream: Stream, shard_id: str) -> None:
        self._kinesis = kinesis
        self._stream = stream
        self._shard_id = shard_id
        self._reads = 0
        self._records = 0
        self._empties = 0

    async def before_time(self, at_s: float) -> FoundPosition:
        """The last record that arrived before a time.

        Args:
            at_s: epoch seconds, not in the future.

        Raises:
            AwsError: a call failed.
            MoveRefused: it takes too many reads.
        """
        if self._stream.traits.times_in_s:
            at_s = math.floor(at_s)

        def is_past(record: KinesisRecord) -> bool:
            arrived_s = record.approximate_arrival_timestamp
            return arrived_s is not None and arrived_s >= at_s

        return await self._last_before(at_s, is_past)

    async def tip(self, now_s: float) -> FoundPosition:
        """The newest record; raises as :meth:`before_time`."""
        return await self._last_before(now_s, lambda _record: False)

    async def before_number(self, number: str) -> FoundPosition:
        """The record before the one with that sequence number; raises as :meth:`at_number`."""
        record = await self._record(number)
        arrived_s = record.approximate_arrival_timestamp
        if arrived_s is None:
            raise MoveRefused(f"{self._shard_id}: record {number} has no arrival time")
        wanted = int(number)
        return await self._last_before(
            arrived_s, lambda record: int(record.sequence_number) >= wanted
        )

    async def at_number(self, number: str) -> FoundPosition:
        """The record with that sequence number, all of its user records.

        Raises:
            AwsError: a call failed.
            MoveRefused: the shard has no such record, or none any more.
        """
        return self._found(await self._record(number))

    async def _record(self, number: str) -> KinesisRecord:
        wrong = MoveRefused(
            f"{self._shard_id} has no record {number}, or none any more: name one that "
            "kcl-mld records peek shows, or use --to-timestamp"
        )
        try:
            iterator = await self._iterator(
                ShardIteratorType="AT_SEQUENCE_NUMBER", StartingSequenceNumber=number
            )
            records, following = await self._read(iterator, 1)
            while not records and following is not None:
                await asyncio.sleep(PAUSE_S)
                records, following = await self._read(following, 1)
        except (InvalidArgument, TrimmedData) as error:
            raise wrong from error
        if not records or int(records[0].sequence_number) != int(number):
            raise wrong
        return records[0]

    async def _last_before(
        self, at_s: float, is_past: Callable[[KinesisRecord], bool]
    ) -> FoundPosition:
        windows_s = SHORT_WINDOWS_S if self._stream.traits.rolls_over else WINDOWS_S
        for window_s in (*windows_s, None):
            start: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
            if window_s is not None:
                start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": max(0, at_s - window_s)}
            last = await self._last_of(await self._iterator(**start), is_past)
            if last is not None:
                return self._found(last)
        return FoundPosition(
            position=TRIM_HORIZON, arrived_s=None, reads=self._reads, records=self._records
        )

    async def _last_of(
        self, iterator: str, is_past: Callable[[KinesisRecord], bool]
    ) -> KinesisRecord | None:
        """The last record from an iterator on that is not past the place."""
        last = None
        following: str | None = iterator
        while following is not None:
            records, following = await self._read(following, 10_000)
            for record in records:
                if is_past(record):
                    return last
                last = record
            if following is not None:
                await asyncio.sleep(PAUSE_S)
        return last

    async def _iterator(self, **start: Any) -> str:
        self._empties = 0
        answer = await self._kinesis.get_shard_iterator(
            **self._stream.request(), ShardId=self._shard_id, **start
        )
        iterator: str | None = answer.get("ShardIterator")
        if not iterator:
            raise MalformedData("GetShardIterator answered without an iterator")
        return iterator

    async def _read(self, iterator: str, limit: int) -> tuple[list[KinesisRecord], str | None]:
        """Records, and the iterator that follows; None = the tip, or the end of the shard."""
        if self._reads >= MOST_READS:
            raise MoveRefused(
                f"{self._shard_id}: the record before was not found within {MOST_READS} reads; use "
                "--to-trim-horizon, or --after-sequence-number with a record that you know"
            )
        self._reads += 1
        arn = {"StreamARN": self._stream.arn} if self._stream.arn else {}
        body = None
        while body is None:
            try:
                body = await self._kinesis.get_records(ShardIterator=iterator, Limit=limit, **arn)
            except Throttled:
                await asyncio.sleep(2 * PAUSE_S)
        batch = read_batch(body)
        records = [] if batch.is_empty else list(decode_records(batch.take_records()))
        self._records += len(records)
        return records, None if self._is_tip(batch) else batch.next_iterator

    def _is_tip(self, batch: Batch) -> bool:
        behind_ms = batch.millis_behind_latest
        if self._stream.traits.shows_tip:
            return behind_ms == 0
        # Without records, those that are too old included, it is not known.
        self._empties = 0 if behind_ms is not None else self._empties + 1
        return self._empties >= EMPTY_READS

    def _found(self, record: KinesisRecord) -> FoundPosition:
        position = ExtendedSequenceNumber(record.sequence_number)
        for user in records_behind(AT_TIMESTAMP, [record], None):
            position = user.position
        return FoundPosition(
            position=position,
            arrived_s=record.approximate_arrival_timestamp,
            reads=self._reads,
            records=self._records,
        )
