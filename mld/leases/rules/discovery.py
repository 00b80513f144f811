"""How, and how often, a worker of a 3.x fleet finds the leases that a leader assigned to it.

A look costs one request. Looks are frequent only while things change: after a start, a gain or a
loss, and while another worker's lease is about to be reassigned, because it has no owner or its
counter has not changed for longer than a live worker's would. A lease that is still in a hand-off
is checked by itself until its old owner releases it.

Source: DynamoDBLeaseDiscoverer (KCL 3.5.1), which looks each ``failoverTimeMillis`` and takes up a
lease without a write.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.leases.model.lease import Lease

#: Looks are frequent for this many seconds after the last change.
LIVELY_S = 60.0
#: Longest pause between two looks while things change, and while nothing does. A leader reassigns a
#: lease whose counter has not changed for the failover time since the assignment.
LIVELY_PAUSE_S = 1.0
CALM_PAUSE_S = 4.0
#: The same with the index, which shows no leases of other workers.
CALM_INDEX_PAUSE_S = 2.5
#: The same of a worker that knows otherwise when leases are assigned to it: this look is for what
#: it has missed.
INFORMED_PAUSE_S = 60.0
#: Pause between two looks while a lease may be assigned to this worker at any moment.
UNSETTLED_PAUSE_S = 0.5
#: A counter unchanged for this share of the failover time was not renewed when due: our workers
#: renew by 0.7 of it, Java's by a third.
SUSPECT_SHARE = 0.75
#: Delay of the look after a counter becomes suspect.
_AFTER_S = 0.01
#: Failover times within which the next owner has found its lease.
UNSETTLED_SHARE = 2.0
#: Pause between two looks at a lease that its old owner is about to release.
WATCH_S = 0.25
#: For up to this many leases, a scan is also one request and costs little more. It also shows a
#: follower when counters change: which leases are about to be reassigned, or expired, should it
#: have to lead.
SMALL_TABLE = 500
#: A scan of so many items, of some 450 bytes each, costs no more than reads of one or two items: in
#: a calm fleet, too, it serves for the look at the leader lock.
SMALL_ITEMS = 24


class Informed(Enum):
    """Whether a worker knows without a look that a lease was assigned to it."""

    #: Only its looks show it.
    NO = auto()
    #: It leads: it has assigned it itself.
    LEADS = auto()
    #: The leader lock, which it looks at anyway, says when the leader has assigned leases.
    ANNOUNCED = auto()


class Ownership(Enum):
    """What a row that was found by this worker's name means to the worker."""

    #: Ours: renew it at once and hold it.
    OURS = auto()
    #: Ours as soon as its old owner releases it.
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
    # A row with the same worker as both owners is broken: no worker would hand it over.
    return Ownership.OTHERS if row.checkpoint_owner == worker_id else Ownership.COMING


def look_pause_s(
    quiet_s: float,
    failover_s: float,
    *,
    by_index: bool = False,
    informed: Informed = Informed.NO,
) -> float:
    """Seconds until the next look.

    Args:
        quiet_s: seconds since this worker began, or gained, lost or expected a lease.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
        by_index: the table is too large to be scanned.
    """
    if informed is Informed.LEADS:
        longest_s = INFORMED_PAUSE_S
    elif quiet_s < LIVELY_S:
        longest_s = LIVELY_PAUSE_S
    elif informed is Informed.ANNOUNCED:
        longest_s = INFORMED_PAUSE_S
    else:
        longest_s = CALM_INDEX_PAUSE_S if by_index else CALM_PAUSE_S
    return min(longest_s, failover_s * longest_s / 10)


def is_small(items: int) -> bool:
    """Whether a table of so many items is scanned without a thought."""
    return items <= SMALL_ITEMS


def watches(items: int, informed: Informed) -> bool:
    """Whether a worker's own looks go by what it sees of other workers' leases.

    A leader knows more; and where the lock says when leases are assigned, a scan of a table that is
    not small costs more than it is worth.
    """
    return informed is Informed.NO or (informed is Informed.ANNOUNCED and is_small(items))


@dataclass(frozen=True, slots=True)
class Watched:
    """A lease of another worker or without owner, as a follower's scans show it.

    Attributes:
        counter: ``leaseCounter``.
        since: reading of the monotonic clock after the scan that first showed this state.
    """

    counter: int
    since: float
    is_free: bool


def watch(
    before: Mapping[str, Watched], leases: Iterable[Lease], worker_id: str, now: float
) -> dict[str, Watched]:
    """Update what is known of other workers' leases with a scan.

    Args:
        before: lease key -> state by earlier scans.
        leases: all rows; those of finished shards are left out, as no worker renews them.
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
    """Seconds until the latest time for the next look, because leases may be reassigned.

    Args:
        now: reading of the monotonic clock.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.

    Returns:
        None = no lease is known to be about to be reassigned.
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
    """Whether to query the index instead of scanning the table.

    Args:
        leases: number of leases in the last scan.
    """
    return leases > SMALL_TABLE


def vanished(
    held: Mapping[str, str], listed: Collection[str], seen: Mapping[str, str]
) -> list[str]:
    """Held leases that were listed as ours and no longer are: the row names another worker.

    The list is eventually consistent, so a lease that was not yet listed since it was gained is
    left out.

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
