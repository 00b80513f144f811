"""The pipes of a shard's child, as the host holds them: they end when the stub does."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

_READ = 1 << 20


class ShardInput:
    """What the daemon says to the shard.

    Args:
        descriptor: reading end of the child's stdin.
        connection: to the stub; what comes there is an end, which ends this file too.
    """

    def __init__(self, descriptor: int, connection: socket.socket) -> None:
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._connection = connection.fileno()
        self._poll.register(connection, select.POLLIN)
        self._chunks: list[bytes] = []

    def readline(self) -> bytes:
        """Bytes up to and including the next newline; empty when daemon or stub are gone."""
        while True:
            if self._chunks and (end := self._chunks[-1].find(b"\n")) >= 0:
                last = self._chunks.pop()
                line = b"".join([*self._chunks, last[: end + 1]])
                self._chunks = [last[end + 1 :]] if end + 1 < len(last) else []
                return line
            ready = [descriptor for descriptor, _ in self._poll.poll()]
            if self._connection in ready or not (chunk := os.read(self._descriptor, _READ)):
                self._chunks = []  # half a line is no message
                return b""
            self._chunks.append(chunk)


class ShardOutput:
    """What the shard says to the daemon; the only writer of the child's stdout.

    Args:
        descriptor: writing end of the child's stdout.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_closed = False

    def close(self) -> None:
        """Refuse everything from now on; from any thread."""
        self._is_closed = True

    def write(self, data: bytes) -> int:
        """Write all of it.

        Raises:
            BrokenPipeError: daemon or stub are gone.
        """
        view = memoryview(data)
        while view:
            if self._is_closed:
                raise BrokenPipeError("the stub of the shard is gone")
            view = view[os.write(self._descriptor, view) :]
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""
