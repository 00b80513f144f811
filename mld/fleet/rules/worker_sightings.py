"""Which workers of a 3.x fleet are alive, by the clock of the observer.

A worker stamps its metrics with its wall clock, and Java's leader compares that with its own: a
clock that is wrong by a minute costs a worker all leases, and a leader with such a clock sees only
itself. So a leader that sees a stamp change uses the time at which it saw the change. A stamp that
never changed is no younger than the scan that first showed it, whatever its value.

A worker that stopped renewing is dead until it reports again, however young its metrics are. Where
workers fail soon after their start, newcomers get leases only when they have run for a while, see
:mod:`kcl_mld.fleet.rules.crash_loop`.

Source of the rule for unchanged stamps: LeaseAssignmentManager (KCL 3.5.1).

The stamps also decide whether a worker reports its CPU. A Java leader compares each metric among
the workers that have it, and workers without any by the throughput of their leases. So no lease
moves between workers that report CPU and those that do not. Java measures on EC2, ECS and EKS only;
a worker of ours that measures elsewhere, beside Java workers that do not, would get only unread
leases. It does not report its figures as long as one of the others has none
(:class:`OtherFigures`).

Source: VarianceBasedLeaseAssignmentDecider, WorkerMetricStats (3.5.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_life import SILENT, FailedLife
from kcl_mld.fleet.rules.crash_loop import CrashLoop

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics

#: Seconds after the last worker without figures was seen until they are reported: a rolling restart
#: is one change, not many.
FIGURES_QUIET_S = 300.0
#: A read of the table may be older than the deletion of an item: a dead worker is remembered for
#: this many seconds after its item is gone.
REMEMBERED_S = 60.0


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp as it was first seen.

    Attributes:
        value: ``lut``.
        since: reading of the monotonic clock at the scan that showed it first.
        not_before: the worker has reported at that reading or later; that of the look before, which
            did not show the stamp yet. -inf = nothing is known.
        has_moved: another value was seen before.
        first_at: reading at the look that first showed the worker, another process under its id, or
            showed it again after it had died; -inf = it was there at the first look of all.
        instance: id of the process; None = its item does not have it.
        died_at: reading at the scan that found it dead; None = it counts as alive.
    """

    value: int
    since: float
    has_moved: bool
    not_before: float = -math.inf
    first_at: float = -math.inf
    instance: str | None = None
    died_at: float | None = None

    def process(self, worker_id: str) -> str:
        """A value that distinguishes its process from the others of that worker."""
        return self.instance or f"{worker_id} {self.first_at:.3f}"


