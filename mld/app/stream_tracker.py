"""Follows a list of streams: adds, watches and gives up their contexts while the worker runs.

A stream (by its identifier ``account:name:epoch``) is in one of these states:

- *followed*: it is in the list and exists; its leases are created, audited and read;
- *orphan*: the table has leases of it, the list has not; they are read, none are created;
- *unread*: it was deleted, or was an earlier stream of its name; its leases are left alone;
- not known yet: a lease of it was seen; the next refresh finds out, which comes at once.

Every worker follows the list (Java: only the leader, so that streams added at runtime are orphans
on all others). What becomes of streams that left the list is that of Java's strategy
NO_STREAMS_LEASES_DELETION: they are orphans. Source: Scheduler.java:717-971 (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from kcl_mld.app.worker_streams import ContextLoops
from kcl_mld.config.stream import Stream
from kcl_mld.config.stream_list import may_be
from kcl_mld.errors import MalformedData, MissingStreams, MldError, NotFound
from kcl_mld.kernel.concurrency import Wakeup, for_each
from kcl_mld.signals.model.conditions import Reason
from kcl_mld.streams.rules.stream_identity import arn_of, is_of_earlier_stream, is_of_later_stream

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.app.worker_streams import Loop, TrackerParts
    from kcl_mld.children.consuming.stream_context import StreamContext
    from kcl_mld.config.stream_list import ListedStream
    from kcl_mld.leases.model.lease import Lease

log = logging.getLogger("mld.streams")

#: Streams that are resolved, or get their leases, at the same time.
AT_ONCE = 4
_ABOUT_STREAM = frozenset({"DescribeStreamSummary", "ListShards"})


class OrphanStreams:
    """Decides whether leases of streams that are not followed are read or left alone.

    Source: Scheduler.java:1250-1264 (KCL 3.5.1), which reads them all, also those whose stream is
    gone or is another one by now.

    Args:
        successor: the followed stream of that account and name, if any.
    """

    def __init__(
        self,
        parts: TrackerParts,
        loops: ContextLoops,
        successor: Callable[[Stream], StreamContext | None],
    ) -> None:
        self._parts = parts
        self._loops = loops
        self._successor = successor
        self._read: dict[str, StreamContext] = {}
        self._unread: dict[str, str] = {}
        #: Contexts of streams that went away: their ``existence`` knows which stream it was.
        self._gone: dict[str, StreamContext] = {}
        self._new: set[str] = set()

    def streams(self) -> tuple[Stream, ...]:
        """Those that are read, sorted by identifier."""
        return tuple(self._read[identifier].stream for identifier in sorted(self._read))

    def unread(self) -> dict[str, str]:
        """Identifier -> why its leases are left alone."""
        return dict(sorted(self._unread.items()))

    # -- called by the tracker -------------------------------------------------------------------

    def saw(self, identifier: str) -> bool:
        """Note a lease of a stream that is not read; True when the stream is new."""
        if identifier in self._unread or identifier in self._new:
            return False
        self._new.add(identifier)
        return True

    def left(self, context: StreamContext) -> None:
        """A stream left the list: its leases are still read."""
        self._read[context.identifier] = context
        self._loops.add(context, audits=False)

    def gone(self, context: StreamContext, why: str) -> None:
        """A stream is no longer read, followed or not."""
        self._read.pop(context.identifier, None)
        self._gone[context.identifier] = context
        self._unread[context.identifier] = why

    async def revived(self, stream: Stream) -> StreamContext | None:
        """The context of a stream that was gone and is to be followed again, if there is one.

        Raises:
            ResourceMissing: it is another stream, or none.
            AwsError: unknown.
        """
        context = self._gone.get(str(stream.identifier))
        if context is not None:
            await context.existence.check()
        return context

    def followed(self, stream: Stream) -> None:
        """A stream was added to the list: it is no orphan, and others of its name are not read."""
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
        """Resolve newly seen streams, and check whether others exist again."""
        for identifier in sorted(self._new):
            try:
                await self._adopt(identifier)
            except MldError as error:
                log.warning("Leases of %s are not read yet: %s", identifier, error)
            finally:
                self._new.discard(identifier)

    async def look_again(self) -> None:
        """Streams that were left alone may exist again, or have no leases any more."""
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
                    await context.existence.check()
                await self._adopt(identifier)
            except MldError as error:
                log.debug("Leases of %s are still left alone: %s", identifier, error)

    async def _adopt(self, identifier: str) -> None:
        """Read an orphan's leases, or record why not.

        Raises:
            ResourceMissing: they belong to a later stream; ours of that name is gone.
            AwsError: the stream could not be described.
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
            return  # it was added to the list meanwhile
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
                # Another worker may have found the new stream before our check.
                await successor.existence.check()
            return stream, None
        return stream, await self._parts.resolver.created(stream)

    def _leave_alone(self, identifier: str, why: str) -> None:
        if self._unread.get(identifier) != why:
            log.warning("Leases of %s are ignored: %s", identifier, why)
        self._unread[identifier] = why

    def _read_orphan(self, stream: Stream, created: object) -> None:
        parts, identifier = self._parts, str(stream.identifier)
        context = parts.new_stream(stream, created, parts.options.orphan_position)
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


