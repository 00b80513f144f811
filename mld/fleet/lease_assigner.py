"""The leader of a 3.x fleet assigns the leases to workers.

It scans the whole table more often than Java's leader, because only scans show that a counter stood
still, a lease was released or a worker joined. The decisions are in
:mod:`kcl_mld.fleet.rules.assignment`. A follower observes the scans that it makes anyway, so that it
knows which leases have expired when it begins to lead.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcl_mld.errors import AwsError, LeaseLost
from kcl_mld.fleet.pause_watch import PauseWatch
from kcl_mld.fleet.rules.assignment.leaving import plan_leaving
from kcl_mld.fleet.rules.assignment.looks import (
    FAILED_LOOKS,
    FleetMemory,
    FleetView,
    asked_pause_s,
    failed_pause_s,
    longest_pause_s,
    look_pause_s,
    observe,
)
from kcl_mld.fleet.rules.assignment.planning import MoveKind, MoveReason, plan_assignment
from kcl_mld.kernel.concurrency import Wakeup, for_each
from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.heartbeat import retry_pause_s
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.signals.model.metrics import (
    ASSIGNMENT,
    ASSIGNMENT_LEASES,
    ASSIGNMENT_SPILLOVER,
    ASSIGNMENT_WORKERS,
    FAILED_ASSIGNMENTS,
)
from kcl_mld.signals.rules.remedies import table_remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kcl_mld.fleet.leader_lock import LeaderLock
    from kcl_mld.fleet.model.worker_life import FailedLife
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
    from kcl_mld.fleet.rules.assignment.planning import AssignmentPlan, LeaseMove
    from kcl_mld.fleet.worker_metrics import WorkerMetricsReader
    from kcl_mld.leases.lease_renewer import LeaseRenewer
    from kcl_mld.leases.lease_scan import TableScan
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.signals.runtime import Runtime

log = logging.getLogger("mld.fleet")

#: Moves that are written at the same time.
WRITES = 20
#: Attempts of a worker that stops to read the tables.
LOOK_TRIES = 3
#: Calls for each item that is deleted.
_DELETE_TRIES = 2
#: A worker that gave up the lead after failures is not ready for this many seconds, unless it leads
#: again and succeeds.
COMPLAINT_S = 60.0
#: A leader needs no counter for a lease that no worker renews.
_UNREAD = {MoveReason.UNOWNED, MoveReason.EXPIRED}


@dataclass(frozen=True, slots=True)
class AssignmentOutcome:
    """The result of one cycle; ``str()`` is one sentence.

    Attributes:
        moved: leases whose rows were written.
        raced: leases that another worker wrote first; the next cycle reads them again.
        failed: leases whose rows could not be written.
    """

    plan: AssignmentPlan
    moved: tuple[LeaseMove, ...]
    raced: int
    failed: int

    def __str__(self) -> str:
        figures = self.plan.figures
        started = sum(move.kind is MoveKind.HAND_OFF for move in self.moved)
        text = (
            f"Assigned {counted(len(self.moved) - started, 'lease', 'leases')}, "
            f"began {counted(started, 'hand-off', 'hand-offs')} "
            f"(leases: {figures.leases}, workers: {figures.workers})"
        )
        if self.raced or self.failed:
            text += f"; changed meanwhile: {self.raced}, not written: {self.failed}"
        return text


class LeaseAssigner:
    """Does the work of the leader of a 3.x fleet.

    Args:
        renewer: of this worker; informed at once when a lease of its own is to be handed over.
        runtime: clock, random numbers, and metrics, which get Java's ``LeaseAssignmentManager``
            data.
        expect: called with the key of each lease that was assigned to this worker, or that names it
            and is not held.
        is_read: leases for which it is False are ignored: their streams are no longer read.
    """

    def __init__(  # noqa: PLR0913 - what surrounds it
        self,
        store: LeaseStore,
        renewer: LeaseRenewer,
        metrics: WorkerMetricsReader,
        limits: AssignmentLimits,
        worker_id: str,
        runtime: Runtime,
        expect: Callable[[str], None],
        is_read: Callable[[Lease], bool],
        *,
        conditions: Conditions,
    ) -> None:
        self._store = store
        self._renewer = renewer
        self._workers = metrics
        self._limits = limits
        self._worker_id = worker_id
        self._clock = runtime.clock
        self._rng = runtime.rng
        self._metrics = runtime.metrics
        self._expect = expect
        self._is_read = is_read
        self._memory = FleetMemory()
        self._watched: TableScan | None = None
        self._waiting: tuple[str, ...] = ()
        self._pauses = PauseWatch()
        self._wait_s = 0.0
        self._poisoned: FailedLife | None = None
        self._woken = Wakeup()
        self._looked_at: float | None = None
        self._changed_at = runtime.clock.monotonic()
        self._workers_before = 0
        self._items = 0
        self._is_alone = False
        self._conditions = conditions
        self._why = ""
        self._gave_up_at = 0.0

    def wake(self) -> None:
        """Start the next cycle now: leases were created, released or orphaned."""
        self._woken.wake()

    def lead(self, former: str | None) -> None:
        """Leadership was just gained: start a cycle now.

        Args:
            former: id of the leader whose lock expired; None = the lock was free.
        """
        self._memory = replace(self._memory, former_leader=former)
        self.wake()

    def observe(self, scan: TableScan) -> None:
        """A follower's scan: remember its counters and reports."""
        if self._watched is None or scan.started_at > self._watched.started_at:
            self._watched = scan
            view = self._view(scan, self._workers.in_scan(scan))
            self._memory = observe(self._memory, view, self._limits)
            self._pauses.looked(view)

    async def run(self, lock: LeaderLock) -> None:
        """Assign whenever this worker leads, until cancelled.

        Args:
            lock: checked before each cycle and before each write; released after seven failed cycles
                in a row.
        """
        try:
            await self._run(lock)
        finally:
            self._conditions.clear(Reason.ASSIGNING_FAILS)

    async def _run(self, lock: LeaderLock) -> None:
        failures, begun_at = 0, self._clock.monotonic()
        while True:
            pause_s = self._longest_pause_s()
            if not await lock.is_leader():
                failures, self._waiting = 0, ()
                if self._clock.monotonic() - self._gave_up_at > COMPLAINT_S:
                    self._conditions.clear(Reason.ASSIGNING_FAILS)  # another worker leads
                if self._store.last_scan is not None:
                    self.observe(self._store.last_scan)
            elif await self._look(lock):
                failures = 0
                self._conditions.clear(Reason.ASSIGNING_FAILS)
                pause_s = self._until_next_look()
            else:
                failures += 1
                pause_s = failed_pause_s(failures, self._limits.failover_s)
                if failures >= FAILED_LOOKS:
                    await self._give_up(lock, failures)
                    failures = 0
            if await self._woken.wait(pause_s):
                now, looked_at = self._clock.monotonic(), self._looked_at
                since_look_s = None if looked_at is None else now - looked_at
                await asyncio.sleep(asked_pause_s(now - begun_at, since_look_s))
                await self._woken.wait(0)

    async def _give_up(self, lock: LeaderLock, failures: int) -> None:
        text = (
            f"Assigning leases failed {failures} times in a row: leaving the lead to another worker"
        )
        text += f". The last time: {self._why}"
        log.error("%s", text)
        self._gave_up_at = self._clock.monotonic()
        self._conditions.report(Reason.ASSIGNING_FAILS, text)
        await lock.release()

    async def _look(self, lock: LeaderLock) -> bool:
        """One cycle; False = it failed, or a part of it."""
        started_at = self._clock.monotonic()
        outcome, succeeded = None, False
        try:
            outcome = await self.look_once(lock)
            succeeded = outcome is None or not outcome.failed
        except AwsError as error:
            log.warning("Could not assign leases: %s", error)
            self._why = f"{error}{table_remedy(error)}"
        except Exception as error:
            log.exception("Assigning leases failed unexpectedly")
            self._why = repr(error)
        self._looked_at = self._clock.monotonic()
        self._metrics.call(ASSIGNMENT, self._clock.monotonic() - started_at, succeeded=succeeded)
        if outcome is not None:
            log.log(logging.INFO if outcome.plan.moves else logging.DEBUG, "%s", outcome)
        return succeeded

    async def look_once(self, lock: LeaderLock) -> AssignmentOutcome | None:
        """Read, decide, write.

        None if the table has rows of others, because then nothing is assigned.

        Raises:
            AwsError: the tables could not be read.
        """
        scan = await self._store.scan()
        if scan.conflict is not None:
            return None
        view = self._view(scan, await self._workers.read(scan))
        plan = plan_assignment(view, self._memory, self._limits, self._rng)
        self._memory = plan.memory
        self._expect_unheld(view)
        self._log_waiting(plan)
        self._pauses.looked(view)
        self._pauses.left(view, plan.figures.paused)
        await self._delete(plan.dead, lock)
        moved: list[LeaseMove] = []
        raced = failed = 0

        async def write(move: LeaseMove) -> None:
            nonlocal raced, failed
            if not await lock.is_leader():
                return
            try:
                row = await self._write(move)
            except AwsError as error:
                text = "Could not assign lease %s to %s: %s"
                log.warning(text, move.lease.lease_key, move.to, error)
                self._why = f"{error}{table_remedy(error)}"
                failed += 1
            else:
                raced += row is None
                if row is not None:
                    moved.append(move)
                    await self._tell(move, row)

        await for_each(plan.moves, WRITES, write)
        if moved:
            lock.announce()
        if raced or failed:
            self._memory = self._memory.unbalanced()
        self._note_changes(scan, view, plan)
        await self._delete(plan.stale, lock)
        await self._forget(plan.forgotten, lock)
        await self._note(plan.noted, lock)
        self._metrics.add(ASSIGNMENT_SPILLOVER, plan.figures.unassigned)
        self._metrics.add(FAILED_ASSIGNMENTS, raced + failed)
        self._metrics.add(ASSIGNMENT_WORKERS, plan.figures.workers)
        self._metrics.add(ASSIGNMENT_LEASES, plan.figures.leases)
        return AssignmentOutcome(plan, tuple(moved), raced, failed)

    def _expect_unheld(self, view: FleetView) -> None:
        """Tell of leases that name this worker and that it does not hold.

        A worker that stops names its next owners itself, and a leader looks for its own leases only
        once a minute.
        """
        for lease in view.leases:
            is_ours = lease.lease_owner == self._worker_id and not lease.is_finished
            if is_ours and self._renewer.get(lease.lease_key) is None:
                self._expect(lease.lease_key)

    def _note_changes(self, scan: TableScan, view: FleetView, plan: AssignmentPlan) -> None:
        """After a scan: whether the fleet is calm, and this worker alone."""
        self._items = scan.items
        open_leases = [one for one in view.leases if not one.is_finished]
        is_settled = all(
            one.lease_owner is not None and one.checkpoint_owner is None for one in open_leases
        )
        figures = plan.figures
        before, self._workers_before = self._workers_before, figures.workers
        if plan.moves or figures.waiting or not is_settled or figures.workers != before:
            self._changed_at = self._clock.monotonic()
        self._is_alone = figures.workers <= 1 and all(
            one.lease_owner == self._worker_id for one in open_leases
        )

    def _longest_pause_s(self) -> float:
        calm_s = self._clock.monotonic() - self._changed_at
        failover_s = self._limits.failover_s
        return longest_pause_s(calm_s, self._items, failover_s, is_alone=self._is_alone)

    async def start_hand_offs(self) -> frozenset[str]:
        """At this worker's stop, leader or not: hand its leases over while they are still read.

        Returns:
            Keys of the leases that have a next owner; none if there is no other worker or the table
            does not respond: those leases are released at the end, and assigned again.
        """
        named: set[str] = set()

        async def name(pair: tuple[Lease, str]) -> None:
            lease, worker = pair
            try:
                row = await self._store.leader.start_hand_off(lease, worker)
            except AwsError as error:
                log.debug("Could not name the next owner of %s: %s", lease.lease_key, error)
            else:
                if row is not None:
                    named.add(lease.lease_key)

        try:
            view = await self._look_consistently()
            pairs = plan_leaving(view, self._memory, self._worker_id, self._limits)
            await for_each(pairs, WRITES, name)
            self._pauses.leaving(view, self._worker_id, named)
        except AwsError as error:
            log.warning("Could not name the next owners of this worker's leases: %s", error)
        return frozenset(named)

    async def _look_consistently(self) -> FleetView:
        """A consistent view without changes by others.

        Retried, as other workers stop at the same time.

        Raises:
            AwsError: the tables could not be read.
        """
        for attempt in range(LOOK_TRIES - 1):
            try:
                return await self._look_once_consistently()
            except AwsError as error:
                log.debug("Could not read the leases: %s", error)
                await asyncio.sleep(retry_pause_s(attempt, self._rng))
        return await self._look_once_consistently()

    async def _look_once_consistently(self) -> FleetView:
        scan = await self._store.scan(consistent=True)
        return self._view(scan, await self._workers.read(scan))

    def _view(self, scan: TableScan, metrics: tuple[WorkerMetrics, ...] | None) -> FleetView:
        return FleetView(
            leases=tuple(lease for lease in scan.leases if self._is_read(lease)),
            metrics=metrics,
            leader=self._worker_id,
            now=scan.finished_at,
            epoch_s=self._workers.now_s(),
            failed=self._workers.failed_in(scan),
        )

    async def _write(self, move: LeaseMove) -> Lease | None:
        if move.kind is MoveKind.HAND_OFF:
            return await self._store.leader.start_hand_off(move.lease, move.to)
        is_unread = move.reason in _UNREAD
        return await self._store.leader.assign(move.lease, move.to, only_unchanged=is_unread)

    async def _tell(self, move: LeaseMove, row: Lease) -> None:
        """Inform this worker's other parts of its own write, so that they need no scan."""
        if move.to == self._worker_id:
            self._expect(row.lease_key)
        held = self._renewer.get(row.lease_key)
        if held is not None and row.checkpoint_owner == self._worker_id:
            try:
                await self._renewer.refresh(row.lease_key, held.token)
            except (AwsError, LeaseLost) as error:
                log.debug("The next renewal will show the hand-off: %s", error)

    async def _delete(self, items: Iterable[WorkerMetrics], lock: LeaderLock) -> None:
        for item in items:
            # The missing item shows a death to the next leader: one failed call must not hide it.
            for _try in range(_DELETE_TRIES):
                if not await lock.is_leader():
                    return
                try:
                    await self._workers.delete(item)
                    break
                except AwsError as error:
                    log.debug("Could not delete old metrics of %s: %s", item.worker_id, error)

    async def _forget(self, lives: Iterable[FailedLife], lock: LeaderLock) -> None:
        for life in lives:
            if not await lock.is_leader():
                return
            try:
                await self._workers.forget(life)
            except AwsError as error:  # the next cycle retries it
                log.debug("Could not delete the item of a process that failed: %s", error)

    async def _note(self, lives: Iterable[FailedLife], lock: LeaderLock) -> None:
        """Store items of dead processes, for the next leader and for ``explain``."""
        for life in lives:
            if not await lock.is_leader():
                return
            try:
                await self._workers.note(life)
            except AwsError as error:  # the next cycle retries it
                log.debug("Could not note that a process of %s died: %s", life.worker_id, error)

    def _log_waiting(self, plan: AssignmentPlan) -> None:
        figures, before = plan.figures, self._waiting
        self._waiting, self._wait_s = figures.waiting, figures.wait_s
        for worker in sorted(set(figures.waiting) - set(before)):
            log.warning(
                "Worker %s gets no leases until its reports show that it has run for %.0f s: "
                "workers failed soon after their start%s",
                worker,
                figures.wait_s,
                _last_of(plan.memory.workers.loop.lives),
            )
        poisoned = figures.poisoned
        if poisoned is not None and poisoned != self._poisoned:
            log.warning(
                "Lease %s: all workers that failed recently failed at it, at position %s, the last "
                "of them %s: %s",
                poisoned.lease_key,
                poisoned.position,
                poisoned.worker_id,
                poisoned.why,
            )
        self._poisoned = poisoned
        for worker in sorted(set(before) - set(figures.waiting)):
            log.info("Worker %s no longer waits for leases", worker)

    def waiting(self) -> dict[str, float]:
        """Worker id -> seconds until it may get leases, for newcomers that wait."""
        return dict.fromkeys(self._waiting, self._wait_s)

    def _until_next_look(self) -> float:
        """Seconds until something may have happened, or the next lease expires.

        One whose counter this look has shown to move is renewed, and so are this worker's own.
        """
        now, looked_at = self._clock.monotonic(), self._memory.looked_at
        held = {one.lease.lease_key for one in self._renewer.held()}
        quiet_s = (
            now - one.seen_at
            for key, one in self._memory.sightings.items()
            if one.seen_at < looked_at and key not in held
        )
        failover_s = self._limits.failover_s
        return look_pause_s(
            max((one for one in quiet_s if one <= failover_s), default=None),
            failover_s,
            self._longest_pause_s(),
        )


def _last_of(lives: Sequence[FailedLife]) -> str:
    """A sentence on the last process that failed; empty if none left an item."""
    if not lives:
        return ""
    return (
        f"; the last of them was {lives[-1].worker_id} after {lives[-1].lived_s} s: {lives[-1].why}"
    )
