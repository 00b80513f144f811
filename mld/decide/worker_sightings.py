"""Which workers of a 3.x fleet live, by the clock of who looks.

A worker stamps its metrics with its wall clock, and Java's leader compares that with its own: a
clock that is wrong by a minute costs a worker all leases, and a leader with such a clock sees nobody
but itself. So a leader that sees the stamps move goes by when it saw that; what it has seen once only
is no younger than that look, whatever the stamp says.

Source of the rule for what was seen once only: LeaseAssignmentManager (KCL 3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mld.model.worker_metrics import WorkerMetrics


@dataclass(frozen=True, slots=True)
class Stamp:
    """A stamp as it was first seen.

    Attributes:
        value: ``lut``.
        since: reading of the monotonic clock.
        has_moved: another value was seen before.
    """

    value: int
    since: float
    has_moved: bool


@dataclass(frozen=True, slots=True)
class WorkerSightings:
    """What was seen so far; worker id -> its last stamp."""

    stamps: Mapping[str, Stamp] = field(default_factory=dict)

    def seen(self, metrics: Iterable[WorkerMetrics], now: float) -> WorkerSightings:
        """After a look; workers that are not there any more are forgotten.

        Args:
            metrics: one item a worker.
            now: reading of the monotonic clock.
        """
        stamps = {}
        for one in metrics:
            before = self.stamps.get(one.worker_id)
            if before is not None and before.value == one.updated_at_s:
                stamps[one.worker_id] = before
            else:
                stamps[one.worker_id] = Stamp(one.updated_at_s, now, before is not None)
        return WorkerSightings(stamps)

    def dated(self, one: WorkerMetrics, now: float, wall_s: float) -> WorkerMetrics:
        """The metrics with a time of the clock of who looks, where their own can't be right.

        Args:
            one: as stored, of a worker that was :meth:`seen`.
            now: reading of the monotonic clock.
            wall_s: epoch seconds, of a clock that does not jump between two looks.
        """
        stamp = self.stamps[one.worker_id]
        seen_at_s = int(wall_s - (now - stamp.since))
        if stamp.has_moved or one.updated_at_s > seen_at_s:
            return replace(one, updated_at_s=seen_at_s)
        return one
