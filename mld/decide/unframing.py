"""From framed records of a batch to unframed ones with the keys of their schema.

Whatever goes wrong with a record, it stays exactly as it came, and is counted.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mld.decide.line_record import LineRecord, SchemaLineRecord
from mld.decide.schema_frame import (
    BadPayload,
    FrameHeader,
    header_of,
    payload_of,
    payload_text,
)
from mld.model.schema import KnownSchema, SchemaFailure, Undecodable

if TYPE_CHECKING:
    from mld.model.schema import Catalogue

#: Largest payload of one record after decompressing or decoding: what Kinesis takes as a record.
MOST_PAYLOAD_BYTES = 10 * 2**20
#: Likewise of all records of one batch together. Payloads that are not compressed and not decoded
#: do not count: they only get shorter.
MOST_BATCH_BYTES = 64 * 2**20


class FailureKey(NamedTuple):
    """What failures are counted and logged by."""

    version_id: str
    failure: SchemaFailure


@dataclass(slots=True)
class FailureCount:
    """Equal failures in one batch.

    Attributes:
        sequence_number: of the first record.
        detail: what was found in it; empty where there is nothing to say.
        count: >= 1.
    """

    sequence_number: str
    detail: str = ""
    count: int = 0


@dataclass(slots=True)
class Unframed:
    """What became of a batch's records.

    Attributes:
        lines: as many as before, in order.
        unknown: how many records have each version that the catalogue does not mention. If there
            is any, no record was touched.
        versions: ids of all versions that records name.
        failures: of what stayed framed.
    """

    lines: list[LineRecord]
    versions: frozenset[str] = frozenset()
    unknown: Counter[str] = field(default_factory=Counter)
    failures: dict[FailureKey, FailureCount] = field(default_factory=dict)

    def fail(self, line: LineRecord, version_id: str, why: SchemaFailure, detail: str = "") -> None:
        """One record stays as it is."""
        found = self.failures.setdefault(
            FailureKey(version_id, why), FailureCount(line.sequence_number, detail)
        )
        found.count += 1


def unframe(lines: list[LineRecord], catalogue: Catalogue) -> Unframed:
    """Take the frames off.

    Args:
        lines: after de-aggregation.
        catalogue: what is known of versions; see :attr:`Unframed.unknown`.
    """
    framed = [
        (index, header)
        for index, line in enumerate(lines)
        if (header := header_of(line.data)) is not None
    ]
    versions = frozenset(header.version_id for _, header in framed)
    unframed = Unframed(list(lines), versions)
    unframed.unknown.update(
        header.version_id for _, header in framed if header.version_id not in catalogue
    )
    if unframed.unknown:
        return unframed
    room = MOST_BATCH_BYTES
    for index, header in framed:
        known = catalogue[header.version_id]
        if isinstance(known, SchemaFailure):
            unframed.fail(lines[index], header.version_id, known)
            continue
        try:
            data, taken = _unframed_data(lines[index], header, known, min(room, MOST_PAYLOAD_BYTES))
        except BadPayload as error:
            unframed.fail(lines[index], header.version_id, error.failure)
        except Undecodable as error:
            unframed.fail(lines[index], header.version_id, SchemaFailure.UNDECODABLE, str(error))
        else:
            room -= taken
            unframed.lines[index] = _with_schema(lines[index], data, known)
    return unframed


def _unframed_data(
    line: LineRecord, header: FrameHeader, known: KnownSchema, most_bytes: int
) -> tuple[str, int]:
    """The payload in base64, and how many bytes of memory the record may have been blown up to."""
    assert line.data is not None  # it has a header
    if known.decode is None:
        text = payload_text(line.data, header, most_bytes)
        return text, len(text) * 3 // 4 if header.is_compressed else 0
    decoded = known.decode(payload_of(line.data, header, most_bytes))
    if len(decoded) > most_bytes:
        raise BadPayload(SchemaFailure.TOO_LARGE)
    return b64encode(decoded).decode(), len(decoded)


def _with_schema(line: LineRecord, data: str, known: KnownSchema) -> SchemaLineRecord:
    version = known.version
    return SchemaLineRecord(
        data,
        line.partition_key,
        line.sequence_number,
        line.approximate_arrival_timestamp,
        line.sub_sequence_number,
        line.action,
        version.version_id,
        version.name,
        version.data_format,
    )
