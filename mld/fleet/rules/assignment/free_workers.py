"""Which worker gets the next lease that nobody reads: a queue of the participants of a plan."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits, Fleet, Participant
    from kcl_mld.leases.model.lease import Lease

_Rank = tuple[bool, float, int, float, str]
_Bench = tuple[int, float, str]


class FreeWorkers:
    """Workers in the order in which they get leases: least load, least leases, emptiest group."""

    def __init__(
        self,
        fleet: Fleet,
        limits: AssignmentLimits,
        claims: Mapping[str, int],
        waiting: Container[str] = (),
    ) -> None:
        """Order them as they are now.

        Args:
            limits: what a worker may hold.
            claims: worker id -> unfinished leases that it does not renew, and may renew again.
                Each takes room of its own worker until another one gets it.
            waiting: keys of leases that wait for their parents.

        Source: VarianceBasedLeaseAssignmentDecider.initialize (3.5.1), for the claims: there, too,
        an expired lease counts for its owner until another worker has it.
        """
        self._fleet = fleet
        self._limits = limits
        self._claims = Counter(claims)
        self._waiting = waiting
        self._full: set[str] = set()
        self._rows: dict[str, list[_Rank]] = {name: [] for name in fleet.groups}
        self._benches: list[_Bench] = []
        for worker in fleet.workers.values():
            self._rows[worker.group.name].append(_rank(worker))
            self._benches.append(_bench(worker))
        for row in self._rows.values():
            heapq.heapify(row)
        heapq.heapify(self._benches)

    def assign(
        self, lease: Lease, unless: str | None, among: Container[str] | None = None
    ) -> Participant | None:
        """Give a lease to the best worker.

        Args:
            lease: that of a finished shard has no load, but a worker has to delete it.
            unless: the id of who must not get it.
            among: ids of those who may have an unfinished one; None = all may.

        Returns:
            The new owner; None when no worker can take it, which changes nothing.
        """
        if lease.is_finished:
            worker = self._for_finished(unless)
        elif lease.lease_key in self._waiting:
            worker = self._for_waiting(unless, among)
        else:
            worker = self._best(unless, among)
        if worker is None:
            return None
        self._fleet.give(lease, worker)
        if lease.is_finished:
            heapq.heappush(self._benches, _bench(worker))
            return worker
        if lease.lease_key not in self._waiting:
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

    def _best(self, unless: str | None, among: Container[str] | None) -> Participant | None:
        passed: list[Participant] = []
        best: Participant | None = None
        while best is None:
            tops = [top for row in self._rows.values() if (top := self._top(row)) is not None]
            if not tops:
                break
            worker = min(tops, key=_preference)
            heapq.heappop(self._rows[worker.group.name])
            if worker.id == unless or (among is not None and worker.id not in among):
                passed.append(worker)
            else:
                best = worker
        for worker in passed:
            heapq.heappush(self._rows[worker.group.name], _rank(worker))
        return best

    def _top(self, row: list[_Rank]) -> Participant | None:
        """The best of a group; those that can take no more leave."""
        while row:
            worker = self._fleet.workers[row[0][-1]]
            if self._has_room(worker):
                return worker
            heapq.heappop(row)
            self._full.add(worker.id)
        return None

    def _has_room(self, worker: Participant) -> bool:
        return self._limits.has_room(worker.size + self._claims[worker.id], worker.kbps)

    def _for_waiting(self, unless: str | None, among: Container[str] | None) -> Participant | None:
        """The worker with the fewest of them."""
        able = (
            worker
            for worker in self._fleet.workers.values()
            if worker.id != unless
            and (among is None or worker.id in among)
            and self._has_room(worker)
        )
        return min(
            able,
            key=lambda one: (not one.has_time, one.waiting, one.count, one.order),
            default=None,
        )

    def _for_finished(self, unless: str | None) -> Participant | None:
        for bench in heapq.nsmallest(2, self._benches):
            worker = self._fleet.workers[bench[2]]
            if worker.id != unless:
                # Not by its present leases: a lease that no other worker took went back to it.
                self._benches.remove(bench)
                heapq.heapify(self._benches)
                return worker
        return None


def _rank(worker: Participant) -> _Rank:
    return (not worker.has_time, round(worker.load, 9), worker.count, worker.order, worker.id)


def _preference(worker: Participant) -> tuple[bool, float, int, float, float]:
    load = round(worker.load, 9)
    return (not worker.has_time, load, worker.count, worker.group.excess, worker.order)


def _bench(worker: Participant) -> _Bench:
    return (worker.finished, worker.order, worker.id)
