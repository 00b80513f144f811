"""How a worker of a 3.x fleet finds the leases that a leader has given to it, and how soon.

Looks cost a request each, so they are frequent only while things change: after a start, a gain or a
loss. A lease that is still in a hand-off is watched by itself until its old owner lets it go.

Source: DynamoDBLeaseDiscoverer (KCL 3.5.1), which looks each ``failoverTimeMillis`` and takes up a
lease without a write.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from mld.model.lease import Lease

#: So long after the last change looks are frequent.
LIVELY_S = 60.0
#: Longest pause between two looks while things change, and while nothing does. A leader gives a
#: lease away again whose counter has not moved for the failover time since it was assigned.
LIVELY_PAUSE_S = 1.0
CALM_PAUSE_S = 5.0
#: Distance of looks at one lease that its old owner is about to let go.
WATCH_S = 0.25


#: Up to so many leases a scan is one request as well and costs little more, and whoever follows knows
#: when counters moved, should it have to lead.
SMALL_TABLE = 500


class Found(Enum):
    """What the row of a lease says, of which it was known that it names this worker."""

    #: Ours: renew it at once and hold it.
    OURS = auto()
    #: Ours as soon as its old owner lets it go.
    COMING = auto()
    #: Not ours, or gone.
    OTHERS = auto()


def judge_found(row: Lease | None, worker_id: str) -> Found:
    """Decide from a row whether it may be held.

    Args:
        row: as stored now; None = there is none.
        worker_id: who asks.

    Source: DynamoDBLeaseDiscoverer.discoverNewLeases (3.5.1).
    """
    if row is None or row.lease_owner != worker_id:
        return Found.OTHERS
    if row.checkpoint_owner is None:
        return Found.OURS
    # A row that names one worker twice is broken: nobody passes it on.
    return Found.OTHERS if row.checkpoint_owner == worker_id else Found.COMING


def look_pause_s(quiet_s: float, failover_s: float) -> float:
    """Seconds until the next look.

    Args:
        quiet_s: seconds since this worker began, or gained, lost or expected a lease.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
    """
    if quiet_s < LIVELY_S:
        return min(LIVELY_PAUSE_S, failover_s / 10)
    return min(CALM_PAUSE_S, failover_s / 2)


def may_ask_index(leases: int) -> bool:
    """Whether the index is asked and not the table itself.

    Args:
        leases: in the table when it was scanned last.
    """
    return leases > SMALL_TABLE


def vanished(
    held: Mapping[str, str], listed: Collection[str], seen: Mapping[str, str]
) -> list[str]:
    """Held leases that were listed as ours and are no longer: somebody else's name is in the row.

    The list is behind the table, so a lease that was not listed yet since it was gained proves
    nothing.

    Args:
        held: lease key -> token.
        listed: keys of the rows that name this worker.
        seen: lease key -> token under which it was listed before.

    Returns:
        Keys, sorted.
    """
    return sorted(
        key for key, token in held.items() if key not in listed and seen.get(key) == token
    )
