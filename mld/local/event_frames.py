"""Frames of ``application/vnd.amazon.eventstream``, the encoding of SubscribeToShard's answer.

A frame is: length of the whole and of its headers, CRC-32 of these two, headers, payload, CRC-32 of
everything before; numbers are big endian. A header is its name with a length of one byte, the type
7 (text), and its value with a length of two. Source: Amazon event stream encoding (Smithy, "Amazon
Event Stream Specification").
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import msgspec.json

if TYPE_CHECKING:
    from mld.local.kinesis.faults import KinesisFault

CONTENT_TYPE = b"application/vnd.amazon.eventstream"
_PAYLOAD_TYPE = "application/x-amz-json-1.1"
_TEXT = 7
#: Exceptions that the model of SubscribeToShard's stream knows; others are of type ``error``.
MODELLED = frozenset(
    {
        "InternalFailureException",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
        "KMSThrottlingException",
        "ResourceInUseException",
        "ResourceNotFoundException",
    }
)


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One message.

    Args:
        headers: ASCII names of at most 255 bytes; values of at most 65535.
        payload: any bytes.
    """
    encoded = b"".join(_header(name, value.encode()) for name, value in headers.items())
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    checksum = zlib.crc32(payload, zlib.crc32(encoded, zlib.crc32(prelude)))
    return b"".join((prelude, encoded, payload, struct.pack(">I", checksum)))


def initial_response() -> bytes:
    """What precedes every event: the call was accepted."""
    return _event("initial-response", b"{}")


def shard_event(payload: bytes) -> bytes:
    """A ``SubscribeToShardEvent``.

    Args:
        payload: its JSON text.
    """
    return _event("SubscribeToShardEvent", payload)


def exception(fault: KinesisFault) -> bytes:
    """The error that ends a stream."""
    if fault.code not in MODELLED:
        said = {":error-code": fault.code, ":error-message": fault.message}
        return frame({":message-type": "error", **said}, b"")
    headers = {
        ":message-type": "exception",
        ":exception-type": fault.code,
        ":content-type": _PAYLOAD_TYPE,
    }
    return frame(headers, msgspec.json.encode({"message": fault.message}))


def corrupted(message: bytes) -> bytes:
    """The same frame with a wrong checksum."""
    return message[:-1] + bytes([message[-1] ^ 0xFF])


def _event(kind: str, payload: bytes) -> bytes:
    headers = {":message-type": "event", ":event-type": kind, ":content-type": _PAYLOAD_TYPE}
    return frame(headers, payload)


def _header(name: str, value: bytes) -> bytes:
    encoded = name.encode("ascii")
    return b"%c%b%c%b%b" % (len(encoded), encoded, _TEXT, struct.pack(">H", len(value)), value)
