"""The generation of KCL that a fleet works as, its transitions, and the behaviour of a worker.

The fleet's state is one item, ``Migration3.0``; a fleet without it works as 2.x. The tables below
are the only definition of the transitions; the diagram in ``docs/architecture.md`` is generated
from them.

Source: MigrationClientVersionStateInitializer, DynamicMigrationComponentsInitializer,
MigrationReadyMonitor, ClientVersionChangeMonitor (KCL 3.5.1). One intended difference, because
Java's default is 3X: only a configuration that says so explicitly ends the time in which a fleet
may be rolled back, and none turns a 2.x fleet into a 3.x fleet at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from kcl_mld.config.fleet import ClientVersionConfig
from kcl_mld.fleet.model.state_history import ClientVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
    from kcl_mld.leases.model.lease import Lease

#: How long all owners of leases have to report before a fleet is flipped (Scheduler.java:376).
READY_S = 600.0
#: Maximum age of a live worker's metrics (MigrationReadyMonitor: twice the reporter's 30 s).
ALIVE_S = 60.0


class Mode(Enum):
    """How leases come to the workers of a fleet."""

    #: Each worker takes its share (2.x).
    TAKES = "takes"
    #: A leader assigns them (3.x).
    ASSIGNED = "assigned"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a worker does in a state.

    Attributes:
        mode: how it gets its leases; with ASSIGNED the leader has a lock.
        reports: it writes metrics of itself.
    """

    mode: Mode
    reports: bool


_V = ClientVersion

#: What each state means; INIT is a fleet without the item.
BEHAVIOUR: Final[dict[ClientVersion, Behaviour]] = {
    _V.CLIENT_VERSION_INIT: Behaviour(Mode.TAKES, reports=False),
    _V.CLIENT_VERSION_UPGRADE_FROM_2X: Behaviour(Mode.TAKES, reports=True),
    _V.CLIENT_VERSION_2X: Behaviour(Mode.TAKES, reports=False),
    _V.CLIENT_VERSION_3X_WITH_ROLLBACK: Behaviour(Mode.ASSIGNED, reports=True),
    _V.CLIENT_VERSION_3X: Behaviour(Mode.ASSIGNED, reports=True),
}


class VersionChange(Enum):
    """Why the item is written, or what another worker's write means."""

    NEW = "a new application starts"
    COMPATIBLE = "a worker with COMPATIBLE_WITH_2X starts"
    JAVA_3X = "a Java worker with 3X starts"
    READY = "all owners of leases reported for ten minutes"
    SETTLED = "a worker whose file says 3X starts"
    ROLLED_BACK = "KCL migration tool: rollback"
    ROLLED_FORWARD = "KCL migration tool: rollforward"


#: state -> change -> next state.
TRANSITIONS: Final[dict[ClientVersion, dict[VersionChange, ClientVersion]]] = {
    _V.CLIENT_VERSION_INIT: {
        VersionChange.NEW: _V.CLIENT_VERSION_3X,
        VersionChange.COMPATIBLE: _V.CLIENT_VERSION_UPGRADE_FROM_2X,
        VersionChange.JAVA_3X: _V.CLIENT_VERSION_3X,
    },
    _V.CLIENT_VERSION_UPGRADE_FROM_2X: {
        VersionChange.READY: _V.CLIENT_VERSION_3X_WITH_ROLLBACK,
        VersionChange.ROLLED_BACK: _V.CLIENT_VERSION_2X,
    },
    _V.CLIENT_VERSION_2X: {VersionChange.ROLLED_FORWARD: _V.CLIENT_VERSION_UPGRADE_FROM_2X},
    _V.CLIENT_VERSION_3X_WITH_ROLLBACK: {
        VersionChange.SETTLED: _V.CLIENT_VERSION_3X,
        VersionChange.ROLLED_BACK: _V.CLIENT_VERSION_2X,
    },
    _V.CLIENT_VERSION_3X: {},
}