@dataclass(frozen=True, slots=True)
class WorkerSightings:
    """What was seen so far.

    Attributes:
        stamps: worker id -> its last stamp.
        looked_at: reading at the last scan; -inf = there was none. A worker that appears later is new.
        loop: whether workers fail soon after they began.
    """

    stamps: Mapping[str, Stamp] = field(default_factory=dict)
    looked_at: float = -math.inf
    loop: CrashLoop = field(default_factory=CrashLoop)

    def seen(
        self,
        metrics: Iterable[WorkerMetrics],
        now: float,
        failed: Iterable[FailedLife] = (),
        failover_s: float = 0.0,
    ) -> WorkerSightings:
        """After a scan; workers that are not there any more are forgotten, dead ones later.

        Args:
            metrics: one item a worker.
            now: reading of the monotonic clock.
            failed: all processes that left an item when they failed.
            failover_s: > 0 where any did.
        """
        is_first = self.looked_at == -math.inf
        loop = self.loop.seen(failed, now, failover_s, is_first=is_first)
        stamps = {
            worker: stamp
            for worker, stamp in self.stamps.items()
            if stamp.died_at is not None and now - stamp.died_at <= REMEMBERED_S
        }
        for one in metrics:
            before = self.stamps.get(one.worker_id)
            instance = None if one.instance is None else one.instance.id
            known = None if before is None else before.instance
            is_other = known is not None and instance is not None and instance != known
            if before is not None and before.value == one.updated_at_s and not is_other:
                stamps[one.worker_id] = before
                continue
            # A worker that appears between two scans is new; at the first scan nothing is known.
            not_before = first_at = -math.inf if is_first else now
            if before is not None:
                not_before = self.looked_at
                has_begun = is_other or before.died_at is not None
                first_at = now if has_begun else before.first_at
            stamps[one.worker_id] = Stamp(
                one.updated_at_s,
                now,
                has_moved=before is not None,
                not_before=not_before,
                first_at=first_at,
                instance=instance,
            )
        return replace(self, stamps=stamps, looked_at=now, loop=loop)

    def judged(
        self,
        expired_at: Mapping[str, float],
        now: float,
        failover_s: float,
        expiry_s: float,
        wall_s: float,
    ) -> WorkerSightings:
        """Who is dead, and whether workers die soon after they began.

        Args:
            expired_at: worker id -> reading of the monotonic clock when the last of its leases
                expired. Who has surely reported since then lives: a report that was made
                between two looks, and perhaps before the expiry, says nothing.
            now: reading of the monotonic clock.
            failover_s: > 0.
            expiry_s: a worker whose metrics are older is not there.
            wall_s: epoch seconds, for what is noted of them.
        """
        soon_s = self.loop.soon_s(failover_s)
        stamps = dict(self.stamps)
        loop, crashed, lives = self.loop, [], []
        for worker, stamp in self.stamps.items():
            if stamp.died_at is not None:
                continue
            has_expired = worker in expired_at and stamp.not_before <= expired_at[worker]
            is_silent = now - stamp.since > expiry_s and stamp.since - stamp.first_at <= soon_s
            if not (has_expired or is_silent):
                continue
            stamps[worker] = replace(stamp, died_at=now)
            if not has_expired:
                # It never had a lease, and shows no more than that they still crash.
                loop = loop.still(now)
            elif now - failover_s - stamp.first_at <= soon_s:
                crashed.append(stamp.process(worker))
                if stamp.instance is not None:
                    lived_s = max(0, int(now - failover_s - stamp.first_at))
                    one = FailedLife(
                        instance=stamp.instance,
                        worker_id=worker,
                        lived_s=lived_s,
                        failed_at_s=int(wall_s),
                        why=SILENT,
                    )
                    lives.append(one)
        return replace(self, stamps=stamps, loop=loop.died(crashed, now, lives).quiet(now))

    def presumed_dead(self, worker_id: str, now: float) -> WorkerSightings:
        """Treat a worker as dead until it reports again; does nothing if it is unknown."""
        stamp = self.stamps.get(worker_id)
        if stamp is None or stamp.died_at is not None:
            return self
        return replace(self, stamps={**self.stamps, worker_id: replace(stamp, died_at=now)})

    def is_dead(self, worker_id: str) -> bool:
        """True for a worker that has not reported since it was considered dead."""
        stamp = self.stamps.get(worker_id)
        return stamp is not None and stamp.died_at is not None

    def has_returned(self, worker_id: str) -> bool:
        """True for a worker under whose id another process failed before."""
        return self.loop.has_failed(worker_id, self.stamps[worker_id].instance)

    def has_to_wait(self, worker_id: str, failover_s: float) -> bool:
        """True for a newcomer whose reports do not yet show that it has run for long enough."""
        stamp = self.stamps[worker_id]
        return stamp.since - stamp.first_at < self.loop.wait_s(failover_s)

    def dated(self, one: WorkerMetrics, now: float, wall_s: float) -> WorkerMetrics:
        """The metrics with a time of the observer's clock, where their own can't be right.

        Args:
            one: as stored, of a worker that was :meth:`seen`.
            now: reading of the monotonic clock.
            wall_s: epoch seconds, of a clock that does not jump between two scans.
        """
        stamp = self.stamps[one.worker_id]
        seen_at_s = int(wall_s - (now - stamp.since))
        if stamp.has_moved or one.updated_at_s > seen_at_s:
            return replace(one, updated_at_s=seen_at_s)
        return one


@dataclass(frozen=True, slots=True)
class OtherFigures:
    """What a worker knows of the others' figures.

    Attributes:
        are_reported: it reports its own.
        without: ids of workers that have none, as of the last read, sorted.
        seen_without_at: reading of the monotonic clock when there was such a worker; None = never.
        sightings: which items have changed.
    """

    are_reported: bool = False
    without: tuple[str, ...] = ()
    seen_without_at: float | None = None
    sightings: WorkerSightings = field(default_factory=WorkerSightings)

    def seen(
        self, others: Sequence[WorkerMetrics], now: float, wall_s: float, expiry_s: float
    ) -> OtherFigures:
        """After a scan.

        Args:
            others: one item of each other worker.
            now: reading of the monotonic clock.
            wall_s: epoch seconds.
            expiry_s: a worker whose item is older is not there.
        """
        sightings = self.sightings.seen(others, now)
        silent = [
            one.worker_id
            for one in others
            if not _measures(one)
            and wall_s - sightings.dated(one, now, wall_s).updated_at_s <= expiry_s
        ]
        # A first item shows nothing: it was written before anything was measured.
        without = tuple(sorted(one for one in silent if sightings.stamps[one].has_moved))
        after = replace(self, without=without, sightings=sightings)
        if without:
            return replace(after, are_reported=False, seen_without_at=now)
        is_quiet = self.seen_without_at is None or now - self.seen_without_at >= FIGURES_QUIET_S
        return replace(after, are_reported=True) if is_quiet and not silent else after


def _measures(metrics: WorkerMetrics) -> bool:
    """A worker of kcl-mld reports that it measures even while it does not report its figures."""
    return bool(metrics.samples) or metrics.place is not None
