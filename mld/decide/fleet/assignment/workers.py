"""Which workers take part in a plan, by the metrics that they have written.

A worker without metrics may be a version that does not know them, and gets no lease; one that is
probably dead gets none either, though its metrics are young: they tell of up to half a minute ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.model.fleet.worker_metrics import FAILED_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mld.decide.fleet.assignment.fleet import AssignmentLimits
    from mld.decide.fleet.assignment.looks import FleetView
    from mld.decide.fleet.worker_sightings import WorkerSightings
    from mld.model.fleet.worker_metrics import WorkerMetrics

#: Samples from which on a metric counts.
LEAST_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Participants:
    """The workers of a look.

    Attributes:
        active: worker id -> metrics, of those that may have leases, sorted by id.
        waiting: worker id -> metrics, of newcomers that get no leases yet, because others died
            soon after they began.
        doubtful: ids of workers that would be active, but are taken for dead until they report.
        failing: ids of workers that could not measure themselves; they keep what they have.
        dead: items of workers that are taken for dead, the doubtful ones included.
        stale: items so old that they are to be deleted.
    """

    active: Mapping[str, WorkerMetrics]
    waiting: Mapping[str, WorkerMetrics]
    doubtful: tuple[str, ...]
    failing: tuple[str, ...]
    dead: tuple[WorkerMetrics, ...]
    stale: tuple[WorkerMetrics, ...]


def take_part(view: FleetView, workers: WorkerSightings, limits: AssignmentLimits) -> Participants:
    """Sort the workers of a look.

    Args:
        workers: what is known of them after this look, see :class:`FleetMemory`.
        limits: how old metrics may be.

    Returns:
        Nobody waits where there is no other worker that could have leases.

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
    doubtful = tuple(item.worker_id for item in dead if item.worker_id in alive)
    able = {
        worker: item
        for worker, item in alive.items()
        if worker not in failing and worker not in doubtful
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
        doubtful=tuple(worker for worker in doubtful if worker not in failing),
        failing=failing,
        dead=dead,
        stale=tuple(item for item in items if age_s[item.worker_id] > limits.metrics_stale_s),
    )


def readings(metrics: WorkerMetrics, alpha: float) -> dict[str, float]:
    """Metric -> percent, of those that are known.

    Args:
        alpha: see :func:`utilization`.

    A first sample was taken while the worker started, which tells nothing of its leases: it counts
    from the second on.
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
