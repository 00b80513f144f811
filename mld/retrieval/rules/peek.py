"""The records behind a checkpoint as their consumer will get them."""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.retrieval.rules.deaggregate import AggregateOutcome, deaggregate, is_aggregated_base64

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kcl_mld.retrieval.model.record import KinesisRecord
    from kcl_mld.streams.model.shard import HashRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekedRecord:
    """One user record, or an aggregate that is not delivered.

    Attributes:
        arrived_s: epoch seconds; None if the service does not report it.
        data: the payload.
        is_aggregated: it is part of a KPL aggregate.
        is_dropped: a consumer does not get it, because the aggregate has keys of another shard.
    """

    position: ExtendedSequenceNumber
    partition_key: str
    arrived_s: float | None
    data: bytes
    is_aggregated: bool = False
    is_dropped: bool = False


def records_behind(
    checkpoint: ExtendedSequenceNumber,
    records: Iterable[KinesisRecord],
    hash_range: HashRange | None,
) -> Iterator[PeekedRecord]:
    """User records behind a checkpoint, in order.

    Args:
        checkpoint: last processed record; it may lie inside an aggregate, which comes again as a whole.
        records: as Kinesis sends them.
        hash_range: keys of the shard; None = aggregates with keys of other shards are delivered.
    """
    for record in records:
        for one in _expanded(record, hash_range):
            if one.position > checkpoint:
                yield one


def _expanded(record: KinesisRecord, hash_range: HashRange | None) -> Iterator[PeekedRecord]:
    data = _decoded(record.data or "")
    key = record.partition_key or ""
    found = deaggregate(data, key, hash_range) if is_aggregated_base64(record.data or "") else None
    if found is None or found.outcome is AggregateOutcome.RAW:
        yield _one(record, 0, key, data)
        return
    for user in found.records:
        yield _one(
            record, user.sub_sequence_number, user.partition_key, user.data, is_aggregated=True
        )
    if found.dropped:
        yield _one(record, len(found.records), key, data, is_aggregated=True, is_dropped=True)


def _one(
    record: KinesisRecord,
    sub_sequence_number: int,
    partition_key: str,
    data: bytes,
    *,
    is_aggregated: bool = False,
    is_dropped: bool = False,
) -> PeekedRecord:
    return PeekedRecord(
        position=ExtendedSequenceNumber(record.sequence_number, sub_sequence_number),
        partition_key=partition_key,
        arrived_s=record.approximate_arrival_timestamp,
        data=data,
        is_aggregated=is_aggregated,
        is_dropped=is_dropped,
    )


def _decoded(text: str) -> bytes:
    """The payload; a text that is no base64 has none, as for a child that decodes it."""
    try:
        return binascii.a2b_base64(text)
    except binascii.Error:
        return b""
