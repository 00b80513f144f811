"""The ends of a child's pipes, driven by the event loop without blocking and without copies."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Asked of the kernel for a child's stdin; without privileges only some 64 pipes of a user get it.
PIPE_BYTES = 2**20

#: How long a full large pipe is left to its reader. The kernel tells of every freed page: writing at
#: each of these calls takes a hundred small writes for a line of 3 MB. In this time a child reads
#: about what the pipe holds, so it seldom finds it empty.
_DRAIN_S = 0.002

#: Most that one read takes. Twice the default pipe.
_READ_BYTES = 2**17

#: A longer stderr line is passed on in pieces of this size.
STDERR_LINE_BYTES = 2**16

#: Lines of stderr passed on in one turn of the loop, and the pause after a turn that was full: a
#: child that floods its stderr is slowed down by its full pipe, the daemon is not.
_STDERR_LINES = 64
#: Reads that empty the largest pipe that a child can make of its stderr, four times over.
_CATCH_UP_READS = 4 * PIPE_BYTES // STDERR_LINE_BYTES
_STDERR_PAUSE_S = 0.002


def enlarge_pipe(fd: int) -> bool:
    """Ask for a larger pipe, best effort: it spares most of the wake-ups of a large line.

    Returns: whether the pipe is as large as asked.
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
        """Write all of it, behind what others are still writing.

        A child should not ask for anything before it has read its line; if it does, the answer must
        not come in the middle of that line.

        Raises:
            BrokenPipeError: the other end is closed, or this one.
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
        """Close it; a writer that waits for room gets BrokenPipeError. May be called again."""
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
        """What is there, at least one byte; ``b""`` at the end.

        Raises:
            RuntimeError: somebody else is reading.
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
        """End it here: what the pipe holds can still be read, then comes the end."""
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
    r"""Reads a pipe from the start, with or without a listener, and passes its lines on.

    Args:
        fd: owned from now on.
        on_line: called with each line without its end (``\n`` or ``\r\n``); must not raise.
    """

    def __init__(self, fd: int, on_line: Callable[[bytes], None]) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._rest = b""

    def start(self) -> None:
        """Begin; the loop does the rest."""
        self._loop.add_reader(self._fd, self._read)

    def catch_up(self) -> None:
        """Pass on all that the pipe holds now, some full pipes at most: what a child wrote last.

        Each status of a child asks for this, and mostly there is nothing: it is one system call.
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
        """End it here, after passing on what the pipe holds."""
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
