"""A subscription over HTTP: its events as frames of one chunked answer.

A client that does not read holds up its own subscription and nothing else: no event is made before
the one before it has left for the socket.

A frame is: length of the whole and of its headers, CRC-32 of these two, headers, payload, CRC-32 of
everything before; numbers are big endian. A header is its name with a length of one byte, the type
7 (text), and its value with a length of two. Source: Amazon event stream encoding (Smithy, "Amazon
Event Stream Specification").
"""

from __future__ import annotations

import asyncio
import struct
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import msgspec.json

from kcl_mld.local.kinesis.faults import KinesisFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.local.faultplan import FaultRule
    from kcl_mld.local.kinesis.fan_out import LocalSubscription

    Send = Callable[[dict[str, Any]], Awaitable[None]]

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
    """A ``SubscribeToShardEvent``."""
    return _event("SubscribeToShardEvent", payload)


def exception(fault: KinesisFault) -> bytes:
    """The error that ends a stream."""
    if fault.code not in MODELLED:
        error_headers = {":error-code": fault.code, ":error-message": fault.message}
        return frame({":message-type": "error", **error_headers}, b"")
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


async def serve_events(
    subscription: LocalSubscription,
    rule: FaultRule | None,
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Send,
    abort: Callable[[], None],
) -> None:
    """Send events until the subscription is over or the client is gone.

    Args:
        send: of the ASGI request; waits while the client does not read.
    """
    gone = asyncio.ensure_future(_disconnected(receive))
    feeding = asyncio.ensure_future(_feed(subscription, rule, send, abort))
    try:
        await asyncio.wait({gone, feeding}, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()
    finally:
        gone.cancel()
        feeding.cancel()
        await asyncio.gather(gone, feeding, return_exceptions=True)


async def _disconnected(receive: Callable[[], Awaitable[dict[str, Any]]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _feed(
    subscription: LocalSubscription, rule: FaultRule | None, send: Send, abort: Callable[[], None]
) -> None:
    headers = [
        (b"content-type", CONTENT_TYPE),
        (b"x-amzn-requestid", str(uuid.uuid4()).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _send_part(send, initial_response())
    sent = 0
    while not subscription.is_over:
        misdeed = rule.in_stream if rule is not None and sent >= rule.after_events else None
        try:
            payload = await _next(subscription, rule, misdeed)
        except KinesisFault as fault:
            await _send_part(send, exception(fault))
            break
        if misdeed == "end":
            break
        if payload is not None:
            message = shard_event(payload)
            if misdeed == "cut":
                await _send_part(send, message[: len(message) // 2])
                abort()
                return
            if misdeed == "corrupt":
                message, rule = corrupted(message), None
            await _send_part(send, message)
            sent += 1
        await asyncio.sleep(subscription.pause_s)
    await send({"type": "http.response.body", "body": b""})


async def _next(
    subscription: LocalSubscription, rule: FaultRule | None, misdeed: str | None
) -> bytes | None:
    if misdeed == "silence":
        await asyncio.Event().wait()  # until the client goes
    if misdeed == "exception" and rule is not None:
        raise KinesisFault(rule.code or "InternalFailureException", rule.message)
    return None if misdeed == "end" else subscription.next_event()


async def _send_part(send: Send, message: bytes) -> None:
    await send({"type": "http.response.body", "body": message, "more_body": True})
