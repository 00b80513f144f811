"""Creates the leases that the table lacks: all of them at the first start, lost ones later.

Source: HierarchicalShardSyncer.java, ShardSyncTask.java, PeriodicShardSyncManager.java (KCL 3.5.1).
Different on purpose: an empty table is filled at once (Java waits 1-30 s and idles a minute
afterwards), a stream that does not exist is an error at every start, the leader restores lost child
leases, and says when a stream was deleted and created again.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mld.decide.audit import signs_of_recreation
from mld.decide.shardsync import (
    incompleteness,
    leases_for_empty_table,
    leases_to_create,
    lost_children,
    shard_filter,
    unexpected_children,
)
from mld.errors import AwsError, InconsistentShards, MalformedData, MldError, NotFound
from mld.ports.metrics import Level, Unit
from mld.services.lease_auditor import LeaseAuditor
from mld.services.lease_creation import create_lease

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from mld.model.config import Config
    from mld.model.lease import Lease
    from mld.model.shard import Shard
    from mld.model.stream import Stream
    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics
    from mld.services.lease_store import LeaseStore
    from mld.services.shard_detector import ShardDetector

log = logging.getLogger(__name__)

#: An incomplete list of the first start is asked for this often, this far apart.
#: Source: HierarchicalShardSyncer.java:343-370; the pause after the last try is left out.
COMPLETENESS_ATTEMPTS = 3
COMPLETENESS_PAUSE_S = 1.0

#: A start with leases in the table waits no longer than this for the list that confirms the stream.
LOOK_S = 2.0

_SYNC = "ShardSyncTask"
_AUDIT = "PeriodicShardSyncManager"


class Leadership(Protocol):
    """Says whether this worker does the fleet's common chores."""

    async def is_leader(self) -> bool:
        """True on at most one live worker, as far as the table shows."""
        ...


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
        return f"shard sync ({self.why}) created {len(self.created)} leases"


