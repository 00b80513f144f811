"""The migration of a 3.0 to 3.4 fleet's items into the lease table: states and transitions.

The state is one item, ``TableMigration3.5``, in the coordinator table of 3.0 to 3.4 until the end.
Without that table everything is in the lease table from the start. The table below is the only
definition of the transitions; the diagram in ``docs/architecture.md`` is generated from it.

Source: TableMigrationStateMachineImpl.java:318-326, 433-511, 530-748 (KCL 3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from kcl_mld.errors import UnservableFleet
from kcl_mld.fleet.model.state_history import TableStatus
from kcl_mld.fleet.model.worker_metrics import SINGLE_TABLE_MIGRATION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.fleet.model.state_history import TableMigrationState
    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics

#: ``sup`` counts for this many seconds (DAT:394-421).
SUPPORT_S = 90
#: How long all workers have to support the migration, in seconds.
INIT_S = 3600.0
#: Maximum age of a live worker's metrics, in seconds.
ALIVE_S = 60

_S = TableStatus
INIT, DEPLOYED = _S.TABLE_MIGRATION_STATUS_INIT, _S.TABLE_MIGRATION_STATUS_DEPLOYED
PENDING, COMPLETE = _S.TABLE_MIGRATION_STATUS_PENDING, _S.TABLE_MIGRATION_STATUS_COMPLETE


class TableStep(Enum):
    """A step of the leader."""

    BEGIN = "every owner of a lease can move"
    FORGET = "an owner can't move"
    DEPLOY = "all could move for an hour"
    MOVE = "migrateAllEntitiesToLeaseTable, and all write into the lease table: items are moved"
    TAKE_BACK = "a worker writes to the old table again"
    COMPLETE = "bake time is over"


#: stored status (None = no item) -> what the leader does -> stored status afterwards.
TRANSITIONS: Final[dict[TableStatus | None, dict[TableStep, TableStatus | None]]] = {
    None: {TableStep.BEGIN: INIT},
    INIT: {TableStep.FORGET: None, TableStep.DEPLOY: DEPLOYED},
    DEPLOYED: {TableStep.MOVE: PENDING},
    PENDING: {TableStep.TAKE_BACK: DEPLOYED, TableStep.COMPLETE: COMPLETE},
    COMPLETE: {},
}


def status_at_start(stored: TableStatus | None, table: str, *, migrates: bool) -> TableStatus:
    """The status that a worker uses at its start when the old table exists.

    Args:
        stored: status of the item; None = there is none.
        table: name of the old table, for messages.
        migrates: ``migrateAllEntitiesToLeaseTable``.

    Raises:
        UnservableFleet: the configuration requests the migration before all workers support it.
    """
    if stored is COMPLETE:
        return COMPLETE
    if stored in (None, INIT):
        if migrates:
            raise UnservableFleet(
                f"migrateAllEntitiesToLeaseTable is true, but the fleet of table {table} is not "
                "ready to move its items into the lease table: not all of its workers could do so "
                "for an hour. Set it to false until TableMigration3.5 in that table says DEPLOYED"
            )
        return INIT
    return PENDING if migrates else DEPLOYED


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """The facts on which a leader decides.

    Attributes:
        now_s: epoch seconds.
        owners: worker ids of all rows with an owner.
        old: metrics in the old table.
        new: metrics in the lease table.
        is_old_empty: nothing but the lock and the state itself is left in the old coordinator
            table.
        migrates: ``migrateAllEntitiesToLeaseTable`` of this worker.
        bake_s: for how long a move can be undone.
    """

    now_s: float
    owners: frozenset[str]
    old: tuple[WorkerMetrics, ...]
    new: tuple[WorkerMetrics, ...]
    is_old_empty: bool
    migrates: bool
    bake_s: float


def next_step(state: TableMigrationState | None, facts: MoveFacts) -> TableStep | None:
    """The leader's next step; None = none.

    Args:
        state: as stored; None = there is no item.
    """
    status = None if state is None else state.state
    age_s = 0.0 if state is None else facts.now_s - state.now.modified_ms / 1000
    can_move = bool(facts.owners) and all(_supports(owner, facts) for owner in facts.owners)
    due = {
        TableStep.BEGIN: can_move,
        TableStep.FORGET: not can_move,
        TableStep.DEPLOY: age_s > INIT_S,
        TableStep.MOVE: facts.migrates and _all_write_to_lease_table(facts),
        TableStep.TAKE_BACK: not facts.is_old_empty,
        TableStep.COMPLETE: age_s > facts.bake_s,
    }
    return next((step for step in TRANSITIONS[status] if due[step]), None)


def waits_for(state: TableMigrationState | None, facts: MoveFacts) -> str | None:
    """What the migration waits for, as a sentence; None = it waits for nothing.

    Args:
        state: as stored; None = there is no item.
    """
    status = None if state is None else state.state
    if status is None:
        slow = sorted(owner for owner in facts.owners if not _supports(owner, facts))
        return (
            f"{_some(slow)} has not reported for {SUPPORT_S} s that it can move them"
            if slow
            else None
        )
    if status is not DEPLOYED or not facts.migrates:
        return None
    late = sorted(facts.owners - _alive(facts.new, facts))
    if late:
        return f"{_some(late)} has written no metrics into the lease table for {ALIVE_S} s"
    old = sorted(facts.owners & _alive(facts.old, facts))
    return f"{_some(old)} writes its metrics into the old table" if old else None


def _some(workers: list[str]) -> str:
    more = f" (and {len(workers) - 1} more)" if len(workers) > 1 else ""
    return f"worker {workers[0]}{more}"


def _supports(owner: str, facts: MoveFacts) -> bool:
    return any(
        one.worker_id == owner
        and (one.support or 0) >= SINGLE_TABLE_MIGRATION
        and facts.now_s - (one.support_at_s or 0) <= SUPPORT_S
        for one in (*facts.old, *facts.new)
    )


def _all_write_to_lease_table(facts: MoveFacts) -> bool:
    return facts.owners <= _alive(facts.new, facts) and not facts.owners & _alive(facts.old, facts)


def _alive(metrics: Iterable[WorkerMetrics], facts: MoveFacts) -> set[str]:
    return {one.worker_id for one in metrics if facts.now_s - one.updated_at_s <= ALIVE_S}


def mermaid() -> str:
    """The table as a Mermaid state diagram, for the documentation."""

    def short(status: TableStatus | None) -> str:
        return "NONE" if status is None else status.value.removeprefix("TABLE_MIGRATION_STATUS_")

    lines = ["stateDiagram-v2", "    [*] --> NONE"]
    lines += [
        f"    {short(status)} --> {short(following)}: {step.value}"
        for status, steps in TRANSITIONS.items()
        for step, following in steps.items()
    ]
    return "\n".join(lines) + "\n"
