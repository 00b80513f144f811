"""Reads a few records after a checkpoint for display; the checkpoint is not changed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.retrieval.model.wire import decode_records, read_batch
from kcl_mld.retrieval.rules.peek import PeekedRecord, records_behind
from kcl_mld.retrieval.rules.polling import ReadPosition, iterator_start, range_start

if TYPE_CHECKING:
    from kcl_mld.aws.ports import Kinesis
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld.leases.model.containment import PositionRange
    from kcl_mld.streams.model.shard import HashRange

#: Kinesis may answer without records although there are some: it read only a part of the shard.
MOST_READS = 10
#: A shard has five reads a second for all who read it; this takes one of them.
_PAUSE_S = 1.0
#: Limit of GetRecords.
_MOST_RECORDS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """The records that were read.

    Attributes:
        behind_s: what the service says of the tip; None = nothing.
        is_end: nothing follows in the shard.
    """

    records: tuple[PeekedRecord, ...]
    reads: int
    behind_s: float | None
    is_end: bool


async def peek(
    kinesis: Kinesis,
    stream: Stream,
    shard_id: str,
    checkpoint: ExtendedSequenceNumber,
    count: int,
    begins_s: float | None,
    hash_range: HashRange | None,
) -> Peek:
    """The next records behind a checkpoint that is neither LATEST nor SHARD_END.

    Args:
        kinesis: asked, once a second at most.
        stream: of the shard.
        shard_id: the shard.
        checkpoint: what is done.
        count: user records at most.
        begins_s: epoch seconds for a checkpoint AT_TIMESTAMP.
        hash_range: see :func:`~kcl_mld.retrieval.rules.peek.records_behind`.

    Raises:
        AwsError: a call failed.
        MalformedData: an answer can't be read.
    """
    start = iterator_start(ReadPosition(checkpoint), begins_s, stream.traits)
    answer = await kinesis.get_shard_iterator(
        **stream.request(), ShardId=shard_id, **start.request()
    )
    iterator = answer.get("ShardIterator")
    if not iterator:
        raise MalformedData("GetShardIterator answered without an iterator")
    arn = {"StreamARN": stream.arn} if stream.arn else {}
    reads = 0
    while True:
        limit = min(count + 1, _MOST_RECORDS)
        batch = read_batch(await kinesis.get_records(ShardIterator=iterator, Limit=limit, **arn))
        reads += 1
        behind_ms, iterator = batch.millis_behind_latest, batch.next_iterator
        records = [] if batch.is_empty else decode_records(batch.take_records())
        found = tuple(islice(records_behind(checkpoint, records, hash_range), count))
        if not stream.traits.shows_tip:
            behind_ms = None
        if found or iterator is None or behind_ms == 0 or reads == MOST_READS:
            return Peek(
                records=found,
                reads=reads,
                behind_s=None if behind_ms is None else behind_ms / 1000,
                is_end=iterator is None,
            )
        await asyncio.sleep(_PAUSE_S)


async def read_range(
    kinesis: Kinesis, stream: Stream, shard_id: str, wanted: PositionRange
) -> tuple[PeekedRecord, ...]:
    """The user records of a range, as far as the stream still has them.

    Raises:
        AwsError: a call failed.
        MalformedData: an answer can't be read.
    """
    start = range_start(wanted.first, stream.traits)
    answer = await kinesis.get_shard_iterator(
        **stream.request(), ShardId=shard_id, **start.request()
    )
    iterator = answer.get("ShardIterator")
    arn = {"StreamARN": stream.arn} if stream.arn else {}
    found: list[PeekedRecord] = []
    for _ in range(MOST_READS):
        if not iterator:
            break
        batch = read_batch(
            await kinesis.get_records(ShardIterator=iterator, Limit=_MOST_RECORDS, **arn)
        )
        iterator = batch.next_iterator
        records = [] if batch.is_empty else decode_records(batch.take_records())
        seen = tuple(records_behind(TRIM_HORIZON, records, None))
        found += [one for one in seen if wanted.holds(one.position)]
        is_tip = stream.traits.shows_tip and batch.millis_behind_latest == 0
        if is_tip or (seen and seen[-1].position >= wanted.last):
            break
        await asyncio.sleep(_PAUSE_S)
    return tuple(found)
