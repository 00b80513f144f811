"""The frame that AWS Glue Schema Registry serializers put around a payload.

=======  =====  ====================================================
offset   bytes  content
=======  =====  ====================================================
0        1      version of the frame: 3
1        1      compression: 0 none, 5 zlib (RFC 1950)
2        16     schema version id, a UUID in big-endian order
18       rest   payload
=======  =====  ====================================================

18 bytes are 24 characters of base64 exactly. So a frame is found, its version read, and a payload
that is not compressed cut out, without decoding the record.

A frame has no checksum: any record that begins like one passes for one until the registry says
that it does not know the version.

Records of a batch become unframed ones with the keys of their schema. Whatever goes wrong with a
record, it stays exactly as it came, and is counted.

Source: schema-registry-serde 1.1.27, run.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.retrieval.model.record import LineRecord, SchemaLineRecord
from kcl_mld.retrieval.model.schema import KnownSchema, SchemaFailure, Undecodable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.retrieval.model.schema import Catalogue

HEADER_BYTES = 18
#: The same in base64.
HEADER_CHARACTERS = 24
#: How the base64 text of every frame begins: 03 00 or 03 05 and two bits of the version id.
PREFIXES = ("AwA", "AwB", "AwC", "AwD", "AwU", "AwV", "AwW", "AwX")
_FIRST, _BEHIND = "AwA", "AwY"
_ZLIB = 5

#: Largest payload of one record after decompressing or decoding: what Kinesis takes as a record.
MOST_PAYLOAD_BYTES = 10 * 2**20
#: After this many decompressed or decoded bytes, the rest of the batch gets a line of its own.
#: Payloads that are neither do not count: they only get shorter.
ENOUGH_BYTES = 16 * 2**20


class BadPayload(Exception):
    """A frame whose payload cannot be taken out."""

    def __init__(self, failure: SchemaFailure) -> None:
        super().__init__(failure.value)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """The header of a frame.

    Attributes:
        version_id: UUID in lower case.
        is_compressed: by zlib.
    """

    version_id: str
    is_compressed: bool


def may_have_frame(payloads: Iterable[str]) -> bool:
    """Whether any base64 text begins like a frame; comparing first rules out most, and is cheaper."""
    return any(payload.startswith(PREFIXES) for payload in payloads if _FIRST <= payload < _BEHIND)


def header_of(data: str | None) -> FrameHeader | None:
    """The header of a framed record; None for all others.

    Args:
        data: base64 text of the record's data.
    """
    if data is None or not data.startswith(PREFIXES):
        return None
    try:
        header = b64decode(data[:HEADER_CHARACTERS])
    except ValueError:
        return None
    if len(header) < HEADER_BYTES:
        return None
    digits = header[2:].hex()
    version_id = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return FrameHeader(version_id, header[1] == _ZLIB)


def payload_of(data: str, header: FrameHeader, most_bytes: int) -> bytes:
    """The payload of a framed record, decompressed.

    Args:
        data: base64 text with that header.
        most_bytes: largest payload wanted, >= 0; no more than that is ever in memory.

    Raises:
        BadPayload: it is larger, or not exactly one zlib stream.
    """
    text = data[HEADER_CHARACTERS:]
    try:
        raw = b64decode(text)
    except ValueError:
        raise BadPayload(SchemaFailure.UNDECODABLE) from None
    if not header.is_compressed:
        payload = raw
    else:
        stream = zlib.decompressobj()
        try:
            payload = stream.decompress(raw, most_bytes + 1)
        except zlib.error:
            raise BadPayload(SchemaFailure.NOT_ZLIB) from None
        if len(payload) <= most_bytes and (not stream.eof or stream.unused_data):
            raise BadPayload(SchemaFailure.NOT_ZLIB)
    if len(payload) > most_bytes:
        raise BadPayload(SchemaFailure.TOO_LARGE)
    return payload


def payload_text(data: str, header: FrameHeader, most_bytes: int) -> str:
    """As :func:`payload_of`, in base64; an uncompressed payload is cut out of the text."""
    if header.is_compressed:
        return b64encode(payload_of(data, header, most_bytes)).decode()
    return data[HEADER_CHARACTERS:]


class FailureKey(NamedTuple):
    """What failures are counted and logged by."""

    version_id: str
    failure: SchemaFailure


@dataclass(slots=True)
class FailureCount:
    """Equal failures in one batch.

    Attributes:
        sequence_number: of the first record.
        detail: what was found in it; may be empty.
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
        rest: records that were not examined, because the line would become too long.
        unknown: how many records have each version that the catalogue does not mention. If there
            is any, no record was touched.
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
        catalogue: the known versions; see :attr:`Unframed.unknown`.
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
