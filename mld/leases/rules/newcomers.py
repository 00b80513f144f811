"""When a newcomer to a 2.x fleet leaves leases to others, because processes keep failing.

Each worker takes leases by itself. A row with only the mark of a newcomer
(:mod:`kcl_mld.leases.model.newcomer`) was taken by a process that failed or was killed while it was
new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.newcomer import NewcomerMark
    from kcl_mld.leases.rules.taking import Sighting, TakePlan

#: A worker that fails within this many seconds of its start, or of the end of its wait, crashed.
SOON_S = 60.0
#: Longest time that a newcomer waits for its first leases, in seconds.
MOST_WAIT_S = 300.0
#: After this many seconds without a crash, newcomers take leases at once again.
QUIET_S = 600.0


@dataclass(frozen=True, slots=True)
class Probation:
    """What a newcomer may take now.

    Attributes:
        avoided: keys of leases that it leaves to workers that have run for longer.
        may_steal: it may take leases from live workers.
        most: number of leases that it may hold; None = its share.
        neglected: keys of leases that no other worker takes; it may take them beyond ``most``.
    """

    avoided: frozenset[str] = frozenset()
    may_steal: bool = True
    most: int | None = None
    neglected: frozenset[str] = frozenset()

    def of(self, plan: TakePlan, held: int) -> TakePlan:
        """The part of a plan that the newcomer may carry out.

        Args:
            plan: by the rules of the fleet.
            held: number of leases that it holds.
        """
        if self.most is None:
            return plan
        wanted = [one for one in plan.leases if one.lease_key not in self.avoided]
        left = [one for one in wanted if one.lease_key in self.neglected]
        others = [one for one in wanted if one.lease_key not in self.neglected]
        room = max(0, self.most - held - len(left))
        return replace(plan, leases=(*left, *others[:room]))


def failed_marks(
    leases: Iterable[Lease], alive: Collection[str], instance: str, epoch_s: float
) -> dict[str, NewcomerMark]:
    """Lease key -> mark, of processes that failed while new, within the last ten minutes.

    Args:
        leases: of one scan.
        alive: keys of leases that their owners may be renewing.
        instance: id of this process.
        epoch_s: now; clocks may differ by a minute.
    """
    marked = [(one, one.newcomer) for one in leases if one.newcomer is not None]
    working = {
        mark.instance
        for one, mark in marked
        if one.lease_key in alive and one.lease_owner == mark.worker_id
    }
    return {
        one.lease_key: mark
        for one, mark in marked
        if mark.instance not in working | {instance} and -SOON_S <= epoch_s - mark.at_s <= QUIET_S
    }


def wait_s(failed: Mapping[str, NewcomerMark], failover_s: float) -> float:
    """How long a newcomer leaves marked leases, and leases of others, alone; 0 = not at all.

    Processes that failed at the same lease count once, because each replaced the previous mark.

    Args:
        failover_s: the time after the first failure; doubled for each further one.
    """
    lives = len({mark.instance for mark in failed.values()})
    return min(failover_s * 2.0 ** (min(lives, 20) - 1), MOST_WAIT_S) if lives else 0.0


def probation(
    failed: Mapping[str, NewcomerMark],
    seen: Mapping[str, Sighting],
    now: float,
    *,
    lived_s: float,
    failover_s: float,
    patience_s: float,
) -> Probation:
    """What a process that has not yet held a lease for a minute may take after a scan.

    Args:
        failed: as :func:`failed_marks`.
        seen: the counters, as of :func:`kcl_mld.leases.rules.taking.look`.
        now: reading of the monotonic clock after the scan.
        lived_s: seconds since its start.
        failover_s: > 0.
        patience_s: live workers take a free lease within this time; a lease whose counter has not
            changed for longer is taken by no other worker.
    """
    if not failed:
        return Probation()
    neglected = frozenset(
        key
        for key, one in seen.items()
        if lived_s >= patience_s and now - one.seen_at >= patience_s
    )
    if lived_s >= wait_s(failed, failover_s):
        return Probation(most=1, neglected=neglected)
    avoided = frozenset(failed) - neglected
    return Probation(avoided=avoided, may_steal=False, most=1, neglected=neglected)
