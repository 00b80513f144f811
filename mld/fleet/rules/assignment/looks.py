"""A leader's view of its fleet, its memory between scans, and the workers that take part.

The table holds no times, so a lease is expired when *this* process has not seen its counter change
for longer than the failover time, and a hand-off is overdue by the same clock.

A worker without metrics may be a version that does not know them, and gets no lease. A worker that
is probably dead gets none either, although its metrics may be up to half a minute old.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kcl_mld.fleet.model.worker_metrics import FAILED_SAMPLE
from kcl_mld.fleet.rules.worker_sightings import WorkerSightings
from kcl_mld.leases.rules.discovery import SUSPECT_SHARE
from kcl_mld.leases.rules.taking import NEVER, Sighting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kcl_mld.fleet.model.worker_life import FailedLife
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.fleet.rules.assignment.fleet import AssignmentLimits
    from kcl_mld.leases.model.lease import Lease

#: Samples from which on a metric counts.
LEAST_SAMPLES = 2
#: Half-life of the leader's average of a lease's throughput, in seconds. Rows hold the last seconds
#: only; leases must not move for load that has passed when they arrive.
THROUGHPUT_HALF_LIFE_S = 60.0
#: Longest pause between two scans for a minute after a change. A counter is known to have moved
#: between two scans only, so the leases of a dead worker are given away within the failover time
#: and the pause. (Java: twice the failover time.)
LIVELY_PAUSE_S = 2.5
LIVELY_S = 60.0
#: The same in a calm fleet: a scan of a small table costs no more than a read of one item, one of a
#: larger table is dear, and a worker that is alone would only see newcomers, which call it.
CALM_PAUSE_S = 6.0
LARGE_PAUSE_S = 15.0
ALONE_PAUSE_S = 15.0
#: In between, the pause grows with the table, by this many seconds per item of some 450 bytes.
PAUSE_AN_ITEM_S = 0.05
#: Longest pause of a leader whose fleet has other workers.
LONGEST_PAUSE_S = LARGE_PAUSE_S
#: Shortest pause before a requested scan.
LEAST_PAUSE_S = 0.2
#: Workers that are started together have reported within this many seconds.
STARTING_S = 3.0
#: Failed scans in a row until the leader lets another worker lead: they take the failover time.
#: Java's leader fails three times, each time after twice the failover time
#: (LeaseAssignmentManager.DEFAULT_FAILURE_COUNT_TO_SWITCH_LEADER, 3.5.1).
FAILED_LOOKS = 7
#: Delay of the scan after a lease expires: expired means more than the failover time.
_AFTER_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """One read of the tables.

    Attributes:
        leases: every row of one scan, finished ones included, sorted by key.
        metrics: the newest item of worker metrics of each worker, as stored; None = they were not
            read.
        failed: the processes that left an item when they failed, the latest last.
        now: reading of ``Clock.monotonic`` after the scan.
        epoch_s: wall clock at the same moment, seconds since 1970; workers stamp their metrics
            with theirs.
    """

    leases: tuple[Lease, ...]
    metrics: tuple[WorkerMetrics, ...] | None
    leader: str
    now: float
    epoch_s: float
    failed: tuple[FailedLife, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseHandOff:
    """A hand-off that the table shows.

    Attributes:
        old: who may still checkpoint.
        new: the next owner; None = there is none, in broken rows.
        deadline: reading of ``Clock.monotonic`` after which the leader finishes it.
    """

    old: str
    new: str | None
    deadline: float


@dataclass(frozen=True, slots=True)
class FleetMemory:
    """The leader's memory; empty when it begins to lead.

    Attributes:
        sightings: of each lease, by its key.
        hand_offs: that are under way, by lease key.
        throughputs: KiB/s by lease key, averaged over the scans; of leases that have it.
        looked_at: reading of ``Clock.monotonic`` at the last scan.
        workers: what their reports and the expiry of their leases tell of the workers.
        former_leader: id of the worker whose leader lock expired, until the next look at the
            metrics; None = there is none.
        participants: who took part at the last balance.
        balanced_at: reading of ``Clock.monotonic`` at the last balance by load as well; None = never
            yet.
    """

    sightings: Mapping[str, Sighting] = field(default_factory=dict)
    hand_offs: Mapping[str, LeaseHandOff] = field(default_factory=dict)
    throughputs: Mapping[str, float] = field(default_factory=dict)
    looked_at: float = 0.0
    workers: WorkerSightings = field(default_factory=WorkerSightings)
    former_leader: str | None = None
    participants: frozenset[str] = frozenset()
    balanced_at: float | None = None

    def unbalanced(self) -> FleetMemory:
        """The memory after moves that could not all be written.

        Numbers are levelled at the next scan.

        Moves by load wait for their interval.
        """
        return replace(self, participants=frozenset())

    def is_expired(self, lease: Lease, now: float, limits: AssignmentLimits) -> bool:
        """True for a lease whose counter has not changed for longer than the failover time."""
        return now - self.sightings[lease.lease_key].seen_at > limits.failover_s

    def is_overdue(self, lease: Lease, now: float) -> bool:
        """True for a lease in a hand-off whose time is over."""
        hand_off = self.hand_offs.get(lease.lease_key)
        return hand_off is not None and now > hand_off.deadline


def observe(memory: FleetMemory, view: FleetView, limits: AssignmentLimits) -> FleetMemory:
    """The memory after a scan, without a plan.

    A worker that may soon lead can watch with it, and then need not wait for a failover time of
    its own until it knows which leases have expired, and knows which workers have died.

    Source: LeaseAssignmentManager.updateLeasesLastCounterIncrementNanosAndLeaseShutdownTimeout
    (3.5.1). There only a greater counter is a change; a row that was deleted and created again
    between two looks has a smaller one and is as alive.
    """
    fresh = 1 - 0.5 ** (max(0.0, view.now - memory.looked_at) / THROUGHPUT_HALF_LIFE_S)
    sightings = {
        lease.lease_key: _sight(memory.sightings.get(lease.lease_key), lease, view.now)
        for lease in view.leases
    }
    has_metrics = view.metrics is not None
    return replace(
        memory,
        looked_at=view.now,
        throughputs={
            lease.lease_key: _average(memory.throughputs.get(lease.lease_key), stored, fresh)
            for lease in view.leases
            if (stored := lease.throughput_kbps) is not None
        },
        sightings=sightings,
        hand_offs={
            lease.lease_key: _hand_off(memory.hand_offs.get(lease.lease_key), lease, view, limits)
            for lease in view.leases
            if lease.checkpoint_owner is not None
        },
        workers=_workers(memory, sightings, view, limits),
        former_leader=None if has_metrics else memory.former_leader,
    )


def waiting_for_parents(leases: Iterable[Lease]) -> frozenset[str]:
    """Keys of the leases that can't be read yet, because the rows of their parents are unfinished.

    A lease with a checkpoint was begun, so it is read whatever the state of its parents.
    """
    rows = {lease.lease_key: lease for lease in leases}
    return frozenset(
        key
        for key, lease in rows.items()
        if not lease.is_finished
        and (lease.checkpoint is None or lease.checkpoint.sentinel is not None)
        and any(
            (parent := rows.get(lease.key_of(shard_id))) is not None and not parent.is_finished
            for shard_id in lease.parent_shard_ids
        )
    )


def _workers(
    memory: FleetMemory,
    sightings: Mapping[str, Sighting],
    view: FleetView,
    limits: AssignmentLimits,
) -> WorkerSightings:
    workers = memory.workers
    if view.metrics is not None:
        workers = workers.seen(view.metrics, view.now, view.failed, limits.failover_s)
        if memory.former_leader is not None:
            workers = workers.presumed_dead(memory.former_leader, view.now)
    expired_at: dict[str, float] = {}
    for lease in view.leases:
        owner, at = lease.actual_owner, sightings[lease.lease_key].seen_at + limits.failover_s
        # This worker knows that it is alive itself.
        if owner not in (None, view.leader) and not lease.is_finished and view.now > at:
            expired_at[owner] = max(at, expired_at.get(owner, at))
    return workers.judged(
        expired_at, view.now, limits.failover_s, limits.metrics_expiry_s, view.epoch_s
    )


def _average(known: float | None, stored: float, fresh: float) -> float:
    return stored if known is None else known + fresh * (stored - known)


def _sight(known: Sighting | None, lease: Lease, now: float) -> Sighting:
    if known is not None and known.counter == lease.lease_counter:
        return known
    is_new_and_free = known is None and lease.actual_owner is None
    return Sighting(lease.lease_counter, NEVER if is_new_and_free else now)


def _hand_off(
    known: LeaseHandOff | None, lease: Lease, view: FleetView, limits: AssignmentLimits
) -> LeaseHandOff:
    old, new = str(lease.checkpoint_owner), lease.lease_owner
    if known is not None and (known.old, known.new) == (old, new):
        return known
    return LeaseHandOff(old, new, view.now + limits.hand_off_timeout_s + limits.failover_s)


def longest_pause_s(calm_s: float, items: int, failover_s: float, *, is_alone: bool) -> float:
    """Longest pause of a leader until its next scan.

    Args:
        calm_s: seconds since something was assigned, was to be, or a worker came or went.
        items: of the table, leases and others.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
        is_alone: there is no other worker, and this one has all leases.
    """
    pause_s = LIVELY_PAUSE_S
    if calm_s >= LIVELY_S:
        pause_s = min(max(CALM_PAUSE_S, items * PAUSE_AN_ITEM_S), LARGE_PAUSE_S)
        pause_s = ALONE_PAUSE_S if is_alone else pause_s
    return min(pause_s, failover_s * pause_s / 10)


def look_pause_s(quiet_s: float | None, failover_s: float, longest_s: float) -> float:
    """Seconds until the next scan.

    Args:
        quiet_s: how long the counter has stood still that has done so for longest, of leases of
            other workers that have not expired; None = there are none.
        failover_s: the fleet's ``failoverTimeMillis``, in seconds.
        longest_s: see :func:`longest_pause_s`. Where it is longer than the failover time, only a
            counter that was not renewed when it was due brings the scan forward.
    """
    is_spared = longest_s > failover_s and (quiet_s or 0.0) < SUSPECT_SHARE * failover_s
    if quiet_s is None or is_spared:
        return longest_s
    return min(longest_s, failover_s - quiet_s + _AFTER_S)


def failed_pause_s(failures: int, failover_s: float) -> float:
    """Seconds until the next scan after some that failed in a row: all outlast a short outage.

    The first retries come soon: while a new table gets its index, DynamoDB Local answers the first
    write of each row with a 500, and no lease has an owner then.
    """
    return min(failover_s / 2, failover_s / 40 * 2.0 ** (failures - 1))


def asked_pause_s(since_start_s: float, since_look_s: float | None) -> float:
    """Seconds until a requested scan, so that many requests in a row make one scan.

    A leader that has followed before scans at once. One that has just started first gives the
    workers that start with it a moment to report. Otherwise it would assign all leases to itself,
    and hand most of them over two seconds later.

    Args:
        since_start_s: since this worker began to follow or to lead.
        since_look_s: since its last scan; None = there was none.
    """
    if since_look_s is None:
        return LEAST_PAUSE_S if since_start_s < STARTING_S else 0.0
    return max(0.0, LEAST_PAUSE_S - since_look_s)


@dataclass(frozen=True, slots=True)
class Participants:
    """The workers of a look.

    Attributes:
        active: worker id -> metrics, of those that may have leases, sorted by id.
        waiting: worker id -> metrics, of newcomers that get no leases yet, because others failed
            soon after they began.
        returned: of them, the ids of those under whose id a process failed; what they have gone on
            with is given to others.
        presumed_dead: ids of workers that would be active, but are taken for dead until they report.
        failing: ids of workers that could not measure themselves; they keep what they have.
        dead: items of workers that are taken for dead, ``presumed_dead`` included.
        stale: items so old that they are to be deleted.
    """

    active: Mapping[str, WorkerMetrics]
    waiting: Mapping[str, WorkerMetrics]
    returned: frozenset[str]
    presumed_dead: tuple[str, ...]
    failing: tuple[str, ...]
    dead: tuple[WorkerMetrics, ...]
    stale: tuple[WorkerMetrics, ...]


def take_part(view: FleetView, workers: WorkerSightings, limits: AssignmentLimits) -> Participants:
    """Sort the workers of a scan.

    Args:
        workers: their state after this scan, see :class:`FleetMemory`.
        limits: how old metrics may be.

    Returns:
        No worker waits if there is no other one that could have leases.

    Source: LeaseAssignmentManager.InMemoryStorageView.loadInMemoryStorageView and
    WorkerMetricStats (3.5.1).
    """
    items = sorted(view.metrics or (), key=lambda item: item.worker_id)
    age_s = {
        item.worker_id: view.epoch_s - workers.dated(item, view.now, view.epoch_s).updated_at_s
        for item in items
    }
    dead = tuple(
        item for item in items if workers.is_dead(item.worker_id) and item.worker_id != view.leader
    )
    alive = {
        item.worker_id: item
        for item in items
        # A leader that stood still for an hour has not reported for an hour, and lives.
        if (age_s[item.worker_id] <= limits.metrics_expiry_s or item.worker_id == view.leader)
        and is_valid(item)
    }
    failing = tuple(worker for worker, item in alive.items() if is_failing(item))
    presumed_dead = tuple(item.worker_id for item in dead if item.worker_id in alive)
    able = {
        worker: item
        for worker, item in alive.items()
        if worker not in failing and worker not in presumed_dead
    }
    waiting = {
        worker: item
        for worker, item in able.items()
        if workers.has_to_wait(worker, limits.failover_s)
    }
    if len(waiting) == len(able):
        waiting = {}
    return Participants(
        active={worker: item for worker, item in able.items() if worker not in waiting},
        waiting=waiting,
        returned=frozenset(one for one in waiting if workers.has_returned(one)),
        presumed_dead=tuple(worker for worker in presumed_dead if worker not in failing),
        failing=failing,
        dead=dead,
        stale=tuple(item for item in items if age_s[item.worker_id] > limits.metrics_stale_s),
    )


def readings(metrics: WorkerMetrics, alpha: float) -> dict[str, float]:
    """Metric -> percent, of the known ones.

    A first sample was taken while the worker started, which shows nothing of its leases: it counts
    from the second on.

    Args:
        alpha: see :func:`utilization`.
    """
    return {
        name: utilization(samples, alpha)
        for name, samples in metrics.samples.items()
        if len(samples) >= LEAST_SAMPLES
    }


def is_valid(metrics: WorkerMetrics) -> bool:
    """True for metrics with a known utilization, or without any.

    Source: WorkerMetricStats.isValidWorkerMetric (3.5.1).
    """
    return all(metrics.limits.get(name, (0,))[:1] not in ((), (0,)) for name in metrics.samples)


def is_failing(metrics: WorkerMetrics) -> bool:
    """True when the newest sample of a metric could not be taken.

    Source: WorkerMetricStats.isAnyWorkerMetricFailing (3.5.1).
    """
    return any(samples[-1:] == (FAILED_SAMPLE,) for samples in metrics.samples.values())


def utilization(samples: Sequence[float], alpha: float) -> float:
    """One value of many samples: their exponential average, 0 of none.

    Args:
        samples: oldest first; failed ones don't count.
        alpha: weight of the newest, 0..1.

    Source: WorkerMetricStats.computeMetricValue (3.5.1).
    """
    values = [sample for sample in samples if sample != FAILED_SAMPLE]
    average = values[0] if values else 0.0
    for value in values[1:]:
        average += alpha * (value - average)
    return average
