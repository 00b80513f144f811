"""The states of a lease's row and the transitions between them, hand-offs included.

A hand-off of a 3.x leader is a state of the row, which then names both owners: the next one in
``leaseOwner``, and in ``checkpointOwner`` the one that still reads, renews and checkpoints. The old
owner ends it by removing its name, after the child's last checkpoint or at a timeout. If the old
owner dies, the leader ends it by assigning the lease again once its counter no longer changes.

Each event is one conditional write (:mod:`kcl_mld.leases.model.lease_writes`), so if two workers write
to the same row, one is refused and reads it again. The diagram in ``docs/architecture.md`` is
generated from the table below.

Source: DynamoDBLeaseRefresher, LeaseGracefulShutdownHandler, LeaseAssignmentManager (KCL 3.5.1).
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease


class LeaseState(StrEnum):
    """The state that a row alone shows; it does not show whether the owner is alive."""

    FREE = "free"
    OWNED = "owned"
    HANDED_OVER = "handed over"
    FINISHED = "finished"


class LeaseEvent(Enum):
    """A write to the row; the text says by whom and when."""

    TAKEN = "a worker takes it (2.x)"
    ASSIGNED = "the leader assigns it"
    HAND_OFF_BEGUN = "the leader names the next owner"
    LET_GO = "the old owner has stopped reading"
    RELEASED = "its owner stops"
    ENDED = "the end of the shard is checkpointed"
    RENEWED = "renewed, or a checkpoint"


_S, _E = LeaseState, LeaseEvent
_GAINED: Final = {_E.TAKEN: _S.OWNED, _E.ASSIGNED: _S.OWNED}

#: State -> event -> next state; other transitions are never written.
TRANSITIONS: Final[dict[LeaseState, dict[LeaseEvent, LeaseState]]] = {
    _S.FREE: _GAINED,
    _S.OWNED: {
        **_GAINED,
        _E.RENEWED: _S.OWNED,
        _E.HAND_OFF_BEGUN: _S.HANDED_OVER,
        _E.RELEASED: _S.FREE,
        _E.ENDED: _S.FINISHED,
    },
    _S.HANDED_OVER: {
        **_GAINED,
        _E.RENEWED: _S.HANDED_OVER,
        _E.LET_GO: _S.OWNED,
        _E.ENDED: _S.FINISHED,
    },
    # Some worker has to own it in order to delete it in the end.
    _S.FINISHED: {
        _E.TAKEN: _S.FINISHED,
        _E.ASSIGNED: _S.FINISHED,
        _E.RENEWED: _S.FINISHED,
        _E.LET_GO: _S.FINISHED,
        _E.RELEASED: _S.FINISHED,
    },
}


def state_of(lease: Lease) -> LeaseState:
    """The state of one row."""
    if lease.is_finished:
        return LeaseState.FINISHED
    if lease.lease_owner is None:
        return LeaseState.FREE
    return LeaseState.HANDED_OVER if lease.is_handed_over else LeaseState.OWNED


def mermaid() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {LeaseState.FREE.name}"]
    lines += [
        f"    {state.name} --> {following.name}: {event.value}"
        for state, row in TRANSITIONS.items()
        for event, following in row.items()
        if following is not state or (event in _GAINED and state is _S.OWNED)
    ]
    lines.append(f"    {LeaseState.FINISHED.name} --> [*]: deleted after its children have begun")
    return "\n".join(lines) + "\n"
