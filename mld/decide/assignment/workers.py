"""Which workers take part in a plan, by the metrics that they have written.

A worker without metrics may be a version that does not know them, and gets no lease; one that is
probably dead gets none either, though its metrics are young: they tell of up to half a minute ago.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.model.worker_metrics import FAILED_SAMPLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mld.decide.assignment.limits import AssignmentLimits
    from mld.decide.assignment.memory import FleetMemory
    from mld.decide.assignment.view import FleetView
    from mld.model.lease import Lease
    from mld.model.worker_metrics import WorkerMetrics

#: Samples from which on a metric counts.
LEAST_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class Participants:
    """The workers of a look.

    Attributes:
        active: worker id -> metrics, of those that may have leases, sorted by id.
        doubtful: worker id -> metrics, of those that would be active, but one of their leases has
            expired and they have not reported since.
        failing: ids of workers that could not measure themselves; they keep what they have.
        stale: items so old that they are to be deleted.
    """

    active: Mapping[str, WorkerMetrics]
    doubtful: Mapping[str, WorkerMetrics]
    failing: tuple[str, ...]
    stale: tuple[WorkerMetrics, ...]


def take_part(view: FleetView, doubts: Mapping[str, int], limits: AssignmentLimits) -> Participants:
    """Sort the workers of a look.

    Args:
        view: where the metrics are.
        doubts: see :class:`FleetMemory`.
        limits: how old metrics may be.

    Source: LeaseAssignmentManager.InMemoryStorageView.loadInMemoryStorageView and
    WorkerMetricStats (3.5.1). There a worker with items in two tables counts twice.
    """
    newest: dict[str, WorkerMetrics] = {}
    for item in sorted(view.metrics, key=lambda item: item.updated_at_s):
        newest[item.worker_id] = item
    alive = {
        worker: newest[worker]
        for worker in sorted(newest)
        if _age_s(view, newest[worker]) <= limits.metrics_expiry_s and is_valid(newest[worker])
    }
    failing = tuple(worker for worker, item in alive.items() if is_failing(item))
    doubtful = {
        worker: item
        for worker, item in alive.items()
        if worker in doubts and item.updated_at_s <= doubts[worker] and worker != view.leader
    }
    return Participants(
        active={
            worker: item
            for worker, item in alive.items()
            if worker not in failing and worker not in doubtful
        },
        doubtful={worker: item for worker, item in doubtful.items() if worker not in failing},
        failing=failing,
        stale=tuple(item for item in view.metrics if _age_s(view, item) > limits.metrics_stale_s),
    )


def doubts_of(memory: FleetMemory, view: FleetView, expired: Iterable[Lease]) -> dict[str, int]:
    """Who is in doubt after a look, see :class:`FleetMemory`.

    Args:
        memory: of the look before.
        view: this look.
        expired: its expired leases.
    """
    reported: dict[str, int] = {}
    for item in view.metrics:
        reported[item.worker_id] = max(item.updated_at_s, reported.get(item.worker_id, 0))
    owners = {lease.actual_owner for lease in expired}
    silent = {worker for worker in reported if worker in owners}
    doubts = {
        worker: since
        for worker, since in memory.doubts.items()
        if worker in silent or reported.get(worker, since + 1) <= since
    }
    return doubts | {worker: reported[worker] for worker in silent if worker not in doubts}


def readings(metrics: WorkerMetrics, alpha: float) -> dict[str, float]:
    """Metric -> percent, of those that can be told.

    Args:
        metrics: of a worker that takes part.
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
    """True for metrics of which a utilization can be told, or that tell of none.

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


def _age_s(view: FleetView, metrics: WorkerMetrics) -> float:
    return view.epoch_s - metrics.updated_at_s
