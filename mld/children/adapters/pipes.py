"""The ends of a child's pipes, driven by the event loop without blocking and without copies."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Requested size of a child's stdin pipe; without privileges, a user gets it for some 64 pipes
#: only.
PIPE_BYTES = 2**20

#: Pause before writing to a full large pipe again. The kernel reports every freed page: writing at
#: each report takes a hundred small writes for a line of 3 MB. In this time a child reads about
#: what the pipe holds, so it seldom finds it empty.
_DRAIN_S = 0.002

#: Largest single read; twice the default pipe.
_READ_BYTES = 2**17

#: A longer stderr line is passed on in pieces of this size.
STDERR_LINE_BYTES = 2**16

#: Lines of stderr processed per turn of the loop, and the pause after a full turn: the full pipe
#: slows a child that floods its stderr, but not the daemon.
_STDERR_LINES = 64
#: Number of reads that empty the largest possible stderr pipe four times over.
_CATCH_UP_READS = 4 * PIPE_BYTES // STDERR_LINE_BYTES
_STDERR_PAUSE_S = 0.002


def enlarge_pipe(fd: int) -> bool:
    """Request a larger pipe, best effort: it saves most of the wake-ups for a large line.

    Returns: whether the pipe is as large as requested.
    """
    with contextlib.suppress(AttributeError, OSError):
        return fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES) >= PIPE_BYTES
    return False


class PipeWriter:
    """The writing end; owns its descriptor.

    Args:
        fd: enlarged and made non-blocking here. A pipe's two ends have flags of their own, so the
            child's end stays as it was.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._is_large = enlarge_pipe(fd)
        self._fd = fd
        self._open = True
        self._room: asyncio.Future[None] | None = None
        self._turn = asyncio.Lock()

    async def write(self, data: bytes) -> None:
        """Write all of it, after the writes that are in progress.

        A child should not send a request before it has read its line; if it does, the answer must
        not be written into the middle of that line.

        Raises:
            BrokenPipeError: the other end or this one is closed.
        """
        async with self._turn:
            rest = memoryview(data)
            while rest.nbytes:
                if not self._open:
                    raise BrokenPipeError("stdin of the child is closed")
                try:
                    written = os.write(self._fd, rest)
                except BlockingIOError:
                    await self._wait_for_room()
                else:
                    rest = rest[written:]

    async def _wait_for_room(self) -> None:
        loop = asyncio.get_running_loop()
        self._room = loop.create_future()
        loop.add_writer(self._fd, _wake, self._room)
        try:
            await self._room
        finally:
            self._room = None
            if self._open:
                loop.remove_writer(self._fd)
        if self._is_large:
            await asyncio.sleep(_DRAIN_S)

    def close(self) -> None:
        """Close it; a pending write raises BrokenPipeError. May be called again."""
        if self._open:
            self._open = False
            if self._room is not None:
                asyncio.get_running_loop().remove_writer(self._fd)
                _wake(self._room)
            os.close(self._fd)


class PipeReader:
    """The reading end; owns its descriptor and closes it at its end of file."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._open = True
        self._tail = b""
        self._data: asyncio.Future[None] | None = None

    async def read(self) -> bytes:
        """Read what is available, at least one byte; ``b""`` at the end.

        Raises:
            RuntimeError: another read is in progress.
        """
        while self._open:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except BlockingIOError:
                await self._wait_for_data()
            else:
                if not data:
                    self._close()
                return data
        tail, self._tail = self._tail, b""
        return tail

    async def _wait_for_data(self) -> None:
        if self._data is not None:
            raise RuntimeError("stdout of the child has a reader already")
        loop = asyncio.get_running_loop()
        self._data = loop.create_future()
        loop.add_reader(self._fd, _wake, self._data)
        try:
            await self._data
        finally:
            self._data = None
            if self._open:
                loop.remove_reader(self._fd)

    def finish(self) -> None:
        """Stop here: what the pipe holds can still be read, then the end follows."""
        if self._open:
            self._tail = _drain(self._fd)
            self._close()

    def _close(self) -> None:
        self._open = False
        if self._data is not None:
            asyncio.get_running_loop().remove_reader(self._fd)
            _wake(self._data)
        os.close(self._fd)


class StderrDrain:
    """Reads a pipe from the start, with or without a listener, and passes on its lines."""

    def __init__(self, fd: int, on_line: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._rest = b""

    def start(self) -> None:
        """Start; the loop does the rest."""
        self._loop.add_reader(self._fd, self._read)

    def catch_up(self) -> None:
        """Pass on all that the pipe holds now, at most some full pipes: the child's latest output.

        Every status of a child triggers this. Mostly the pipe is empty, which costs one system
        call.
        """
        for _ in range(_CATCH_UP_READS):
            if not self._open:
                return
            try:
                data = os.read(self._fd, STDERR_LINE_BYTES)
            except BlockingIOError:
                break
            self._rest += data
            if not data:
                self._end()
                return
        if self._rest:
            self._pass_lines(limit=-1)

    def finish(self) -> None:
        """Pass on what the pipe holds, and stop."""
        self.catch_up()
        if self._open:
            self._end()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, STDERR_LINE_BYTES)
        except BlockingIOError:
            return
        self._rest += data
        if not data:
            self._end()
        elif self._pass_lines(limit=_STDERR_LINES):
            self._loop.remove_reader(self._fd)
            self._loop.call_later(_STDERR_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if not self._open:
            return
        if self._pass_lines(limit=_STDERR_LINES):
            self._loop.call_later(_STDERR_PAUSE_S, self._resume)
        else:
            self._loop.add_reader(self._fd, self._read)

    def _pass_lines(self, *, limit: int) -> bool:
        """Pass on up to ``limit`` whole lines; True when there may be more of them."""
        lines = self._rest.split(b"\n", limit)
        self._rest = lines.pop()
        for line in lines:
            self._pass(line)
        if len(lines) == limit:
            return True
        if len(self._rest) >= STDERR_LINE_BYTES:
            self._pass(self._rest)
            self._rest = b""
        return False

    def _pass(self, line: bytes) -> None:
        for start in range(0, len(line) or 1, STDERR_LINE_BYTES):
            self._on_line(line[start : start + STDERR_LINE_BYTES].removesuffix(b"\r"))

    def _end(self) -> None:
        self._open = False
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._pass_lines(limit=-1)
        if self._rest:
            self._pass(self._rest)
            self._rest = b""


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _drain(fd: int) -> bytes:
    """What a non-blocking pipe holds, up to one full pipe."""
    with contextlib.suppress(BlockingIOError):
        return os.read(fd, PIPE_BYTES)
    return b""
