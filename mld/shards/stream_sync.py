"""The two algorithms of shard sync, with their reads and writes, and how one new lease is written.

Source: HierarchicalShardSyncer.java (KCL 3.5.1): 162-423, 934-1001.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.errors import InconsistentShards, MalformedData
from kcl_mld.kernel.model.sequence import LATEST
from kcl_mld.kernel.model.text import counted
from kcl_mld.shards.rules.audit import signs_of_recreation
from kcl_mld.shards.rules.shardsync import (
    incompleteness,
    leases_for_empty_table,
    leases_of_lineage,
    leases_to_create,
    listed_before_parents,
    lost_children,
    never_read,
    shard_filter,
    unexpected_children,
)
from kcl_mld.signals.model.metrics import CREATE_LEASE_IN_SYNC

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from kcl_mld.config.config import Config
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.shards.stream_existence import StreamSource
    from kcl_mld.signals.model.metrics import CreateLease
    from kcl_mld.signals.ports import Metrics
    from kcl_mld.streams.model.shard import Shard

log = logging.getLogger("mld.shards")

#: An incomplete list of the first start is asked for this often, this far apart.
#: Source: HierarchicalShardSyncer.java:343-370; the pause after the last try is left out.
COMPLETENESS_ATTEMPTS = 3
COMPLETENESS_PAUSE_S = 1.0

#: A list of shards is not compared with a table that was read so much later (this process was
#: frozen): a shard that was open then may have been read, finished and cleaned up since, and its
#: lease would be created again. Well below the least time from a shard's end to its cleanup.
OUTDATED_S = 60.0
#: A scan serves all streams of a worker for so long where its age does no harm; a worker makes
#: three a minute for its taker anyway.
RECENT_S = 30.0


if TYPE_CHECKING:
    #: Asked before each row is written; False ends the sync.
    MayWrite = Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class SyncOutcome:
    """What one sync did.

    Attributes:
        performed: a shard list was compared with the table.
        created: keys of new leases, in order of creation.
        why: one clause, for logs.
    """

    performed: bool
    created: tuple[str, ...] = ()
    why: str = ""

    def __str__(self) -> str:
        if not self.performed:
            return f"no shard sync: {self.why}"
        return f"shard sync ({self.why}) created {counted(len(self.created), 'lease', 'leases')}"


@dataclass(frozen=True, slots=True)
class StreamRows:
    """Rows of one stream.

    Attributes:
        leases: sorted by key.
        broken: keys of those that can't be read.
    """

    leases: tuple[Lease, ...]
    broken: tuple[str, ...]


def rows_of(stream: Stream, scan: TableScan) -> StreamRows:
    """What a scan found of one stream; in single-stream mode the whole table is its."""
    identifier = stream.identifier
    prefix = "" if identifier is None else f"{identifier}:"
    return StreamRows(
        tuple(lease for lease in scan.leases if lease.stream_identifier == identifier),
        tuple(key for key, _why in scan.broken if key.startswith(prefix)),
    )


class StreamSync:
    """Compares the shards of one stream with its leases and creates what is missing."""

    def __init__(
        self,
        store: LeaseStore,
        source: StreamSource,
        config: Config,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """Sync one stream; the arguments are those of ``ShardSyncer``."""
        self._store = store
        self._detector = source.detector
        self._stream = source.stream
        self._config = config.shards
        self._position = source.position
        self._clock = clock
        self._metrics = metrics

    async def fill_empty_table(self, may_write: MayWrite) -> SyncOutcome:
        """A lease for every shard open at the initial position.

        Args:
            may_write: asked before each row; rows that were written stay.

        Raises:
            NotFound: the stream does not exist.
            InconsistentShards: the list stayed incomplete, or contradicts itself; try again later.
            AwsError: a call failed; rows written before stay.
        """
        if self._stream.traits.has_hash_ranges:
            shards = await self._complete_list()
            self._refuse_unexpected(shards)
            planned = leases_for_empty_table(self._stream, shards, self._position)
        else:
            shards = await self._some_shards()
            planned = self._leases_of_lineage(shards, ())
        keys = {lease.lease_key for lease in planned}
        # A worker that listed before a reshard and one that listed after it must not both write:
        # children at LATEST below a parent at LATEST would skip what arrives in between.
        others = [lease for lease in (await self.rows()).leases if lease.lease_key not in keys]
        if others:
            return SyncOutcome(performed=False, why="another worker fills the table")
        created = await self._create(planned, may_write)
        return SyncOutcome(performed=True, created=created, why="empty table")

    async def _complete_list(self) -> tuple[Shard, ...]:
        why = None
        for attempt in range(COMPLETENESS_ATTEMPTS):
            if attempt:
                log.warning("Listing the shards of %s again: %s", self._stream.name, why)
                await asyncio.sleep(COMPLETENESS_PAUSE_S)
            shards = await self._detector.list_shards(shard_filter(self._position))
            if not shards:
                raise _inconsistent(f"no shards found for stream {self._stream.name}")
            why = incompleteness(shards)
            if why is None:
                return shards
        raise _inconsistent(
            f"hash range of {self._stream.name} incomplete after {COMPLETENESS_ATTEMPTS} tries: "
            f"{why}"
        )

    async def _some_shards(self) -> tuple[Shard, ...]:
        """The list of a stream without hash keys: nothing shows whether it is complete."""
        shards = await self._detector.list_shards()
        if not shards:
            raise _inconsistent(f"no shards found for stream {self._stream.name}")
        return shards

    async def fill_gaps(self, may_write: MayWrite) -> SyncOutcome:
        """Restore lost child leases, then create what the initial position asks for.

        Args:
            may_write: asked before each row; rows that were written stay.

        Raises:
            NotFound: the stream does not exist.
            InconsistentShards: an open shard has children, and that is not to be ignored.
            AwsError: a call failed; rows written before stay.
        """
        began = self._clock.monotonic()
        shards = await self._detector.list_shards()
        if not shards:
            return SyncOutcome(performed=False, why="ListShards answered with no shards")
        unexpected = self._refuse_unexpected(shards)
        leases = {lease.shard_id: lease for lease in (await self.rows()).leases}
        unreadable = self._unreadable(shards)
        if self._clock.monotonic() - began > OUTDATED_S:
            return SyncOutcome(performed=False, why="the list of shards is too old by now")
        self.warn_of_recreation(leases.values(), shards)
        restored = await self._restore(
            lost_children(self._stream, shards, leases, unexpected=unexpected),
            may_write,
            frozenset(shard.shard_id for shard in shards),
        )
        leased = {*leases, *unreadable, *(lease.shard_id for lease in restored)}
        if self._stream.traits.has_hash_ranges:
            planned = leases_to_create(
                self._stream, shards, leased, self._position, unexpected=unexpected
            )
        else:
            planned = self._leases_of_lineage(shards, leased)
        open_ids = {shard.shard_id for shard in shards if shard.is_open}
        if leased:  # else the stream is new here
            if not self._stream.traits.lists_late:  # else nothing is missing
                for lease in planned:
                    self._report_missing(lease, is_open=lease.shard_id in open_ids)
            planned = tuple(map(never_read, planned))
        created = (
            *(lease.lease_key for lease in restored),
            *await self._create(planned, may_write),
        )
        return SyncOutcome(performed=True, created=created, why="gaps")

    def _leases_of_lineage(
        self, shards: Collection[Shard], leased: Collection[str]
    ) -> tuple[Lease, ...]:
        waiting = listed_before_parents(shards, leased, self._clock.earliest())
        for shard_id, parent in waiting.items():
            log.info("Shard %s waits: its parent %s is not listed yet", shard_id, parent)
        return leases_of_lineage(self._stream, shards, leased, self._position, waiting)

    async def _restore(
        self, lost: Collection[Lease], may_write: MayWrite, listed: frozenset[str]
    ) -> tuple[Lease, ...]:
        """Create lost child leases whose loss a consistent read confirms."""
        restored = []
        for lease in lost:
            if not await self._is_lost(lease) or not await may_write():
                continue
            if self._stream.traits.lists_late:
                log.info("Shard %s was listed after the end of its parent", lease.shard_id)
            else:
                self._report_lost(lease, listed)
            row = never_read(lease)
            await create_lease(self._store, row, self._clock, self._metrics, CREATE_LEASE_IN_SYNC)
            restored.append(lease)
        return tuple(restored)

    def _report_lost(self, lease: Lease, listed: frozenset[str]) -> None:
        log.error(
            "Lease %s (hash keys %s) is missing although its parents are finished: creating it "
            "at TRIM_HORIZON. %s",
            lease.lease_key,
            lease.hash_range,
            "Its parents are past retention, so whoever finished them could not know it."
            if listed.isdisjoint(lease.parent_shard_ids)
            else "If it was deleted after use, its shard is read again.",
        )

    def _report_missing(self, lease: Lease, *, is_open: bool) -> None:
        if is_open and lease.checkpoint == LATEST:
            outcome = "what came since its last checkpoint is not read"
        else:
            outcome = "it and its children are read from there, perhaps again"
        log.error(
            "No lease covers the hash keys %s of %s: creating the lease of the %s shard %s at %s; %s",
            lease.hash_range,
            self._stream.name,
            "open" if is_open else "closed",
            lease.shard_id,
            lease.checkpoint,
            outcome,
        )

    async def _is_lost(self, lease: Lease) -> bool:
        try:
            parents = [
                await self._store.get(lease.key_of(parent), consistent=True)
                for parent in lease.parent_shard_ids
            ]
            rows = [parent for parent in parents if parent is not None]
            if not rows or not all(parent.is_finished for parent in rows):
                return False
            # Read last: a child's row disappears only after its parents' rows did.
            return await self._store.get(lease.lease_key, consistent=True) is None
        except MalformedData:
            return False  # a row that can't be read is there, and not known to be finished

    def _unreadable(self, shards: Collection[Shard]) -> set[str]:
        """Ids of shards whose rows were there in the last scan and can't be read.

        They count as leased: for want of one row its finished ancestors would be read again.
        """
        scan = self._store.last_scan
        keys = {key for key, _why in scan.broken} if scan is not None else set()
        return {one.shard_id for one in shards if self._stream.lease_key(one.shard_id) in keys}

    async def _create(self, planned: Collection[Lease], may_write: MayWrite) -> tuple[str, ...]:
        created = []
        for lease in planned:
            if not await may_write():
                log.info("This worker no longer leads: the new leader creates the remaining leases")
                break
            if await create_lease(
                self._store, lease, self._clock, self._metrics, CREATE_LEASE_IN_SYNC
            ):
                log.info("Created lease %s at %s", lease.lease_key, lease.checkpoint)
                created.append(lease.lease_key)
        return tuple(created)

    def _refuse_unexpected(self, shards: Collection[Shard]) -> tuple[str, ...]:
        found = unexpected_children(shards)
        if found and not self._config.ignore_unexpected_children:
            raise _inconsistent(
                f"open shards of {self._stream.name} have children: {', '.join(found)}"
            )
        return found

    async def rows(self) -> StreamRows:
        """Rows of this stream as they are now."""
        return rows_of(self._stream, await self._store.scan())

    async def recent_rows(self) -> StreamRows:
        """Rows of this stream; one scan of the table serves many streams for a while.

        To be used where a decision is confirmed by a look at :meth:`rows`, or can wait.
        """
        scan = self._store.last_scan
        if (
            self._stream.identifier is None
            or scan is None
            or self._clock.monotonic() - scan.started_at > RECENT_S
        ):
            return await self.rows()
        return rows_of(self._stream, scan)

    def known_rows(self, max_age_s: float) -> StreamRows:
        """Rows of this stream in the last scan that anybody made; none if that is older."""
        scan = self._store.last_scan
        if scan is None or self._clock.monotonic() - scan.started_at > max_age_s:
            return StreamRows((), ())
        return rows_of(self._stream, scan)

    def warn_of_recreation(self, leases: Collection[Lease], shards: Collection[Shard]) -> None:
        """Say so when leases belong to an earlier stream of the same name."""
        signs = signs_of_recreation(leases, shards) if self._stream.traits.reuses_names else ()
        if signs:
            log.error(
                "Stream %s was probably deleted and created again: %d of its leases belong to an "
                "earlier stream and hide shards of this one (%s%s). Stop all workers and delete "
                "these rows, or use another applicationName.",
                self._stream.name,
                len(signs),
                "; ".join(signs[:3]),
                "" if len(signs) <= 3 else "; ...",
            )


def _inconsistent(message: str) -> InconsistentShards:
    return InconsistentShards("ListShards", "InconsistentShards", message)


async def create_lease(
    store: LeaseStore, lease: Lease, clock: Clock, metrics: Metrics, names: CreateLease
) -> bool:
    """Create the row unless it exists.

    Args:
        lease: the new row; its checkpoint names the metric.
        metrics: gets Java's ``CreateLease*`` data.

    Returns:
        False when the row existed already, which is as good.

    Raises:
        AwsError: the write failed.
    """
    position = lease.checkpoint
    sentinel = position.sentinel if position is not None else None
    kind = "SEQUENCE_NUMBER" if sentinel is None else str(sentinel)
    started = clock.monotonic()
    succeeded = False
    try:
        created = await store.create_if_absent(lease)
        succeeded = True
    finally:
        metrics.add(names.by_position[kind], int(succeeded))
        metrics.call(names.call, clock.monotonic() - started, succeeded=succeeded)
    return created
