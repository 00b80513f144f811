"""What one GetRecords answer holds, the records in it, and how they stand in a ``processRecords`` line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

if TYPE_CHECKING:
    from kcl_mld.streams.model.shard import ChildShard

#: No record of Kinesis is shorter in JSON: the field names and a 56-digit sequence number alone.
MIN_RECORD_BYTES = 170


class KinesisRecord(msgspec.Struct, gc=False, rename="pascal"):
    """A record as Kinesis sends it.

    Attributes:
        sequence_number: decimal digits.
        data: base64 text, standard alphabet, padded; it is what the child gets, so nobody
            decodes it unless it starts like a KPL aggregate. A record that lacks it can't be read;
            a null is passed on, as Java does.
        partition_key: 1-256 characters.
        approximate_arrival_timestamp: epoch seconds with milliseconds; None where a server omits
            it.
    """

    sequence_number: str
    data: str | None
    partition_key: str | None = None
    approximate_arrival_timestamp: float | None = None


@dataclass(slots=True)
class Batch:
    """One answer. The envelope is read; the records stay the bytes that came.

    Attributes:
        records: JSON text of the list of records; None once they were taken.
        size_bytes: length of ``records``, also after they were taken.
        next_iterator: where the next batch begins: an iterator, or the continuation number of what was
            pushed; None at the end of the shard.
        millis_behind_latest: None if the service did not report it.
        child_shards: set in the last answer of a shard that was split or merged; empty there when
            the shard vanished.
        last_sequence_number: of the last record; None in an empty batch.
        has_vanished: it stands for a shard that the service has forgotten.
    """

    records: memoryview | None
    size_bytes: int = 0
    next_iterator: str | None = None
    millis_behind_latest: int | None = None
    child_shards: tuple[ChildShard, ...] = ()
    last_sequence_number: str | None = None
    has_vanished: bool = False

    @property
    def is_empty(self) -> bool:
        """True when the answer held no record."""
        return self.last_sequence_number is None

    @property
    def is_shard_end(self) -> bool:
        """True when nothing follows in this shard."""
        return self.next_iterator is None

    @property
    def data_bytes_at_most(self) -> int:
        """Upper bound of the payload: base64 is a third longer than the bytes that it encodes."""
        return self.size_bytes * 3 // 4

    def records_at_most(self, limit: int) -> int:
        """Upper bound of the number of records, without counting them."""
        return 0 if self.is_empty else min(limit, self.size_bytes // MIN_RECORD_BYTES + 1)

    def take_records(self) -> memoryview:
        """Hand the records over, so that they are freed when the taker is done.

        Raises:
            ValueError: they were taken before.
        """
        taken, self.records = self.records, None
        if taken is None:
            raise ValueError("the records of this batch were taken before")
        return taken


def vanished() -> Batch:
    """The batch that stands for a shard that no longer exists: an end without children."""
    return Batch(records=memoryview(b"[]"), size_bytes=2, has_vanished=True)


class LineRecord(msgspec.Struct, gc=False, rename="camel"):
    """What every child gets of a record, in the order of the wire; names in camel case."""

    data: str | None
    partition_key: str | None
    sequence_number: str
    approximate_arrival_timestamp: int | None
    sub_sequence_number: int = 0
    action: str = "record"

    @property
    def position(self) -> ExtendedSequenceNumber:
        """Position in its shard.

        Raises:
            MalformedData: its sequence number is none.
        """
        return ExtendedSequenceNumber(self.sequence_number, self.sub_sequence_number)


class SchemaLineRecord(LineRecord, gc=False, rename="camel"):
    """With the schema of an unframed payload.

    The keys are flat texts: kclpy dies of an object within a record that has no ``action``.
    """

    schema_version_id: str = ""
    schema_name: str = ""
    data_format: str = ""
