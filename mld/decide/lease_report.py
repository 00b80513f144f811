"""A lease table as people want to see it: who has what, and what state it is in."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mld.model.lease import Lease


class LeaseState(StrEnum):
    """What a row alone tells; whether its owner still lives it doesn't."""

    FINISHED = "finished"
    FREE = "free"
    OWNED = "owned"
    HANDED_OVER = "handed over"


class Grouping(StrEnum):
    """What rows are grouped by."""

    WORKER = "worker"
    CLUSTER = "cluster"


def state_of(lease: Lease) -> LeaseState:
    """The state of one row."""
    if lease.is_finished:
        return LeaseState.FINISHED
    if lease.lease_owner is None:
        return LeaseState.FREE
    return LeaseState.OWNED if lease.checkpoint_owner is None else LeaseState.HANDED_OVER


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
