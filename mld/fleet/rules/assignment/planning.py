"""From one view of the fleet, the moves that the leader writes.

First, at every scan, leases that no worker reads get an owner. Only the room of a worker limits
that: an unread lease is worse than a lease in the wrong place. Workers that can't renew more leases
in time get them last. Then, at an interval or when workers came or went, leases of live workers
move so that work is even; a lease in a hand-off stays.

Leases that wait for their parents have no traffic. They are spread by their number when they get an
owner, and stay there until they are read. Otherwise a lease without traffic would be the first one
to move, again and again, and a Java worker does not answer the hand-off of one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_metrics import honoring
from kcl_mld.fleet.rules.assignment.fleet import Fleet, Participant, form_groups, groups_of
from kcl_mld.fleet.rules.assignment.free_workers import FreeWorkers
from kcl_mld.fleet.rules.assignment.levelling import Levelling, Relief
from kcl_mld.fleet.rules.assignment.looks import (
    observe,
    readings,
    take_part,
    waiting_for_parents,
)
from kcl_mld.leases.rules.pausing import is_paused

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

    from kcl_mld.fleet.model.worker_life import FailedLife
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
    from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView
    from kcl_mld.leases.model.lease import Lease


class MoveKind(Enum):
    """Which write a move is."""

    #: The new owner has it at once; the old one notices at its next write (``assigning``).
    ASSIGN = auto()
    #: The old owner is asked to finish first (``hand_off_start``).
    HAND_OFF = auto()


class MoveReason(StrEnum):
    """Why a lease moves, as words for the log."""

    UNOWNED = "it has no owner"
    EXPIRED = "its owner does not renew it"
    OVERDUE = "its hand-off took too long"
    RETURNED = "workers with the id of its owner fail again and again"
    LOAD = "the load of workers differs"
    COUNT = "the number of leases differs between workers"
    GROUP = "the number of leases differs between groups of workers"


@dataclass(frozen=True, slots=True)
class LeaseMove:
    """One lease gets another owner.

    Attributes:
        lease: the row that was seen; the write is conditional on its owners.
    """

    lease: Lease
    to: str
    kind: MoveKind
    reason: MoveReason


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """Figures of a plan, for logs and metrics; leases are unfinished ones unless noted otherwise.

    Attributes:
        presumed_dead: ids of workers that are taken for dead until they report again.
        waiting: ids of newcomers that get no leases yet, because others failed soon after they began.
        wait_s: how long a newcomer has to live until it gets leases, in seconds; 0 = not at all.
        poisoned: the last of the processes that failed, where all failed at one lease and position;
            None = there is no such lease.
        failing: ids of workers that could not measure themselves.
        unowned: leases without owner.
        expired: leases whose owner does not renew them.
        in_hand_off: leases in a hand-off whose time is not over.
        unassigned: leases that get no owner, because no worker may have more.
        paused: keys of paused leases among them that no worker can have that honors a pause.
        is_balanced: True when moves between live workers were considered.
        by_worker: leases of each participant when all moves are done.
        by_group: likewise of each group; one group ``""`` where there are none.
    """

    leases: int
    finished: int
    workers: int
    presumed_dead: tuple[str, ...]
    waiting: tuple[str, ...]
    wait_s: float
    poisoned: FailedLife | None
    failing: tuple[str, ...]
    unowned: int
    expired: int
    in_hand_off: int
    unassigned: int
    is_balanced: bool
    paused: tuple[str, ...] = ()
    by_worker: Mapping[str, int] = field(default_factory=dict)
    by_group: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[MoveReason, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssignmentPlan:
    """The decision after one scan.

    Attributes:
        moves: at most one per lease; unread leases first, the longest unread of them first.
        dead: items of worker metrics to delete before the moves are written, each if it still has
            its ``updated_at_s``: of workers that died, even if other rows still name them. So the
            next leader does not take them for alive.
        stale: likewise, to delete at any time: they are too old.
        forgotten: likewise, of processes that failed and are no longer of interest.
        noted: processes that died soon after their start, to be stored in the table.
        figures: see :class:`PlanFigures`.
    """

    moves: tuple[LeaseMove, ...]
    memory: FleetMemory
    dead: tuple[WorkerMetrics, ...]
    stale: tuple[WorkerMetrics, ...]
    forgotten: tuple[FailedLife, ...]
    noted: tuple[FailedLife, ...]
    figures: PlanFigures


def plan_assignment(
    view: FleetView,
    memory: FleetMemory,
    limits: AssignmentLimits,
    rng: random.Random,
    *,
    may_balance: bool = True,
) -> AssignmentPlan:
    """Decide who gets which lease.

    Call it as often as there is something new. A failed write needs nothing: the next look sees
    the row as it is.

    Args:
        memory: of the previous scan; an empty one at the first scan as the leader.
        limits: see :class:`AssignmentLimits`.
        may_balance: False = only leases that no worker reads get an owner. True = leases of live
            workers may move, too, which is looked for at the first look, when other workers take
            part than at the last balance, and ``balance_interval_s`` after it.

    Source: LeaseAssignmentManager.performAssignment (3.5.1).
    """
    planning = _Planning(view, memory, limits)
    planning.form_fleet(rng)
    planning.fill()
    if planning.lacks_newcomers:
        planning = _Planning(view, memory, limits, with_newcomers=True)
        planning.form_fleet(rng)
        planning.fill()
    is_relief_due = may_balance and planning.is_interval_over(memory)
    is_balanced = is_relief_due or (may_balance and planning.has_changed(memory))
    if is_balanced:
        planning.balance(rng if is_relief_due else None)
    return planning.plan(is_balanced=is_balanced)


class _Planning:
    """The parts of one plan, in the order in which they are called."""

    def __init__(
        self,
        view: FleetView,
        memory: FleetMemory,
        limits: AssignmentLimits,
        *,
        with_newcomers: bool = False,
    ) -> None:
        self._memory = seen = observe(memory, view, limits)
        self._view = view
        self._limits = limits
        self._unread = {
            lease.lease_key: reason
            for lease in view.leases
            if (reason := _why_unread(lease, seen, view, limits)) is not None
        }
        self._waiting = waiting_for_parents(view.leases)
        self._workers = take_part(view, seen.workers, limits)
        self.participants = dict(self._workers.active)
        if with_newcomers:
            self.participants |= self._workers.waiting
        self._fleet = Fleet((), (), {}, by_count=limits.by_count)
        self._moves: dict[str, LeaseMove] = {}
        self._fixed: set[str] = set()
        self._unassigned = 0
        self._paused: list[str] = []

    @property
    def lacks_newcomers(self) -> bool:
        """True when a lease gets no owner although a newcomer could own it."""
        return self._unassigned > 0 and len(self._workers.waiting) > 0

    def form_fleet(self, rng: random.Random) -> None:
        """Participants with the leases that they keep; in a hand-off the next owner has it."""
        named = {worker: item.group for worker, item in self.participants.items() if item.group}
        groups = groups_of(self.participants, named)
        formed = form_groups(groups)
        kept = [
            (lease, owner)
            for lease in self._view.leases
            if lease.lease_key not in self._unread
            and (owner := lease.lease_owner or str(lease.checkpoint_owner)) in self.participants
        ]
        pool = [lease for lease, _owner in kept if self._can_be_read(lease)]
        pool += [lease for lease in self._unread_leases() if self._can_be_read(lease)]
        pool += [lease for lease in self._returned_leases() if self._can_be_read(lease)]
        workers = (Participant(one, formed[groups[one]], rng.random()) for one in self.participants)
        self._fleet = Fleet(
            workers,
            pool,
            self._memory.throughputs,
            by_count=self._limits.by_count,
            threshold=self._limits.threshold,
        )
        for worker_id, item in self.participants.items():
            if item.most is not None:
                self._fleet.workers[worker_id].most = item.most
        for lease, owner in kept:
            self._fleet.give(lease, self._fleet.workers[owner])
        leaving = [
            lease for lease, _owner in kept if lease.is_handed_over and not lease.is_finished
        ]
        self._fixed.update(lease.lease_key for lease in leaving)
        if not self._limits.by_count:
            self._measure([lease for lease in leaving if self._can_be_read(lease)])

    def _can_be_read(self, lease: Lease) -> bool:
        return not lease.is_finished and lease.lease_key not in self._waiting

    def _measure(self, leaving: list[Lease]) -> None:
        metrics = {}
        places = Counter(item.place for item in self.participants.values())
        for worker_id, item in self.participants.items():
            if item.place is not None and places[item.place] > 1:
                continue  # its measurements are of another load
            if of := readings(item, self._limits.ema_alpha):
                metrics[worker_id] = of
                limits = {name: float(item.limits[name][0]) for name in of}
                self._fleet.workers[worker_id].limits = limits
        self._fleet.measure(metrics, leaving)

    def fill(self) -> None:
        """Leases that no worker reads get an owner.

        The next owner of its hand-off, else the best one.
        """
        waiting = []
        for lease in self._unread_leases():
            heir = self._heir(lease)
            if heir is None:
                waiting.append(lease)
            else:
                self._fleet.give(lease, heir)
                self._assign(lease, heir)
        claims = Counter(
            str(lease.lease_owner)
            for lease in waiting
            if lease.lease_owner in self.participants
            and lease.checkpoint_owner is None
            and not lease.is_finished
        )
        free = FreeWorkers(self._fleet, self._limits, claims, self._waiting)
        known = honoring(self.participants.values())
        for lease in waiting:
            unless = None if lease.checkpoint_owner is not None else lease.lease_owner
            worker = free.assign(lease, unless, known if self._is_paused(lease) else None)
            if worker is not None:
                self._assign(lease, worker)
                if unless is not None and unless in self.participants:
                    self._fixed.add(lease.lease_key)  # levelling must not move it back
            elif unless is not None and unless in self.participants:
                # It may still return to its owner, and no other worker can take it.
                self._fleet.give(lease, self._fleet.workers[unless])
                self._fixed.add(lease.lease_key)
            else:
                self._unassigned += not lease.is_finished
                if self._is_paused(lease):
                    self._paused.append(lease.lease_key)
        for lease in self._returned_leases():
            worker = free.assign(lease, None, known if self._is_paused(lease) else None)
            if worker is not None:
                self._move(lease, worker, MoveReason.RETURNED)

    def is_interval_over(self, memory: FleetMemory) -> bool:
        """True at the first scan, and when the interval since the balance of all has passed."""
        due_at = (memory.balanced_at or 0.0) + self._limits.balance_interval_s
        return memory.balanced_at is None or self._view.now >= due_at

    def has_changed(self, memory: FleetMemory) -> bool:
        """True when others take part than at the last balance."""
        return memory.participants != frozenset(self.participants)

    def balance(self, rng: random.Random | None) -> None:
        """Leases of live workers move.

        Args:
            rng: for moves by load, which need metrics that have seen what the last ones did; None
                = only numbers become level.
        """
        # A paused lease does not cost its owner work, whether that had it or was just given it, and
        # a new owner might read it.
        self._fixed.update(one.lease_key for one in self._view.leases if self._is_paused(one))
        if rng is not None:
            self._memory = replace(self._memory, balanced_at=self._view.now)
        if rng is not None and not self._limits.by_count:
            relief = Relief(self._fleet, self._fixed, self._limits, rng)
            for lease, worker in relief.moves():
                self._move(lease, worker, MoveReason.LOAD)
        levelling = Levelling(self._fleet, self._fixed, self._limits)
        for lease, worker in levelling.by_worker():
            self._move(lease, worker, MoveReason.COUNT)
        for lease, worker in levelling.by_group():
            self._move(lease, worker, MoveReason.GROUP)
        self._memory = replace(self._memory, participants=frozenset(self.participants))

    def plan(self, *, is_balanced: bool) -> AssignmentPlan:
        """All of it as one value."""
        return AssignmentPlan(
            moves=tuple(self._moves.values()),
            memory=self._memory,
            dead=self._workers.dead,
            stale=self._workers.stale,
            forgotten=self._memory.workers.loop.outdated(self._view.failed),
            noted=self._memory.workers.loop.unnoted(self._view.failed),
            figures=self._figures(is_balanced=is_balanced),
        )

    def _figures(self, *, is_balanced: bool) -> PlanFigures:
        unfinished = [lease for lease in self._view.leases if not lease.is_finished]
        why = Counter(self._unread.get(lease.lease_key) for lease in unfinished)
        return PlanFigures(
            leases=len(unfinished),
            finished=len(self._view.leases) - len(unfinished),
            workers=len(self.participants),
            presumed_dead=self._workers.presumed_dead,
            waiting=tuple(one for one in self._workers.waiting if one not in self.participants),
            wait_s=self._memory.workers.loop.wait_s(self._limits.failover_s),
            poisoned=self._memory.workers.loop.poisoned(),
            failing=self._workers.failing,
            unowned=why[MoveReason.UNOWNED],
            expired=why[MoveReason.EXPIRED],
            in_hand_off=sum(
                lease.checkpoint_owner is not None and lease.lease_key not in self._unread
                for lease in unfinished
            ),
            unassigned=self._unassigned,
            is_balanced=is_balanced,
            paused=tuple(self._paused),
            by_worker={one.id: one.size for one in self._fleet.workers.values()},
            by_group={group.name: group.count for group in self._fleet.groups.values()},
            reasons=Counter(move.reason for move in self._moves.values()),
        )

    def _heir(self, lease: Lease) -> Participant | None:
        """The next owner of a lease whose hand-off did not end."""
        is_in_hand_off = lease.checkpoint_owner not in (None, lease.lease_owner)
        heir = self._fleet.workers.get(lease.lease_owner or "") if is_in_hand_off else None
        if heir is None or not self._is_paused(lease):
            return heir
        return heir if self.participants[heir.id].honors_pause else None

    def _is_paused(self, lease: Lease) -> bool:
        return is_paused(lease, self._view.epoch_s) and not lease.is_finished

    def _unread_leases(self) -> list[Lease]:
        """Leases with records first, of them the longest unchanged first."""
        unread = (lease for lease in self._view.leases if lease.lease_key in self._unread)
        seen = self._memory.sightings

        def rank(lease: Lease) -> tuple[bool, bool, float]:
            key = lease.lease_key
            return (lease.is_finished, key in self._waiting, seen[key].seen_at)

        return sorted(unread, key=rank)

    def _returned_leases(self) -> list[Lease]:
        """Leases kept by a worker that has to wait.

        Reason: processes of its id fail again and again.
        """
        returned = self._workers.returned - self.participants.keys()
        return [
            lease
            for lease in self._view.leases
            if lease.lease_owner in returned
            and not lease.is_handed_over
            and not lease.is_finished
            and lease.lease_key not in self._unread
        ]

    def _assign(self, lease: Lease, worker: Participant) -> None:
        reason = self._unread[lease.lease_key]
        self._moves[lease.lease_key] = LeaseMove(lease, worker.id, MoveKind.ASSIGN, reason)

    def _move(self, lease: Lease, worker: Participant, reason: MoveReason) -> None:
        """A lease of a live worker moves, or an unread one goes to another worker than planned."""
        key = lease.lease_key
        if key in self._unread:
            self._moves[key] = replace(self._moves[key], to=worker.id)
        elif lease.lease_owner == worker.id:
            del self._moves[key]
        else:
            kind = MoveKind.HAND_OFF if self._limits.is_graceful else MoveKind.ASSIGN
            self._moves[key] = LeaseMove(lease, worker.id, kind, reason)


def _why_unread(
    lease: Lease, seen: FleetMemory, view: FleetView, limits: AssignmentLimits
) -> MoveReason | None:
    if lease.actual_owner is None:
        return MoveReason.UNOWNED
    if seen.is_expired(lease, view.now, limits):
        return MoveReason.EXPIRED
    return MoveReason.OVERDUE if seen.is_overdue(lease, view.now) else None
