"""One shard's pipes: lines in, messages out, and a fast way for the records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.rows.records import read_delivery, rows_of
from protocol import (
    NEED_DATA,
    CheckpointRequest,
    CheckpointResult,
    ChildConnection,
    ProcessRecords,
)
from protocol.state import TABLE, Role, Signal

if TYPE_CHECKING:
    from collections.abc import Collection

    from mld.spark.model import Row
    from protocol import ChildEvent, ChildMessage
    from protocol.child import Readable, Writable


class ChildWire:
    """A child connection with its two files; used by one thread.

    Args:
        stdin: binary file from the daemon.
        stdout: binary file to the daemon.
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
