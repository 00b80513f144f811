"""Frames of an AWS event stream, read one at a time, their payloads left as bytes.

botocore's own parser of events walks every member of every record and decodes base64, as for
answers: a tenth of the speed or less. Its decoder of frames is used: lengths, checksums, headers.

Source: the event stream encoding ``application/vnd.amazon.eventstream``: total length, length of the
headers, CRC32 of these two, headers, payload, CRC32 of all before it; big endian.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.eventstream import EventStreamBuffer
from botocore.exceptions import ClientError

from mld.adapters.aws.errors import service_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.eventstream import EventStreamMessage

_PRELUDE_BYTES = 12
#: Lengths, two checksums, nothing else.
_SMALLEST_BYTES = 16


class BrokenFrame(Exception):
    """What came is no frame, or not all of one."""


def read_frame(read: Callable[[int], bytes]) -> EventStreamMessage | None:
    """The next frame.

    Args:
        read: gives as many bytes as asked for; fewer only at the end of the stream.

    Returns:
        None when the stream ended behind a whole frame.

    Raises:
        BrokenFrame: it is cut.
        botocore.eventstream.ParserError: it is damaged. The length of a frame is believed only when
            its checksum is right, and up to 24 MiB of payload.
    """
    prelude = read(_PRELUDE_BYTES)
    if not prelude:
        return None
    frame = EventStreamBuffer()
    frame.add_data(prelude)
    next(frame, None)  # checks the prelude
    length = int.from_bytes(prelude[:4], "big")
    if len(prelude) < _PRELUDE_BYTES or length < _SMALLEST_BYTES:
        raise BrokenFrame("a frame of the event stream is too short")
    rest = read(length - _PRELUDE_BYTES)
    if len(rest) < length - _PRELUDE_BYTES:
        raise BrokenFrame("the event stream ended within a frame")
    frame.add_data(rest)
    return next(frame)


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
            payload: bytes = frame.payload
            return payload
    return None


def _message(payload: bytes) -> str:
    """What an exception says; its name tells enough where that is unreadable."""
    try:
        said = json.loads(payload)
    except ValueError:
        return ""
    return str(said.get("message") or said.get("Message") or "") if isinstance(said, dict) else ""
