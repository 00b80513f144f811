"""A lease table as people want to see it: who has what."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.model.lease import Lease


class Grouping(StrEnum):
    """What rows are grouped by."""

    WORKER = "worker"
    CLUSTER = "cluster"


def cluster_of(worker_id: str) -> str:
    """The part of a worker id before its first ``-``; all of it without one."""
    return worker_id.partition("-")[0]


def group_leases(leases: Iterable[Lease], by: Grouping) -> dict[str, tuple[Lease, ...]]:
    """Rows by owner, owners sorted, rows of nobody last under ``""``; rows keep their order."""
    groups: dict[str, list[Lease]] = {}
    for lease in leases:
        owner = lease.lease_owner or ""
        name = cluster_of(owner) if by is Grouping.CLUSTER else owner
        groups.setdefault(name, []).append(lease)
    names = sorted(groups, key=lambda name: (not name, name))
    return {name: tuple(groups[name]) for name in names}
