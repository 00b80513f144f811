"""One shard's pipes, with a fast way for the records, and what it has the daemon store by them."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.rows.records import read_delivery, rows_of
from kcl_mld_protocol import (
    NEED_DATA,
    CheckpointRequest,
    CheckpointResult,
    ChildConnection,
    ProcessRecords,
)
from kcl_mld_protocol.errors import DEPENDENCY, SHUTDOWN, THROTTLING, UNREACHABLE
from kcl_mld_protocol.state import TABLE, Role, Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kcl_mld.spark.model import Position, Row
    from kcl_mld_protocol import ChildEvent, ChildMessage
    from kcl_mld_protocol.child import Readable, Writable

_log = logging.getLogger("mld.spark")
#: The table is busy or out of reach: what was refused may be asked again.
_PASSING = frozenset({THROTTLING, DEPENDENCY, UNREACHABLE})
_ATTEMPTS = 6


class ChildWire:
    """A child connection with its two files; used by one thread.

    Args:
        announced: what the daemon can do beyond the protocol.
    """

    def __init__(self, stdin: Readable, stdout: Writable, announced: Collection[str]) -> None:
        self._connection = ChildConnection(announced=announced)
        self._stdin = stdin
        self._stdout = stdout
        self._rows: list[Row] | None = None

    def next_message(self) -> ChildEvent:
        """Block until the daemon has said something."""
        self._rows = None
        while (event := self._connection.next_event()) is NEED_DATA:
            line = self._stdin.readline()
            if (found := read_delivery(line)) is not None:
                self._rows, line = found
            self._connection.receive_data(line)
        return event

    def rows(self, message: ProcessRecords) -> list[Row]:
        """The rows of the message that came last."""
        return rows_of(message.records) if self._rows is None else self._rows

    def say(self, message: ChildMessage) -> None:
        """Write one line."""
        self._write(self._connection.send(message))

    @property
    def owes_status(self) -> bool:
        """True while the daemon waits for a status, and for nothing else."""
        return Signal.KEEP_ALIVE in TABLE[Role.CHILD].get(self._connection.state, {})

    def keep_alive(self) -> None:
        """Start the daemon's time-out for the outstanding message again."""
        self._write(self._connection.keep_alive())

    def ask(self, request: CheckpointRequest) -> str | None:
        """Write a request and block until its result is there; the error's name or None."""
        self.say(request)
        result = self.next_message()
        assert isinstance(result, CheckpointResult)  # no other is possible
        return result.error

    def _write(self, line: bytes) -> None:
        self._stdout.write(line)
        self._stdout.flush()


class LeaseStorage:
    """The lease's row, through the daemon; only usable while a message is outstanding.

    Args:
        pause_s: before a refused request is sent again, in s; doubles.
        is_over: True if the daemon or the stub has gone.
        keep_alive_s: how often a keep-alive is due in a pause, in s.
    """

    def __init__(
        self,
        wire: ChildWire,
        pause_s: float,
        is_over: Callable[[], bool],
        *,
        keep_alive_s: float,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._wire = wire
        self._pause_s = pause_s
        self._is_over = is_over
        self._sign_s = keep_alive_s
        self._sleep = sleep

    def checkpoint(self, name: str, position: Position | None) -> bool:
        """Store how far a shard is durable.

        Args:
            position: None = the end of the shard.

        Returns:
            False if the lease is gone.

        Raises:
            BatchFailed: it was refused for another reason.
        """
        if position is None:
            return self._store(name, CheckpointRequest(), "the end of the shard")
        request = CheckpointRequest(str(position.sequence), position.sub)
        return self._store(name, request, f"the checkpoint {position}")

    def _store(self, name: str, request: CheckpointRequest, what: str) -> bool:
        error = self._wire.ask(request)
        for attempt in range(_ATTEMPTS - 1):
            if error not in _PASSING or not self._pause(self._pause_s * 2**attempt):
                break
            error = self._wire.ask(request)
        if error == SHUTDOWN:
            _log.info("%s: the lease is gone: %s was refused", name, what)
            return False
        if error is not None:
            raise BatchFailed(f"{name}: {what} was refused: {error}")
        return True

    def _pause(self, seconds: float) -> bool:
        """Wait, with keep-alives to the daemon; False once the daemon or the stub has gone."""
        while not self._is_over() and seconds > 0:
            step_s = min(seconds, self._sign_s)
            self._sleep(step_s)
            seconds -= step_s
            if seconds > 0 and not self._is_over():
                self._wire.keep_alive()
        return not self._is_over()
