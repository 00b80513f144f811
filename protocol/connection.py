"""Both ends of the conversation, without I/O.

A connection holds a line buffer and a state. The caller owns the pipes: it hands in what it read
(:meth:`receive_data`, ``b""`` for the end), takes events out (:meth:`next_event`), and writes what
:meth:`send` returns. Bytes are only stored on arrival and only read while somebody waits for them,
as in Java: a surplus status that a child printed while idle answers the *next* action.

Which order is legal is decided by ``kcl_mld_protocol.state`` alone. The child's end has a module of its own,
``kcl_mld_protocol.child_connection``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from kcl_mld_protocol.child_connection import ChildConnection
from kcl_mld_protocol.codec import encode
from kcl_mld_protocol.errors import LineTooLong, LocalProtocolError, RemoteProtocolError
from kcl_mld_protocol.events import (
    NEED_DATA,
    SENT_BY_DAEMON,
    CheckpointRequested,
    DaemonEvent,
    EndOfStream,
    IgnoredMessage,
    JunkLine,
    NeedData,
    StatusReceived,
    TickRequested,
)
from kcl_mld_protocol.jackson import Decoded, Foreign, Junk, decode_line
from kcl_mld_protocol.linebuffer import LineBuffer
from kcl_mld_protocol.messages import (
    REQUESTS,
    Action,
    CheckpointRequest,
    DaemonMessage,
    Status,
    Tick,
)
from kcl_mld_protocol.state import ACTION_OF, TABLE, Role, Signal, State, next_state

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["MAX_CHILD_LINE_BYTES", "NEED_DATA", "ChildConnection", "DaemonConnection"]

#: A line of a child's stdout that is longer than this is reported as junk and dropped. Java has no
#: limit; the longest legal line is some 200 bytes, so this only bounds memory.
MAX_CHILD_LINE_BYTES: Final = 1_048_576

#: Reason of every line that nobody waits for any more.
_DRAINED: Final = "after the last status"
_SIGNAL_OF_ACTION: Final[dict[Action, Signal]] = {action: Signal(action) for action in REQUESTS} | {
    Action.CHECKPOINT: Signal.CHECKPOINT_RESULT,
}


class DaemonConnection:
    """The daemon's end of one child's pipes.

    Args:
        shard_id: the Kinesis shard that the child serves; only used in messages.
        max_line_bytes: longest line of the child that is decoded, > 0; None = no limit.
        announced: additions that were announced to the child, see ``kcl_mld_protocol.additions``; the
            messages of others are junk.
    """

    def __init__(
        self,
        shard_id: str,
        *,
        max_line_bytes: int | None = MAX_CHILD_LINE_BYTES,
        announced: Collection[str] = (),
    ) -> None:
        self.shard_id = shard_id
        self._announced = frozenset(announced)
        self._state = State.START
        self._lines = LineBuffer(max_line_bytes)
        #: A message that was read, while what stands behind it on its line is reported first.
        self._held: Decoded | None = None
        self._has_glued_status = False

    @property
    def state(self) -> State:
        """Where the conversation stands."""
        return self._state

    @property
    def awaiting(self) -> Action | None:
        """The action that the child has not answered yet; None when it is the daemon's turn."""
        return ACTION_OF.get(self._state)

    @property
    def buffered_bytes(self) -> int:
        """Bytes received but not decoded; stop reading the pipe when idle and this grows."""
        return len(self._lines)

    @property
    def stream_ended(self) -> bool:
        """Whether ``b""`` was received; lines may still be buffered."""
        return self._lines.ended

    def send(self, message: DaemonMessage) -> bytes:
        """The bytes to write to the child's stdin for this message.

        Raises:
            LocalProtocolError: the message is not possible now, or never; nothing was changed.
        """
        signal = SENT_BY_DAEMON.get(type(message))
        if signal is None:
            raise LocalProtocolError(f"a daemon never sends {type(message).__name__}")
        state = next_state(Role.DAEMON, self._state, signal)
        data = encode(message)
        self._state = state
        return data

    def send_encoded(self, action: Action, line: bytes) -> bytes:
        """Like :meth:`send` for a line that was encoded elsewhere; no byte of it is read.

        Args:
            action: what the line is; ``checkpoint`` means its result.
            line: the whole line with its newline.

        Returns:
            the same object.

        Raises:
            LocalProtocolError: the message is not possible now, or the line has no end.
        """
        signal = _SIGNAL_OF_ACTION.get(action)
        if signal is None:
            raise LocalProtocolError(f"a daemon never sends {action}")
        if not line.endswith(b"\n"):
            raise LocalProtocolError("the line does not end with a newline")
        self._state = next_state(Role.DAEMON, self._state, signal)
        return line

    def close(self) -> None:
        """No more messages will be sent (stdin is being closed): continue to drain the child's stdout."""
        self._state = next_state(Role.DAEMON, self._state, Signal.CLOSE)

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Store bytes that were read from the child's stdout; an empty value is its end."""
        self._lines.feed(data)

    def next_event(self) -> DaemonEvent | NeedData:
        """The next event of the child, or :data:`NEED_DATA`.

        While idle no line is decoded and the result is always NEED_DATA: send a message first.
        After the final status, after :meth:`close` and after an error every line comes out as
        :class:`JunkLine`, and then :class:`EndOfStream`.

        Raises:
            RemoteProtocolError: the child answered another action, or its stdout ended while a
                status was due. The action has failed. After ``shutdownRequested`` the
                conversation may go on with ``leaseLost``, else drain.
            LocalProtocolError: a checkpoint request has not been answered yet.
        """
        if self._state in {State.DRAINING, State.CLOSED, State.ERROR}:
            return self._drain()
        if self._state in {State.START, State.IDLE}:
            return NEED_DATA
        if Signal.STATUS not in TABLE[Role.DAEMON][self._state]:
            raise LocalProtocolError("answer the checkpoint request first")
        held, self._held = self._held, None
        return self._next_line() if held is None else self._event(held)

    def _next_line(self) -> DaemonEvent | NeedData:
        while True:
            try:
                line = self._lines.next_line()
            except LineTooLong as error:
                return JunkLine(error.prefix, str(error))
            if line is None:
                return self._end_while_waiting() if self._lines.ended else NEED_DATA
            if line:  # empty lines are dropped in silence: kclpy writes one before each message
                decoded, lost = decode_line(line, self._announced)
                self._has_glued_status &= isinstance(decoded, Junk)
                if lost is None:
                    return self._event(decoded)
                self._held = decoded
                return self._junk(lost)

    @property
    def has_glued_status(self) -> bool:
        """Whether a line since the last message ended with a status for the action in progress."""
        return self._has_glued_status

    def take_glued_status(self) -> StatusReceived:
        """Take that status for a message after all.

        Raises:
            LocalProtocolError: there is none.
        """
        if not self._has_glued_status:
            raise LocalProtocolError("no line ended with a status for the action in progress")
        action = ACTION_OF[self._state]
        self._has_glued_status = False
        self._move(Signal.STATUS)
        return StatusReceived(action)

    def _junk(self, junk: Junk) -> JunkLine:
        self._has_glued_status |= junk.status == ACTION_OF[self._state]
        return JunkLine(junk.line, junk.reason, junk.action, junk.is_glued)

    def _event(self, decoded: Decoded) -> DaemonEvent:
        if isinstance(decoded, Junk):
            return self._junk(decoded)
        action = ACTION_OF[self._state]
        match decoded:
            case Status(response_for=response_for) as status:
                if response_for != action:
                    self._move(Signal.MISMATCHED_STATUS)
                    raise RemoteProtocolError(
                        f"{self.shard_id}: the child answered {response_for!r} instead of {action}"
                    )
                self._has_glued_status = False
                self._move(Signal.STATUS)
                return StatusReceived(action, None if status.failure is None else status)
            case CheckpointRequest() as request:
                self._move(Signal.CHECKPOINT_REQUEST)
                return CheckpointRequested(request, action)
            case Tick(seconds=seconds):
                self._move(Signal.TICK)
                return TickRequested(seconds)
            case Foreign(action=foreign):
                return IgnoredMessage(foreign)
            case _ as never:
                assert_never(never)

    def _end_while_waiting(self) -> EndOfStream:
        action = ACTION_OF[self._state]
        self._move(Signal.END_OF_STREAM)
        raise RemoteProtocolError(
            f"{self.shard_id}: the child's stdout ended before it answered {action}"
        )

    def _drain(self) -> DaemonEvent | NeedData:
        while True:
            try:
                line = self._lines.next_line()
            except LineTooLong as error:
                return JunkLine(error.prefix, str(error))
            if line:
                return JunkLine(line, _DRAINED)
            if line is None:
                if not self._lines.ended:
                    return NEED_DATA
                self._move(Signal.END_OF_STREAM)
                return EndOfStream()

    def _move(self, signal: Signal) -> None:
        self._state = next_state(Role.DAEMON, self._state, signal)
