"""Decides when shards and leases are compared: at the first start, and when an audit requires it.

Source: ShardSyncTask.java, PeriodicShardSyncManager.java: 344-523 (KCL 3.5.1). Intended
differences: an empty table is filled at once (Java waits 1-30 s and idles a minute afterwards), a
stream that does not exist is an error at every start, and the leader restores lost child leases and
reports that a stream was deleted and created again. A hole that no leader repairs is repaired by
any worker, because elections may never agree.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, MalformedData, MldError, NotFound
from kcl_mld.shards.rules.audit import (
    HoleTracker,
    Standstill,
    abandoned,
    active,
    fill_hash_ranges,
    first_hole,
    is_overdue,
)
from kcl_mld.shards.rules.shardsync import is_unused
from kcl_mld.shards.stream_sync import OUTDATED_S, StreamSync, SyncOutcome
from kcl_mld.signals.model.metrics import (
    AUDIT,
    SHARD_SYNC,
    SKIPPED_SHARD_SYNC,
    STREAMS_TO_SYNC,
    STREAMS_WITH_PARTIAL_LEASES,
    SYNC_SHARDS,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.config.config import Config
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.shards.stream_existence import StreamSource
    from kcl_mld.shards.stream_sync import MayWrite
    from kcl_mld.signals.ports import Metrics
    from kcl_mld.streams.model.shard import HashRange

log = logging.getLogger("mld.shards")
#: A start with leases in the table waits no longer than this for the list that confirms the stream.
LOOK_S = 2.0
#: Seconds after the last check that this worker leads and that table and stream are those of its
#: start, within which a row may be written. An audit on a slow network, or of a suspended process,
#: takes long enough for both to be replaced.
CONFIRMED_S = 2.0


class LeaseAuditor:
    """Remembers the results of earlier audits, as the leader or while waiting for the leader."""

    def __init__(
        self,
        store: LeaseStore,
        source: StreamSource,
        config: Config,
        clock: Clock,
        *,
        on_abandoned: Callable[[Lease], None],
    ) -> None:
        """Audit one stream; the arguments are those of ``ShardSyncer``."""
        self._store = store
        self._detector = source.detector
        self._stream = source.stream
        self._config = config.shards
        self._stands_still_s = 2 * max(config.leases.failover_s, config.shards.audit_interval_s)
        self._clock = clock
        self._on_abandoned = on_abandoned
        self._tracker = HoleTracker()
        self._standstills: dict[str, Standstill] = {}
        #: Keys of leases that consumers waited for since the last audit.
        self._awaited: set[str] = set()
        #: Key of an awaited lease -> audits in a row that did not find it.
        self._missed: dict[str, int] = {}

    def expect(self, lease_key: str) -> None:
        """A shard can't end before this lease exists; call it at each attempt.

        No hole shows that it is missing: the shard that waits for it covers the keys of its
        children.
        """
        self._awaited.add(lease_key)

    @property
    def sees_hole(self) -> bool:
        """True when the last audit found keys that no active lease covers."""
        return self._tracker.count > 0

    def watch(self, leases: tuple[Lease, ...]) -> str | None:
        """Why a worker that does not lead has to sync, or None; makes no request.

        The count of a hole is kept in case this worker becomes the leader. A stream without any
        lease is left to the leader: they may have been deleted on purpose, as those of a former
        stream.

        Args:
            leases: all rows of the stream, () if no recent ones are known.
        """
        self._standstills = {}
        if not leases or not self._stream.traits.has_hash_ranges:
            return None  # the count stays valid: a busy worker sometimes has no recent rows
        checked = active(leases)
        spans = [lease.hash_range for lease in checked if lease.hash_range is not None]
        if len(spans) < len(checked):
            self._tracker = HoleTracker()
            return None
        hole = first_hole(spans)
        self._tracker = self._tracker.see(hole)
        awaited = self._overdue(leases)
        if hole is None or not is_overdue(self._tracker.count, self._config.audit_confidence):
            return awaited
        return f"{self._uncovered()} and not mended by the leader"

    async def look(self, leases: tuple[Lease, ...]) -> str | None:
        """Why a sync is needed now, or None.

        No lease at all needs one at once; a hole when it was seen unchanged
        ``audit_confidence`` times in a row. Finished leases without a living owner are reported to
        ``on_abandoned``.

        Raises:
            AwsError: the shards, needed for missing hash ranges, could not be listed.
        """
        self._report_abandoned(leases)
        if not leases:
            self._tracker = HoleTracker()
            return "there are none"
        if not self._stream.traits.has_hash_ranges:
            return None
        hole = first_hole(await self._active_ranges(leases))
        self._tracker = self._tracker.see(hole)
        awaited = self._overdue(leases)
        if hole is None:
            return awaited
        log.info("Leases of %s: %s", self._stream.name, self._uncovered())
        if self._tracker.count < self._config.audit_confidence:
            return awaited
        return self._uncovered()

    def _uncovered(self) -> str:
        seen = self._tracker
        return f"no lease covers the hash keys {seen.hole}, seen {seen.count} times"

    def _overdue(self, leases: tuple[Lease, ...]) -> str | None:
        """Why a lease that a shard of this worker waits for has to be created, or None."""
        missing, self._awaited = self._awaited - {one.lease_key for one in leases}, set()
        self._missed = {key: self._missed.get(key, 0) + 1 for key in sorted(missing)}
        for key, count in self._missed.items():
            if is_overdue(count, self._config.audit_confidence):
                return (
                    f"{key} is missing, and the end of a shard has waited for it at {count} looks"
                )
        return None

    async def _active_ranges(self, leases: tuple[Lease, ...]) -> list[HashRange]:
        """Hash ranges of the active leases; those that rows of old versions lack are filled in."""
        checked = active(leases)
        if any(lease.hash_range is None for lease in checked):
            shards = await self._detector.list_shards()
            checked, filled = fill_hash_ranges(checked, shards)
            for lease in filled:
                await self._write_hash_range(lease)
        return [lease.hash_range for lease in checked if lease.hash_range is not None]

    async def _write_hash_range(self, lease: Lease) -> None:
        if lease.hash_range is None:
            return
        try:
            await self._store.write_hash_range(lease.lease_key, lease.hash_range)
        except AwsError as error:
            log.warning(
                "The hash range of the lease %s could not be stored: %s", lease.lease_key, error
            )

    def _report_abandoned(self, leases: tuple[Lease, ...]) -> None:
        found, self._standstills = abandoned(
            leases, self._standstills, self._clock.monotonic(), self._stands_still_s
        )
        for lease in found:
            self._on_abandoned(lease)


class ShardSyncer:
    """The first sync of a stream, and its audit afterwards: by the leader, or instead of it.

    Args:
        source: the stream; a new one under its name gets no leases among the old ones.
        is_leader: only the leader creates what is missing, as long as it leads.
        check_table: raises when the table is not the one of the start: nothing is created in it.
        config: sections ``shards`` and ``leases``.
        metrics: gets Java's data of ``ShardSyncTask`` and ``PeriodicShardSyncManager``.
        on_abandoned: gets finished leases that no worker holds, e.g. ``LeaseCleanup.enqueue``.
    """

    def __init__(
        self,
        store: LeaseStore,
        source: StreamSource,
        is_leader: Callable[[], Awaitable[bool]],
        check_table: Callable[[], Awaitable[None]],
        config: Config,
        clock: Clock,
        metrics: Metrics,
        *,
        on_abandoned: Callable[[Lease], None],
    ) -> None:
        self._store = store
        self._detector = source.detector
        self._existence = source.existence
        self._is_leader = is_leader
        self._check_table = check_table
        self._stream = source.stream
        self._config = config.shards
        self._sync = StreamSync(store, source, config, clock, metrics)
        self._auditor = LeaseAuditor(store, source, config, clock, on_abandoned=on_abandoned)
        self._clock = clock
        self._metrics = metrics
        self._position = source.position.checkpoint
        self._synced_at: float | None = None
        self._confirmed_at: float | None = None
        self._is_filling = False

    # -- start ---------------------------------------------------------------------------------

    async def sync_if_empty(self) -> SyncOutcome:
        """At start: fill an unused table; on one with leases only check that the stream exists.

        All workers may call it at the same time: only missing rows are created. An interrupted fill
        (a throttled write, a crash) is completed by the next call, of this worker, or of any while
        no worker has begun to read. Java leaves the rest to the audit, minutes later: at LATEST,
        records that arrive in between are skipped.

        Raises:
            NotFound: the stream does not exist.
            MixedTable: the table has rows of another stream, perhaps created meanwhile by a worker
                that started at the same time.
            AwsError: the shards or the table could not be read or written; start again later. Rows
                that were written stay, and remain valid.
        """
        await self._existence.learn()
        is_unused = self._is_filling or await self._table_is_unused()
        self._store.check_rows("PutItem")
        if is_unused:
            self._is_filling = True
            outcome = await self._measured(self._sync.fill_empty_table, _always)
            self._is_filling = False
            if self._stream.identifier is None:
                await self._sync.rows()
                self._store.check_rows("PutItem")
            return outcome
        await self._look_at_stream()
        return SyncOutcome(performed=False, why="the table has leases")

    async def _look_at_stream(self) -> None:
        """Raise NotFound for a missing stream; the consumers handle any other error."""
        try:
            async with asyncio.timeout(LOOK_S):
                shards = await self._detector.list_shards()
        except NotFound:
            raise
        except (AwsError, MalformedData, TimeoutError) as error:
            why = str(error) or f"no answer within {LOOK_S:g} s"
            log.warning("Shards of %s cannot be listed yet: %s", self._stream.name, why)
        else:
            self._sync.warn_of_recreation((await self._sync.recent_rows()).leases, shards)

    async def sync(self) -> SyncOutcome:
        """One complete sync by the algorithm that the table requires; only the leader writes.

        Raises:
            NotFound: the stream does not exist.
            AwsError: a list, read or write failed; rows written before stay.
            ResourceMissing: the stream or the table is gone.
        """
        is_empty = await self._table_is_empty()
        return await self._measured(
            self._sync.fill_empty_table if is_empty else self._sync.fill_gaps, self._confirm
        )

    async def _confirm(self) -> bool:
        """Whether this worker leads, in the table and on the stream of its start.

        Raises:
            ResourceMissing: the stream or the table is gone.
            AwsError: it is not known.
        """
        began_at = self._clock.monotonic()
        if self._confirmed_at is None or began_at - self._confirmed_at > CONFIRMED_S:
            if not await self._is_leader():
                return False
            await self._existence.check()
            self._confirmed_at = began_at
        return True

    async def _table_is_unused(self) -> bool:
        """No row of the stream, or all are as a first sync leaves them."""
        rows = await self._sync.recent_rows()
        return not rows.broken and all(is_unused(lease, self._position) for lease in rows.leases)

    async def _table_is_empty(self) -> bool:
        """No row is, or tries to be, a lease of the stream; other items do not count."""
        rows = await self._sync.rows()
        return not rows.leases and not rows.broken

    async def _measured(
        self, algorithm: Callable[[MayWrite], Awaitable[SyncOutcome]], may_write: MayWrite
    ) -> SyncOutcome:
        started = self._clock.monotonic()
        succeeded = False
        try:
            outcome = await algorithm(may_write)
            succeeded = True
        finally:
            self._synced_at = self._clock.monotonic()
            self._metrics.add(SYNC_SHARDS, int(succeeded))
            self._metrics.call(SHARD_SYNC, self._synced_at - started, succeeded=succeeded)
        is_routine = not outcome.created and self._stream.traits.lists_late
        log.log(logging.DEBUG if is_routine else logging.INFO, "%s", outcome)
        return outcome

    # -- audit -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Audit until cancelled."""
        await asyncio.sleep(self._config.audit_initial_delay_s)
        while True:
            try:
                await self.audit()
            except MldError as error:
                log.warning("The audit of %s failed: %s", self._stream.name, error)
            except Exception:
                # Reading continues without audits; it would not if the worker stopped for a defect
                # in one.
                log.exception("The audit of %s failed unexpectedly", self._stream.name)
            await asyncio.sleep(self._config.audit_interval_s)

    async def audit(self) -> SyncOutcome:
        """One audit of the stream's leases, and a sync if they need one.

        Raises:
            AwsError: a read or the sync failed; the next audit tries again.
            ResourceMissing: the stream or the table is gone; its watch ends the worker.
        """
        started = self._clock.monotonic()
        if not await self._is_leader():
            return await self._stand_in()
        succeeded = False
        try:
            await self._existence.check()
            self._confirmed_at = started
            outcome = await self._audit()
            succeeded = True
        finally:
            self._metrics.call(AUDIT, self._clock.monotonic() - started, succeeded=succeeded)
        return outcome

    async def _audit(self) -> SyncOutcome:
        reason = await self._auditor.look((await self._sync.recent_rows()).leases)
        is_too_soon = (
            self._synced_at is not None
            and self._clock.monotonic() - self._synced_at < self._config.sync_interval_s
        )
        skipped = reason is not None and is_too_soon
        self._metrics.add(STREAMS_WITH_PARTIAL_LEASES, int(self._auditor.sees_hole))
        self._metrics.add(STREAMS_TO_SYNC, int(reason is not None))
        self._metrics.add(SKIPPED_SHARD_SYNC, int(skipped))
        if reason is None and self._stream.traits.lists_late:
            return await self.sync()  # only the list shows what is missing
        if reason is None:
            return SyncOutcome(performed=False, why="nothing is missing")
        if skipped:
            return SyncOutcome(performed=False, why="the last sync is too recent")
        log.warning("Leases of %s are incomplete: %s", self._stream.name, reason)
        return await self.sync()

    def expect(self, lease_key: str) -> None:
        """The end of a shard waits for this lease: it is created if no worker does so for long."""
        self._auditor.expect(lease_key)

    # -- without leading -------------------------------------------------------------------------

    async def _stand_in(self) -> SyncOutcome:
        """Check rows that were read anyway, and repair a hole that exists for far too long.

        Two workers may do so at once: only missing rows are created, and so soon after the table
        was read that no worker can have created, finished and cleaned up that row since.
        """
        rows = self._sync.known_rows(self._config.audit_interval_s)
        reason = self._auditor.watch(rows.leases)
        if reason is None:
            return SyncOutcome(performed=False, why="this worker is not the leader")
        log.warning("Leases of %s are incomplete: %s", self._stream.name, reason)
        until = self._clock.monotonic() + OUTDATED_S
        confirmed_at: float | None = None

        async def may_write() -> bool:
            nonlocal confirmed_at
            now = self._clock.monotonic()
            if now > until:
                return False
            if confirmed_at is None or now - confirmed_at > CONFIRMED_S:
                await self._check_table()
                await self._existence.check()
                confirmed_at = now
            return True

        if await self._table_is_empty():
            return SyncOutcome(performed=False, why="the leases were deleted meanwhile")
        return await self._measured(self._sync.fill_gaps, may_write)


async def _always() -> bool:
    """At start every worker writes: the table was just set up, and no record was read before."""
    return True
