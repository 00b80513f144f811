"""A subscription over HTTP: its events as frames of one chunked answer.

A client that does not read holds up its own subscription and nothing else: no event is made before
the one before it has left for the socket.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

from mld.local import event_frames
from mld.local.kinesis.faults import KinesisFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mld.local.faultplan import FaultRule
    from mld.local.kinesis.subscriptions import LocalSubscription

    Send = Callable[[dict[str, Any]], Awaitable[None]]


async def serve_events(
    subscription: LocalSubscription,
    rule: FaultRule | None,
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Send,
    abort: Callable[[], None],
) -> None:
    """Send events until the subscription is over or the client is gone.

    Args:
        subscription: says what is to be sent.
        rule: what shall go wrong.
        receive: of the ASGI request, whose body has been read.
        send: of the ASGI request; waits while the client does not read.
        abort: cuts the connection.
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
        (b"content-type", event_frames.CONTENT_TYPE),
        (b"x-amzn-requestid", str(uuid.uuid4()).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _send_part(send, event_frames.initial_response())
    sent = 0
    while not subscription.is_over:
        misdeed = rule.in_stream if rule is not None and sent >= rule.after_events else None
        try:
            payload = await _next(subscription, rule, misdeed)
        except KinesisFault as fault:
            await _send_part(send, event_frames.exception(fault))
            break
        if misdeed == "end":
            break
        if payload is not None:
            message = event_frames.shard_event(payload)
            if misdeed == "cut":
                await _send_part(send, message[: len(message) // 2])
                abort()
                return
            if misdeed == "corrupt":
                message, rule = event_frames.corrupted(message), None
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
