"""A worker of a 3.x fleet: it follows the lock, hands leases over, and leads when it has the lock."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from mld.decide.assignment.planning import MoveKind
from mld.decide.leader_lock import LockMove, LockSighting, follow, look_pause_s, sight
from mld.simulate.worker import Hold, SimulatedWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mld.decide.assignment.planning import LeaseMove
    from mld.simulate.java_assignment import JavaMove
    from mld.simulate.worker import WorkerFleet


class AssignedWorker(SimulatedWorker):
    """What Java's workers and ours have in common; the kinds differ in how they look and plan.

    Attributes:
        reports_from: when it writes its metrics for the first time; infinity = not started yet.
        is_retired: it took its metrics away when it stopped.
    """

    def __init__(self, fleet: WorkerFleet, worker_id: str, group: str) -> None:
        """A process that starts now."""
        super().__init__(fleet, worker_id, group)
        self.reports_from = math.inf
        self.is_retired = False

    def start(self) -> None:
        """Begin all loops."""
        self._sighting: LockSighting | None = None
        self.reports_from = self.fleet.events.now + self.fleet.profile.first_report_s
        self._follow()
        self.lead()
        self.discover()

    def discover(self) -> None:
        """Find what was assigned to it, now and again."""
        raise NotImplementedError

    def plan(self, now: float) -> Sequence[LeaseMove | JavaMove]:
        """What the leader writes after a look."""
        raise NotImplementedError

    def lead_pause_s(self) -> float:
        """From one look of the leader to the next."""
        return self.fleet.profile.look_s

    def gain_lead(self) -> None:
        """The lock is ours; the next look of :meth:`lead` finds it so."""

    # -- its metrics ------------------------------------------------------------------------------

    @property
    def has_metrics(self) -> bool:
        """Whether its item is in the table, fresh or not."""
        began = self.reports_from <= min(self.fleet.events.now, self.ended_at)
        return began and not self.is_retired

    def with_metrics(self) -> list[AssignedWorker]:
        """Workers whose metrics are in the table, dead ones too."""
        return [
            worker
            for worker in self.fleet.workers.values()
            if isinstance(worker, AssignedWorker) and worker.has_metrics
        ]

    def reported_at(self, now: float) -> float:
        """When it wrote its metrics last; those of a dead worker grow old."""
        return self.reports_from + (self._reports(now) - 1) * self.fleet.profile.report_s

    def count(self, until_s: float) -> None:
        """Put its reports on the bill."""
        if self.reports_from <= min(until_s, self.ended_at):
            self.fleet.table.bill.write(self._reports(until_s))

    def _reports(self, now: float) -> int:
        lived_s = min(now, self.ended_at) - self.reports_from
        return int(lived_s // self.fleet.profile.report_s) + 1

    # -- the lock ---------------------------------------------------------------------------------

    def lock_reads(self) -> int:
        """Requests of one look at the lock."""
        return self.fleet.profile.lock_reads

    def leave(self) -> None:
        """Give the lock back, too."""
        super().leave()
        self.retire()

    def retire(self) -> None:
        """Be no part of the fleet from now on: no metrics, if it tidies up, and no lock."""
        self.is_retired = self.fleet.profile.releases
        if self.fleet.lock.owner is self:
            self.fleet.lock.release(self.fleet.events.now)

    def _follow(self) -> None:
        if self.is_leaving:
            return
        now, profile, lock = self.fleet.events.now, self.fleet.profile, self.fleet.lock
        item = lock.read(now)
        self.fleet.table.bill.get(self.lock_reads(), consistent=True)
        self._sighting = sight(self._sighting, item, now)
        if follow(item, self._sighting, now, ()) is not LockMove.WAIT:
            lock.grant(self, now)
            self.fleet.note(f"{self.id} leads")
            self.gain_lead()
            return
        pause_s = profile.lock.heartbeat_s
        if profile.watches_expiry:
            pause_s = look_pause_s(self._sighting, now, pause_s)
        self.later(pause_s, self._follow)

    # -- leading ----------------------------------------------------------------------------------

    def lead(self) -> None:
        """Look at the fleet and write the moves, if this worker leads; then again after a pause."""
        self.look_as_leader()
        self.later(self.lead_pause_s(), self.lead)

    def look_as_leader(self) -> None:
        """One look."""
        if self.fleet.lock.owner is self:
            for move in self.plan(self.fleet.events.now):
                self._carry_out(move)

    def _carry_out(self, move: LeaseMove | JavaMove) -> None:
        now, table = self.fleet.events.now, self.fleet.table
        row = table.rows[move.lease.lease_key]
        old, next_beat_at = self.fleet.find(row.actual_owner), row.next_beat_at(now)
        if move.kind is MoveKind.ASSIGN:
            if table.assign(move.lease, move.to, now) and old is not None:
                old.lose(row.key, next_beat_at)
        elif table.start_hand_off(move.lease, move.to, now) and isinstance(old, AssignedWorker):
            old.ask(row.key, next_beat_at)
        if row.owner == self.id:
            self.expect(row.key)

    def expect(self, key: str) -> None:
        """This worker, as the leader, has just named itself in the row of a lease."""

    # -- handing over -----------------------------------------------------------------------------

    def ask(self, key: str, noticed_at: float) -> None:
        """A leader wants a lease to be passed on; a renewal will show it."""
        hold = self.held.get(key)
        if hold is not None:
            self.fleet.events.at(noticed_at, self.guarded(partial(self.hand_over, hold)))

    def hand_over(self, hold: Hold) -> None:
        """A renewal showed that a lease is to be passed on: let the child finish, then do it."""
        if hold.is_handed_over or self.held.get(hold.key) is not hold:
            return
        hold.is_handed_over = True
        self.fleet.table.bill.write()  # the renewal that was refused
        self.later(self.fleet.profile.hand_over_s, partial(self.pass_on, hold))

    def pass_on(self, hold: Hold) -> None:
        """The child has finished: its next owner has the lease."""
        if self.held.get(hold.key) is hold:
            self.close(hold, checkpoints=True)
            del self.held[hold.key]
            self.fleet.count_hold(hold)
            self.fleet.table.finish_hand_off(hold.key, self.fleet.events.now)
