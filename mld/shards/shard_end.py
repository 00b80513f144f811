"""Work at the end of a shard: leases for its children, which wait for their parents.

Source: ShutdownTask.java:210-325, BlockOnParentShardTask.java:56-94 (KCL 3.5.1). Intended
difference: rows of parents are read consistently, so that a stale "no such row" can't start a child
before its parent is finished. A row that can't be read counts as existing and not finished.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kcl_mld.errors import BlockedOnParent, InvalidShardEnd, MalformedData
from kcl_mld.shards.rules.shard_end import (
    MergeVerdict,
    blocks,
    child_without_parents,
    judge_merge,
    merge_parents,
)
from kcl_mld.shards.rules.shardsync import lease_of_child
from kcl_mld.shards.stream_sync import create_lease
from kcl_mld.signals.model.metrics import (
    CREATE_LEASE_AT_END,
    MISSING_MERGE_PARENT,
    MISSING_MERGE_PARENT_LEASE,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.signals.ports import Metrics
    from kcl_mld.streams.model.shard import ChildShard

log = logging.getLogger("mld.shards")


class ShardEnd:
    """Creates the leases of child shards, and makes children wait for parents.

    Args:
        metrics: gets Java's data of ``ShutdownTask``.
        has_room: whether this worker may hold more leases than it does.
    """

    def __init__(
        self,
        store: LeaseStore,
        clock: Clock,
        rng: random.Random,
        metrics: Metrics,
        *,
        has_room: Callable[[], bool],
    ) -> None:
        self._store = store
        self._has_room = has_room
        self._clock = clock
        self._rng = rng
        self._metrics = metrics

    async def create_child_leases(
        self, lease: Lease, children: Sequence[ChildShard], *, rolls_over: bool = False
    ) -> None:
        """Create the missing rows of the children, then note the children in the parent's row.

        To be called before the shard's SHARD_END checkpoint is written: a finished parent without
        child rows would lose the children. May be repeated.

        Args:
            lease: the finished shard's, held by this worker.
            children: of its last answer; for a shard that vanished see :meth:`create_heirs`.
        rolls_over: see :func:`kcl_mld.shards.rules.shard_end.merge_parents`.

        Raises:
            BlockedOnParent: the other parent of a merge has no row yet; keep the lease and repeat.
            InvalidShardEnd: the answer or the table contradict a shard end; drop the lease locally.
            AwsError: a read or write failed; repeat.
        """
        if not children:
            return
        orphan = child_without_parents(children)
        if orphan is not None:
            raise InvalidShardEnd(lease.lease_key, f"child {orphan} names no parent")
        missing = [
            child_lease
            for child_lease in (lease_of_child(lease, child) for child in children)
            if not await self._has_row(child_lease.lease_key, consistent=False)
        ]
        if missing:
            # Only the creator of the child must know both parents: where it has a row already,
            # the other parent's may have been cleaned up long ago.
            await self._check_merge(lease, children, rolls_over=rolls_over)
            await self._check_own_row(lease)
        for child_lease in missing:
            created = await create_lease(
                self._store, child_lease, self._clock, self._metrics, CREATE_LEASE_AT_END
            )
            if created:
                log.info(
                    "Shard %s ended: created the lease of %s", lease.shard_id, child_lease.shard_id
                )
        shard_ids = tuple(sorted(child.shard_id for child in children))
        if not await self._store.write_children(lease.lease_key, shard_ids):
            log.warning(
                "The row of the lease %s is gone, so its child shards are not noted in it",
                lease.lease_key,
            )

    async def create_heirs(self, lease: Lease, heirs: Sequence[ChildShard]) -> None:
        """Create the missing rows of the shards that continue one that is past retention.

        They begin at TRIM_HORIZON. One with another parent that has no row is left to the end of
        that parent, or to the audit: it must not start before that parent was read. Must be called
        before SHARD_END is written, and may be repeated.

        Args:
            lease: of the shard that disappeared, held by this worker.
            heirs: see :func:`kcl_mld.shards.rules.shard_end.heirs`.

        Raises:
            InvalidShardEnd: the row of the shard is gone; drop the lease locally.
            AwsError: a read or write failed; repeat.
        """
        for heir in heirs:
            row = lease_of_child(lease, heir)
            others = [one for one in heir.parent_shard_ids if one != lease.shard_id]
            is_child = len(others) < len(heir.parent_shard_ids)
            if is_child and not all([await self._has_row(lease.key_of(one)) for one in others]):
                continue
            await self._check_own_row(lease)
            if await create_lease(
                self._store, row, self._clock, self._metrics, CREATE_LEASE_AT_END
            ):
                text = "Shard %s is past retention: created the lease of %s at TRIM_HORIZON"
                log.info(text, lease.shard_id, heir.shard_id)

    async def _check_own_row(self, lease: Lease) -> None:
        """Create no rows in a table that was created again since the lease was taken."""
        if not await self._has_row(lease.lease_key):
            raise InvalidShardEnd(lease.lease_key, "its own row is gone")

    async def _check_merge(
        self, lease: Lease, children: Sequence[ChildShard], *, rolls_over: bool
    ) -> None:
        parents = merge_parents(children, rolls_over=rolls_over)
        if parents is None:
            return
        if len(parents) != 2:
            self._metrics.add(MISSING_MERGE_PARENT, 1)
            raise InvalidShardEnd(
                lease.lease_key, f"only child {children[0].shard_id} names parents {parents}"
            )
        if await self._has_row(lease.key_of(children[0].shard_id)):
            # Nothing is to be created, so the other parent's row, which may be cleaned up since,
            # is not needed: a parent whose lost row was restored must be able to end again.
            return
        has_first, has_second = [await self._has_row(lease.key_of(parent)) for parent in parents]
        verdict = judge_merge(
            self._rng, has_first=has_first, has_second=has_second, has_room=self._has_room()
        )
        if verdict is MergeVerdict.GO_ON:
            return
        missing = parents[1] if has_first else parents[0]
        self._metrics.add(MISSING_MERGE_PARENT_LEASE, 1)
        if verdict is MergeVerdict.GIVE_UP:
            raise InvalidShardEnd(lease.lease_key, f"merge parent {missing} has no lease")
        raise BlockedOnParent(lease.lease_key, lease.key_of(missing), "it has no lease yet")

    async def _has_row(self, lease_key: str, *, consistent: bool = True) -> bool:
        try:
            return await self._store.get(lease_key, consistent=consistent) is not None
        except MalformedData:
            return True

    async def blocking_parent(self, lease: Lease) -> str | None:
        """Bare id of the first parent that is not known to be at SHARD_END; None = start the child.

        A parent without a row does not block: it was trimmed or cleaned up. If the child's own row
        is gone as well, a missing parent proves nothing, because the table was created again. A
        parent whose row can't be read blocks.

        Raises:
            AwsError: a row could not be read; the child must wait, then check again.
        """
        missing = []
        for parent in lease.parent_shard_ids:
            try:
                row = await self._store.get(lease.key_of(parent), consistent=True)
            except MalformedData:
                return parent
            if blocks(row):
                return parent
            if row is None:
                missing.append(parent)
        # Read last: what was missing before it, was missing from the table that has it.
        if missing and not await self._has_row(lease.lease_key):
            return missing[0]
        return None
