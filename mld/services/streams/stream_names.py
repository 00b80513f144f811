"""Where a worker's list of streams comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mld.model.streams.listed_stream import ListedStream


class StreamNames(Protocol):
    """A source of streams; asked at the start and at every refresh of the ``StreamTracker``."""

    async def names(self) -> tuple[ListedStream, ...]:
        """All streams that are to be read now, each once, in a stable order.

        Raises:
            MldError: the list is not known now; the last one stays in force. An answer that is
                incomplete must be an error, not a shorter list: streams that are missing in it
                are given up.
        """
        ...


class StaticNames:
    """The list of the file."""

    def __init__(self, streams: tuple[ListedStream, ...]) -> None:
        """Always these."""
        self._streams = streams

    async def names(self) -> tuple[ListedStream, ...]:
        """See :class:`StreamNames`."""
        return self._streams