class StreamTracker:
    """The streams of a multi-stream worker; see :class:`~.worker_streams.WorkerStreams`."""

    def __init__(self, parts: TrackerParts) -> None:
        self._parts = parts
        self._loops = ContextLoops(parts.registry, self._gone)
        self._orphans = OrphanStreams(parts, self._loops, self._follower)
        self._followed: dict[ListedStream, StreamContext] = {}
        #: The last known list.
        self._listed: tuple[ListedStream, ...] = ()
        #: How often the list was read, and whether the last read succeeded.
        self.list_reads, self.list_is_current = 0, False
        #: Identifiers of all streams that were followed since the start.
        self._ever_followed: set[str] = set()
        self._synced: set[str] = set()
        #: Identifier -> name of streams of the list that were reported to be gone.
        self._reported: dict[str, str] = {}
        self._logged: dict[ListedStream, str] = {}
        self._woken = Wakeup()

    # -- what others ask -----------------------------------------------------------------------

    def followed(self) -> tuple[Stream, ...]:
        """Streams of the list that exist, in the order in which they were found."""
        return tuple(context.stream for context in self._followed.values())

    def orphans(self) -> tuple[Stream, ...]:
        """Streams that are read because the table has leases of them, sorted by identifier."""
        return self._orphans.streams()

    def shown(self) -> dict[str, Any]:
        """The streams that are read, orphans, and streams that are not read, with reasons."""
        return {
            "streams": [one.identifier for one in self.followed()],
            "orphans": [one.identifier for one in self.orphans()],
            "unread": self._orphans.unread(),
        }

    def is_read(self, lease: Lease) -> bool:
        """Whether the lease's stream is read; one that is seen for the first time is not yet."""
        identifier = lease.stream_identifier
        if identifier is None:
            return False
        if identifier in self._loops:
            return True
        if self._orphans.saw(identifier):
            self._woken.wake()
        return False

    def may_be_listed(self, stream: Stream) -> bool:
        """Whether a stream with leases is in the list, or an item of the list may mean this stream.

        An item that was not resolved yet may mean any stream of its name.
        """
        if stream.identifier in {one.identifier for one in self.followed()}:
            return True
        unknown = (one for one in self._listed if one not in self._followed)
        return any(may_be(one, stream) for one in unknown)

    def was_followed(self, identifier: str) -> bool:
        """Whether a stream was ever followed by this worker."""
        return identifier in self._ever_followed

    def wake(self) -> None:
        """Refresh now: the list may have changed."""
        self._woken.wake()

    def loops(self) -> tuple[Loop, ...]:
        """The loop that follows the list of streams."""
        return (("streams", self.run),)

    # -- start ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the streams, and fill the table for those without leases in use."""
        missing: dict[ListedStream, NotFound] = {}
        failed: list[Exception] = []
        listed = self._listed = await self._parts.names.names()
        self.list_reads, self.list_is_current = self.list_reads + 1, True

        async def follow(one: ListedStream) -> None:
            try:
                await self._follow(one)
            except MldError as error:
                if isinstance(error, NotFound) and error.operation in _ABOUT_STREAM:
                    missing[one] = error
                else:
                    failed.append(error)

        await for_each(listed, AT_ONCE, follow)
        if failed:
            raise failed[0]
        if missing:
            names = tuple(str(one) for one in listed if one in missing)
            raise MissingStreams(names, next(iter(missing.values())))
        scan = self._parts.store.last_scan
        for lease in scan.leases if scan is not None else ():
            self.is_read(lease)
        await self._orphans.look()

    # -- while the worker runs -----------------------------------------------------------------

    async def run(self) -> None:
        """Watch the streams and refresh the list, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._loops.begin(group)
            while True:
                jitter = 0.5 + self._parts.rng.random()
                await self._woken.wait(self._parts.options.discovery_interval_s * jitter)
                try:
                    await self.refresh()
                except Exception:
                    # Followed streams are read without refreshes; a worker that ended would read
                    # none.
                    log.exception("Looking for streams failed unexpectedly; it will be tried again")

    async def refresh(self) -> None:
        """Compare the list with the followed streams.

        A failure is logged, and retried at the next refresh.
        """
        await self._refresh_list()
        await self._orphans.look()
        await self._orphans.look_again()

    async def _refresh_list(self) -> None:
        try:
            listed = await self._parts.names.names()
        except MldError as error:
            self.list_is_current = False
            log.warning("The list of streams is unavailable; keeping the last one: %s", error)
            return
        self._listed = listed
        self.list_reads, self.list_is_current = self.list_reads + 1, True
        for one in tuple(self._followed):
            if one not in listed:
                self._leave(one)
        for name in set(self._reported.values()) - {one.name for one in listed}:
            self._clear(name)
        self._logged = {one: logged for one, logged in self._logged.items() if one in listed}
        due = [one for one in listed if not self._is_synced(one)]
        await for_each(due, AT_ONCE, self._try_to_follow)

    def _is_synced(self, one: ListedStream) -> bool:
        context = self._followed.get(one)
        return context is not None and context.identifier in self._synced

    async def _try_to_follow(self, one: ListedStream) -> None:
        try:
            await self._parts.table_watch.check()
            await self._follow(one)
        except MldError as error:
            if self._logged.get(one) != (text := str(error)):
                self._logged[one] = text
                log.warning("Stream %s cannot be read yet: %s", one, error)
        else:
            self._logged.pop(one, None)

    async def _follow(self, one: ListedStream) -> None:
        """Follow a stream of the list: resolve it, wire it, create its leases. May be repeated."""
        context = self._followed.get(one)
        if context is None:
            context = await self._found(one)
            self._clear(one.name)
            self._orphans.followed(context.stream)
            self._followed[one] = context
            self._ever_followed.add(context.identifier)
            self._loops.add(context, audits=True)
            log.info("Stream %s is read as %s", one, context.identifier)
        if not self._is_synced(one):
            await context.syncer.sync_if_empty()
            if self._followed.get(one) is context:
                self._synced.add(context.identifier)
                self._parts.leases_created()

    async def _found(self, one: ListedStream) -> StreamContext:
        parts = self._parts
        found = await parts.resolver.resolve(one)
        stream = found.stream
        revived = await self._orphans.revived(stream)
        if revived is not None:
            return revived
        return parts.new_stream(stream, found.created)

    def _leave(self, one: ListedStream) -> None:
        """A stream left the list."""
        context = self._followed.pop(one)
        self._synced.discard(context.identifier)
        self._orphans.left(context)
        # Perhaps because it was deleted; if it is created again, its shards have the same names.
        context.existence.look_soon()
        log.info("Stream %s left the list; its leases are still read, no new ones are created", one)

    def _follower(self, stream: Stream) -> StreamContext | None:
        """The followed stream of that account and name."""
        followed = self._followed.values()
        return next((one for one in followed if one.stream.has_name_of(stream)), None)

    # -- streams that are gone -----------------------------------------------------------------

    def _gone(self, context: StreamContext, why: str) -> None:
        """End its children, release its leases, and search for another stream of its name."""
        for one, followed in tuple(self._followed.items()):
            if followed is context:
                del self._followed[one]
                self._reported[context.identifier] = context.stream.name
                self._parts.conditions.report(Reason.STREAM_DELETED, why, context.identifier)
        self._synced.discard(context.identifier)
        self._orphans.gone(context, why)
        self._loops.remove(context)
        self._parts.conditions.clear(Reason.NO_CONSUMER, context.stream.name)
        self._parts.changed.wake()
        self._woken.wake()
        log.warning("Stream %s is no longer read; the others are", context.stream.name)

    def _clear(self, name: str) -> None:
        """Clear the report of a stream's absence: it exists, or is no longer needed."""
        for identifier in [one for one, gone in self._reported.items() if gone == name]:
            del self._reported[identifier]
            self._parts.conditions.clear(Reason.STREAM_DELETED, identifier)
