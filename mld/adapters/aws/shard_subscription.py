"""The port :class:`mld.ports.aws.Subscription`: one thread and one connection for each.

botocore asks (endpoint, signature, proxy, TLS, refusals are its own), and a ``before-parse`` hook
takes the answer's body away before its parser of events sees it. From then on the thread reads a
frame when the loop has asked for one, and not before: what the worker does not take stays with the
kernel and, when that is full, with the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Self

from botocore import exceptions as boto
from botocore.eventstream import ParserError
from urllib3.exceptions import HTTPError

from mld.adapters.aws.answer_limit import shut_down
from mld.adapters.aws.errors import ca_file_of, client_error, not_sent, service_error
from mld.adapters.aws.event_frames import BrokenFrame, next_payload
from mld.adapters.aws.whole_answers import BrokenAnswer
from mld.adapters.calls import start_thread
from mld.errors import AwsError, ThreadRefused, UnknownOutcome

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from urllib3.response import HTTPResponse

_OPERATION = "SubscribeToShard"
_EVENT = "SubscribeToShardEvent"
#: What reading raises when the stream is cut, silent or damaged. urllib3's and not botocore's: the
#: head of the answer was read long ago.
_BROKEN = (HTTPError, HTTPException, ParserError, BrokenFrame, OSError, ValueError)
#: Told once, when the service has accepted; no event is empty.
_ACCEPTED = b""


class _Accepted(Exception):
    """How the body gets past botocore's parser."""

    def __init__(self, body: HTTPResponse) -> None:
        super().__init__()
        self.body = body


def watch_subscriptions(client: BaseClient) -> None:
    """Prepare a Kinesis client for :class:`ShardSubscription`; once.

    Args:
        client: its read time-out is how long a subscription may be silent.
    """
    client.meta.events.register("before-parse.kinesis.SubscribeToShard", _take_body)


def _take_body(response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] < 300:
        raise _Accepted(response_dict["body"])


class ShardSubscription:
    """See the port. Everything but :meth:`_serve` and what it calls belongs to the loop."""

    def __init__(self, client: BaseClient, request: dict[str, Any]) -> None:
        """Nothing happens before :meth:`open`, which makes one."""
        self._client = client
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._told: deque[bytes | AwsError | None] = deque()
        self._is_asked = False
        self._demand = threading.Semaphore(0)
        self._lock = threading.Lock()  # guards the two below
        self._body: HTTPResponse | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, client: BaseClient, request: dict[str, Any]) -> Self:
        """Subscribe; returns when the service has accepted.

        Args:
            client: see :func:`watch_subscriptions`.
            request: parameters of SubscribeToShard.

        Raises:
            AwsError: it has not.

        Cancellation: the thread closes what it gets and ends, after the time-out of the client at
        the latest.
        """
        subscription = cls(client, request)
        try:
            start_thread(subscription._serve, f"subscription-{request['ShardId']}")
        except ThreadRefused as error:
            raise not_sent(error, _OPERATION) from error
        try:
            await subscription.next_event()
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def next_event(self) -> bytes | None:
        """The next event; see the port."""
        while not self._is_closed:
            if self._told:
                return self._take()
            if not self._is_asked:
                self._is_asked = True
                self._demand.release()
            self._arrived.clear()
            await self._arrived.wait()
        return None

    def close(self) -> None:
        """End it now: a thread that reads is woken by the end of its connection."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if self._body is not None:
                shut_down(self._body)
        self._told.clear()
        self._demand.release()
        self._arrived.set()

    def _take(self) -> bytes | None:
        """What the thread told; its last word stays."""
        told = self._told[0]
        if isinstance(told, bytes):
            self._told.popleft()
            self._is_asked = False
            return told
        if told is None:
            return None
        raise told

    def _hear(self, told: bytes | AwsError | None) -> None:
        if not self._is_closed:
            self._told.append(told)
            self._arrived.set()

    # -- in the thread -----------------------------------------------------------------------------

    def _serve(self) -> None:
        """Everything that blocks, until the end of the stream or :meth:`close`."""
        last: AwsError | None = None
        try:
            self._receive()
        except AwsError as error:
            last = error
        except boto.ClientError as error:
            last = service_error(error, writes=False)
        except (boto.BotoCoreError, BrokenAnswer) as error:
            last = client_error(error, _OPERATION, ca_file_of(self._client))
        except _BROKEN as error:
            last = UnknownOutcome(_OPERATION, type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - or the loop would wait for ever
            last = UnknownOutcome(_OPERATION, type(error).__name__, f"unexpected: {error}")
        self._tell(last)

    def _receive(self) -> None:
        self._demand.acquire()
        body = self._accepted()
        try:
            with self._lock:
                self._body = body
            self._tell(_ACCEPTED)
            while self._is_wanted():
                event = next_payload(body.read, _OPERATION, _EVENT)
                if event is None:
                    return
                self._tell(event)
        finally:
            with self._lock:  # the loop must not shut down another one's connection
                self._body = None
                body.close()

    def _accepted(self) -> HTTPResponse:
        """The body of the answer, nothing of it read."""
        try:
            self._client.subscribe_to_shard(**self._request)
        except _Accepted as accepted:
            return accepted.body
        raise UnknownOutcome(_OPERATION, "UnexpectedAnswer", "the answer is not an event stream")

    def _is_wanted(self) -> bool:
        """Wait until the loop asks for an event; False when it asks for no more."""
        if not self._is_closed:
            self._demand.acquire()
        return not self._is_closed

    def _tell(self, told: bytes | AwsError | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and all its subscriptions
            self._loop.call_soon_threadsafe(self._hear, told)
