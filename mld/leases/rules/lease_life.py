"""What may happen to the row of a lease, a hand-off above all.

A hand-off of a 3.x leader is a phase of the row. Both owners are named in it: the next one in
``leaseOwner``, the one that still reads, renews and checkpoints in ``checkpointOwner``. The old one
ends it by removing its name, after the child's last checkpoint or when its time is up. If it dies,
the leader ends it by assigning the lease again, once its counter stands still.

Each event is one conditional write (:mod:`mld.leases.model.lease_writes`), so of two workers that do
something to the same row one is refused and reads it anew. The diagram in
``docs/architecture.md`` is drawn from the table below.

Source: DynamoDBLeaseRefresher, LeaseGracefulShutdownHandler, LeaseAssignmentManager (KCL 3.5.1).
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mld.leases.model.lease import Lease


class LeaseState(StrEnum):
    """What a row alone tells; whether its owner still lives it doesn't."""

    FREE = "free"
    OWNED = "owned"
    HANDED_OVER = "handed over"
    FINISHED = "finished"


class LeaseEvent(Enum):
    """What is written; the text says by whom and when."""

    TAKEN = "a worker takes it (2.x)"
    ASSIGNED = "the leader assigns it"
    HAND_OFF_BEGUN = "the leader names the next owner"
    LET_GO = "the old owner has stopped reading"
    RELEASED = "its owner stops"
    ENDED = "the end of the shard is checkpointed"
    RENEWED = "renewed, or a checkpoint"


_S, _E = LeaseState, LeaseEvent
_GAINED: Final = {_E.TAKEN: _S.OWNED, _E.ASSIGNED: _S.OWNED}

#: state -> what happened -> next state; what is not here is never written.
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
    # Somebody has to have it who deletes it in the end.
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
