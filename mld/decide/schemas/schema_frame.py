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

Source: schema-registry-serde 1.1.27, run.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.model.retrieval.schema import SchemaFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADER_BYTES = 18
#: The same in base64.
HEADER_CHARACTERS = 24
#: How the base64 text of every frame begins: 03 00 or 03 05 and two bits of the version id.
PREFIXES = ("AwA", "AwB", "AwC", "AwD", "AwU", "AwV", "AwW", "AwX")
_FIRST, _BEHIND = "AwA", "AwY"
_ZLIB = 5


class BadPayload(Exception):
    """A frame whose payload cannot be taken out.

    Attributes:
        failure: why.
    """

    def __init__(self, failure: SchemaFailure) -> None:
        super().__init__(failure.value)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """What a frame says of its payload.

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
        header: of it.
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
    """As :func:`payload_of`, in base64; what is not compressed is cut out of the text."""
    if header.is_compressed:
        return b64encode(payload_of(data, header, most_bytes)).decode()
    return data[HEADER_CHARACTERS:]
