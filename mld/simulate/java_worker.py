"""A Java worker of a 3.x fleet, and how it assigns leases when it leads: its rules as they are.

Ours are in :mod:`kcl_mld.fleet.rules.assignment`. Java's know no groups, lose workers in the middle of a plan
and, where all workers are alike, use two of them. Off AWS a Java worker has no CPU figure; then the
throughput of its leases stands for its load, which is what is modelled here.

Source: LeaseAssignmentManager.java, VarianceBasedLeaseAssignmentDecider.java,
WorkerMetricStats.java (KCL 3.5.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from kcl_mld.fleet.rules.assignment.planning import MoveKind
from kcl_mld.leases.rules.taking import Sighting, look
from kcl_mld.simulate.profile import METRICS_EXPIRY_S
from kcl_mld.simulate.worker import AssignedWorker, JavaMove

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld.leases.model.lease import Lease


#: reBalanceThresholdPercentage and dampeningPercentage, and a utilization that is too much.
THRESHOLD = 0.10
DAMPENING = 0.60
OPERATING_LIMIT = 100.0
#: Time for an old owner to finish, beside the failover time (gracefulLeaseHandoffTimeoutMillis).
HAND_OFF_S = 30.0
#: A leader balances at every nth run, the first included (varianceBalancingFrequency).
BALANCE_EVERY = 3


@dataclass(slots=True)
class LeaderMemory:
    """What a leader remembers from run to run; empty when it begins to lead.

    Attributes:
        seen: counters and since when, by lease key.
        deadlines: of hand-offs, by lease key: the pair of owners and the time.
    """

    seen: Mapping[str, Sighting] = field(default_factory=dict)
    deadlines: dict[str, tuple[str | None, str | None, float]] = field(default_factory=dict)
    runs: int = 0


@dataclass(slots=True)
class JavaLoad:
    """A worker during a plan: its utilization in percent of the mean, as it will be."""

    worker: str
    value: float


def plan(
    leases: Sequence[Lease],
    workers: Sequence[str],
    now: float,
    memory: LeaderMemory,
    failover_s: float,
    max_leases: int,
    rng: random.Random,
) -> list[JavaMove]:
    """One run of a leader.

    Args:
        leases: every row of one scan.
        workers: ids of the workers whose metrics are fresh, in the order of the scan.
        now: reading of the monotonic clock after the scan.
        memory: of this leader; changed.
        failover_s: ``failoverTimeMillis``.
        max_leases: ``maxLeasesForWorker``.
    """
    memory.seen = look(memory.seen, leases, now)
    memory.deadlines = {
        lease.lease_key: _deadline(lease, memory, now, failover_s)
        for lease in leases
        if lease.checkpoint_owner is not None
    }
    free = [
        lease
        for lease in leases
        if lease.actual_owner is None or now - memory.seen[lease.lease_key].seen_at > failover_s
    ]
    decider = _Decider(leases, workers, max_leases, rng)
    decider.assign_free(sorted(free, key=lambda lease: memory.seen[lease.lease_key].seen_at))
    if memory.runs % BALANCE_EVERY == 0:
        decider.balance()
    memory.runs += 1
    free_keys = {lease.lease_key for lease in free}
    moves = []
    for lease, to in decider.chosen.values():
        deadline = memory.deadlines.get(lease.lease_key)
        if lease.lease_key in free_keys or (deadline is not None and now > deadline[2]):
            moves.append(JavaMove(lease, to, MoveKind.ASSIGN))
        elif deadline is None:
            moves.append(JavaMove(lease, to, MoveKind.HAND_OFF))
    return moves


def _deadline(
    lease: Lease, memory: LeaderMemory, now: float, failover_s: float
) -> tuple[str | None, str | None, float]:
    owners = (lease.lease_owner, lease.checkpoint_owner)
    known = memory.deadlines.get(lease.lease_key)
    if known is not None and known[:2] == owners:
        return known
    return (*owners, now + HAND_OFF_S + failover_s)


class _Decider:
    """The variance decider: evens out utilization."""

    def __init__(
        self, leases: Sequence[Lease], workers: Sequence[str], max_leases: int, rng: random.Random
    ) -> None:
        known = [lease.throughput_kbps for lease in leases if lease.throughput_kbps is not None]
        mean_kbps = sum(known) / len(known) if known else 0.0
        self._kbps = {
            lease.lease_key: mean_kbps if lease.throughput_kbps is None else lease.throughput_kbps
            for lease in leases
        }
        self._total: dict[str | None, float] = {}
        self._leases: dict[str | None, dict[str, Lease]] = {}
        for lease in leases:
            owner = lease.actual_owner
            self._leases.setdefault(owner, {})[lease.lease_key] = lease
            self._total[owner] = self._total.get(owner, 0.0) + self._kbps[lease.lease_key]
        self._target_kbps = mean_kbps * len(leases) / max(1, len(workers))
        self._target_leases = max(1, len(leases) // max(1, len(workers)))
        self._max_leases = max_leases
        self._rng = rng
        self._loads = [JavaLoad(worker, self._utilization(worker)) for worker in workers]
        values = [load.value for load in self._loads]
        self._mean = sum(values) / len(values) if values else 0.0
        self._queue = JavaQueue(self._room)
        for load in self._loads:
            self._put_back(load)
        #: lease key -> the lease and its new owner.
        self.chosen: dict[str, tuple[Lease, str]] = {}

    def assign_free(self, free: Sequence[Lease]) -> None:
        """Give expired and unassigned leases to the workers with most room."""
        for lease in free:
            load = self._queue.poll()
            if load is None:
                return
            self._assign(lease, load, is_free=True)

    def balance(self) -> None:
        """Move throughput from workers that have more than others to those with most room."""
        takes = {
            load.worker: self._total.get(load.worker, 0.0)
            * ((load.value - self._mean) / load.value)
            * DAMPENING
            for load in self._sources()
        }
        for worker, take_kbps in sorted(takes.items(), key=lambda take: -take[1]):
            for lease in self._to_take(worker, take_kbps):
                load = self._queue.poll()
                if load is None:
                    continue
                after = load.value + self._added(lease)
                if after > self._mean or after > OPERATING_LIMIT:
                    break  # as in Java, the worker that was asked gets nothing more in this run
                self._assign(lease, load, is_free=False)

    def _sources(self) -> list[JavaLoad]:
        upper, lower = self._mean * (1 + THRESHOLD), self._mean * (1 - THRESHOLD)
        is_uneven = any(
            load.value > upper or load.value < lower or load.value > OPERATING_LIMIT
            for load in self._loads
        )
        if not is_uneven:
            return []
        above = [
            load for load in self._loads if load.value >= upper or load.value > OPERATING_LIMIT
        ]
        return above or [max(self._loads, key=lambda load: load.value)]

    def _to_take(self, worker: str, take_kbps: float) -> list[Lease]:
        leases = list(self._leases.get(worker, {}).values())
        if not leases:
            return []
        if self._total[worker] == 0:
            return leases[:1]
        taken, left_kbps = [], take_kbps
        for lease in self._rng.sample(leases, len(leases)):
            if left_kbps - self._kbps[lease.lease_key] > 0:
                left_kbps -= self._kbps[lease.lease_key]
                taken.append(lease)
        return taken or [min(leases, key=lambda lease: self._kbps[lease.lease_key])]

    def _assign(self, lease: Lease, load: JavaLoad, *, is_free: bool) -> None:
        is_stuck = is_free and lease.checkpoint_owner is not None
        if lease.actual_owner == load.worker and not is_stuck:
            self._put_back(load)
            return
        load.value += self._added(lease)
        kbps = self._kbps[lease.lease_key]
        self._leases[lease.actual_owner].pop(lease.lease_key, None)
        self._leases.setdefault(load.worker, {})[lease.lease_key] = lease
        self._total[load.worker] = self._total.get(load.worker, 0.0) + kbps
        self._total[lease.actual_owner] -= kbps
        self.chosen[lease.lease_key] = (lease, load.worker)
        self._put_back(load)

    def _put_back(self, load: JavaLoad) -> None:
        if len(self._leases.get(load.worker, {})) < self._max_leases:
            self._queue.add(load)

    def _added(self, lease: Lease) -> float:
        if self._target_kbps > 0:
            return self._kbps[lease.lease_key] * self._mean / self._target_kbps
        return self._mean / self._target_leases

    def _utilization(self, worker: str) -> float:
        if self._target_kbps == 0:
            return math.nan  # 0.0 / 0.0, which Java computes
        return self._total.get(worker, 0.0) / self._target_kbps * 100

    def _room(self, load: JavaLoad) -> float:
        return 1.0 if load.value == 0 else (self._mean - load.value) / load.value


class JavaQueue:
    """``java.util.PriorityQueue`` with the largest room first: among equals, its very order."""

    def __init__(self, room: Callable[[JavaLoad], float]) -> None:
        """Be empty.

        Args:
            room: of a worker; NaN is the largest, as for ``Double.compare``.
        """
        self._room = room
        self._heap: list[JavaLoad] = []

    def add(self, load: JavaLoad) -> None:
        """Put a worker in; an equal one that was there stays before it."""
        place = len(self._heap)
        self._heap.append(load)
        while place > 0:
            parent = (place - 1) // 2
            if not self._is_before(load, self._heap[parent]):
                break
            self._heap[place] = self._heap[parent]
            place = parent
        self._heap[place] = load

    def poll(self) -> JavaLoad | None:
        """Take out the worker with the largest room; None when it is empty."""
        if not self._heap:
            return None
        first, last = self._heap[0], self._heap.pop()
        if self._heap:
            self._sink(last)
        return first

    def _sink(self, load: JavaLoad) -> None:
        """Put a worker at the top, then down to where it belongs."""
        place, size = 0, len(self._heap)
        while (child := 2 * place + 1) < size:
            if child + 1 < size and self._is_before(self._heap[child + 1], self._heap[child]):
                child += 1
            if not self._is_before(self._heap[child], load):
                break
            self._heap[place] = self._heap[child]
            place = child
        self._heap[place] = load

    def _is_before(self, one: JavaLoad, other: JavaLoad) -> bool:
        return _order(self._room(one)) > _order(self._room(other))


def _order(room: float) -> float:
    return math.inf if math.isnan(room) else room


class JavaWorker(AssignedWorker):
    """Reads the table at fixed rates, and leads as Java does."""

    def start(self) -> None:
        """Begin all loops; the first discovery finds that the worker is not ready yet."""
        self._memory = LeaderMemory()
        super().start()

    def discover(self) -> None:
        """Ask the index after each period."""
        self.later(self.fleet.profile.discovery_s, self._discover)

    def gain_lead(self) -> None:
        """Begin without memory."""
        self._memory = LeaderMemory()

    def plan(self, now: float) -> Sequence[JavaMove]:
        """Plan moves as :func:`plan` does; workers come in the order of a scan."""
        leases = self.fleet.table.scan(now)
        reporting = [
            worker.id
            for worker in self.with_metrics()
            if now - worker.reported_at(now) <= METRICS_EXPIRY_S
        ]
        workers = sorted(reporting, key=lambda worker: crc32(worker.encode()))
        scenario = self.fleet.scenario
        return plan(
            leases,
            workers,
            now,
            self._memory,
            scenario.failover_s,
            scenario.max_leases,
            self.fleet.rng,
        )

    def _discover(self) -> None:
        table = self.fleet.table
        keys = table.keys_of(self.id)
        table.bill.query(len(keys))
        for key in keys:
            if key not in self.held:
                table.bill.get()
                if table.rows[key].checkpoint_owner is None:
                    self.hold(key)
        self.discover()
