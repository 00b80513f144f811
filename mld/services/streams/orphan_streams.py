"""Streams that have leases in the table and are not in the list: read, or left alone.

Source: Scheduler.java:1250-1264 (KCL 3.5.1), which reads them all, also those whose stream is gone
or is another one by now.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mld.decide.streams.stream_identity import arn_of, is_of_earlier_stream, is_of_later_stream
from mld.errors import MalformedData, MldError, NotFound
from mld.model.streams.stream import Stream
from mld.services.streams.stream_context import plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.services.streams.context_loops import ContextLoops
    from mld.services.streams.stream_context import StreamContext
    from mld.services.streams.tracker_parts import TrackerParts

log = logging.getLogger(__name__)


class OrphanStreams:
    """What becomes of leases whose stream is not followed."""

    def __init__(
        self,
        parts: TrackerParts,
        loops: ContextLoops,
        successor: Callable[[Stream], StreamContext | None],
    ) -> None:
        """Know no orphan yet.

        Args:
            parts: those of the tracker.
            loops: those of the contexts.
            successor: what is followed of that account and name, if anything is.
        """
        self._parts = parts
        self._loops = loops
        self._successor = successor
        self._read: dict[str, StreamContext] = {}
        self._unread: dict[str, str] = {}
        #: Contexts of streams that went away: their presence knows which stream it was.
        self._gone: dict[str, StreamContext] = {}
        self._new: set[str] = set()

    def streams(self) -> tuple[Stream, ...]:
        """Those that are read, sorted by identifier."""
        return tuple(self._read[identifier].stream for identifier in sorted(self._read))

    def unread(self) -> dict[str, str]:
        """Identifier -> why its leases are left alone."""
        return dict(sorted(self._unread.items()))

    # -- told by the tracker -------------------------------------------------------------------

    def saw(self, identifier: str) -> bool:
        """A lease of a stream that is not read was seen; True when that is news."""
        if identifier in self._unread or identifier in self._new:
            return False
        self._new.add(identifier)
        return True

    def left(self, context: StreamContext) -> None:
        """A stream left the list: its leases are read on."""
        self._read[context.identifier] = context
        self._loops.add(context, audits=False)

    def gone(self, context: StreamContext, why: str) -> None:
        """A stream is not read any more, followed or not."""
        self._read.pop(context.identifier, None)
        self._gone[context.identifier] = context
        self._unread[context.identifier] = why

    async def revived(self, stream: Stream) -> StreamContext | None:
        """The context of a stream that was gone and is to be followed again, if there is one.

        Raises:
            ResourceMissing: it is another stream, or none.
            AwsError: it is not known.
        """
        context = self._gone.get(str(stream.identifier))
        if context is not None:
            await context.presence.check()
        return context

    def followed(self, stream: Stream) -> None:
        """A stream came into the list: it is no orphan, and others of its name are not read."""
        identifier = str(stream.identifier)
        self._unread.pop(identifier, None)
        self._gone.pop(identifier, None)
        for context in tuple(self._read.values()):
            if context.stream.has_name_of(stream):
                del self._read[context.identifier]
                self._loops.remove(context)
                if context.identifier != identifier:
                    self._leave_alone(context.identifier, _earlier(stream))
                    self._parts.changed.wake()

    # -- looking -------------------------------------------------------------------------------

    async def look(self) -> None:
        """Find out what those are that were seen since, and whether others are there again."""
        for identifier in sorted(self._new):
            try:
                await self._adopt(identifier)
            except MldError as error:
                log.warning("Leases of %s are not read yet: %s", identifier, error)
            finally:
                self._new.discard(identifier)

    async def look_again(self) -> None:
        """Streams that were left alone may be there again, or have no lease any more."""
        scan = self._parts.store.last_scan
        leased = {lease.stream_identifier for lease in scan.leases} if scan is not None else set()
        for identifier in tuple(self._read):
            if scan is not None and identifier not in leased:
                self._loops.remove(self._read.pop(identifier))
                log.info("Stream %s has no leases any more and is not in the list", identifier)
        for identifier in tuple(self._unread):
            if identifier not in leased:
                self._unread.pop(identifier)
                self._gone.pop(identifier, None)
                continue
            try:
                context = self._gone.get(identifier)
                if context is not None:
                    await context.presence.check()
                await self._adopt(identifier)
            except MldError as error:
                log.debug("Leases of %s are still left alone: %s", identifier, error)

    async def _adopt(self, identifier: str) -> None:
        """Read an orphan's leases, or know why not.

        Raises:
            ResourceMissing: they belong to a later stream; ours of that name is gone.
            AwsError: the stream could not be asked for.
        """
        try:
            stream, created = await self._found(identifier)
        except MalformedData as error:
            self._leave_alone(identifier, str(error))
            return
        except NotFound:
            self._leave_alone(identifier, "the stream does not exist")
            return
        successor = self._successor(stream)
        if identifier in self._loops:
            return  # it came into the list while this look was under way
        if successor is not None:
            self._leave_alone(identifier, _earlier(successor.stream))
        elif is_of_earlier_stream(stream.epoch or 0, created):
            self._leave_alone(
                identifier, f"the stream {stream.name} of now was created later, at {created}"
            )
        else:
            self._read_orphan(stream, created)

    async def _found(self, identifier: str) -> tuple[Stream, object]:
        parsed = Stream.parse_identifier(identifier)
        arn = arn_of(str(parsed.account), parsed.name, self._parts.region)
        stream = Stream(parsed.name, arn, parsed.account, parsed.epoch)
        successor = self._successor(stream)
        if successor is not None:
            if is_of_later_stream(stream.epoch or 0, successor.stream.epoch or 0):
                # Another worker may have met the new stream before our watch looked.
                await successor.presence.check()
            return stream, None
        return stream, await self._parts.resolver.created(stream)

    def _leave_alone(self, identifier: str, why: str) -> None:
        if self._unread.get(identifier) != why:
            log.warning("Leases of %s are left alone: %s", identifier, why)
        self._unread[identifier] = why

    def _read_orphan(self, stream: Stream, created: object) -> None:
        parts, identifier = self._parts, str(stream.identifier)
        options = parts.options.options_of(stream.name)
        positions = (parts.options.orphan_position, parts.position)
        context = parts.new_context(plan_of(stream, created, options, *positions))
        self._unread.pop(identifier, None)
        self._gone.pop(identifier, None)
        self._read[identifier] = context
        self._loops.add(context, audits=False)
        parts.leases_created()
        log.warning(
            "Stream %s is not in the list, but the lease table has leases of it (%s): they are read",
            stream.name,
            identifier,
        )


def _earlier(stream: Stream) -> str:
    return (
        f"they belong to an earlier stream of the name {stream.name}, which is {stream.identifier} "
        "now. If they do not, write account:name:epoch as it stands in their keys in streams"
    )
