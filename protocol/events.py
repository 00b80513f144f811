"""Events that a connection returns, and which signal of the table each message is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from kcl_mld_protocol.messages import (
    Action,
    CheckpointRequest,
    CheckpointResult,
    DaemonMessage,
    Initialize,
    LeaseLost,
    ProcessRecords,
    ShardEnded,
    ShutdownRequested,
    Status,
    Tick,
)
from kcl_mld_protocol.state import Signal


class NeedData(Enum):
    """Type of :data:`NEED_DATA`."""

    NEED_DATA = "NEED_DATA"


#: No event yet: read more from the pipe, or (when idle) send the next action.
NEED_DATA: Final = NeedData.NEED_DATA


@dataclass(frozen=True, slots=True)
class StatusReceived:
    """The action in progress is done.

    Attributes:
        action: the action that was awaited; the status named exactly this one.
        failed: the failure that the child reports; None = it has succeeded.
    """

    action: Action
    failed: Status | None = None


@dataclass(frozen=True, slots=True)
class CheckpointRequested:
    """The child asks for a checkpoint; answer with ``send(CheckpointResult(...))`` before all else.

    Attributes:
        request: its checkpoint request; echo both numbers in the result.
        during: the action in progress. ``initialize`` and ``leaseLost`` carry no checkpointer:
            answer ``InvalidStateException``.
    """

    request: CheckpointRequest
    during: Action


@dataclass(frozen=True, slots=True)
class TickRequested:
    """The child asks for ticks from now on; no answer.

    Attributes:
        seconds: as asked; see ``kcl_mld_protocol.additions.is_tick``.
    """

    seconds: float | None


@dataclass(frozen=True, slots=True)
class JunkLine:
    """A line that is not a message (often a stray print); log it and continue.

    Attributes:
        line: the bytes without line end; the first 1024 of an over-long line.
        reason: why it is not a message.
        action: of the message that it was probably intended to be; None for other output.
        is_glued: that message stands behind other output, or behind another message.
    """

    line: bytes
    reason: str
    action: str | None = None
    is_glued: bool = False


@dataclass(frozen=True, slots=True)
class IgnoredMessage:
    """A well-formed message that children have no business sending; Java ignores it silently."""

    action: Action


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The peer has closed its end and nothing was pending."""


DaemonEvent: TypeAlias = (
    StatusReceived | CheckpointRequested | TickRequested | JunkLine | IgnoredMessage | EndOfStream
)
ChildEvent: TypeAlias = DaemonMessage | EndOfStream

SENT_BY_DAEMON: Final[dict[type, Signal]] = {
    Initialize: Signal.INITIALIZE,
    ProcessRecords: Signal.PROCESS_RECORDS,
    LeaseLost: Signal.LEASE_LOST,
    ShardEnded: Signal.SHARD_ENDED,
    ShutdownRequested: Signal.SHUTDOWN_REQUESTED,
    CheckpointResult: Signal.CHECKPOINT_RESULT,
}
SENT_BY_CHILD: Final[dict[type, Signal]] = {
    CheckpointRequest: Signal.CHECKPOINT_REQUEST,
    Status: Signal.STATUS,
    Tick: Signal.TICK,
}
