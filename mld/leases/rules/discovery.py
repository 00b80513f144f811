"""How a worker of a 3.x fleet finds the leases that a leader has given to it, and how soon.

Looks cost a request each, so they are frequent only while things change: after a start, a gain or a
loss, and while a lease of another worker is about to be given away, because nobody has it or its
counter stands still for longer than that of a worker that lives. A lease that is still in a
hand-off is watched by itself until its old owner lets it go.

Source: DynamoDBLeaseDiscoverer (KCL 3.5.1), which looks each ``failoverTimeMillis`` and takes up a
lease without a write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from mld.leases.model.lease import Lease

#: So long after the last change looks are frequent.
LIVELY_S = 60.0
#: Longest pause between two looks while things change, and while nothing does. A leader gives a
#: lease away again whose counter has not moved for the failover time since it was assigned.
LIVELY_PAUSE_S = 1.0
CALM_PAUSE_S = 4.0
#: The same by the index, which shows nothing of other workers' leases.
CALM_INDEX_PAUSE_S = 2.5
#: Pause between two looks while a lease may be given to this worker at any moment.
UNSETTLED_PAUSE_S = 0.5
#: A counter that stands still for this share of the failover time is one that was not renewed when
#: it was due: ours are by 0.7 of it, Java's by a third.
SUSPECT_SHARE = 0.75
#: Looked so much later than a counter becomes suspect.
_AFTER_S = 0.01
#: In so many failover times the next owner has found its lease.
UNSETTLED_SHARE = 2.0
#: Distance of looks at one lease that its old owner is about to let go.
WATCH_S = 0.25
#: Up to so many leases a scan is one request as well and costs little more, and a follower knows
#: when counters moved: which leases are about to be given away, or expired, should it have to lead.
SMALL_TABLE = 500


class Ownership(Enum):
    """What the row of a lease says, of which it was known that it names this worker."""

    #: Ours: renew it at once and hold it.
    OURS = auto()
    #: Ours as soon as its old owner lets it go.
    COMING = auto()
    #: Not ours, or gone.
    OTHERS = auto()


def judge_found(row: Lease | None, worker_id: str) -> Ownership:
    """Decide from a row whether it may be held.

    Args:
        row: as stored now; None = there is none.

    Source: DynamoDBLeaseDiscoverer.discoverNewLeases (3.5.1).
    """
    if row is None or row.lease_owner != worker_id:
        return Ownership.OTHERS
    if row.checkpoint_owner is None:
        return Ownership.OURS
    # A row that names one worker twice is broken: nobody passes it on.
    return Ownership.OTHERS if row.checkpoint_owner == worker_id else Ownership.COMING


def look_pause_s(quiet_s: float, failover_s: float, *, by_index: bool = False) -> float:
    """Seconds until the next look.

    Args:
        quiet_s: seconds since this worker began, or gained, lost or expected a lease.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
        by_index: the table is too large to be scanned.
    """
    if quiet_s < LIVELY_S:
        return min(LIVELY_PAUSE_S, failover_s / 10)
    longest_s = CALM_INDEX_PAUSE_S if by_index else CALM_PAUSE_S
    return min(longest_s, failover_s * longest_s / 10)


@dataclass(frozen=True, slots=True)
class Watched:
    """Another worker's lease, or nobody's, as a follower's scans show it.

    Attributes:
        counter: ``leaseCounter``.
        since: reading of the monotonic clock after the scan that first showed the row so.
    """

    counter: int
    since: float
    is_free: bool


def watch(
    before: Mapping[str, Watched], leases: Iterable[Lease], worker_id: str, now: float
) -> dict[str, Watched]:
    """What a scan adds to what is known of the leases that others read.

    Args:
        before: lease key -> what earlier scans showed.
        leases: all rows; those of finished shards are left out, as nobody renews them.
        worker_id: of this worker; its own leases are left out.
        now: reading of the monotonic clock after the scan.
    """
    after: dict[str, Watched] = {}
    for lease in leases:
        if lease.is_finished or worker_id in (lease.lease_owner, lease.checkpoint_owner):
            continue
        is_free, known = lease.lease_owner is None, before.get(lease.lease_key)
        is_same = known is not None and (known.counter, known.is_free) == (
            lease.lease_counter,
            is_free,
        )
        after[lease.lease_key] = (
            known if known is not None and is_same else Watched(lease.lease_counter, now, is_free)
        )
    return after


def unsettled_pause_s(watched: Iterable[Watched], now: float, failover_s: float) -> float | None:
    """Seconds until a look that must not be later, because leases may be given away.

    Args:
        now: reading of the monotonic clock.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.

    Returns:
        None = no lease is about to be given away, as far as is known.
    """
    pauses_s: list[float] = []
    for one in watched:
        suspect_at = one.since if one.is_free else one.since + SUSPECT_SHARE * failover_s
        if suspect_at > now:
            pauses_s.append(suspect_at - now + _AFTER_S)
        elif now < one.since + UNSETTLED_SHARE * failover_s:
            return min(UNSETTLED_PAUSE_S, failover_s / 20)
    return min(pauses_s, default=None)


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
