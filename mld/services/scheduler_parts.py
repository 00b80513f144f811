"""What a Scheduler runs, and how its run ended.

Values only: nothing here starts or stops anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from mld.model.lease import HeldLease
    from mld.services.lease_cleanup import LeaseCleanup
    from mld.services.lease_coordinator import LeaseCoordinator
    from mld.services.shard_consumer import ShardConsumer
    from mld.services.shard_syncer import ShardSyncer


@dataclass(frozen=True, slots=True)
class StopOutcome:
    """How the worker ended.

    Attributes:
        complete: every child was told and every lease released within the grace.
        leases_left: leases that still name us in the table.
    """

    complete: bool
    leases_left: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerParts:
    """What a Scheduler runs; built by ``mld.app``.

    Attributes:
        loops: name and coroutine function of every further service loop.
        new_consumer: makes the consumer of a lease that was just gained.
    """

    coordinator: LeaseCoordinator
    syncer: ShardSyncer
    cleanup: LeaseCleanup
    new_consumer: Callable[[HeldLease], ShardConsumer]
    loops: tuple[tuple[str, Callable[[], Coroutine[Any, Any, None]]], ...] = ()
