"""The lease table for display: which worker owns which leases."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.leases.model.lease import Lease


class Grouping(StrEnum):
    """How rows are grouped."""

    WORKER = "worker"
    CLUSTER = "cluster"


def cluster_of(worker_id: str) -> str:
    """The part of a worker id before its first ``-``; all of it without one."""
    return worker_id.partition("-")[0]


def left_free(
    leases: Iterable[Lease], max_leases: int, workers: Iterable[str] = ()
) -> tuple[str, ...]:
    """Keys of unfinished leases that no worker takes, because all are at ``maxLeasesForWorker``.

    Args:
        max_leases: ``maxLeasesForWorker``, of every worker; finished leases don't count.
        workers: known to be alive, with or without leases. Owners count as alive.

    Returns:
        In the order of the rows; none while a worker has room.
    """
    rows = tuple(leases)
    counts = Counter(dict.fromkeys(workers, 0))
    for lease in rows:
        if lease.lease_owner is not None:
            counts[lease.lease_owner] += not lease.is_finished
    if not counts or min(counts.values()) < max_leases:
        return ()
    return tuple(
        lease.lease_key for lease in rows if lease.lease_owner is None and not lease.is_finished
    )


def told_free(count: int, max_leases: int) -> str:
    """A sentence on why so many leases have no owner."""
    subject = "1 lease has" if count == 1 else f"{count} leases have"
    return f"{subject} no owner, because each worker holds maxLeasesForWorker = {max_leases}"


def group_leases(leases: Iterable[Lease], by: Grouping) -> dict[str, tuple[Lease, ...]]:
    """Rows by owner, owners sorted, rows without owner last under ``""``; rows keep their order."""
    groups: dict[str, list[Lease]] = {}
    for lease in leases:
        owner = lease.lease_owner or ""
        name = cluster_of(owner) if by is Grouping.CLUSTER else owner
        groups.setdefault(name, []).append(lease)
    names = sorted(groups, key=lambda name: (not name, name))
    return {name: tuple(groups[name]) for name in names}
