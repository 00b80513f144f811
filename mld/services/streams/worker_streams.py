"""The streams of a worker as its start and its main loop see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mld.model.leases.lease import Lease
    from mld.services.streams.stream_context import StreamContext

    #: Name and coroutine function of a service loop.
    Loop = tuple[str, Callable[[], Coroutine[Any, Any, None]]]


class WorkerStreams(Protocol):
    """One stream (:class:`SingleStream`), or those that a ``StreamTracker`` follows."""

    async def start(self) -> None:
        """Find the streams and fill the table for those that have no leases in use.

        May be called again after it failed.

        Raises:
            MissingStreams: some do not exist.
            NotFound: the only one does not exist.
            AwsError: a stream or the table could not be read; try again.
        """
        ...

    def loops(self) -> tuple[Loop, ...]:
        """Service loops that belong to streams; what they raise ends the worker."""
        ...

    def is_read(self, lease: Lease) -> bool:
        """Whether this worker reads that lease's stream; leases of others are left alone."""
        ...


class SingleStream:
    """The stream of a worker in single-stream mode: known from the start, for good."""

    def __init__(self, context: StreamContext) -> None:
        """Read one stream."""
        self._context = context

    async def start(self) -> None:
        """See :class:`WorkerStreams`."""
        await self._context.syncer.sync_if_empty()

    def loops(self) -> tuple[Loop, ...]:
        """See :class:`WorkerStreams`; a stream that is gone ends the worker."""
        return (
            ("shard-syncer", self._context.syncer.run),
            ("stream-watch", self._context.presence.run),
        )

    def is_read(self, lease: Lease) -> bool:  # noqa: ARG002 - the table has leases of one stream
        """See :class:`WorkerStreams`."""
        return True