def change_at_start(
    stored: ClientVersion, client_version: ClientVersionConfig, *, is_new: bool
) -> VersionChange | None:
    """What a worker changes when it starts.

    Args:
        stored: the fleet's state; INIT = there is no item.
        is_new: there is no lease, so no worker has used this table.

    Returns:
        A change of :data:`TRANSITIONS` that is to be written, or None: join the fleet as it is.
    """
    match stored, client_version:
        case _V.CLIENT_VERSION_INIT, ClientVersionConfig.UPGRADE:
            return VersionChange.COMPATIBLE
        case _V.CLIENT_VERSION_INIT, ClientVersionConfig.UNSAID | ClientVersionConfig.STAY_3X if (
            is_new
        ):
            return VersionChange.NEW
        case _V.CLIENT_VERSION_3X_WITH_ROLLBACK, ClientVersionConfig.STAY_3X:
            return VersionChange.SETTLED
        case _:
            return None


def followed(current: ClientVersion, stored: ClientVersion | None) -> ClientVersion:
    """The state after a read of the item while the worker runs.

    Args:
        stored: the state in the item now; None = there is none.

    Returns:
        ``stored`` where the tables lead there, over however many changes that were not seen;
        otherwise ``current``: an item that disappears, or has an impossible state, changes nothing.
    """
    return stored if stored is not None and stored in _reachable(current) else current


def _reachable(state: ClientVersion) -> set[ClientVersion]:
    found: set[ClientVersion] = set()
    ways = [state]
    while ways:
        for following in TRANSITIONS[ways.pop()].values():
            if following not in found:
                found.add(following)
                ways.append(following)
    return found


def unready(
    leases: Iterable[Lease], metrics: Iterable[WorkerMetrics], now_s: float, *, has_index: bool
) -> str | None:
    """Why a fleet in UPGRADE_FROM_2X can't be flipped yet, for people; None = it can.

    Args:
        metrics: of all workers, old ones too.
        now_s: epoch seconds.
        has_index: the index by owner is complete.

    Returns:
        A clause. An unfinished lease without an owner is a reason, too: its next owner may be a
        2.x worker.
    """
    if not has_index:
        return "the index of leases by owner is not complete"
    alive = {one.worker_id for one in metrics if one.updated_at_s + ALIVE_S > now_s}
    owners = {lease.lease_owner for lease in leases if lease.lease_owner or not lease.is_finished}
    if None in owners:
        return "a lease has no owner"
    silent = sorted(owner for owner in owners if owner is not None and owner not in alive)
    if silent:
        return f"worker {silent[0]} writes no metrics ({len(silent)} of {len(owners)} don't)"
    return None


@dataclass(frozen=True, slots=True)
class FlipReadiness:
    """For how long a leader has seen its fleet ready.

    Attributes:
        since: reading of the monotonic clock; None = it was not, at the last check.
    """

    since: float | None = None

    def seen(self, why_not: str | None, now: float) -> FlipReadiness:
        """The state after a check.

        A worker that does not lead starts over with ``FlipReadiness()``.
        """
        if why_not is not None:
            return FlipReadiness()
        return self if self.since is not None else FlipReadiness(now)

    def is_long_enough(self, now: float) -> bool:
        """Whether the fleet is to be flipped."""
        return self.since is not None and now - self.since >= READY_S


def mermaid() -> str:
    """The table as a Mermaid state diagram, for the documentation."""

    def short(state: ClientVersion) -> str:
        name = state.value.removeprefix("CLIENT_VERSION_")
        return name if name[0].isalpha() else f"V{name}"

    init = _V.CLIENT_VERSION_INIT
    lines = ["stateDiagram-v2", f"    [*] --> {short(init)}"]
    for state, changes in TRANSITIONS.items():
        behaviour = BEHAVIOUR[state]
        does = "leases are assigned" if behaviour.mode is Mode.ASSIGNED else "leases are taken"
        reports = ", metrics" if behaviour.reports else ""
        lines.append(
            f"    {short(state)}: {state.value.removeprefix('CLIENT_VERSION_')} ({does}{reports})"
        )
        lines += [
            f"    {short(state)} --> {short(following)}: {change.value}"
            for change, following in changes.items()
        ]
    return "\n".join(lines) + "\n"
