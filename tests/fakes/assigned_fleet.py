"""A fleet that does what the leader's plans say, in virtual seconds: pure values, no table.

Workers renew each second what they hold, report their metrics every half minute, and finish a
hand-off ``drain_s`` after it began.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_life import FailedLife, Instance
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView
from kcl_mld.fleet.rules.assignment.planning import (
    AssignmentPlan,
    LeaseMove,
    MoveKind,
    plan_assignment,
)
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON
from kcl_mld.leases.model.lease import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

REPORT_S = 30


def row(number: int, owner: str | None = None, **changes) -> Lease:
    """Lease ``number``, by default of nobody and at the start of its shard."""
    shard = f"shardId-{number:012d}"
    changes = {"checkpoint": TRIM_HORIZON} | changes
    return Lease(lease_key=shard, shard_id=shard, lease_owner=owner, **changes)


def rows(**counts: int) -> list[Lease]:
    """``rows(a=2, free=3)``: two leases of worker a, three of nobody."""
    owners = [
        None if owner == "free" else owner for owner, count in counts.items() for _ in range(count)
    ]
    return [row(number, owner) for number, owner in enumerate(owners)]


def finished(number: int, owner: str | None = None, **changes) -> Lease:
    """A lease whose shard has been read to its end."""
    return row(number, owner, checkpoint=SHARD_END, **changes)


class AssignedFleet:
    """Leases, workers, and a leader that is asked once a second."""

    def __init__(
        self,
        leases: Iterable[Lease],
        workers: Iterable[str] = (),
        *,
        limits: AssignmentLimits | None = None,
        seed: int = 0,
        drain_s: int = 2,
        most: dict[str, int] | None = None,
    ) -> None:
        self.leases = {lease.lease_key: lease for lease in leases}
        self.limits = limits or AssignmentLimits()
        self.rng = random.Random(seed)
        self.drain_s = drain_s
        self.now = 0
        self.memory = FleetMemory()
        self.moves: list[tuple[int, LeaseMove]] = []
        self.alive: set[str] = set()
        self.metrics: dict[str, WorkerMetrics] = {}
        self.failed: list[FailedLife] = []
        self.measure: Callable[[str], float | None] = lambda worker: None
        self.samples: dict[str, list[float]] = {}
        self.most: dict[str, int] = most or {}
        #: Workers that honor a pause.
        self.honoring: set[str] = set()
        self._reported: dict[str, int] = {}
        self._started: Counter[str] = Counter()
        self._draining: dict[str, int] = {}
        self._rows: dict[str, tuple[Lease, Lease]] = {}
        self.join(*workers)

    def join(self, *workers: str) -> None:
        """Workers start and report at once."""
        for worker in workers:
            self.alive.add(worker)
            self._started[worker] += 1
            self._report(worker)

    def kill(self, *workers: str) -> None:
        """Workers are gone; what they wrote stays."""
        self.alive.difference_update(workers)

    def leave(self, *workers: str) -> None:
        """Workers stop as they should: their leases are released, their metrics deleted."""
        self.kill(*workers)
        for worker in workers:
            del self.metrics[worker]
            for lease in self.of(worker):
                heir = lease.lease_owner if lease.lease_owner != worker else None
                self._write(lease, lease_owner=heir, checkpoint_owner=None)
        for lease in list(self.leases.values()):
            if lease.lease_owner in workers and lease.checkpoint_owner is None:
                self._write(lease, lease_owner=None)

    def fail(self, worker: str, *, lived_s: int = 5, lease: str | None = None) -> None:
        """A worker ends by its own failure, in order, and leaves an item that says so."""
        self.leave(worker)
        number = len(self.failed)
        life = FailedLife(
            instance=f"i{number}",
            worker_id=worker,
            lived_s=lived_s,
            failed_at_s=1_000_000 + self.now,
            why="its child failed",
            lease_key=lease,
            position=None if lease is None else "7",
        )
        self.failed.append(life)

    def of(self, worker: str) -> list[Lease]:
        """What a worker holds now; a lease that it hands over is still one."""
        return [lease for lease in self.leases.values() if lease.actual_owner == worker]

    def look(self, seconds: int = 1, *, may_balance: bool = True) -> AssignmentPlan:
        """Time passes, then the leader looks, and what it plans is written."""
        self.now += seconds
        for lease in list(self.leases.values()):
            if lease.actual_owner in self.alive:
                self._renew(lease.actual_owner, lease)
        for worker in sorted(self.alive):
            if self.now - self._reported[worker] >= REPORT_S:
                self._report(worker)
        plan = self.plan(may_balance=may_balance)
        self.memory = plan.memory
        for move in plan.moves:
            self.moves.append((self.now, move))
            self.write(move)
        return plan

    def plan(self, *, may_balance: bool = True) -> AssignmentPlan:
        """What the leader would do; nothing is written."""
        leader = min(self.alive, default="nobody")
        view = FleetView(
            leases=tuple(lease for _key, lease in sorted(self.leases.items())),
            metrics=tuple(self.metrics.values()),
            leader=leader,
            now=float(self.now),
            epoch_s=1_000_000.0 + self.now,
            failed=tuple(self.failed),
        )
        return plan_assignment(view, self.memory, self.limits, self.rng, may_balance=may_balance)

    def write(self, move: LeaseMove) -> None:
        """One move, on the conditions of the write that it is."""
        lease = self.leases[move.lease.lease_key]
        assert (lease.lease_owner, lease.checkpoint_owner) == (
            move.lease.lease_owner,
            move.lease.checkpoint_owner,
        )
        if move.kind is MoveKind.ASSIGN:
            self._write(lease, lease_owner=move.to, checkpoint_owner=None)
            self._draining.pop(lease.lease_key, None)
        else:
            assert lease.lease_owner is not None
            assert lease.checkpoint_owner is None
            self.leases[lease.lease_key] = replace(
                lease, lease_owner=move.to, checkpoint_owner=lease.lease_owner
            )
            self._draining[lease.lease_key] = self.now + self.drain_s

    def run(self, seconds: int) -> None:
        """So many looks."""
        for _ in range(seconds):
            self.look()

    def by_worker(self) -> dict[str, int]:
        """Unfinished leases of each living worker, those that are on their way included."""
        owners = Counter(
            lease.lease_owner for lease in self.leases.values() if not lease.is_finished
        )
        return {worker: owners[worker] for worker in sorted(self.alive)}

    def by_prefix(self) -> dict[str, int]:
        """Likewise by what is before the first dash of a worker's id."""
        totals: Counter[str] = Counter()
        for worker, count in self.by_worker().items():
            totals[worker.partition("-")[0]] += count
        return dict(totals)

    def _renew(self, worker: str, lease: Lease) -> None:
        if self._draining.get(lease.lease_key, self.now + 1) <= self.now:
            del self._draining[lease.lease_key]
            self._write(lease, checkpoint_owner=None)
        else:
            self.leases[lease.lease_key] = self._beaten(lease)

    def _beaten(self, lease: Lease) -> Lease:
        """The row after a heartbeat: two rows in turn, since all that matters is that it changed."""
        known, after = self._rows.get(lease.lease_key, (None, None))
        if lease is not known or after is None:
            after = replace(lease, lease_counter=lease.lease_counter + 1)
        self._rows[lease.lease_key] = (after, lease)
        return after

    def _write(self, lease: Lease, **changes) -> None:
        self.leases[lease.lease_key] = replace(
            lease, lease_counter=lease.lease_counter + 1, **changes
        )

    def _report(self, worker: str) -> None:
        self._reported[worker] = self.now
        value = self.measure(worker)
        samples: dict[str, tuple[float, ...]] = {}
        if value is not None:
            kept = self.samples.setdefault(worker, [])
            kept.append(value)
            samples = {"C": tuple(kept[-10:])}
        limits = {"C": (100,)} if samples else {}
        self.metrics[worker] = WorkerMetrics(
            worker,
            1_000_000 + self.now,
            samples,
            limits,
            most=self.most.get(worker),
            honors_pause=worker in self.honoring,
            instance=Instance(f"{worker} {self._started[worker]}", 0),
        )
