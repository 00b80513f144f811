"""From framed records of a batch to unframed ones with the keys of their schema.

Whatever goes wrong with a record, it stays exactly as it came, and is counted.
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from mld.decide.children.line_record import LineRecord, SchemaLineRecord
from mld.decide.schemas.schema_frame import (
    BadPayload,
    FrameHeader,
    header_of,
    payload_of,
    payload_text,
)
from mld.model.retrieval.schema import KnownSchema, SchemaFailure, Undecodable

if TYPE_CHECKING:
    from mld.model.retrieval.schema import Catalogue

#: Largest payload of one record after decompressing or decoding: what Kinesis takes as a record.
MOST_PAYLOAD_BYTES = 10 * 2**20
#: Once so much has been decompressed or decoded, the rest of the batch waits for a line of its own.
#: Payloads that are neither do not count: they only get shorter.
ENOUGH_BYTES = 16 * 2**20


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
        lines: as many as before less the rest, in order.
        rest: what was not looked at, because the line would become too long.
        unknown: how many records have each version that the catalogue does not mention. If there
            is any, no record was touched.
        versions: ids of all versions that records name.
        failures: of what stayed framed.
    """

    lines: list[LineRecord]
    rest: list[LineRecord] = field(default_factory=list)
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
    unframed = Unframed(list(lines), versions=versions)
    unframed.unknown.update(
        header.version_id for _, header in framed if header.version_id not in catalogue
    )
    if unframed.unknown:
        return unframed
    made = 0
    for index, header in framed:
        if made >= ENOUGH_BYTES:
            unframed.rest = unframed.lines[index:]
            del unframed.lines[index:]
            break
        made += _unframe_one(unframed, index, header, catalogue[header.version_id])
    return unframed


def _unframe_one(
    unframed: Unframed, index: int, header: FrameHeader, known: KnownSchema | SchemaFailure
) -> int:
    """Replace one record if it can be unframed; how many bytes that made."""
    line = unframed.lines[index]
    if isinstance(known, SchemaFailure):
        unframed.fail(line, header.version_id, known)
        return 0
    try:
        data, made = _unframed_data(line, header, known)
    except BadPayload as error:
        unframed.fail(line, header.version_id, error.failure)
        # Finding out takes as long as unframing it would have taken.
        return MOST_PAYLOAD_BYTES if error.failure is SchemaFailure.TOO_LARGE else 0
    except Undecodable as error:
        unframed.fail(line, header.version_id, SchemaFailure.UNDECODABLE, str(error))
        return 0
    unframed.lines[index] = _with_schema(line, data, known)
    return made


def _unframed_data(line: LineRecord, header: FrameHeader, known: KnownSchema) -> tuple[str, int]:
    """The payload in base64, and how many bytes were decompressed or decoded for it."""
    assert line.data is not None  # it has a header
    if known.decode is None:
        text = payload_text(line.data, header, MOST_PAYLOAD_BYTES)
        return text, len(text) * 3 // 4 if header.is_compressed else 0
    decoded = known.decode(payload_of(line.data, header, MOST_PAYLOAD_BYTES))
    if len(decoded) > MOST_PAYLOAD_BYTES:
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
