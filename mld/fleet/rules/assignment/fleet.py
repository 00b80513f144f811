"""The fleet as a plan changes it: who has which lease, and how much that is.

Loads are ratios: 1 is the fair share. A lease weighs what it carries, and a little for being there.

Workers belong to groups: a group is what fails, scales or is deployed together, like a zone, a
cluster, or a colour of a deployment. So leases can be spread over groups as well.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.config.config import Config
    from kcl_mld.leases.model.lease import Lease

#: Metrics older than this many periods of the leader's own reports are not used.
#: Source: LeaseAssignmentManager (3.5.1).
REPORTS_MISSED = 2
#: KiB/s that a lease counts beside its throughput: a child, its polls and its heartbeats cost
#: something, too. So leases without throughput are spread by their number, and the noise of a
#: stream that hardly carries anything moves none.
BASE_KBPS = 1.0
#: Percentage points by which a metric may differ by chance.
NOISE = 5.0
#: Loads that differ by less are the same.
SAME = 1e-9
#: The first block of a UUID, a hash, an instance number: chance, not a name.
_BY_CHANCE = re.compile(r"[0-9a-fA-F]{8,}")


@dataclass(slots=True)
class Group:
    """Workers that belong together.

    Attributes:
        name: ``""`` when there is only one.
        workers: how many, >= 1.
        count: unfinished leases of all of them.
        fair: leases that are their share, by the number of workers; not rounded.
    """

    name: str
    workers: int = 0
    count: int = 0
    fair: float = 0.0

    @property
    def excess(self) -> float:
        """Leases beyond the fair share; negative when some are missing."""
        return self.count - self.fair


@dataclass(slots=True)
class Participant:
    """One participant, with what a plan gives and takes.

    Attributes:
        order: chance, to break ties.
        leases: unfinished ones by key; in a hand-off those that come.
        waiting: how many unfinished ones wait for their parents: they carry nothing, and don't move.
        finished: how many leases of finished shards.
        held: weight of the leases, 1 = the fair share.
        excess: difference between a metric and the value that the leases explain; same unit.
        kbps: throughput of the leases.
        metrics: name -> percent, as it will be when all leases are where they belong.
        limits: name -> percent that should not be exceeded.
        most: leases that it can renew in time, by its own measure.
    """

    id: str
    group: Group
    order: float
    leases: dict[str, Lease] = field(default_factory=dict)
    waiting: int = 0
    finished: int = 0
    held: float = 0.0
    excess: float = 0.0
    kbps: float = 0.0
    metrics: dict[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    most: float = math.inf

    @property
    def has_time(self) -> bool:
        """True while it can renew one lease more."""
        return self.size < self.most

    @property
    def load(self) -> float:
        """1 = the fair share: the weight of its leases, set right by its metrics."""
        return self.held + self.excess

    @property
    def count(self) -> int:
        """Unfinished leases that can be read."""
        return len(self.leases)

    @property
    def size(self) -> int:
        """Unfinished leases, those that wait for their parents included."""
        return len(self.leases) + self.waiting

    def has(self, name: str | None) -> bool:
        """True for a metric of this worker; None = it has none and goes by its leases."""
        return name in self.metrics if name is not None else not self.metrics

    def reading(self, name: str | None) -> float:
        """A metric in percent; None = the weight of its leases."""
        return self.held if name is None else self.metrics[name]

    def limit(self, name: str | None) -> float:
        """Upper end of the operating range of a metric."""
        return math.inf if name is None else self.limits[name]


class Fleet:
    """Participants and the leases that they have or will have.

    Attributes:
        means: of each metric, over the workers that have it.
        carries: True when the throughput of a lease is known and not 0.
    """

    def __init__(
        self,
        workers: Iterable[Participant],
        pool: Iterable[Lease],
        throughputs: Mapping[str, float],
        *,
        by_count: bool,
        threshold: float = 0.1,
    ) -> None:
        """No worker has a lease yet.

        Args:
            workers: the participants; with none there is nobody to give a lease to.
            pool: unfinished leases that these workers are to share; others only count.
            throughputs: KiB/s by lease key; of a lease that is not in it the mean of the others
                holds.
            by_count: every lease weighs the same.
            threshold: share of the mean by which loads may differ.
        """
        leases = list(pool)
        self.workers = {worker.id: worker for worker in workers}
        self.groups = {worker.group.name: worker.group for worker in self.workers.values()}
        self.means: dict[str, float] = {}
        self._threshold = threshold
        self._kbps = throughputs_of(leases, throughputs)
        self.carries = any(self._kbps.values())
        weights = dict.fromkeys(self._kbps, 0.0) if by_count else self._kbps
        total = sum(weights.values()) + BASE_KBPS * len(leases)
        size = max(1, len(self.workers))
        fair = (total or 1.0) / size
        self._shares = {key: (kbps + BASE_KBPS) / fair for key, kbps in weights.items()}
        for group in self.groups.values():
            group.fair = len(leases) / size * group.workers

    def share(self, lease: Lease) -> float:
        """What a lease of the pool adds to the load of its worker."""
        return self._shares[lease.lease_key]

    def give(self, lease: Lease, worker: Participant) -> None:
        """The worker has one lease more."""
        if lease.is_finished:
            worker.finished += 1
            return
        if lease.lease_key not in self._shares:
            worker.waiting += 1
            return
        worker.leases[lease.lease_key] = lease
        worker.group.count += 1
        self._weigh(worker, lease, 1)

    def move(self, lease: Lease, giver: Participant, taker: Participant) -> None:
        """An unfinished lease goes from one to another."""
        del giver.leases[lease.lease_key]
        giver.group.count -= 1
        self._weigh(giver, lease, -1)
        self.give(lease, taker)

    def _weigh(self, worker: Participant, lease: Lease, sign: int) -> None:
        share = sign * self.share(lease)
        worker.held += share
        worker.kbps += sign * self._kbps[lease.lease_key]
        for name in worker.metrics:
            worker.metrics[name] += share * self.means[name]

    def measure(self, metrics: Mapping[str, Mapping[str, float]], leaving: Iterable[Lease]) -> None:
        """Take metrics in; the leases are those that the workers have and will keep.

        Args:
            metrics: worker id -> name -> percent.
            leaving: leases in a hand-off. They are the next owner's already, and still in the
                metrics of the old one.
        """
        names = sorted({name for of in metrics.values() for name in of})
        for name in names:
            values = [of[name] for of in metrics.values() if name in of]
            self.means[name] = sum(values) / len(values)
        measured = {worker: self.workers[worker].held for worker in metrics}
        for lease in leaving:
            for owner, sign in ((lease.checkpoint_owner, 1), (lease.lease_owner, -1)):
                if owner is not None and owner in measured:
                    measured[owner] += sign * self.share(lease)
        for worker_id, of in metrics.items():
            worker = self.workers[worker_id]
            moved = worker.held - measured[worker_id]
            worker.excess = max(
                (self._surprise(name, value, measured[worker_id]) for name, value in of.items()),
                default=0.0,
            )
            worker.metrics = {name: value + moved * self.means[name] for name, value in of.items()}

    def _surprise(self, name: str, value: float, held: float) -> float:
        """How far a metric is from what the leases explain, beyond what chance does.

        Half of the zone, so that who is level by this is not yet to be relieved.
        """
        mean = self.means[name]
        if mean <= 0:
            return 0.0
        difference = value / mean - held
        beyond = max(0.0, abs(difference) - self.zone(name) / 2 / mean)
        return math.copysign(beyond, difference)

    def mean(self, name: str | None) -> float:
        """What a worker has of a metric on average; None = the fair share of the leases."""
        return 1.0 if name is None else self.means[name]

    def zone(self, name: str | None) -> float:
        """How far from the mean a worker may be."""
        if name is None:
            return self._threshold
        return max(NOISE, self._threshold * self.means[name])

    def ratio(self, worker: Participant) -> float:
        """The load of a worker as a ratio to the mean, by its greatest metric."""
        ratios = (
            value / self.means[name] for name, value in worker.metrics.items() if self.means[name]
        )
        return max(ratios, default=worker.held)

    def keeps_limits(self, worker: Participant, share: float) -> bool:
        """True for a worker that stays within its operating ranges with this additional load."""
        return all(
            value + share * self.means[name] <= worker.limits[name] + SAME
            for name, value in worker.metrics.items()
        )

    def level_room(self, giver: Participant, taker: Participant) -> float:
        """What the taker may get from the giver without being busier than that was, or the mean.

        Returns:
            The largest share, in shares of the fair load; negative when there is none.
        """
        room = max(1.0, giver.load) - taker.load
        for name, value in taker.metrics.items():
            mean = self.means[name]
            most = max(mean, giver.metrics.get(name, mean)) if mean > NOISE else math.inf
            if mean > 0:
                room = min(room, (min(most, taker.limits[name]) - value) / mean)
        return room + SAME


def throughputs_of(leases: Iterable[Lease], known: Mapping[str, float]) -> dict[str, float]:
    """KiB/s by lease key; of leases whose throughput is not known the mean of the others, or 0.

    Source: LeaseAssignmentManager.InMemoryStorageView (3.5.1).
    """
    keys = [lease.lease_key for lease in leases]
    values = [known[key] for key in keys if key in known]
    mean = sum(values) / len(values) if values else 0.0
    return {key: known.get(key, mean) for key in keys}


def form_groups(groups: Mapping[str, str]) -> dict[str, Group]:
    """One group a name, with its number of workers.

    Args:
        groups: worker id -> name of its group.
    """
    formed: dict[str, Group] = {}
    for name in groups.values():
        formed.setdefault(name, Group(name)).workers += 1
    return formed


def groups_of(workers: Iterable[str], named: Mapping[str, str]) -> dict[str, str]:
    """The group of each worker.

    Args:
        workers: ids of the workers that take part.
        named: worker id -> group, for workers that report theirs (``workerGroup``).

    Returns:
        Worker id -> group. One that names none belongs to the part of its id before the first
        ``-``, if that is so for all that name none: each id has such a part, and none looks like
        chance (8 or more hexadecimal digits, as in a UUID). Otherwise they are one group, without
        a name. Where there are fewer than two groups, or each worker is one of its own, everybody
        is in the group ``""``: there is nothing to spread over.

    Wrong guesses are harmless: a group's fair share is that of its workers, so groups only decide
    who has the one lease more where the workers' numbers can't be equal.
    """
    ids = sorted(workers)
    unnamed = [worker for worker in ids if worker not in named]
    guesses = {worker: _guess(worker) for worker in unnamed}
    if not all(guesses.values()):
        guesses = dict.fromkeys(unnamed, "")
    groups = {worker: named.get(worker) or guesses[worker] for worker in ids}
    if not 2 <= len(set(groups.values())) < len(ids):
        return dict.fromkeys(ids, "")
    return groups


def _guess(worker: str) -> str:
    head, dash, _rest = worker.partition("-")
    return "" if not dash or _BY_CHANCE.fullmatch(head) else head


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentLimits:
    """What the leader keeps to.

    Attributes:
        failover_s: > 0; a counter unchanged for longer than this means expired.
        hand_off_timeout_s: >= 0; how long an old owner may finish. The leader waits for it, and
            ``failover_s`` more, before it finishes a hand-off itself.
        is_graceful: planned moves are hand-offs; False = the old owner simply loses the lease.
        max_leases: upper bound of unfinished leases of a worker, >= 1.
        max_throughput_kbps: a worker above it gets no more leases.
        by_count: leases are only counted (``LEASE_COUNT_BASED``): neither throughput nor
            utilization matters.
        threshold: share of the mean by which a worker's utilization may differ, 0.1 = 10 %.
        dampening: share of an imbalance of utilization that one balance moves, 0.6 = 60 %.
        allows_overshoot: if every lease exceeds the load to be moved, move the smallest.
        ema_alpha: weight of the newest sample of a worker's metric, 0..1.
        balance_interval_s: > 0; distance of two balances of the same workers.
        metrics_expiry_s: a worker whose metrics are older is not there.
        metrics_stale_s: metrics older than this are to be deleted.
    """

    failover_s: float = 10.0
    hand_off_timeout_s: float = 30.0
    is_graceful: bool = True
    max_leases: int = 2**31 - 1
    max_throughput_kbps: float = math.inf
    by_count: bool = False
    threshold: float = 0.1
    dampening: float = 0.6
    allows_overshoot: bool = True
    ema_alpha: float = 0.5
    balance_interval_s: float = 60.0
    metrics_expiry_s: float = 60.0
    metrics_stale_s: float = 86_400.0

    @classmethod
    def of(cls, config: Config) -> AssignmentLimits:
        """The limits of the leader's configuration."""
        leases, assignment = config.leases, config.assignment
        return cls(
            failover_s=leases.failover_s,
            hand_off_timeout_s=leases.hand_off_timeout_s,
            is_graceful=assignment.is_graceful,
            max_leases=leases.max_leases_for_worker,
            max_throughput_kbps=assignment.max_throughput_kbps,
            by_count=assignment.by_count,
            threshold=assignment.threshold,
            dampening=assignment.dampening,
            allows_overshoot=assignment.allows_overshoot,
            ema_alpha=assignment.ema_alpha,
            balance_interval_s=assignment.balance_s,
            metrics_expiry_s=REPORTS_MISSED * config.fleet.report_s,
            metrics_stale_s=assignment.metrics_stale_s,
        )

    def has_room(self, count: int, kbps: float) -> bool:
        """True for a worker that may have one lease more.

        Args:
            count: its unfinished leases.

        Source: WorkerMetricStats.willAnyMetricGoAboveAverageUtilizationOrOperatingRange's caller
        and VarianceBasedLeaseAssignmentDecider.initialize (3.5.1): what it has, not what it will.
        """
        return count < self.max_leases and kbps <= self.max_throughput_kbps
