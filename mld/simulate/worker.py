"""Workers of the simulation: what all do, how they take leases (2.x) and are assigned them (3.x)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kcl_mld.fleet.rules.assignment.planning import MoveKind
from kcl_mld.fleet.rules.leader_lock import LockMove, LockSighting, follow, look_pause_s, sight
from kcl_mld.leases.rules.taking import Sighting, TakeLimits, look, plan_taking
from kcl_mld.simulate.profile import JAVA_ELECTION_S

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from kcl_mld.fleet.rules.assignment.planning import LeaseMove
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.simulate.profile import Profile
    from kcl_mld.simulate.readings import Events, Reading, Readings
    from kcl_mld.simulate.scenario import Scenario
    from kcl_mld.simulate.table import Lock, Table


@dataclass(slots=True, eq=False)
class Hold:
    """One hold of one lease.

    Attributes:
        reading: its child, once that gets records.
        is_handed_over: its child is finishing, so that another worker can continue.
    """

    key: str
    since: float
    reading: Reading | None = None
    is_handed_over: bool = False


@dataclass(frozen=True, slots=True)
class JavaMove:
    """One write that a Java leader is to make."""

    lease: Lease
    to: str
    kind: MoveKind


class WorkerFleet(Protocol):
    """What a worker shares with the others; :class:`kcl_mld.simulate.fleet.SimulatedFleet` has it."""

    scenario: Scenario
    profile: Profile
    rng: random.Random
    events: Events
    table: Table
    lock: Lock
    readings: Readings
    workers: dict[str, SimulatedWorker]

    def find(self, worker_id: str | None) -> SimulatedWorker | None:
        """A worker that lives, by its id."""

    def begin_reading(self, key: str, worker: SimulatedWorker) -> Reading:
        """A child gets its first record."""

    def end_reading(self, key: str, reading: Reading, *, checkpoints: bool) -> None:
        """A child ends."""

    def count_hold(self, hold: Hold) -> None:
        """Put a hold's renewals on the bill."""

    def note(self, event: str) -> None:
        """Add a line to the timeline."""


class SimulatedWorker:
    """Holds leases, renews them by rate, reads their shards, and ends in one of two ways.

    Attributes:
        id: begins with the name of its group and ``-``.
        ended_at: when it was gone; infinity = it lives.
        is_leaving: it was stopped, and reads until others continue.
    """

    def __init__(self, fleet: WorkerFleet, worker_id: str, group: str) -> None:
        self.fleet = fleet
        self.id = worker_id
        self.group = group
        self.started_at = fleet.events.now
        self.ended_at = math.inf
        self.is_leaving = False
        self.held: dict[str, Hold] = {}
        self.fleet.events.at(self.started_at + fleet.profile.starting_s, self.guarded(self.start))

    def start(self) -> None:
        """Begin to work; the process has loaded."""
        raise NotImplementedError

    def count(self, until_s: float) -> None:
        """Add requests that are counted by rate, beside renewals and checkpoints, to the bill."""
        raise NotImplementedError

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """An action that is not done when this worker is gone by then."""

        def act() -> None:
            if self.is_alive:
                action()

        return act

    def later(self, pause_s: float, action: Callable[[], None]) -> None:
        """Do something after a pause, if this worker lives then."""
        self.fleet.events.at(self.fleet.events.now + pause_s, self.guarded(action))

    @property
    def is_alive(self) -> bool:
        """It has neither stopped nor died."""
        return self.ended_at == math.inf

    def hold(self, key: str) -> None:
        """Hold a lease that the table assigns to this worker: renew it, and open its shard."""
        now, profile = self.fleet.events.now, self.fleet.profile
        every_s = self.fleet.scenario.checkpoint_every_s
        first_at = profile.first_beat_at(key, self.started_at, now)
        self.fleet.table.rows[key].renew_from(first_at, profile.beat_s(key, every_s))
        hold = self.held[key] = Hold(key, now)
        self.later(profile.opening_s, lambda: self._open(hold))

    def lose(self, key: str, noticed_at: float) -> None:
        """Somebody else took a lease; this worker notices when a write is refused."""
        now, hold = self.fleet.events.now, self.held.get(key)
        if hold is None:
            return
        if hold.reading is not None:
            hold.reading.fenced_at = now
            checkpoint_at = self.fleet.readings.next_checkpoint_at(hold.reading, now)
            noticed_at = min(noticed_at, checkpoint_at)
        noticed_at = min(noticed_at, now + self.fleet.profile.failover_s)
        self.fleet.events.at(noticed_at, self.guarded(lambda: self._drop(hold)))

    def die(self) -> None:
        """Be gone without a word."""
        self._end(checkpoints=False)

    def leave(self) -> None:
        """Stop as this kind of worker does at a signal."""
        rows = [self.fleet.table.rows[key] for key in self.held]
        self._end(checkpoints=self.fleet.profile.releases)
        if self.fleet.profile.releases:
            for row in rows:
                if row.actual_owner == self.id:
                    self.fleet.table.release(row.key, self.fleet.events.now)

    def _open(self, hold: Hold) -> None:
        if self.held.get(hold.key) is hold:
            hold.reading = self.fleet.begin_reading(hold.key, self)

    def _drop(self, hold: Hold) -> None:
        """A write was refused: hold it no more, and end its child soon."""
        if self.held.get(hold.key) is not hold:
            return
        del self.held[hold.key]
        self.fleet.count_hold(hold)
        if hold.reading is not None:
            ending_at = self.fleet.events.now + self.fleet.profile.notice_s
            self.fleet.events.at(ending_at, lambda: self.close(hold, checkpoints=False))

    def close(self, hold: Hold, *, checkpoints: bool) -> None:
        """End the child of a hold."""
        if hold.reading is not None:
            self.fleet.end_reading(hold.key, hold.reading, checkpoints=checkpoints)
            hold.reading = None

    def _end(self, *, checkpoints: bool) -> None:
        now = self.ended_at = self.fleet.events.now
        for hold in self.held.values():
            row = self.fleet.table.rows[hold.key]
            if row.actual_owner == self.id:
                row.fall_silent(now)
            self.close(hold, checkpoints=checkpoints)
            self.fleet.count_hold(hold)
        self.held.clear()


