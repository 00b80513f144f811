"""The only door to threads: blocking work runs in small named pools of daemon threads.

Each pool is a bulkhead: a pool whose calls all hang delays nothing outside of it. The standard
library's executor is not used because it joins its threads when the interpreter exits, so that one
hanging Kinesis call would keep a finished daemon alive for its read timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

#: Virtual size of a thread's stack. botocore, TLS and msgspec were seen to fit in half of it;
#: untouched pages cost nothing, and musl's default of 128 KiB is too small.
STACK_BYTES = 1 << 20

_starting = threading.Lock()


class PoolClosed(RuntimeError):
    """Work was handed to a pool after its end; nothing of it was started."""


class _Job:
    """One piece of work on its way through a pool."""

    __slots__ = ("args", "future", "kwargs", "loop", "work")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.loop = loop
        self.future: asyncio.Future[Any] = loop.create_future()
        self.work = work
        self.args = args
        self.kwargs = kwargs

    def execute(self) -> Callable[[], None]:
        """Do it, unless nobody waits any more; returns what tells the loop of the outcome."""
        if self.future.cancelled():
            return lambda: None
        try:
            result = self.work(*self.args, **self.kwargs)
        except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits the result
            return partial(self._report, self._fail, error)
        return partial(self._report, self._succeed, result)

    def _report(self, how: Callable[[Any], None], what: object) -> None:
        # The loop may be gone by then, and the result with it: nobody's loss.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(how, what)

    def _succeed(self, result: object) -> None:
        if not self.future.done():
            self.future.set_result(result)

    def _fail(self, error: BaseException) -> None:
        if not self.future.done():
            if isinstance(error, StopIteration):  # a future refuses it
                error = RuntimeError(f"work raised {error!r}")
            self.future.set_exception(error)


class CallPool:
    """At most ``threads`` blocking calls at a time; further ones wait in order of arrival.

    Threads start when they are needed, are called ``<name>-<n>`` and are daemon threads: neither
    :meth:`close` nor the exit of the interpreter waits for a call that hangs. Satisfies the port
    :class:`mld.ports.offload.Offload`.

    Args:
        name: shown in thread names and in /proc.
        threads: upper bound, >= 1.
    """

    def __init__(self, name: str, threads: int) -> None:
        if threads < 1:
            raise ValueError(f"pool {name}: needs at least one thread, not {threads}")
        self.name = name
        self.threads = threads
        self._changed = threading.Condition(threading.Lock())  # guards everything below
        self._jobs: deque[_Job] = deque()
        self._started = 0
        self._idle = 0
        self._closed = False

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Result of ``work(*args, **kwargs)``, run in a thread of this pool.

        Raises:
            PoolClosed: :meth:`close` came first.
            BaseException: whatever the work raises.

        Cancellation: work that still waits for a thread is never started. Work under way goes on
        and keeps its place until it returns; its result is dropped. Whoever must know the outcome
        (a write) shields this call and awaits it.
        """
        job = _Job(asyncio.get_running_loop(), work, args, kwargs)
        with self._changed:
            if self._closed:
                raise PoolClosed(f"pool {self.name} is closed")
            self._jobs.append(job)
            if len(self._jobs) > self._idle and self._started < self.threads:
                self._start_thread()
            else:
                self._changed.notify()
        result: R = await job.future
        return result

    def close(self) -> None:
        """Refuse further work; queued work is still done, calls under way are not waited for."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _start_thread(self) -> None:
        thread = threading.Thread(
            target=self._serve, name=f"{self.name}-{self._started}", daemon=True
        )
        with _starting:  # the stack size is a setting of the whole process
            before = threading.stack_size(STACK_BYTES)
            try:
                thread.start()
            finally:
                threading.stack_size(before)
        self._started += 1
        self._idle += 1

    def _serve(self) -> None:
        while (job := self._take()) is not None:
            report = job.execute()
            with self._changed:  # first, so that who hears of the result finds this thread idle
                self._idle += 1
            report()
            del job, report  # an idle thread must not keep the last answer alive

    def _take(self) -> _Job | None:
        """Wait for a job; None = the pool is closed and nothing is left to do."""
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return self._jobs.popleft() if self._jobs else None
