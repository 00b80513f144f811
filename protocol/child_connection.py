"""The child's end of the conversation, without I/O; see ``kcl_mld_protocol.connection``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld_protocol.additions import FAILURE
from kcl_mld_protocol.codec import decode_from_daemon, encode
from kcl_mld_protocol.errors import LineTooLong, LocalProtocolError, RemoteProtocolError
from kcl_mld_protocol.events import (
    NEED_DATA,
    SENT_BY_CHILD,
    SENT_BY_DAEMON,
    ChildEvent,
    EndOfStream,
    NeedData,
)
from kcl_mld_protocol.jackson import Junk
from kcl_mld_protocol.linebuffer import LineBuffer
from kcl_mld_protocol.messages import (
    Action,
    ChildMessage,
    DaemonMessage,
    LeaseLost,
    Shutdown,
    Status,
    Tick,
)
from kcl_mld_protocol.state import ACTION_OF, TABLE, Role, Signal, State, next_state

if TYPE_CHECKING:
    from collections.abc import Collection


class ChildConnection:
    """The child's end of its own stdin and stdout.

    Args:
        max_line_bytes: longest line of the daemon that is accepted, > 0; None = no limit (a batch
            of 10 MB is a line of some 14 MB).
        announced: additions that the daemon has announced; see ``kcl_mld_protocol.additions``.
    """

    def __init__(
        self, *, max_line_bytes: int | None = None, announced: Collection[str] = ()
    ) -> None:
        self._announced = frozenset(announced)
        self._state = State.START
        self._lines = LineBuffer(max_line_bytes)

    @property
    def state(self) -> State:
        """Where the conversation stands."""
        return self._state

    @property
    def handling(self) -> Action | None:
        """The action that the daemon is waiting for; None when it is the daemon's turn."""
        return ACTION_OF.get(self._state)

    def send(self, message: ChildMessage) -> bytes:
        """The bytes to write to stdout for this message.

        Raises:
            LocalProtocolError: not possible now, not announced by the daemon, or a status for
                another action than the one in progress; nothing was changed.
        """
        signal = SENT_BY_CHILD.get(type(message))
        if signal is None:
            raise LocalProtocolError(f"a child never sends {type(message).__name__}")
        if isinstance(message, Tick):
            self._check_announced(message.action)
        if isinstance(message, Status) and message.failure is not None:
            self._check_announced(FAILURE)
        state = next_state(Role.CHILD, self._state, signal)
        if isinstance(message, Status) and message.response_for != self.handling:
            raise LocalProtocolError(
                f"the daemon awaits a status for {self.handling}, not {message.response_for}"
            )
        data = encode(message)
        self._state = state
        return data

    def _check_announced(self, addition: str) -> None:
        if addition not in self._announced:
            raise LocalProtocolError(f"the daemon has not announced {addition}")

    def keep_alive(self) -> bytes:
        """The bytes of a message that every daemon ignores.

        Each message of a child starts ``timeoutInSeconds`` again, in Java as well.

        Raises:
            LocalProtocolError: no status is owed now, so the time-out does not run.
        """
        self._state = next_state(Role.CHILD, self._state, Signal.KEEP_ALIVE)
        return encode(LeaseLost())

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Store bytes that were read from stdin; an empty value is its end."""
        self._lines.feed(data)

    def next_event(self) -> ChildEvent | NeedData:
        """The next message of the daemon, or :data:`NEED_DATA`.

        While an action is being handled no message is decoded: answer it first.

        Raises:
            RemoteProtocolError: a line that is no message or none that is possible now, or the end
                of stdin inside a request. Nothing useful can follow: end the process.
        """
        if self._state is State.ERROR:
            raise LocalProtocolError("the conversation has failed")
        if Signal.STATUS in self._expected():
            return NEED_DATA
        try:
            line = self._lines.next_line()
        except LineTooLong:
            self._move(Signal.BROKEN_LINE)
            raise
        if line is None:
            if not self._lines.ended:
                return NEED_DATA
            has_asked = Signal.CHECKPOINT_RESULT in self._expected()
            self._move(Signal.END_OF_STREAM)
            if has_asked:
                raise RemoteProtocolError("stdin ended before the checkpoint result came")
            return EndOfStream()
        return self._message(line)

    def _message(self, line: bytes) -> DaemonMessage:
        message = decode_from_daemon(line)
        if isinstance(message, Junk):
            self._move(Signal.BROKEN_LINE)
            raise RemoteProtocolError(
                f"cannot read the daemon's line {line!r:.200}: {message.reason}"
            )
        signal = SENT_BY_DAEMON.get(type(message))
        if isinstance(message, Shutdown) or signal not in self._expected():
            before = self._state
            self._move(Signal.BROKEN_LINE)
            raise RemoteProtocolError(f"the daemon sent {message.action} in state {before}")
        self._move(signal)
        return message

    def _move(self, signal: Signal) -> None:
        self._state = next_state(Role.CHILD, self._state, signal)

    def _expected(self) -> set[Signal]:
        return set(TABLE[Role.CHILD][self._state])