class TakingWorker(SimulatedWorker):
    """Scans, takes one lease after the other, pauses."""

    def start(self) -> None:
        """Scan at once."""
        scenario = self.fleet.scenario
        self._seen: dict[str, Sighting] = {}
        self._limits = TakeLimits(
            failover_s=scenario.failover_s,
            max_leases=scenario.max_leases,
            max_steal=scenario.max_steal,
            prefer_very_old=True,
        )
        self._look()

    def _look(self) -> None:
        now = self.fleet.events.now
        leases = self.fleet.table.scan(now)
        self._seen = look(self._seen, leases, now)
        plan = plan_taking(
            leases, self._seen, now, self.id, self.held.keys(), self._limits, self.fleet.rng
        )
        profile = self.fleet.profile
        at_s = 0.0
        for place, lease in enumerate(plan.leases):
            at_s = (place // profile.in_flight + 1) * profile.request_s
            self.later(at_s, partial(self._take, lease))
        self.later(at_s + profile.look_s, self._look)

    def _take(self, lease: Lease) -> None:
        now, key = self.fleet.events.now, lease.lease_key
        row = self.fleet.table.rows[key]
        loser = self.fleet.find(row.actual_owner)
        noticed_at = row.next_beat_at(now)
        if not self.fleet.table.take(lease, self.id, now):
            return
        if loser is not None and loser is not self:
            loser.lose(key, noticed_at)
        self._seen[key] = Sighting(lease.lease_counter + 1, now)
        self.hold(key)

    def count(self, until_s: float) -> None:
        """Add a 2.x worker's scan of the table at each election to the bill."""
        lived_s = min(until_s, self.ended_at) - self.started_at
        self.fleet.table.bill.scan(len(self.fleet.table.rows), lived_s / JAVA_ELECTION_S)


class AssignedWorker(SimulatedWorker):
    """The common part of Java's workers and ours, which read and plan in different ways.

    Attributes:
        reports_from: when it writes its metrics for the first time; infinity = not started yet.
        is_retired: it took its metrics away when it stopped.
    """

    def __init__(self, fleet: WorkerFleet, worker_id: str, group: str) -> None:
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
        """Find leases that were assigned to it, now and repeatedly."""
        raise NotImplementedError

    def plan(self, now: float) -> Sequence[LeaseMove | JavaMove]:
        """The writes of the leader after a scan."""
        raise NotImplementedError

    def lead_pause_s(self) -> float:
        """Seconds from one scan of the leader to the next."""
        return self.fleet.profile.look_s

    def gain_lead(self) -> None:
        """The lock is ours; the next round of :meth:`lead` uses it."""

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
        """Requests of one read of the lock."""
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
        """Scan the fleet and write the moves, if this worker leads; then again after a pause."""
        self.look_as_leader()
        self.later(self.lead_pause_s(), self.lead)

    def look_as_leader(self) -> None:
        """Scan the fleet once."""
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
