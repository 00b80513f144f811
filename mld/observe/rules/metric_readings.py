"""Metrics as they are at one moment: what Prometheus and OTLP are shown.

What services counted is collected by :class:`kcl_mld.observe.metric_store.MetricStore`; what the state
of the worker says is read by :func:`observed`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.observe.rules.readiness import DUE, ShardHealth, batch_age_s, health_of, readiness
from kcl_mld.signals.model import metrics as catalogue
from kcl_mld.signals.model.metric_values import FamilyValues, shard_labels
from kcl_mld.signals.model.metrics import Over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kcl_mld.children.model.consumer_status import ConsumerStatus
    from kcl_mld.observe.rules.readiness import WorkerSnapshot
    from kcl_mld.signals.model.metric_values import Labels
    from kcl_mld.signals.model.metrics import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """A worker at one moment, with what a snapshot does not have.

    Attributes:
        about: labels of ``kcl_worker_info``.
        unreadable: rows of the lease table.
        left_free: leases.
        child_timeout_s: seconds that a child may be silent; None = unlimited.
        clock_ahead_s: seconds by which the clock of the machine is ahead of AWS; None = not known.
        dropped_messages: of the log, since the start.
        resident_bytes: of a process by its id; None where it is not known.
    """

    snapshot: WorkerSnapshot
    about: Mapping[str, str]
    unreadable: int
    left_free: int
    child_timeout_s: float | None
    clock_ahead_s: float | None
    dropped_messages: int
    resident_bytes: Callable[[int], int | None]


def stream_and_shard(shard: ConsumerStatus) -> tuple[str, str]:
    """How series name a shard; one of several streams by its ``account:name:epoch``."""
    stream, colon, _ = shard.lease_key.rpartition(":")
    return (stream if colon else shard.stream, shard.shard_id)


def observed(facts: WorkerFacts, *, by_shard: bool) -> list[FamilyValues]:
    """The metrics of a worker's state.

    Args:
        facts: now.
        by_shard: a series for each shard, instead of the greatest value or the sum of all.
    """
    worker = facts.snapshot
    is_ready = readiness(worker).is_ready
    states = Counter(map(health_of, worker.shards))
    return [
        _single(catalogue.WORKER_INFO, 1, tuple(facts.about.items())),
        _single(catalogue.READY, is_ready),
        FamilyValues(
            catalogue.LEASES,
            tuple(((("state", str(state)),), float(states[state])) for state in ShardHealth),
        ),
        _single(catalogue.UNREADABLE, facts.unreadable),
        _single(catalogue.LEFT_FREE, facts.left_free),
        _known(catalogue.CHILD_TIMEOUT, facts.child_timeout_s),
        _known(catalogue.CLOCK_AHEAD, facts.clock_ahead_s),
        _single(catalogue.DROPPED, facts.dropped_messages),
        *(
            _of_shards(family, worker.shards, value_of, by_shard=by_shard)
            for family, value_of in (*_SHARD_VALUES, (catalogue.CHILD_MEMORY, _memory_by(facts)))
        ),
    ]


def _single(family: Family, value: float, labels: Labels = ()) -> FamilyValues:
    return FamilyValues(family, ((labels, float(value)),))


def _known(family: Family, value: float | None) -> FamilyValues:
    """No series while the value is not known."""
    return FamilyValues(family, ()) if value is None else _single(family, value)


def total_bytes(resident_bytes: Callable[[int], int | None], pids: Iterable[int]) -> int | None:
    """Memory of some processes; None where that of none is known."""
    sizes = [size for size in map(resident_bytes, pids) if size is not None]
    return sum(sizes) if sizes else None


def _memory_by(facts: WorkerFacts) -> Callable[[ConsumerStatus], float | None]:
    def memory(shard: ConsumerStatus) -> float | None:
        return total_bytes(facts.resident_bytes, shard.pids)

    return memory


def _of_shards(
    family: Family,
    shards: Iterable[ConsumerStatus],
    value_of: Callable[[ConsumerStatus], float | None],
    *,
    by_shard: bool,
) -> FamilyValues:
    values = [(shard, value) for shard in shards if (value := value_of(shard)) is not None]
    if by_shard:
        samples = tuple(
            (shard_labels(*stream_and_shard(shard)), float(value)) for shard, value in values
        )
        return FamilyValues(family, samples)
    if family.over is Over.SUM:
        return _single(family, sum(value for _, value in values))
    greatest = max((value for _, value in values), default=None)
    return FamilyValues(family, () if greatest is None else (((), float(greatest)),))


def _behind(shard: ConsumerStatus) -> float | None:
    return None if shard.millis_behind_latest is None else shard.millis_behind_latest / 1000


def _batch_age(shard: ConsumerStatus) -> float | None:
    return batch_age_s(shard) if health_of(shard) in DUE else None


_SHARD_VALUES: tuple[tuple[Family, Callable[[ConsumerStatus], float | None]], ...] = (
    (catalogue.BEHIND, _behind),
    (catalogue.PROCESSING_LAG, lambda one: one.processing_lag_s or 0.0),
    (catalogue.READING_LAG, lambda one: one.reading_lag_s),
    (catalogue.RETENTION_USED, lambda one: one.retention_used),
    (catalogue.UNCONFIRMED, lambda one: one.unconfirmed_s),
    (catalogue.BATCH_AGE, _batch_age),
    (catalogue.CALLS, lambda one: float(one.calls)),
    (catalogue.CALL_AGE, lambda one: one.call_age_s or 0.0),
    (catalogue.CHILDREN, lambda one: float(len(one.pids))),
)
