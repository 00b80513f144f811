"""A worker of ours in a 3.x fleet: what ``kcl_mld.fleet`` and ``kcl_mld.leases`` do, as events."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules.assignment import looks
from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
from kcl_mld.fleet.rules.assignment.leaving import notice_s, plan_leaving
from kcl_mld.fleet.rules.assignment.looks import FleetMemory, FleetView
from kcl_mld.fleet.rules.assignment.planning import plan_assignment
from kcl_mld.fleet.rules.leader_lock import follow_pause_s
from kcl_mld.leases.rules import discovery
from kcl_mld.leases.rules.discovery import (
    Ownership,
    Watched,
    is_small,
    judge_found,
    may_ask_index,
    vanished,
)
from kcl_mld.leases.rules.taking import NEVER, Sighting
from kcl_mld.simulate.worker import AssignedWorker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.fleet.rules.assignment.planning import LeaseMove
    from kcl_mld.simulate.table import SimulatedRow
    from kcl_mld.simulate.worker import Hold

#: The default of ``shutdownGraceMillis``, in seconds.
GRACE_S = 20.0
#: Scans that a follower keeps; older ones show nothing about leases that have not expired.
_SCANS = 100


class OurWorker(AssignedWorker):
    """Reads often while the fleet changes, follows hand-offs, and leads by the daemon's own rules."""

    def start(self) -> None:
        """Begin all loops at once."""
        scenario = self.fleet.scenario
        self._limits = AssignmentLimits(
            failover_s=scenario.failover_s, max_leases=scenario.max_leases
        )
        self._memory = FleetMemory()
        self._scans: list[float] = []
        self._led_at = -math.inf
        self._coming: set[str] = set()
        self._seen: dict[str, str] = {}
        self._changed_at = self.fleet.events.now
        self._is_watching = False
        self._led_change_at = self.fleet.events.now
        self._workers_before = 0
        self._is_alone = False
        super().start()
        self.later(self.fleet.profile.lock.heartbeat_s, self._call_leader)

    # -- stopping ---------------------------------------------------------------------------------

    def leave(self) -> None:
        """Name the next owners, read until they know it, and hand over to them."""
        if not self.has_metrics:  # it has not begun
            super().leave()
            return
        now = self.fleet.events.now
        self.retire()
        for lease, to in plan_leaving(self._view(now), self._memory, self.id, self._limits):
            self.fleet.table.start_hand_off(lease, to, now)
        self.is_leaving = True
        profile = self.fleet.profile
        self.later(notice_s(profile.failover_s, GRACE_S) + profile.hand_over_s, self._depart)

    def _depart(self) -> None:
        for hold in list(self.held.values()):
            if self.fleet.table.rows[hold.key].checkpoint_owner == self.id:
                self.pass_on(hold)
        super().leave()

    # -- leading ----------------------------------------------------------------------------------

    def gain_lead(self) -> None:
        """Keep the memory of its time as a follower, and read the fleet at once."""
        self._memory = remembered(list(self.fleet.table.rows.values()), self._scans)
        self.later(0.0, self.look_as_leader)

    def lock_reads(self) -> int:
        """Reads that find leases show the lock as well, or are reads of the lock."""
        return 0

    def _call_leader(self) -> None:
        """The leader's next heartbeat shows it that this worker has begun."""
        leader = self.fleet.lock.owner
        if isinstance(leader, OurWorker) and leader is not self:
            self.fleet.table.bill.write()
            leader.look_as_leader()

    def plan(self, now: float) -> Sequence[LeaseMove]:
        """What the daemon's leader decides."""
        view = self._view(now)
        plan = plan_assignment(view, self._memory, self._limits, self.fleet.rng)
        self._memory = plan.memory
        self._led_at = now
        workers, self._workers_before = self._workers_before, plan.figures.workers
        is_settled = all(one.lease_owner and not one.checkpoint_owner for one in view.leases)
        if plan.moves or workers != plan.figures.workers or not is_settled:
            self._led_change_at = now
        self._is_alone = plan.figures.workers <= 1 and len(self.held) == len(view.leases)
        return plan.moves

    def _view(self, now: float) -> FleetView:
        return FleetView(
            leases=self.fleet.table.scan(now),
            metrics=tuple(
                WorkerMetrics(worker.id, int(worker.reported_at(now)))
                for worker in self.with_metrics()
            ),
            leader=self.id,
            now=now,
            epoch_s=now,
        )

    def lead_pause_s(self) -> float:
        """Until something may have happened, or the next lease expires."""
        now, failover_s = self.fleet.events.now, self._limits.failover_s
        quiet_s = (
            now - one.seen_at
            for key, one in self._memory.sightings.items()
            if one.seen_at < self._led_at and key not in self.held
        )
        calm_s = now - self._led_change_at
        items = self.fleet.table.items
        return looks.look_pause_s(
            max((one for one in quiet_s if one <= failover_s), default=None),
            failover_s,
            looks.longest_pause_s(calm_s, items, failover_s, is_alone=self._is_alone),
        )

    def expect(self, key: str) -> None:
        """Begin at once to read leases that it has assigned to itself."""
        self._coming.add(key)
        self._changed_at = self.fleet.events.now
        self._watch_soon(0.0)

    def ask(self, key: str, noticed_at: float) -> None:
        """A leader that moves a lease of its own need not wait for a renewal."""
        is_own = self.fleet.lock.owner is self
        super().ask(key, self.fleet.events.now if is_own else noticed_at)

    # -- leases assigned to it --------------------------------------------------------------------

    def discover(self) -> None:
        """Read the assigned leases now, and again after a pause."""
        if self.is_leaving:
            return
        now, table = self.fleet.events.now, self.fleet.table
        listed = set(table.keys_of(self.id))
        failover_s = self.fleet.scenario.failover_s
        follow_s = follow_pause_s(self.fleet.profile.lock.heartbeat_s, failover_s)
        leads, is_cheap = self.fleet.lock.owner is self, is_small(table.items)
        is_calm = now - self._changed_at >= discovery.LIVELY_S
        by_index = may_ask_index(len(table.rows))
        if is_calm and not leads and not is_cheap:
            table.bill.get()  # the lock, which shows when leases are assigned
            table.bill.query(len(listed), follow_s / discovery.INFORMED_PAUSE_S)
        elif by_index and not leads:
            table.bill.query(len(listed))
        else:
            if now - self._led_at > looks.LONGEST_PAUSE_S:  # else what the leader saw serves
                table.bill.scan(table.items)
            self._scans = [*self._scans[1 - _SCANS :], now]
        tokens = {key: str(hold.since) for key, hold in self.held.items()}
        for key in vanished(tokens, listed, self._seen):
            self._look_after(self.held[key])
        self._seen = {key: tokens[key] for key in listed if key in tokens}
        self._take_up(sorted((listed | self._coming) - self.held.keys()))
        quiet_s = now - self._changed_at
        pause_s = discovery.look_pause_s(quiet_s, failover_s, by_index=by_index)
        if is_calm:
            pause_s = follow_s
        if is_cheap or not (is_calm or by_index):
            soon_s = discovery.unsettled_pause_s(self._silent(), now, failover_s)
            pause_s = pause_s if soon_s is None else min(pause_s, soon_s)
        self.later(pause_s, self.discover)

    def _silent(self) -> list[Watched]:
        """Leases of others that nobody renews, as the scans so far show them."""
        return [
            Watched(0, _sighting(row, self._scans).seen_at, is_free=row.owner is None)
            for row in self.fleet.table.rows.values()
            if (row.silent_from < math.inf or row.first_beat_at == math.inf)
            and self.id not in (row.owner, row.checkpoint_owner)
        ]

    def _look_after(self, hold: Hold) -> None:
        """Somebody else's name is in the row: is it to be handed over, or lost?"""
        self._changed_at = self.fleet.events.now
        if self.fleet.table.rows[hold.key].checkpoint_owner == self.id:
            self.hand_over(hold)
        else:
            self.lose(hold.key, self.fleet.events.now)

    def _take_up(self, keys: Sequence[str]) -> None:
        now, table = self.fleet.events.now, self.fleet.table
        for key in keys if not self.is_leaving else ():
            table.bill.get(consistent=True)
            found = judge_found(table.rows[key].lease(now), self.id)
            if found is not Ownership.COMING:
                self._coming.discard(key)
            elif key not in self._coming:
                self._coming.add(key)
                self._changed_at = now
            if found is Ownership.OURS:
                table.renew(key, now)
                self.hold(key)
                self._changed_at = now
        if self._coming:
            self._watch_soon(discovery.WATCH_S)

    def _watch_soon(self, pause_s: float) -> None:
        if not self._is_watching:
            self._is_watching = True
            self.later(pause_s, self._watch)

    def _watch(self) -> None:
        self._is_watching = False
        self._take_up(sorted(self._coming - self.held.keys()))


def remembered(rows: Sequence[SimulatedRow], scans: Sequence[float]) -> FleetMemory:
    """The counters as known from scans of the table at some times.

    The same as ``kcl_mld.fleet.rules.assignment.looks.observe`` at each of them, without the work;
    hand-offs that were under way get their time anew.

    Args:
        scans: when it was looked at, the last one last; not after now.
    """
    if not scans:
        return FleetMemory()
    return FleetMemory(sightings={row.key: _sighting(row, scans) for row in rows})


def _sighting(row: SimulatedRow, scans: Sequence[float]) -> Sighting:
    last = scans[-1]
    if row.written_at >= last:
        return Sighting(-1, last)  # another counter than any that the next scan can show
    moved_at = row.moved_at(last)
    if moved_at < scans[0] and row.actual_owner is None:
        return Sighting(row.counter_at(last), NEVER)
    return Sighting(row.counter_at(last), scans[bisect_left(scans, moved_at)])
