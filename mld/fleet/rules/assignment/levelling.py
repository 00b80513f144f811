"""Moves that level a fleet: the number of leases, and the load of busy workers.

Each move for numbers either brings two workers' numbers nearer to each other, or leaves them as
they are (one more, one less: exchanged) and brings two groups nearer to their fair shares. Both can
only happen so often: what is level stays, nothing comes back. And no move makes the more loaded of
the two workers more loaded than it was, so numbers never work against throughput.

:class:`Relief` moves leases from workers that are busier than the others. These are Java's rules,
since they are documented and have properties of their own. Differences: a worker that could not
take one lease is asked again for the next, differences of a few points are chance, and a worker's
first sample, taken while it started, does not count.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.fleet.rules.assignment.fleet import SAME

if TYPE_CHECKING:
    import random
    from collections.abc import Collection, Iterable, Iterator

    from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits, Fleet, Group, Participant
    from kcl_mld.leases.model.lease import Lease


class Levelling:
    """One run; the fleet is changed as it goes.

    Args:
        fixed: keys of leases that must stay: in a hand-off, or somebody's for no longer.
        limits: what a worker may hold.
    """

    def __init__(self, fleet: Fleet, fixed: Collection[str], limits: AssignmentLimits) -> None:
        self._fleet = fleet
        self._fixed = fixed
        self._limits = limits

    def by_worker(self) -> Iterator[tuple[Lease, Participant]]:
        """Moves until no worker has two leases more than another that could have one of them."""
        workers = list(self._fleet.workers.values())
        fullest, emptiest = _Queues(workers, is_descending=True), _Queues(workers)
        while (giver := fullest.best()) is not None and (least := emptiest.best()) is not None:
            if giver.count - least.count < 2:
                return
            # Nearly always the emptiest one takes it; all others are only asked if it can't.
            move = self._give_one(giver, [least]) or self._give_one(
                giver, sorted((one for one in workers if one.count <= giver.count - 2), key=_rank)
            )
            if move is None:
                fullest.drop(giver)
                continue
            for changed in (giver, move[1]):
                fullest.add(changed)
                emptiest.add(changed)
            yield move

    def by_group(self) -> Iterator[tuple[Lease, Participant]]:
        """Moves until no group has more than one lease too many beside another."""
        stuck: set[tuple[str, str]] = set()
        while True:
            pair = self._next_pair(stuck)
            if pair is None:
                return
            move = self._between(*pair)
            if move is None:
                stuck.add((pair[0].name, pair[1].name))
            else:
                yield move

    def _next_pair(self, stuck: set[tuple[str, str]]) -> tuple[Group, Group] | None:
        groups = sorted(self._fleet.groups.values(), key=lambda group: group.excess)
        pairs = [
            (giver, taker)
            for taker in groups
            for giver in reversed(groups)
            if giver.excess - taker.excess > 1 + SAME and (giver.name, taker.name) not in stuck
        ]
        return max(pairs, key=lambda pair: pair[0].excess - pair[1].excess, default=None)

    def _between(self, giving: Group, taking: Group) -> tuple[Lease, Participant] | None:
        givers = sorted(self._of(giving), key=_rank, reverse=True)
        takers = sorted(self._of(taking), key=_rank)
        for giver in givers:
            move = self._give_one(giver, [one for one in takers if one.count < giver.count])
            if move is not None:
                return move
        return None

    def _of(self, group: Group) -> list[Participant]:
        return [worker for worker in self._fleet.workers.values() if worker.group is group]

    def _give_one(
        self, giver: Participant, takers: list[Participant]
    ) -> tuple[Lease, Participant] | None:
        shares = {
            key: self._fleet.share(lease)
            for key, lease in giver.leases.items()
            if key not in self._fixed
        }
        for taker in takers if shares else ():
            if not (taker.has_time and self._limits.has_room(taker.size, taker.kbps)):
                continue
            most = self._fleet.level_room(giver, taker)
            distance = giver.load - taker.load
            fitting = [
                # The best is the one after which the two loads are the nearest to each other.
                (abs(distance - 2 * share), key)
                for key, share in shares.items()
                if share <= most
            ]
            if fitting:
                lease = giver.leases[min(fitting)[1]]
                self._fleet.move(lease, giver, taker)
                return lease, taker
        return None


class _Queues:
    """Workers by rank, a queue a group: what a move changes is its two workers and their groups.

    So a move costs no look at all workers. An entry that tells of a former state is passed over.
    """

    def __init__(self, workers: Iterable[Participant], *, is_descending: bool = False) -> None:
        self._sign = -1 if is_descending else 1
        self._choose = max if is_descending else min
        self._queues: dict[str, list[tuple[float, float, float, str]]] = {}
        self._workers: dict[str, Participant] = {}
        for worker in workers:
            self._workers[worker.id] = worker
            self.add(worker)

    def add(self, worker: Participant) -> None:
        """As it is now; one that was dropped stays away."""
        queue = self._queues.setdefault(worker.group.name, [])
        heapq.heappush(queue, self._entry(worker))

    def drop(self, worker: Participant) -> None:
        """It is never the best again."""
        del self._workers[worker.id]

    def best(self) -> Participant | None:
        """The first of all groups by :func:`_rank`; None when all were dropped."""
        firsts = (self._first(queue) for queue in self._queues.values())
        return self._choose((one for one in firsts if one is not None), key=_rank, default=None)

    def _first(self, queue: list[tuple[float, float, float, str]]) -> Participant | None:
        while queue:
            worker = self._workers.get(queue[0][3])
            if worker is not None and queue[0] == self._entry(worker):
                return worker
            heapq.heappop(queue)
        return None

    def _entry(self, worker: Participant) -> tuple[float, float, float, str]:
        """The rank within a group."""
        sign = self._sign
        return (sign * worker.count, sign * worker.load, sign * worker.order, worker.id)


def _rank(worker: Participant) -> tuple[int, float, float, float]:
    """The greatest is the fullest, of the fullest group; the least the emptiest."""
    return (worker.count, worker.group.excess, worker.load, worker.order)


@dataclass(frozen=True, slots=True)
class Surplus:
    """What a busy worker is to give away.

    Attributes:
        share: how much, in shares of the fair load.
    """

    worker: Participant
    share: float


class Relief:
    """One run; the fleet is changed as it goes.

    Source: VarianceBasedLeaseAssignmentDecider.balanceWorkerVariance (3.5.1).

    Args:
        fixed: keys of leases that must stay.
        limits: threshold, dampening, overshoot, and what a worker may hold.
    """

    def __init__(
        self,
        fleet: Fleet,
        fixed: Collection[str],
        limits: AssignmentLimits,
        rng: random.Random,
    ) -> None:
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
                and worker.has_time
                and self._limits.has_room(worker.size, worker.kbps)
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
