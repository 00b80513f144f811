"""Moves from workers that are busier than the others, by their own metrics or by throughput.

These are Java's rules, since they are documented and have properties of their own. What is
different: a worker that could not take one lease is asked again for the next, differences of a few
points are chance, and a worker's first sample, taken while it started, does not count.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.fleet.assignment.fleet import SAME

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterator

    from mld.decide.fleet.assignment.fleet import Fleet, Participant
    from mld.decide.fleet.assignment.limits import AssignmentLimits
    from mld.model.leases.lease import Lease


@dataclass(frozen=True, slots=True)
class Surplus:
    """What a busy worker is to give away.

    Attributes:
        worker: the busy one.
        share: how much, in shares of the fair load.
    """

    worker: Participant
    share: float


class Relief:
    """One run; the fleet is changed as it goes.

    Source: VarianceBasedLeaseAssignmentDecider.balanceWorkerVariance (3.5.1).
    """

    def __init__(
        self,
        fleet: Fleet,
        fixed: Collection[str],
        limits: AssignmentLimits,
        rng: random.Random,
    ) -> None:
        """Begin.

        Args:
            fleet: whose busy workers are relieved.
            fixed: keys of leases that must stay.
            limits: threshold, dampening, overshoot, and what a worker may hold.
            rng: chooses among the leases of a worker.
        """
        self._fleet = fleet
        self._fixed = fixed
        self._limits = limits
        self._rng = rng
        self._row = [self._rank(worker) for worker in fleet.workers.values()]
        heapq.heapify(self._row)

    def moves(self) -> Iterator[tuple[Lease, Participant]]:
        """Those of the metric by which most has to move."""
        surpluses = [self._surpluses(name) for name in (None, *self._fleet.means)]
        most = max(surpluses, key=lambda of: sum(one.share for one in of))
        for surplus in sorted(most, key=lambda one: one.share, reverse=True):
            for lease in self._leases(surplus):
                taker = self._taker(lease, surplus.worker)
                if taker is not None:
                    self._fleet.move(lease, surplus.worker, taker)
                    heapq.heappush(self._row, self._rank(taker))
                    yield lease, taker

    def _surpluses(self, name: str | None) -> list[Surplus]:
        """Who is too busy by a metric; None = by throughput, of workers without metrics."""
        readings = [
            (worker.reading(name), worker.limit(name), worker)
            for worker in self._fleet.workers.values()
            if worker.has(name)
        ]
        if not readings or (name is None and not self._fleet.carries):
            return []
        mean, zone = self._fleet.mean(name), self._fleet.zone(name)
        busy = [
            (value, worker)
            for value, limit, worker in readings
            if value >= mean + zone or value > limit
        ]
        if not busy and min(value for value, _limit, _worker in readings) < mean - zone:
            value, _limit, worker = max(readings, key=lambda one: (one[0], one[2].order))
            busy = [(value, worker)]
        return [
            Surplus(worker, worker.held * (value - mean) / value * self._limits.dampening)
            for value, worker in busy
            if value > mean
        ]

    def _leases(self, surplus: Surplus) -> list[Lease]:
        """Which leases make up the surplus."""
        leases = [lease for key, lease in surplus.worker.leases.items() if key not in self._fixed]
        self._rng.shuffle(leases)
        if surplus.worker.kbps == 0:
            return leases[:1]  # what makes the worker busy is not in its leases
        left = surplus.share
        chosen = []
        for lease in leases:
            if self._fleet.share(lease) < left:
                chosen.append(lease)
                left -= self._fleet.share(lease)
        if not chosen and self._limits.allows_overshoot:
            return sorted(leases, key=self._fleet.share)[:1]
        return chosen

    def _taker(self, lease: Lease, giver: Participant) -> Participant | None:
        """The least busy worker that stays at or below the mean with one lease more."""
        share = self._fleet.share(lease)
        passed = []
        taker = None
        while self._row and taker is None and self._row[0][0] + share <= 1 + SAME:
            entry = heapq.heappop(self._row)
            worker = self._fleet.workers[entry[3]]
            if (
                worker is not giver
                and self._limits.has_room(worker.count, worker.kbps)
                and self._fleet.keeps_limits(worker, share)
            ):
                taker = worker
            else:
                passed.append(entry)
        for entry in passed:
            heapq.heappush(self._row, entry)
        return taker

    def _rank(self, worker: Participant) -> tuple[float, int, float, str]:
        return (self._fleet.ratio(worker), worker.count, worker.order, worker.id)
