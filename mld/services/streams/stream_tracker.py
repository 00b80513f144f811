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
from typing import TYPE_CHECKING

from mld.decide.readiness import Reason
from mld.errors import MissingStreams, MldError, NotFound
from mld.model.streams.listed_stream import may_be
from mld.services.bounded import for_each
from mld.services.streams.context_loops import ContextLoops
from mld.services.streams.orphan_streams import OrphanStreams
from mld.services.streams.stream_context import plan_of
from mld.services.wakeup import Wakeup

if TYPE_CHECKING:
    from mld.model.leases.lease import Lease
    from mld.model.streams.listed_stream import ListedStream
    from mld.model.streams.stream import Stream
    from mld.services.streams.stream_context import StreamContext
    from mld.services.streams.tracker_parts import TrackerParts
    from mld.services.streams.worker_streams import Loop

log = logging.getLogger(__name__)

#: Streams that are looked for, or get their leases, at the same time.
AT_ONCE = 4
_ABOUT_STREAM = frozenset({"DescribeStreamSummary", "ListShards"})


class StreamTracker:
    """The streams of a multi-stream worker; see :class:`~.worker_streams.WorkerStreams`."""

    def __init__(self, parts: TrackerParts) -> None:
        """Nothing is read yet."""
        self._parts = parts
        self._loops = ContextLoops(parts.registry, self._gone)
        self._orphans = OrphanStreams(parts, self._loops, self._follower)
        self._followed: dict[ListedStream, StreamContext] = {}
        #: The last list that was known.
        self._listed: tuple[ListedStream, ...] = ()
        #: How often the list was read, and whether its last reading went well.
        self.list_reads, self.list_is_current = 0, False
        #: Identifiers of all streams that were followed since the start.
        self._ever_followed: set[str] = set()
        self._synced: set[str] = set()
        #: Identifier -> name of streams of the list that were reported to be gone.
        self._reported: dict[str, str] = {}
        self._said: dict[ListedStream, str] = {}
        self._woken = Wakeup()

    # -- what others ask -----------------------------------------------------------------------

    def followed(self) -> tuple[Stream, ...]:
        """Streams of the list that exist, in the order in which they were found."""
        return tuple(context.stream for context in self._followed.values())

    def orphans(self) -> tuple[Stream, ...]:
        """Streams that are read because the table has leases of them, sorted by identifier."""
        return self._orphans.streams()

    def unread(self) -> dict[str, str]:
        """Identifiers of streams with leases that are left alone, and why."""
        return self._orphans.unread()

    def is_read(self, lease: Lease) -> bool:
        """See :class:`~.worker_streams.WorkerStreams`; a stream seen for the first time: not yet."""
        identifier = lease.stream_identifier
        if identifier is None:
            return False
        if identifier in self._loops:
            return True
        if self._orphans.saw(identifier):
            self._woken.wake()
        return False

    def may_be_listed(self, stream: Stream) -> bool:
        """Whether a stream with leases is in the list, or an item of it may mean this stream.

        An item that was not found yet may mean any stream of its name.
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
        """See :class:`~.worker_streams.WorkerStreams`."""
        return (("streams", self.run),)

    # -- start ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """See :class:`~.worker_streams.WorkerStreams`."""
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
        """Watch over the streams and refresh the list, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._loops.begin(group)
            while True:
                jitter = 0.5 + self._parts.rng.random()
                await self._woken.wait(self._parts.options.discovery_interval_s * jitter)
                try:
                    await self.refresh()
                except Exception:
                    # Streams that are followed are read on without; a worker that ends reads none.
                    log.exception("Looking for streams failed unexpectedly; it will be tried again")

    async def refresh(self) -> None:
        """Compare the list with what is followed; a failure is said, and tried again next time."""
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
        self._said = {one: said for one, said in self._said.items() if one in listed}
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
            if self._said.get(one) != (text := str(error)):
                self._said[one] = text
                log.warning("Stream %s cannot be read yet: %s", one, error)
        else:
            self._said.pop(one, None)

    async def _follow(self, one: ListedStream) -> None:
        """Read a stream of the list: find it, wire it, give it leases. May be repeated."""
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
        options = parts.options.options_of(stream.name)
        return parts.new_context(plan_of(stream, found.created, options, parts.position))

    def _leave(self, one: ListedStream) -> None:
        """A stream left the list."""
        context = self._followed.pop(one)
        self._synced.discard(context.identifier)
        self._orphans.left(context)
        # Perhaps because it was deleted; if it is created again, its shards have the same names.
        context.presence.look_soon()
        log.info("Stream %s left the list; its leases are still read, no new ones are created", one)

    def _follower(self, stream: Stream) -> StreamContext | None:
        """What is followed of that account and name."""
        followed = self._followed.values()
        return next((one for one in followed if one.stream.has_name_of(stream)), None)

    # -- streams that are gone -----------------------------------------------------------------

    def _gone(self, context: StreamContext, why: str) -> None:
        """End its children, give its leases up, and look for another stream of its name."""
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
        """A stream of that name is there, or need not be."""
        for identifier in [one for one, gone in self._reported.items() if gone == name]:
            del self._reported[identifier]
            self._parts.conditions.clear(Reason.STREAM_DELETED, identifier)
