"""Deletes the leases of finished shards that are no longer needed.

Source: LeaseCleanupManager.java (KCL 3.5.1): 120-400. Intended differences: the queue is keyed by
lease key (Java compares whole leases and queues one twice), rows are deleted only while they are at
SHARD_END, a row whose children are unknown waits until the listed ones have leases, and the leases
of a deleted or recreated stream stay (Java treats them as leases of trimmed shards).
"""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from kcl_mld.errors import MldError, NotFound
from kcl_mld.shards.rules.shard_end import (
    CleanupOutcome,
    CleanupTimes,
    is_due,
    listed_children,
    noted_children,
    obstacle,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from kcl_mld.config.config import ShardConfig
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.shards.stream_existence import StreamSource

log = logging.getLogger("mld.shards")

#: In a pass that takes long, the existence of a stream is checked again after this many seconds.
ASKED_S = 10.0


class _Result(Enum):
    """The result for one queued lease."""

    COMPLETED = "completed"
    GARBAGE = "garbage"
    WAITS = "waits"
    DROPPED = "dropped"


class LeaseCleanup:
    """A queue of finished leases and the loop that empties it; every worker has one.

    Args:
        streams: identifiers of those that this worker reads.
        find_source: the stream of a lease; raises LeaseLost if this worker does not read it.
            Nothing is deleted while the stream is gone.
        renewer: deletes the rows, so that a held one does not count as lost.
    """

    def __init__(
        self,
        store: LeaseStore,
        streams: Container[str | None],
        find_source: Callable[[Lease], StreamSource],
        config: ShardConfig,
        clock: Clock,
        renewer: LeaseRenewer,
    ) -> None:
        self._store = store
        self._renewer = renewer
        self._streams = streams
        self._source = find_source
        self._config = config
        self._clock = clock
        self._queue: dict[str, Lease] = {}
        self._times: CleanupTimes | None = None

    @property
    def queued(self) -> tuple[str, ...]:
        """Keys of the queued leases, in the order in which they will be tried."""
        return tuple(self._queue)

    def enqueue(self, lease: Lease) -> None:
        """Queue a finished lease; a queued one keeps its place."""
        if lease.lease_key not in self._queue:
            log.debug("Lease %s waits for its cleanup", lease.lease_key)
            self._queue[lease.lease_key] = lease

    async def run(self) -> None:
        """Clean up until cancelled; the first pass comes at once."""
        while True:
            outcome = await self.clean_once()
            if outcome.completed or outcome.garbage:
                log.info("Lease cleanup: %s", outcome)
            await asyncio.sleep(self._config.cleanup_interval_s)

    async def clean_once(self) -> CleanupOutcome:
        """One pass over the queue; a failing lease stays in it and stops nothing.

        The intervals of both kinds of cleanup are counted from the first pass.
        """
        now = self._clock.monotonic()
        times = self._times = self._times or CleanupTimes(now, now)
        is_due_now = self._completed_is_due(times) or self._garbage_is_due(times)
        if not self._queue or not is_due_now or self._store.conflict is not None:
            return CleanupOutcome(waiting=self.queued)
        # A worker that reads the stream again finds the finished lease again.
        self._queue = {
            key: lease
            for key, lease in self._queue.items()
            if lease.stream_identifier in self._streams
        }
        found_at: dict[str | None, float] = {}
        results: dict[_Result, list[str]] = {result: [] for result in _Result}
        for key, queued in tuple(self._queue.items()):
            if not await self._is_there(queued, found_at):
                results[_Result.WAITS].append(key)
                continue
            try:
                result = await self._clean(key, times)
            except MldError as error:
                log.warning("Lease %s is not deleted yet: %s", key, error)
                result = _Result.WAITS
            except Exception:
                # Old rows cost little; a worker that stopped for one would cost all leases.
                log.exception("Lease %s can't be deleted", key)
                result = _Result.WAITS
            if result is not _Result.WAITS:
                del self._queue[key]
            results[result].append(key)
        outcome = CleanupOutcome(
            completed=tuple(results[_Result.COMPLETED]),
            garbage=tuple(results[_Result.GARBAGE]),
            waiting=tuple(results[_Result.WAITS]),
        )
        self._times = times.after(outcome, self._clock.monotonic())
        return outcome

    async def _is_there(self, lease: Lease, found_at: dict[str | None, float]) -> bool:
        """Whether a lease's stream is known to exist.

        Args:
            found_at: when each stream was found in this pass (monotonic), -inf = it was not.
        """
        identifier = lease.stream_identifier
        asked_at = found_at.get(identifier)
        if asked_at is None or ASKED_S < self._clock.monotonic() - asked_at < math.inf:
            try:
                await self._source(lease).existence.check()
            except MldError as error:
                log.warning("Leases of finished shards are not deleted yet: %s", error)
                found_at[identifier] = -math.inf
            else:
                found_at[identifier] = self._clock.monotonic()
        return found_at[identifier] > -math.inf

    def _completed_is_due(self, times: CleanupTimes) -> bool:
        return self._config.cleanup_completed and is_due(
            times.completed, self._config.completed_cleanup_s, self._clock.monotonic()
        )

    def _garbage_is_due(self, times: CleanupTimes) -> bool:
        return is_due(times.garbage, self._config.garbage_cleanup_s, self._clock.monotonic())

    async def _clean(self, key: str, times: CleanupTimes) -> _Result:
        lease = await self._store.get(key, consistent=True)
        if lease is None:
            return _Result.COMPLETED
        if not lease.is_finished:
            # Its shard end failed or an operator reset the row; finishing it queues it again.
            log.info(
                "The lease %s is at %s, not at SHARD_END, so it is not deleted",
                key,
                lease.checkpoint,
            )
            return _Result.DROPPED
        was_asked = False
        if self._completed_is_due(times):
            if not lease.child_shard_ids:
                was_asked = True
                try:
                    lease = await self._learn_children(lease)
                except NotFound:
                    return await self._delete_garbage(lease)
            if await self._delete_completed(lease):
                return _Result.COMPLETED
        if not was_asked and self._garbage_is_due(times):
            try:
                await self._source(lease).children_of(lease.shard_id)
            except NotFound:
                return await self._delete_garbage(lease)
        return _Result.WAITS

    async def _learn_children(self, lease: Lease) -> Lease:
        """The lease with the children that Kinesis returns, also written to its row."""
        children = await self._source(lease).children_of(lease.shard_id)
        if not children:
            return lease
        shard_ids = tuple(sorted(child.shard_id for child in children))
        await self._store.write_children(lease.lease_key, shard_ids)
        return replace(lease, child_shard_ids=shard_ids)

    async def _delete_completed(self, lease: Lease) -> bool:
        child_ids = await self._child_ids(lease)
        children = {key: await self._row(lease, key) for key in child_ids}
        parents = {key: await self._row(lease, key) for key in lease.parent_shard_ids}
        why = obstacle(lease, children, parents)
        if why is not None:
            level = logging.WARNING if None in children.values() else logging.DEBUG
            log.log(level, "Lease %s is kept: %s", lease.lease_key, why)
            return False
        if not child_ids and self._source(lease).stream.traits.lists_late:
            log.debug("Lease %s is kept: a child may still be listed", lease.lease_key)
            return False
        if not child_ids:
            await self._source(lease).existence.check()
            log.error(
                "Deleting the lease %s: its shard ended, and no child shard of it is listed",
                lease.lease_key,
            )
        return await self._renewer.delete_finished(lease.lease_key)

    async def _child_ids(self, lease: Lease) -> tuple[str, ...]:
        """The children that the row names, or that are listed; both where one may be listed late.

        Raises:
            NotFound: the shard is no longer listed, and its row names no child.
        """
        source, noted = self._source(lease), noted_children(lease)
        if not source.stream.traits.lists_late:
            return noted or listed_children(lease.shard_id, await source.detector.list_shards())
        try:
            listed = {child.shard_id for child in await source.children_of(lease.shard_id)}
        except NotFound:
            if not noted:
                raise
            listed = set()
        return tuple(sorted({*noted, *listed}))

    async def _delete_garbage(self, lease: Lease) -> _Result:
        """Delete the row of a shard that Kinesis no longer knows, unless its children need it.

        Raises:
            ResourceMissing: the whole stream is gone: its leases stay.
        """
        source = self._source(lease)
        if not await source.existence.is_trimmed(lease.shard_id):
            return _Result.WAITS
        shards = await source.detector.list_shards()
        known = {shard.shard_id for shard in shards}
        for child in lease.child_shard_ids or listed_children(lease.shard_id, shards):
            if child in known and await self._row(lease, child) is None:
                # The audit creates it at TRIM_HORIZON below this row, but at the initial position
                # without it: with LATEST, records would be skipped.
                log.warning(
                    "The lease %s is kept, although its shard is past retention, until the child shard %s has a lease",
                    lease.lease_key,
                    child,
                )
                return _Result.WAITS
        log.info(
            "Deleting the lease %s: its shard is past the retention of the stream", lease.lease_key
        )
        deleted = await self._renewer.delete_finished(lease.lease_key)
        return _Result.GARBAGE if deleted else _Result.WAITS

    async def _row(self, lease: Lease, shard_id: str) -> Lease | None:
        return await self._store.get(lease.key_of(shard_id), consistent=True)
