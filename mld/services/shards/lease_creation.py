"""Writing one new lease and counting it, the same way for shard sync and shard end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.ports.metrics import Level, Unit

if TYPE_CHECKING:
    from mld.model.leases.lease import Lease
    from mld.ports.clock import Clock
    from mld.ports.metrics import Metrics
    from mld.services.leases.lease_store import LeaseStore


async def create_lease(
    store: LeaseStore, lease: Lease, clock: Clock, metrics: Metrics, *, operation: str
) -> bool:
    """Create the row unless it exists.

    Args:
        store: where to.
        lease: the new row; its checkpoint names the metric.
        clock: measures the write.
        metrics: gets Java's ``CreateLease*`` data.
        operation: dimension ``Operation``, e.g. ``ShardSyncTask``.

    Returns:
        False when the row existed already, which is as good.

    Raises:
        AwsError: the write failed.
    """
    position = lease.checkpoint
    sentinel = position.sentinel if position is not None else None
    kind = "SEQUENCE_NUMBER" if sentinel is None else str(sentinel)
    started = clock.monotonic()
    success = 0
    try:
        created = await store.create_if_absent(lease)
        success = 1
    finally:
        elapsed_ms = (clock.monotonic() - started) * 1000
        detailed = Level.DETAILED
        metrics.add(operation, f"CreateLease_{kind}.Success", success, level=detailed)
        metrics.add(operation, "CreateLease.Success", success, level=detailed)
        metrics.add(
            operation, "CreateLease.Time", elapsed_ms, unit=Unit.MILLISECONDS, level=detailed
        )
    return created
