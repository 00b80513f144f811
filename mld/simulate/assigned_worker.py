"""A worker of a 3.x fleet: it finds what the leader gave to it, and leads when it has the lock."""

from __future__ import annotations

from mld.decide.leader_lock import LockMove, Sighting, follow, look_pause_s, sight
from mld.simulate import java_assignment
from mld.simulate.java_assignment import Move, MoveKind
from mld.simulate.profile import METRICS_EXPIRY_S, METRICS_FIRST_S, METRICS_PERIOD_S
from mld.simulate.worker import Hold, Worker


class AssignedWorker(Worker):
    """Discovers, hands over, follows the lock; leads as a Java leader does."""

    def start(self) -> None:
        """Begin all loops."""
        self._sighting: Sighting | None = None
        self._memory: java_assignment.LeaderMemory | None = None
        self._follow()
        self._lead()
        self.later(self.fleet.profile.discovery_s, self._discover)

    def is_reporting(self, now: float) -> bool:
        """Whether its metrics in the table are fresh; those of a dead worker stay so for a while."""
        first_at = self.started_at + self.fleet.profile.starting_s + METRICS_FIRST_S
        if now < first_at:
            return False
        return now - self._last_report_at(now) <= METRICS_EXPIRY_S

    def leave(self) -> None:
        """Give the lock back, too."""
        super().leave()
        if self.fleet.lock.owner is self:
            self.fleet.lock.release(self.fleet.events.now)

    def count(self, until_s: float) -> None:
        """Put what it wrote by rate on the bill: its metrics."""
        reports = self._reports(until_s)
        self.fleet.table.bill.write(max(0, reports))

    # -- the lock ---------------------------------------------------------------------------------

    def _follow(self) -> None:
        now, profile, lock = self.fleet.events.now, self.fleet.profile, self.fleet.lock
        if lock.owner is self:
            return
        item = lock.read(now)
        self.fleet.table.bill.get(profile.lock_reads, consistent=True)
        self._sighting = sight(self._sighting, item, now)
        if follow(item, self._sighting, now, ()) is not LockMove.WAIT:
            lock.grant(self, now)
            self._memory = None
            self.fleet.note(f"{self.id} leads")
            return
        pause_s = profile.lock.heartbeat_s
        if profile.watches_expiry:
            pause_s = look_pause_s(self._sighting, now, pause_s)
        self.later(pause_s, self._follow)

    # -- what is assigned to it -------------------------------------------------------------------

    def _discover(self) -> None:
        table = self.fleet.table
        for key in table.keys_of(self.id):
            if key not in self.held:
                table.bill.get()
                if table.rows[key].checkpoint_owner is None:
                    self.hold(key)
        self.later(self.fleet.profile.discovery_s, self._discover)

    def hand_over(self, hold: Hold) -> None:
        """Its renewal showed that a lease is to be passed on: finish, then do it."""
        self.fleet.table.bill.write()  # the renewal that was refused
        self.later(self.fleet.profile.hand_over_s, lambda: self._pass_on(hold))

    def _pass_on(self, hold: Hold) -> None:
        if self.held.get(hold.key) is not hold:
            return
        self._close(hold, checkpoints=True)
        del self.held[hold.key]
        self.fleet.count_hold(hold)
        self.fleet.table.finish_hand_off(hold.key, self.fleet.events.now)

    # -- leading ----------------------------------------------------------------------------------

    def _lead(self) -> None:
        if self.fleet.lock.owner is self:
            for move in self._plan(self.fleet.events.now):
                self._carry_out(move)
        self.later(self.fleet.profile.look_s, self._lead)

    def _plan(self, now: float) -> list[Move]:
        if self._memory is None:
            self._memory = java_assignment.LeaderMemory()
        leases = self.fleet.table.scan(now)
        return java_assignment.plan(
            leases,
            [worker.id for worker in self.fleet.reporting(now)],
            now,
            self._memory,
            self.fleet.scenario.failover_s,
            self.fleet.scenario.max_leases,
            self.fleet.rng,
        )

    def _carry_out(self, move: Move) -> None:
        now, table = self.fleet.events.now, self.fleet.table
        row = table.rows[move.lease.lease_key]
        old, next_beat_at = self.fleet.find(row.actual_owner), row.next_beat_at(now)
        if move.kind is MoveKind.ASSIGN:
            if table.assign(move.lease, move.to, now) and old is not None:
                old.lose(row.key, next_beat_at)
        elif table.start_hand_off(move.lease, move.to, now) and old is not None:
            hold = old.held.get(row.key)
            if hold is not None:
                self.fleet.events.at(next_beat_at, old.guarded(lambda: _ask(old, hold)))

    def _reports(self, now: float) -> int:
        first_at = self.started_at + self.fleet.profile.starting_s + METRICS_FIRST_S
        return int((min(now, self.ended_at) - first_at) / METRICS_PERIOD_S) + 1

    def _last_report_at(self, now: float) -> float:
        first_at = self.started_at + self.fleet.profile.starting_s + METRICS_FIRST_S
        return first_at + (self._reports(now) - 1) * METRICS_PERIOD_S


def _ask(worker: Worker, hold: Hold) -> None:
    assert isinstance(worker, AssignedWorker)
    worker.hand_over(hold)