class ShardSyncer:
    """First sync of a stream, and the leader's audit afterwards."""

    def __init__(
        self,
        store: LeaseStore,
        detector: ShardDetector,
        elector: Leadership,
        stream: Stream,
        config: Config,
        clock: Clock,
        metrics: Metrics,
        *,
        on_abandoned: Callable[[Lease], None] | None = None,
    ) -> None:
        """Sync one stream.

        Args:
            store: the lease table.
            detector: lists the stream's shards.
            elector: only the leader audits.
            stream: names the lease keys.
            config: sections ``stream``, ``shards`` and ``leases``.
            clock: for ages and durations.
            metrics: gets Java's data of ``ShardSyncTask`` and ``PeriodicShardSyncManager``.
            on_abandoned: told of finished leases that nobody holds, e.g. ``LeaseCleanup.enqueue``.
        """
        self._store = store
        self._detector = detector
        self._elector = elector
        self._stream = stream
        self._config = config.shards
        self._position = config.stream.initial_position
        self._auditor = LeaseAuditor(
            store, detector, stream, config, clock, on_abandoned=on_abandoned
        )
        self._clock = clock
        self._metrics = metrics
        self._synced_at: float | None = None

    # -- start ---------------------------------------------------------------------------------

    async def sync_if_empty(self) -> SyncOutcome:
        """At start: fill an empty table; on one with leases only check that the stream exists.

        Every worker may call it, at the same time: rows are created only where there are none.

        Raises:
            NotFound: the stream does not exist.
            AwsError: the shards or the table could not be read or written; start again later.
                Rows written before stay, and are a good beginning.
        """
        if await self._table_is_empty():
            return await self._measured(self._fill_empty_table)
        await self._look_at_stream()
        return SyncOutcome(performed=False, why="the table has leases")

    async def _look_at_stream(self) -> None:
        """Raise NotFound for a missing stream; any other trouble is for the consumers to meet."""
        try:
            async with asyncio.timeout(LOOK_S):
                shards = await self._detector.list_shards()
        except NotFound:
            raise
        except (AwsError, MalformedData, TimeoutError) as error:
            log.warning("Shards of %s cannot be listed yet: %r", self._stream.name, error)
        else:
            self._warn_of_recreation(await self._own_leases(), shards)

    async def sync(self) -> SyncOutcome:
        """One whole sync by the algorithm that the table asks for.

        Raises:
            NotFound: the stream does not exist.
            AwsError: a list, read or write failed; rows written before stay.
        """
        is_empty = await self._table_is_empty()
        return await self._measured(self._fill_empty_table if is_empty else self._fill_gaps)

    async def _table_is_empty(self) -> bool:
        """No row is, or tries to be, a lease; other items do not count."""
        scan = await self._store.scan()
        return not scan.leases and not scan.broken

    # -- the two algorithms ----------------------------------------------------------------------

    async def _fill_empty_table(self) -> SyncOutcome:
        shards = await self._complete_list()
        self._refuse_unexpected(shards)
        planned = leases_for_empty_table(self._stream, shards, self._position)
        keys = {lease.lease_key for lease in planned}
        # A worker that listed before a reshard and one that listed after it must not both write:
        # children at LATEST below a parent at LATEST would skip what arrives in between.
        others = [lease for lease in await self._own_leases() if lease.lease_key not in keys]
        if others:
            return SyncOutcome(performed=False, why="another worker fills the table")
        created = await self._create(planned)
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

    async def _fill_gaps(self) -> SyncOutcome:
        shards = await self._detector.list_shards()
        if not shards:
            return SyncOutcome(performed=False, why="ListShards answered with no shards")
        unexpected = self._refuse_unexpected(shards)
        leases = {lease.shard_id: lease for lease in await self._own_leases()}
        self._warn_of_recreation(leases.values(), shards)
        restored = await self._restore(
            lost_children(self._stream, shards, leases, unexpected=unexpected)
        )
        leased = {*leases, *(lease.shard_id for lease in restored)}
        planned = leases_to_create(
            self._stream, shards, leased, self._position, unexpected=unexpected
        )
        closed = {shard.shard_id for shard in shards if not shard.is_open}
        for lease in planned:
            if lease.shard_id in closed:
                log.warning(
                    "Creating a lease of closed shard %s at %s: descendants lack leases, so it and "
                    "what follows are read (again)",
                    lease.shard_id,
                    lease.checkpoint,
                )
        created = (*(lease.lease_key for lease in restored), *await self._create(planned))
        return SyncOutcome(performed=True, created=created, why="gaps")

    async def _restore(self, lost: Collection[Lease]) -> tuple[Lease, ...]:
        """Create lost child leases whose loss a consistent read confirms."""
        restored = []
        for lease in lost:
            if not await self._is_lost(lease):
                continue
            log.error(
                "Lease %s is missing although its parents are finished: creating it at "
                "TRIM_HORIZON. If it was deleted after use, its shard is read again.",
                lease.lease_key,
            )
            await create_lease(self._store, lease, self._clock, self._metrics, operation=_SYNC)
            restored.append(lease)
        return tuple(restored)

    async def _is_lost(self, lease: Lease) -> bool:
        parents = [
            await self._store.get(lease.key_of(parent), consistent=True)
            for parent in lease.parent_shard_ids
        ]
        rows = [parent for parent in parents if parent is not None]
        if not rows or not all(parent.is_finished for parent in rows):
            return False
        # Read last: a child's row disappears only after its parents' rows did.
        return await self._store.get(lease.lease_key, consistent=True) is None

    async def _create(self, planned: Collection[Lease]) -> tuple[str, ...]:
        created = []
        for lease in planned:
            if await create_lease(self._store, lease, self._clock, self._metrics, operation=_SYNC):
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

    async def _own_leases(self) -> tuple[Lease, ...]:
        identifier = self._stream.identifier
        scan = await self._store.scan()
        return tuple(lease for lease in scan.leases if lease.stream_identifier == identifier)

    def _warn_of_recreation(self, leases: Collection[Lease], shards: Collection[Shard]) -> None:
        signs = signs_of_recreation(leases, shards)
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

    async def _measured(self, algorithm: Callable[[], Awaitable[SyncOutcome]]) -> SyncOutcome:
        started = self._clock.monotonic()
        success = 0
        try:
            outcome = await algorithm()
            success = 1
        finally:
            self._synced_at = self._clock.monotonic()
            elapsed_ms = (self._synced_at - started) * 1000
            self._metrics.add(_SYNC, "SyncShards.Success", success, level=Level.DETAILED)
            self._metrics.add(_SYNC, "Success", success)
            self._metrics.add(_SYNC, "Time", elapsed_ms, unit=Unit.MILLISECONDS)
        log.info("%s", outcome)
        return outcome

    # -- audit -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Audit for ever, on the leader."""
        await asyncio.sleep(self._config.audit_initial_delay_s)
        while True:
            try:
                await self.audit()
            except MldError as error:
                log.warning("The audit of %s failed: %s", self._stream.name, error)
            await asyncio.sleep(self._config.audit_interval_s)

    async def audit(self) -> SyncOutcome:
        """One look at the stream's leases by the leader, and a sync where they need one.

        Raises:
            AwsError: a read or the sync failed; the next audit tries again.
        """
        if not await self._elector.is_leader():
            self._auditor.forget()
            return SyncOutcome(performed=False, why="this worker is not the leader")
        started = self._clock.monotonic()
        success = 0
        try:
            outcome = await self._audit()
            success = 1
        finally:
            elapsed_ms = (self._clock.monotonic() - started) * 1000
            self._metrics.add(_AUDIT, "Success", success)
            self._metrics.add(_AUDIT, "Time", elapsed_ms, unit=Unit.MILLISECONDS)
        return outcome

    async def _audit(self) -> SyncOutcome:
        reason = await self._auditor.look(await self._own_leases())
        is_too_soon = (
            self._synced_at is not None
            and self._clock.monotonic() - self._synced_at < self._config.sync_interval_s
        )
        skipped = reason is not None and is_too_soon
        self._metrics.add(_AUDIT, "NumStreamsWithPartialLeases", int(self._auditor.sees_hole))
        self._metrics.add(_AUDIT, "NumStreamsToSync", int(reason is not None))
        self._metrics.add(_AUDIT, "NumSkippedShardSyncTask", int(skipped))
        if reason is None:
            return SyncOutcome(performed=False, why="nothing is missing")
        if skipped:
            return SyncOutcome(performed=False, why="the last sync is too recent")
        log.warning("Leases of %s are incomplete: %s", self._stream.name, reason)
        return await self.sync()


def _inconsistent(message: str) -> InconsistentShards:
    return InconsistentShards("ListShards", "InconsistentShards", message)
