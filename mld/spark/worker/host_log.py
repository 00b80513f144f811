"""Where everything goes that is printed in the host: to the standard error of a living stub.

Descriptors 1 and 2 of the host are a pipe, so what Python, a subprocess or the JVM prints reaches
no shard's protocol. A thread takes whole lines out of the pipe and gives them to the oldest stub,
or, for what is logged while a shard is served, to that shard's. The pipe is always read: when
nothing reads them, or too slowly, the oldest lines are dropped and counted.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import threading
import time
from collections import deque
from typing import Self

#: A pipe that polls as writable takes this many bytes without blocking (PIPE_BUF).
_CHUNK = 4096
_READ = 65_536
_LONGEST_LINE = 65_536
#: Bytes that are kept while nothing reads them: of all shards, and of one.
KEPT_BYTES = 256 * 1024
KEPT_BYTES_OF_SHARD = 64 * 1024
_FLUSH_S = 0.2


class _Lines:
    """Lines that wait for a reader; the oldest are dropped for the newest."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lines: deque[bytes] = deque()
        self._size = 0
        self._dropped = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def put(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        while self._size > self._most and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())
            self._dropped += 1

    def take(self) -> bytes:
        """Some whole lines, at least one."""
        taken = []
        if self._dropped:
            taken.append(b"(%d lines were dropped here: nobody read them)\n" % self._dropped)
            self._dropped = 0
        size = sum(map(len, taken))
        while self._lines and (not size or size + len(self._lines[0]) <= _CHUNK):
            line = self._lines.popleft()
            self._size -= len(line)
            size += len(line)
            taken.append(line)
        return b"".join(taken)


class _Reader:
    """The standard error of a stub."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.lines = _Lines(KEPT_BYTES_OF_SHARD)
        self.unwritten = b""


class LinePump:
    """Moves lines from a pipe to their readers.

    Args:
        source: reading end of the pipe; open until the process ends.
        first: reads until the first stub is there, or None; a descriptor that becomes the pump's.
    """

    def __init__(self, source: int, first: int | None) -> None:
        self._source = source
        os.set_blocking(source, False)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._lock = threading.Lock()
        self._readers: dict[int, _Reader] = {} if first is None else {-1: _Reader(first)}
        self._lines = _Lines(KEPT_BYTES)
        self._partial = b""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="log-pump", daemon=True)

    @classmethod
    def take_over(cls) -> Self:
        """Point descriptors 1 and 2 of this process at a pump; what was 2 reads until a stub does.

        Starts no thread yet: see :meth:`start`.
        """
        first = os.dup(2)
        source, sink = os.pipe()
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.close(sink)
        return cls(source, first)

    def start(self) -> None:
        """Start to move lines."""
        self._thread.start()

    def add(self, key: int, descriptor: int) -> None:
        """A stub reads from now on; the descriptor becomes the pump's."""
        with self._lock:
            self._drop(-1)
            self._readers[key] = _Reader(descriptor)
        self._wake()

    def remove(self, key: int) -> None:
        """A stub is going; what waits for it is written if it still takes it."""
        deadline = time.monotonic() + _FLUSH_S
        while time.monotonic() < deadline:
            with self._lock:
                reader = self._readers.get(key)
                if reader is None or not self._has_work(reader):
                    break
                descriptor = reader.descriptor
            if _is_writable(descriptor, 50):
                self._write(key, reader)
        with self._lock:
            self._drop(key)

    def say(self, key: int | None, text: str) -> None:
        """One line for one stub, or for the oldest if it is None or not there."""
        line = text.replace("\n", "\n  ").encode(errors="replace") + b"\n"
        with self._lock:
            reader = None if key is None else self._readers.get(key)
            (self._lines if reader is None else reader.lines).put(line)
        self._wake()

    def close(self, timeout_s: float) -> None:
        """Write what has come so far, as far as it is taken within the time."""
        self._is_closing = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"!")

    def _run(self) -> None:
        while True:
            self._wait()
            came = self._read()
            with self._lock:
                waiting = [item for item in self._readers.items() if self._has_work(item[1])]
                if self._is_closing and not came and self._partial:
                    self._lines.put(self._partial + b"\n")
                    self._partial = b""
                    continue
            if self._is_closing and not came and not waiting:
                return
            for key, reader in waiting:
                self._write(key, reader)

    def _wait(self) -> None:
        """Until there is something to read, or somebody takes what waits for him."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        with self._lock:
            for reader in self._readers.values():
                if self._has_work(reader):
                    poll.register(reader.descriptor, select.POLLOUT)
        poll.poll(20 if self._is_closing else 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, _READ)

    def _read(self) -> bool:
        try:
            data = os.read(self._source, _READ)
        except BlockingIOError:
            return False
        with self._lock:
            *whole, self._partial = (self._partial + data).split(b"\n")
            for line in whole:
                self._lines.put(line + b"\n")
            if len(self._partial) > _LONGEST_LINE:
                self._lines.put(self._partial + b"\n")
                self._partial = b""
        return bool(data)

    def _has_work(self, reader: _Reader) -> bool:
        return bool(reader.unwritten or reader.lines or (self._lines and self._is_oldest(reader)))

    def _is_oldest(self, reader: _Reader) -> bool:
        return next(iter(self._readers.values())) is reader

    def _write(self, key: int, reader: _Reader) -> None:
        """Write as much as is sure not to block, if anything."""
        with self._lock:
            if self._readers.get(key) is not reader or not _is_writable(reader.descriptor, 0):
                return
            if not reader.unwritten and reader.lines:
                reader.unwritten = reader.lines.take()
            if not reader.unwritten and self._lines and self._is_oldest(reader):
                reader.unwritten = self._lines.take()
            try:
                written = os.write(reader.descriptor, reader.unwritten[:_CHUNK])
            except OSError:  # it is gone; somebody else gets the lines
                self._lines.put(reader.unwritten)
                self._drop(key)
            else:
                reader.unwritten = reader.unwritten[written:]

    def _drop(self, key: int) -> None:
        reader = self._readers.pop(key, None)
        if reader is not None:
            os.close(reader.descriptor)


def _is_writable(descriptor: int, timeout_ms: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    try:
        return bool(poll.poll(timeout_ms))
    except OSError:
        return True


class ShardLogHandler(logging.Handler):
    """Gives a log record to the stub whose shard the logging thread serves."""

    def __init__(self, pump: LinePump) -> None:
        super().__init__()
        self._pump = pump
        self._served = threading.local()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def serve(self, key: int) -> None:
        """The calling thread serves a stub from now on."""
        self._served.key = key

    def emit(self, record: logging.LogRecord) -> None:
        """Hand over one record."""
        try:
            self._pump.say(getattr(self._served, "key", None), self.format(record))
        except Exception:  # noqa: BLE001 - logging must not break what it reports on
            self.handleError(record)
