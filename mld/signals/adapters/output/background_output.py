"""Standard error and output that never block the writer: a thread of their own writes.

A pipe without a reader, a terminal after Ctrl-S or a blocked log driver blocks every write, and
with it the event loop: leases would be lost and signals not handled. Therefore the daemon's
``sys.stderr`` and ``sys.stdout`` are replaced while it runs, which covers logging, ``print``,
warnings and tracebacks alike. Handlers of the operator's own logging configuration, which may wait
for a socket or a disk, get a thread each.

A stream's thread writes to the descriptor itself: a buffered stream has a lock, and the interpreter
would wait for it at its end.

Each thread processes a bounded queue. Messages that do not fit are dropped and counted, and the
count is reported as soon as there is room again.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import logging.handlers
import os
import select
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TextIO, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_log = logging.getLogger("mld.signals")

T = TypeVar("T")

#: Limit of the queue. A log line of our own has some 200 bytes, one of a child up to 8 KiB.
MAX_BYTES = 4 * 2**20
MAX_ITEMS = 20_000
#: Limit of one batch.
_CHUNK_BYTES = 2**16
#: Losses are reported once at most this share of the queue is in use.
_ROOM_AGAIN = 0.5

#: Seconds for writing the rest of the queue at the end.
DRAIN_S = 2.0
#: A line that is longer than this is written in parts.
_LONGEST_LINE = 2**16
_DROPPED = "%d log messages were dropped in the last %.0f s: %s did not take them in time"


class BackgroundQueue(Generic[T]):
    """A queue of items for a daemon thread; safe in all threads.

    Args:
        name: of the thread, which starts with the first item.
        work: called in the thread with the next items; an error counts them as dropped.
        tell: called in the thread with the number of dropped items and for how many seconds.
        max_bytes: limit of the queue; one larger item is accepted when the queue is empty.
        chunk_bytes: limit of one batch; 0 = one item at a time.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[T]], None],
        tell: Callable[[int, float], None],
        *,
        max_bytes: int = MAX_BYTES,
        max_items: int = MAX_ITEMS,
        chunk_bytes: int = _CHUNK_BYTES,
    ) -> None:
        self._name = name
        self._work = work
        self._tell = tell
        self._max_bytes = max_bytes
        self._max_items = max_items
        self._chunk_bytes = chunk_bytes
        # Reentrant: the garbage collector may make a thread log while it is in here.
        self._changed = threading.Condition(threading.RLock())
        self._waiting: deque[tuple[T, int]] = deque()
        self._bytes = 0
        self._is_working = False
        self._is_ended = False
        self._thread: threading.Thread | None = None
        self._unlogged = 0
        self._dropping_since = 0.0
        self.dropped = 0  #: since the start

    def put(self, item: T, size: int) -> None:
        """Add an item, or drop it; returns at once.

        Args:
            item: ignored after :meth:`end`.
            size: in bytes.
        """
        with self._changed:
            if self._is_ended:
                return
            is_full = self._bytes + size > self._max_bytes or len(self._waiting) >= self._max_items
            if self._waiting and is_full:
                self._drop(1)
                return
            self._waiting.append((item, size))
            self._bytes += size
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def end(self, timeout_s: float) -> bool:
        """Wait until all items are processed or the timeout is over; the thread ends afterwards.

        Returns:
            False when items are left, which are lost if the process ends now.
        """
        with self._changed:
            is_refused = self._thread is None
            if not is_refused:
                self._changed.wait_for(lambda: self._is_idle, timeout_s)
            self._is_ended = True
            self._changed.notify_all()
        if is_refused:  # better late, and without a bound, than never
            self._run()
        return self._is_idle

    @property
    def _is_idle(self) -> bool:
        return not self._waiting and not self._is_working

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        # Where the system refuses it, the items wait for the next one to be put.
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _drop(self, count: int) -> None:
        if not self._unlogged:
            self._dropping_since = time.monotonic()
        self._unlogged += count
        self.dropped += count

    def _run(self) -> None:
        while items := self._take():
            try:
                self._work(items)
            except Exception:  # noqa: BLE001 - a faulty handler must not end the thread
                # Nothing is reported before the next success: it would be the next thing to fail.
                with self._changed:
                    self._drop(len(items))
            else:
                self._tell_dropped()

    def _take(self) -> list[T]:
        """Wait for the next items; none = it has ended."""
        with self._changed:
            self._is_working = False
            self._changed.notify_all()
            while not self._waiting:
                if self._is_ended:
                    return []
                self._changed.wait()
            self._is_working = True
            items: list[T] = []
            total = 0
            while self._waiting and (not items or total + self._waiting[0][1] <= self._chunk_bytes):
                item, size = self._waiting.popleft()
                items.append(item)
                total += size
            self._bytes -= total
            return items

    def _tell_dropped(self) -> None:
        with self._changed:
            has_room = (
                self._bytes <= self._max_bytes * _ROOM_AGAIN
                and len(self._waiting) <= self._max_items * _ROOM_AGAIN
            )
            if not self._unlogged or not has_room:
                return
            count, self._unlogged = self._unlogged, 0
            seconds = time.monotonic() - self._dropping_since
        self._tell(count, seconds)


