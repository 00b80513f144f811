"""Deletes the leases of streams that left the list, according to the configured strategy.

Each worker has one; only the leader's is active. Workers that hold such leases notice it at their
next renewal, and their children get ``leaseLost``.

Source: Scheduler.java:717-971 (KCL 3.5.1).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.config.stream import Stream
from kcl_mld.config.stream_list import FormerStrategy, may_be
from kcl_mld.errors import MalformedData, MldError, NotFound
from kcl_mld.kernel.model.text import counted
from kcl_mld.signals.model.metrics import (
    ACTIVE_STREAMS,
    DELETED_STREAMS,
    NON_EXISTING_STREAMS,
    STREAMS_PENDING_DELETION,
)
from kcl_mld.streams.rules.stream_identity import arn_of
from kcl_mld.streams.rules.stream_list import LOOK_S, Pending, SeenStreams, judge_former

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.app.stream_tracker import StreamTracker
    from kcl_mld.app.worker_streams import TrackerParts
    from kcl_mld.config.stream_list import ListedStream
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.streams")


class FormerStreams:
    """The leader's check of streams that have leases and are not in the list.

    Args:
        parts: those of the tracker; its options have the policy.
        read_named: the streams that the configuration currently names for deletion.
    """

    def __init__(
        self,
        tracker: StreamTracker,
        parts: TrackerParts,
        is_leader: Callable[[], Awaitable[bool]],
        clock: Clock,
        metrics: Metrics,
        read_named: Callable[[], Awaitable[tuple[ListedStream, ...]]],
    ) -> None:
        self._tracker = tracker
        self._parts = parts
        self._policy = parts.options.former
        self._is_leader = is_leader
        self._clock = clock
        self._metrics = metrics
        self._read_named = read_named
        self._named = self._policy.named
        self._pending = Pending()
        self._list_reads, self._list_read_at = 0, float("-inf")

    async def run(self) -> None:
        """Check once a minute, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self.look_once()
            except MldError as error:
                log.warning("Could not clean up leases of former streams: %s", error)

    async def look_once(self) -> None:
        """One check; does nothing on a worker that does not lead.

        Raises:
            AwsError: the lease table could not be read.
        """
        if not await self._is_leader():
            self._pending = Pending()
            return
        rows: dict[str, list[str]] = {}
        for lease in (await self._parts.store.scan()).leases:
            if lease.stream_identifier is not None:
                rows.setdefault(lease.stream_identifier, []).append(lease.lease_key)
        streams = {name: stream for name in rows if (stream := _parsed(name)) is not None}
        listed = {name for name, one in streams.items() if self._tracker.may_be_listed(one)}
        former = [one for name, one in streams.items() if name not in listed]
        await self._refresh_named()
        seen = SeenStreams(
            leased=streams.keys(),
            listed=listed,
            named=[str(one.identifier) for one in former if self._is_named(one)],
            absent=[str(one.identifier) for one in former if await self._is_absent(one)],
            followed=len(self._tracker.followed()),
            list_read_at=self._list_read(),
            now=self._clock.monotonic(),
        )
        self._pending, due = judge_former(
            self._pending, seen, self._policy.strategy, self._policy.wait_s
        )
        deleted = 0
        for name in due:
            # The result above may be out of date: the list is read again.
            if not self._tracker.may_be_listed(streams[name]):
                deleted += await self._delete(name, rows[name], absent=name in seen.absent)
        self._report(deleted)

    def _list_read(self) -> float:
        """When this or an earlier check first read the current list.

        -inf if it may be out of date.
        """
        if self._tracker.list_reads != self._list_reads:
            self._list_reads = self._tracker.list_reads
            self._list_read_at = self._clock.monotonic()
        return self._list_read_at if self._tracker.list_is_current else float("-inf")

    def _is_named(self, stream: Stream) -> bool:
        return any(may_be(one, stream) for one in self._named)

    async def _refresh_named(self) -> None:
        if self._policy.strategy is not FormerStrategy.PROVIDED_LIST:
            return
        try:
            self._named = await self._read_named()
        except (MldError, OSError) as error:
            log.warning(
                "The list of former streams is unavailable; keeping the last one: %s", error
            )

    async def _is_absent(self, stream: Stream) -> bool:
        """Whether a stream of this worker no longer exists; False after an error."""
        if not self._tracker.was_followed(str(stream.identifier)):
            return False
        arn = arn_of(str(stream.account), stream.name, self._parts.region)
        try:
            await self._parts.resolver.created(
                Stream(stream.name, arn, stream.account, stream.epoch)
            )
        except NotFound:
            return True
        except MldError as error:
            log.debug("Could not check whether stream %s exists: %s", stream.identifier, error)
        return False

    async def _delete(self, name: str, keys: list[str], *, absent: bool) -> bool:
        """Delete a stream's leases, children before their parents; True when all are gone."""
        why = "the stream does not exist any more" if absent else "the stream left the list"
        for number, key in enumerate(sorted(keys, reverse=True)):
            try:
                await self._parts.store.delete(key, only_finished=False)
            except MldError as error:
                text = "Deleted %d of %d leases of %s, the rest follows later: %s"
                log.warning(text, number, len(keys), name, error)
                return False
        log.warning("Deleted %s of %s: %s", counted(len(keys), "lease", "leases"), name, why)
        return True

    def _report(self, deleted: int) -> None:
        counts = {
            ACTIVE_STREAMS: len(self._tracker.followed()),
            STREAMS_PENDING_DELETION: len(self._pending.former),
            NON_EXISTING_STREAMS: len(self._pending.absent),
            DELETED_STREAMS: deleted,
        }
        for metric, count in counts.items():
            self._metrics.add(metric, count)


def _parsed(identifier: str) -> Stream | None:
    """The stream of a lease; None if it can't be parsed, and then nothing is deleted."""
    try:
        return Stream.parse_identifier(identifier)
    except MalformedData:
        return None
