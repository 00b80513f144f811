"""Frames of an AWS event stream, read one at a time, their payloads left as bytes.

botocore's parser of events walks every member of every record and decodes base64, as for answers: a
tenth of the speed or less. Its decoder of frames copies each four times.

Source: the event stream encoding ``application/vnd.amazon.eventstream``: total length, length of the
headers, CRC32 of these two, headers, payload, CRC32 of all before it; big endian.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.eventstream import EventStreamHeaderParser
from botocore.exceptions import ClientError

from mld.adapters.aws.errors import service_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PRELUDE = struct.Struct(">III")
_CHECKSUM_BYTES = 4
#: More is no frame: the service's limit for a payload is 24 MiB, for headers 128 KiB.
_LARGEST_BYTES = 24 * 2**20 + 128 * 2**10 + 16


class BrokenFrame(Exception):
    """What came is no frame, or not all of one, or a damaged one."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of an event stream."""

    headers: Mapping[str, Any]
    payload: bytes


def read_frame(read: Callable[[int], bytes]) -> Frame | None:
    """The next frame.

    Args:
        read: gives as many bytes as asked for; fewer only at the end of the stream.

    Returns:
        None when the stream ended behind a whole frame.

    Raises:
        BrokenFrame: it is cut or damaged. Its length is believed only when its checksum is right.
        botocore.eventstream.ParserError: its headers make no sense.
    """
    prelude = read(_PRELUDE.size)
    if not prelude:
        return None
    if len(prelude) < _PRELUDE.size:
        raise BrokenFrame("the event stream ended within a frame")
    total, headers_bytes, checksum = _PRELUDE.unpack(prelude)
    if zlib.crc32(prelude[:-_CHECKSUM_BYTES]) != checksum:
        raise BrokenFrame("the checksum of a frame's length differs")
    left = total - _PRELUDE.size
    if not headers_bytes + _CHECKSUM_BYTES <= left <= _LARGEST_BYTES:
        raise BrokenFrame(f"a frame cannot have {total} bytes, {headers_bytes} of them headers")
    rest = read(left)
    if len(rest) < left:
        raise BrokenFrame("the event stream ended within a frame")
    content = memoryview(rest)[:-_CHECKSUM_BYTES]
    expected = int.from_bytes(rest[-_CHECKSUM_BYTES:], "big")
    if zlib.crc32(content, zlib.crc32(prelude)) != expected:
        raise BrokenFrame("the checksum of a frame differs")
    headers = EventStreamHeaderParser().parse(bytes(content[:headers_bytes]))
    return Frame(headers, bytes(content[headers_bytes:]))


def next_payload(read: Callable[[int], bytes], operation: str, event_type: str) -> bytes | None:
    """The payload of the next event of a type; other events are passed over.

    Args:
        read: as for :func:`read_frame`.
        operation: API name, for errors.
        event_type: e.g. ``SubscribeToShardEvent``.

    Returns:
        None at the end of the stream.

    Raises:
        AwsError: an exception in the stream.
        BrokenFrame, ParserError: see :func:`read_frame`.
    """
    while (frame := read_frame(read)) is not None:
        headers = frame.headers
        if headers.get(":message-type") != "event":
            code = headers.get(":exception-type") or headers.get(":error-code") or "Unknown"
            text = headers.get(":error-message") or _message(frame.payload)
            error = {"Error": {"Code": str(code), "Message": str(text)}}
            raise service_error(ClientError(error, operation), writes=False)
        if headers.get(":event-type") == event_type:
            return frame.payload
    return None


def _message(payload: bytes) -> str:
    """What an exception says; its name tells enough where that is unreadable."""
    try:
        said = json.loads(payload)
    except (ValueError, RecursionError):
        return ""
    return str(said.get("message") or said.get("Message") or "") if isinstance(said, dict) else ""
