"""A bounded queue with a thread that works it off, for whoever must never wait.

What finds no room is dropped, counted, and told as soon as there is room again.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")

#: What may wait. A log line of our own has some 200 bytes, one of a child up to 8 KiB.
MAX_BYTES = 4 * 2**20
MAX_ITEMS = 20_000
#: Most that is worked off at once.
_CHUNK_BYTES = 2**16
#: Losses are told once no more than this part of the room is taken.
_ROOM_AGAIN = 0.5


class BackgroundQueue(Generic[T]):
    """Items wait here for a daemon thread; safe in all threads.

    Args:
        name: of the thread, which starts with the first item.
        work: called in the thread with the next items; an error counts them as dropped.
        tell: called in the thread with the number of dropped items and for how many seconds.
        max_bytes: bound of what waits; one larger item is taken when nothing else waits.
        max_items: bound of their number.
        chunk_bytes: most that is worked off at once; 0 = one item at a time.
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
        self._untold = 0
        self._dropping_since = 0.0
        self.dropped = 0  #: since the start

    def put(self, item: T, size: int) -> None:
        """Take an item, or drop it; returns at once.

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
        """Wait until all is worked off, but no longer than this; the thread ends afterwards.

        Returns:
            False when something is left, which is lost if the process ends now.
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
        if not self._untold:
            self._dropping_since = time.monotonic()
        self._untold += count
        self.dropped += count

    def _run(self) -> None:
        while items := self._take():
            try:
                self._work(items)
            except Exception:  # noqa: BLE001 - a faulty handler must not end the thread
                # Nothing is told before the next success: it would be the next thing to fail.
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
            if not self._untold or not has_room:
                return
            count, self._untold = self._untold, 0
            seconds = time.monotonic() - self._dropping_since
        self._tell(count, seconds)
