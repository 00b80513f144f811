"""The next owners of the leases of a worker that stops.

The stopping worker names them itself, while it still reads. A leader would see the leases only when
they have no owner any more, and their next owners later still. So no shard goes unread in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.config.fleet import HEARTBEAT_SHARE
from kcl_mld.fleet.model.worker_metrics import honoring
from kcl_mld.fleet.rules.assignment.looks import observe, take_part, waiting_for_parents
from kcl_mld.fleet.rules.leader_lock import follow_pause_s
from kcl_mld.leases.rules.pausing import is_paused

if TYPE_CHECKING:
    from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
    from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView
    from kcl_mld.leases.model.lease import Lease

#: The longest time after which a worker sees the hand-off, at its longest pause.
_SEEN_AFTER_S = 0.5


def plan_leaving(
    view: FleetView, memory: FleetMemory, worker_id: str, limits: AssignmentLimits
) -> tuple[tuple[Lease, str], ...]:
    """The next owner of each lease of a worker, by the number of leases.

    Leases of finished shards, and those in a hand-off, stay as they are. A paused lease goes to a
    worker that is known to honor a pause, or has no next owner. A lease that waits for its parents
    has none either, because no worker reads it meanwhile.

    Args:
        view: of one scan of the fleet; the metrics of the stopping worker don't count.
        memory: of earlier scans; workers that died, and newcomers that have to wait, get nothing.
        limits: what a worker may hold.

    Returns:
        Pairs of lease and worker; leases that no worker can take are left out.
    """
    active = take_part(view, observe(memory, view, limits).workers, limits).active
    others = active.keys() - {worker_id}
    known = honoring(active.values())
    counts = dict.fromkeys(sorted(others), 0)
    mine: list[Lease] = []
    waiting = waiting_for_parents(view.leases)
    for lease in view.leases:
        if lease.is_finished:
            continue
        if lease.lease_owner in counts:
            counts[lease.lease_owner] += 1
        elif (
            lease.lease_owner == worker_id
            and not lease.is_handed_over
            and lease.lease_key not in waiting
        ):
            mine.append(lease)
    pairs: list[tuple[Lease, str]] = []
    for lease in mine:
        able = [
            worker
            for worker, count in counts.items()
            if count < limits.max_leases and (worker in known or not is_paused(lease, view.epoch_s))
        ]
        if not able:
            continue
        taker = min(able, key=lambda worker: counts[worker])
        counts[taker] += 1
        pairs.append((lease, taker))
    return tuple(pairs)


def notice_s(failover_s: float, grace_s: float) -> float:
    """How long a worker that stops continues to read after it has named the next owners.

    Args:
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
        grace_s: ``shutdownGraceMillis``, in seconds; at most a third of it is spent here.
    """
    follow_s = follow_pause_s(HEARTBEAT_SHARE * failover_s, failover_s)
    return min(follow_s + _SEEN_AFTER_S, grace_s / 3)
