"""A 3.x fleet as people want to see it: what it is, who leads, and who can be given leases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.fleet.client_version import ALIVE_S, BEHAVIOUR, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.model.fleet.leader_lock_item import LockItem
    from mld.model.fleet.state_history import ClientVersion
    from mld.model.fleet.worker_metrics import WorkerMetrics


@dataclass(frozen=True, slots=True)
class FleetReport:
    """What the items beside the leases say.

    Attributes:
        version: the generation.
        lock: of the leader; None = nobody leads.
        workers: (worker id, seconds since it wrote its metrics), in order.
    """

    version: ClientVersion
    lock: LockItem | None
    workers: tuple[tuple[str, int], ...]

    def lines(self) -> list[str]:
        """For people, one sentence a line."""
        lines = [f"Fleet: {self.version.value}"]
        if BEHAVIOUR[self.version].mode is Mode.ASSIGNED:
            if self.lock is None:
                lines.append("Nobody leads: no lease gets an owner")
            else:
                lines.append(
                    f"Leader: {self.lock.owner} (others may take over after "
                    f"{self.lock.duration_s:g} s without a heartbeat)"
                )
            if all(age_s > ALIVE_S for _worker, age_s in self.workers):
                lines.append("No worker writes metrics: no lease gets an owner")
        lines += [
            f"Worker {worker}: wrote no metrics for {age_s} s, so it gets no leases"
            for worker, age_s in self.workers
            if age_s > ALIVE_S
        ]
        return lines


def fleet_report(
    version: ClientVersion,
    lock: LockItem | None,
    metrics: Iterable[WorkerMetrics],
    now_s: float,
) -> FleetReport:
    """What was found.

    Args:
        version: the generation.
        lock: of the leader; None = there is none.
        metrics: of all workers, one of which may occur twice.
        now_s: epoch seconds.
    """
    seen: dict[str, int] = {}
    for one in metrics:
        seen[one.worker_id] = max(one.updated_at_s, seen.get(one.worker_id, 0))
    workers = tuple((worker, max(0, int(now_s) - seen[worker])) for worker in sorted(seen))
    return FleetReport(version, lock, workers)
