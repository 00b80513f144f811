"""How long an answer may take to come whole.

The time-outs of a connection are for one silence. A service, or something on the way to it, that
sends a byte now and then or a body without an end would hold its caller for ever. So a timer of the
loop ends the connection of a call that takes many times that silence; whoever reads from it in a
thread then fails as if the service had closed it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError

from mld.adapters.aws.http_exchange import http_session_of

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from botocore.awsrequest import AWSPreparedRequest, AWSResponse
    from botocore.client import BaseClient

#: Silences that one answer may last: with those of Kinesis (30 s) two minutes for 10 MB.
SILENCES = 4

_thread = threading.local()


class Connection(Protocol):
    """Something that is read from: a socket, or an answer of urllib3."""

    def fileno(self) -> int:
        """Of the socket beneath; an error where there is none any more."""


class AnswerLimit:
    """The limit of one call; made and timed by the loop, kept by the thread that calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_s: float) -> None:
        """Time counts from :meth:`running`: a call may wait long for its thread."""
        self.limit_s = limit_s
        self.has_passed = False
        self.was_read = False  #: whether an answer came, to its end or not
        self._loop = loop
        self._lock = threading.Lock()  # guards the two below
        self._read_from: Connection | None = None
        self._is_over = False
        self._began_at: float | None = None
        self._waits = False
        self._timer = loop.call_later(limit_s, self._look)

    def drop(self) -> None:
        """By the loop, when it waits no more; a call that is under way keeps its limit."""
        if self._began_at is None or self._is_over:
            self._timer.cancel()

    def _look(self) -> None:
        began_at = None if self._waits else self._began_at
        left_s = self.limit_s if began_at is None else began_at + self.limit_s - time.monotonic()
        if began_at is None or left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
            return
        with self._lock:
            self.has_passed = not self._is_over
            if self._read_from is not None:
                shut_down(self._read_from)

    # -- in the thread -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While this thread makes the call."""
        _thread.limit, self._began_at = self, time.monotonic()
        try:
            yield
        finally:
            self._is_over, _thread.limit = True, None

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """While this thread waits for what it needs to send the request; time counts from then."""
        self._waits = True
        try:
            yield
        finally:
            self._began_at = time.monotonic()
            self._waits = False

    def read_from(self, connection: Connection | None) -> None:
        """What the answer comes from; None = nothing more of it is to come."""
        with self._lock:
            self.was_read = connection is None
            self._read_from = connection
            if connection is not None and self.has_passed:
                shut_down(connection)


def waiting() -> contextlib.AbstractContextManager[None]:
    """While this thread waits for something else than the answer to its call, if it makes one."""
    limit: AnswerLimit | None = getattr(_thread, "limit", None)
    return contextlib.nullcontext() if limit is None else limit.waiting()


@contextlib.contextmanager
def limited(connection: Connection) -> Iterator[None]:
    """While the answer to this thread's call is read from a connection."""
    limit: AnswerLimit | None = getattr(_thread, "limit", None)
    if limit is None:
        yield
        return
    limit.read_from(connection)
    try:
        yield
    finally:
        limit.read_from(None)


def limit_answers(client: BaseClient) -> None:
    """Have a client read the bodies of its answers within the limits of their calls."""
    session = http_session_of(client)
    if session is None:
        return

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        """The hook ``before-send``; a stream is left to botocore."""
        return None if request.stream_output else send_limited(session.send, request)

    client.meta.events.register_last("before-send", send)


def send_limited(send: Callable[[Any], Any], request: AWSPreparedRequest) -> AWSResponse:
    """Send a request and read its answer whole, as botocore does, within the limit of the call.

    Args:
        send: of botocore's session of connections.
        request: no stream.

    Raises:
        BotoCoreError: there was no answer, or not all of it.
    """
    request.stream_output = True
    response: AWSResponse = send(request)
    with limited(response.raw):
        try:
            _ = response.content
        except ReadTimeoutError as error:
            raise boto.ReadTimeoutError(endpoint_url=request.url, error=error) from error
        except ProtocolError as error:
            raise boto.ConnectionClosedError(endpoint_url=request.url, error=error) from error
        except (HTTPError, OSError) as error:
            raise boto.HTTPClientError(error=error) from error
    return response


def shut_down(connection: Connection) -> None:
    """Wake whoever reads from a connection; closing it would not."""
    # An answer that is read to its end may have no connection any more, and no file either.
    with (
        contextlib.suppress(OSError, ValueError, AttributeError),
        socket.socket(fileno=os.dup(connection.fileno())) as twin,
    ):
        twin.shutdown(socket.SHUT_RDWR)
