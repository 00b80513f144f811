"""The fleet as a plan changes it: who has which lease, and how much that is.

Loads are ratios: 1 is the fair share. A lease weighs what it carries, and a little for being there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mld.model.lease import Lease

#: KiB/s that a lease counts beside its throughput: a child, its polls and its heartbeats cost
#: something, too. So leases without throughput are spread by their number, and the noise of a
#: stream that hardly carries anything moves none.
BASE_KBPS = 1.0
#: Loads that differ by less are the same.
SAME = 1e-9


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
class Worker:
    """One participant, with what a plan gives and takes.

    Attributes:
        id: worker id.
        group: where it belongs.
        order: chance, to break ties.
        leases: unfinished ones by key; in a hand-off those that come.
        finished: how many leases of finished shards.
        load: 1 = the fair share.
        kbps: throughput of the leases.
    """

    id: str
    group: Group
    order: float
    leases: dict[str, Lease] = field(default_factory=dict)
    finished: int = 0
    load: float = 0.0
    kbps: float = 0.0

    @property
    def count(self) -> int:
        """Unfinished leases."""
        return len(self.leases)


class Fleet:
    """Participants and the leases that they have or will have."""

    def __init__(self, workers: Iterable[Worker], pool: Iterable[Lease], *, by_count: bool) -> None:
        """Nobody has a lease yet.

        Args:
            workers: the participants; with none there is nobody to give a lease to.
            pool: unfinished leases that these workers are to share.
            by_count: every lease weighs the same.
        """
        leases = list(pool)
        self.workers = {worker.id: worker for worker in workers}
        self.groups = {worker.group.name: worker.group for worker in self.workers.values()}
        self._kbps = throughputs(leases)
        weights = dict.fromkeys(self._kbps, 0.0) if by_count else self._kbps
        total = sum(weights.values()) + BASE_KBPS * len(leases)
        size = max(1, len(self.workers))
        fair = (total or 1.0) / size
        self._shares = {key: (kbps + BASE_KBPS) / fair for key, kbps in weights.items()}
        self.mean_count = len(leases) / size
        for group in self.groups.values():
            group.fair = self.mean_count * group.workers

    def share(self, lease: Lease) -> float:
        """What an unfinished lease adds to the load of its worker."""
        return self._shares[lease.lease_key]

    def kbps(self, lease: Lease) -> float:
        """Throughput of a lease, the mean of the others where it is not known."""
        return self._kbps[lease.lease_key]

    def give(self, lease: Lease, worker: Worker) -> None:
        """The worker has one lease more."""
        if lease.is_finished:
            worker.finished += 1
            return
        worker.leases[lease.lease_key] = lease
        worker.load += self.share(lease)
        worker.kbps += self.kbps(lease)
        worker.group.count += 1

    def move(self, lease: Lease, giver: Worker, taker: Worker) -> None:
        """An unfinished lease goes from one to another."""
        del giver.leases[lease.lease_key]
        giver.load -= self.share(lease)
        giver.kbps -= self.kbps(lease)
        giver.group.count -= 1
        self.give(lease, taker)


def throughputs(leases: Iterable[Lease]) -> dict[str, float]:
    """KiB/s by lease key; of leases whose throughput is not known the mean of the others, or 0.

    Source: LeaseAssignmentManager.InMemoryStorageView (3.5.1).
    """
    stored = {lease.lease_key: lease.throughput_kbps for lease in leases}
    known = [kbps for kbps in stored.values() if kbps is not None]
    mean = sum(known) / len(known) if known else 0.0
    return {key: mean if kbps is None else kbps for key, kbps in stored.items()}


def form_groups(groups: Mapping[str, str]) -> dict[str, Group]:
    """One group a name, with its number of workers.

    Args:
        groups: worker id -> name of its group.
    """
    formed: dict[str, Group] = {}
    for name in groups.values():
        formed.setdefault(name, Group(name)).workers += 1
    return formed
