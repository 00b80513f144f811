"""Who gets the leases that nobody reads.

Nothing limits this but what a worker may hold: a lease that is not read is worse than one that is
read in the wrong place.
"""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.decide.fleet.assignment.fleet import Fleet, Participant
    from mld.decide.fleet.assignment.limits import AssignmentLimits
    from mld.model.leases.lease import Lease


_Rank = tuple[float, int, float, str]
_Bench = tuple[int, float, str]


class FreeWorkers:
    """Workers in the order in which they get leases: least load, least leases, emptiest group."""

    def __init__(self, fleet: Fleet, limits: AssignmentLimits, claims: Mapping[str, int]) -> None:
        """Order them as they are now.

        Args:
            fleet: changed by each lease that is given.
            limits: what a worker may hold.
            claims: worker id -> unfinished leases that it does not renew, and may come back to.
                Each takes room of its own worker until another one gets it.

        Source: VarianceBasedLeaseAssignmentDecider.initialize (3.5.1), for the claims: there, too,
        an expired lease counts for its owner until somebody else has it.
        """
        self._fleet = fleet
        self._limits = limits
        self._claims = Counter(claims)
        self._full: set[str] = set()
        self._rows: dict[str, list[_Rank]] = {name: [] for name in fleet.groups}
        self._benches: list[_Bench] = []
        for worker in fleet.workers.values():
            self._rows[worker.group.name].append(_rank(worker))
            self._benches.append(_bench(worker))
        for row in self._rows.values():
            heapq.heapify(row)
        heapq.heapify(self._benches)

    def assign(self, lease: Lease, unless: str | None) -> Participant | None:
        """Give a lease to the best worker.

        Args:
            lease: of a finished shard it carries nothing, but somebody has to delete it.
            unless: the id of who must not get it.

        Returns:
            The new owner; None when nobody can take it, which changes nothing.
        """
        worker = self._for_finished(unless) if lease.is_finished else self._best(unless)
        if worker is None:
            return None
        self._fleet.give(lease, worker)
        if lease.is_finished:
            heapq.heappush(self._benches, _bench(worker))
        else:
            heapq.heappush(self._rows[worker.group.name], _rank(worker))
            self._free_room_of(unless)
        return worker

    def _free_room_of(self, worker_id: str | None) -> None:
        """Another one got its lease."""
        if worker_id is None or not self._claims[worker_id]:
            return
        self._claims[worker_id] -= 1
        if worker_id in self._full:
            self._full.remove(worker_id)
            worker = self._fleet.workers[worker_id]
            heapq.heappush(self._rows[worker.group.name], _rank(worker))

    def _best(self, unless: str | None) -> Participant | None:
        passed: Participant | None = None
        best: Participant | None = None
        while best is None:
            tops = [top for row in self._rows.values() if (top := self._top(row)) is not None]
            if not tops:
                break
            worker = min(tops, key=_preference)
            heapq.heappop(self._rows[worker.group.name])
            if worker.id == unless:
                passed = worker
            else:
                best = worker
        if passed is not None:
            heapq.heappush(self._rows[passed.group.name], _rank(passed))
        return best

    def _top(self, row: list[_Rank]) -> Participant | None:
        """The best of a group; those that can take no more leave."""
        while row:
            worker = self._fleet.workers[row[0][3]]
            if self._limits.has_room(worker.count + self._claims[worker.id], worker.kbps):
                return worker
            heapq.heappop(row)
            self._full.add(worker.id)
        return None

    def _for_finished(self, unless: str | None) -> Participant | None:
        for bench in heapq.nsmallest(2, self._benches):
            worker = self._fleet.workers[bench[2]]
            if worker.id != unless:
                # Not by what it has now: a lease that nobody else took went back to it.
                self._benches.remove(bench)
                heapq.heapify(self._benches)
                return worker
        return None


def _rank(worker: Participant) -> _Rank:
    return (round(worker.load, 9), worker.count, worker.order, worker.id)


def _preference(worker: Participant) -> tuple[float, int, float, float]:
    return (round(worker.load, 9), worker.count, worker.group.excess, worker.order)


def _bench(worker: Participant) -> _Bench:
    return (worker.finished, worker.order, worker.id)