class BackgroundOutput(io.TextIOBase):
    """A text stream whose ``write`` returns at once; safe in all threads.

    Args:
        target: the stream that is stood in for; its descriptor is used if it has one.
        max_messages: bound of their number; one call of ``write`` with whole lines is one.
    """

    def __init__(
        self, target: TextIO, *, max_bytes: int = MAX_BYTES, max_messages: int = MAX_ITEMS
    ) -> None:
        self._target = target
        write_out = _writer_of(target)
        self._queue = BackgroundQueue[bytes](
            "output",
            lambda chunks: write_out(b"".join(chunks)),
            self._tell_dropped,
            max_bytes=max_bytes,
            max_items=max_messages,
        )
        self._unfinished = ""
        self._writing = threading.RLock()  # guards the line; the collector may log in here

    @property
    def dropped(self) -> int:
        """Messages that found no room since the start."""
        return self._queue.dropped

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Of the target."""
        return self._target.encoding or "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override, mutable-override]
        """What cannot be encoded is shown as an escape."""
        return "backslashreplace"

    def isatty(self) -> bool:
        """Whether a terminal shows what is written."""
        return self._target.isatty()

    def fileno(self) -> int:
        """Of the target; writing there may block."""
        return self._target.fileno()

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Take a text; a line without its end waits for it or for :meth:`flush`."""
        with self._writing:
            whole, end, rest = (self._unfinished + text).rpartition("\n")
            self._unfinished = rest
            if end:
                self._put(whole + end)
            if len(rest) > _LONGEST_LINE:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """Hand over an unfinished line; waits for nothing."""
        with self._writing:
            text, self._unfinished = self._unfinished, ""
            if text:
                self._put(text)

    def end(self, timeout_s: float = DRAIN_S) -> bool:
        """Wait until all is written or the timeout is over; later messages are ignored.

        Returns:
            False when messages are left, which are lost if the process ends now.
        """
        self.flush()
        return self._queue.end(timeout_s)

    def _put(self, text: str) -> None:
        data = text.encode(self.encoding, self.errors)
        self._queue.put(data, len(data))

    def _tell_dropped(self, count: int, seconds: float) -> None:
        name = str(getattr(self._target, "name", "the stream")).strip("<>")
        _log.warning(_DROPPED, count, seconds, name, extra={"count": count})


def _writer_of(target: TextIO) -> Callable[[bytes], None]:
    """What writes bytes to where a stream goes, waiting as long as it takes."""
    try:
        number = target.fileno()
    except (OSError, ValueError):  # it stands for a buffer
        return lambda data: _write_text(target, data)
    return lambda data: _write_all(number, data)


def _write_text(target: TextIO, data: bytes) -> None:
    target.write(data.decode(target.encoding or "utf-8"))
    target.flush()


def _write_all(number: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest.nbytes:
        try:
            rest = rest[os.write(number, rest) :]
        except BlockingIOError:  # another process that shares it made it non-blocking
            select.select([], [number], [])


class BackgroundHandler(logging.handlers.QueueHandler):
    """Wraps a handler that may block.

    Args:
        target: called in a thread of its own, in the order of the records.
    """

    def __init__(
        self, target: logging.Handler, *, max_bytes: int = MAX_BYTES, max_messages: int = MAX_ITEMS
    ) -> None:
        super().__init__(None)  # type: ignore[arg-type] # enqueue() knows another one
        target.handleError = _refuse  # type: ignore[method-assign] # a full disk counts as dropped
        self.setLevel(target.level)
        self._target = target
        self.waiting = BackgroundQueue[logging.LogRecord](
            "log-handler",
            self._handle_all,
            self._tell_dropped,
            max_bytes=max_bytes,
            max_items=max_messages,
            chunk_bytes=0,  # an error costs one record
        )

    def enqueue(self, record: logging.LogRecord) -> None:
        """Take a record whose text is made already."""
        self.waiting.put(record, len(record.getMessage()))

    def _handle_all(self, records: Sequence[logging.LogRecord]) -> None:
        for record in records:
            self._target.handle(record)

    def _tell_dropped(self, count: int, seconds: float) -> None:
        name = self._target.name or type(self._target).__name__
        _log.warning(_DROPPED, count, seconds, name, extra={"count": count})


def _refuse(record: logging.LogRecord) -> None:  # noqa: ARG001 - as the method that it replaces
    """In the place of ``Handler.handleError``, which prints a traceback and forgets the record."""
    raise  # noqa: PLE0704 - called while the error is handled


def unblock_handlers() -> None:
    """Put a :class:`BackgroundHandler` before every handler of every logger that may wait."""
    made: dict[logging.Handler, BackgroundHandler] = {}
    for logger in _loggers():
        for place, handler in enumerate(logger.handlers):
            if not _is_quick(handler):
                logger.handlers[place] = made.setdefault(handler, BackgroundHandler(handler))


def _is_quick(handler: logging.Handler) -> bool:
    stream = getattr(handler, "stream", None)
    return isinstance(handler, logging.handlers.QueueHandler | logging.NullHandler) or isinstance(
        stream, BackgroundOutput
    )


def _loggers() -> Iterator[logging.Logger]:
    yield logging.getLogger()
    for logger in list(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger


def dropped_messages() -> int:
    """How many log messages found no room since the start, in all streams and handlers."""
    streams = [one for one in (sys.stderr, sys.stdout) if isinstance(one, BackgroundOutput)]
    handlers = _background_handlers()
    return sum(one.dropped for one in streams) + sum(one.waiting.dropped for one in handlers)


def _background_handlers() -> set[BackgroundHandler]:
    found = (handler for logger in _loggers() for handler in logger.handlers)
    return {handler for handler in found if isinstance(handler, BackgroundHandler)}


@contextlib.contextmanager
def background_output() -> Iterator[None]:
    """Replace ``sys.stderr`` and ``sys.stdout`` inside the block.

    At its end what waits is written, for :data:`DRAIN_S` at most. A stream that takes nothing stays
    replaced, and a handler that takes nothing is not closed, so that the end of the process waits
    for neither.
    """
    before = sys.stderr, sys.stdout
    errors, output = BackgroundOutput(sys.stderr), BackgroundOutput(sys.stdout)
    sys.stderr, sys.stdout = cast("TextIO", errors), cast("TextIO", output)
    try:
        yield
    finally:
        until = time.monotonic() + DRAIN_S
        for handler in _background_handlers():
            if not handler.waiting.end(max(0.0, until - time.monotonic())):
                atexit.unregister(logging.shutdown)
        if errors.end(max(0.0, until - time.monotonic())):
            sys.stderr = before[0]
        if output.end(max(0.0, until - time.monotonic())):
            sys.stdout = before[1]
