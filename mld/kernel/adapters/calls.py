"""All threads start here: blocking work runs in named daemon threads, most of it in small pools.

Each pool is a bulkhead: a pool whose calls all hang delays nothing outside of it. The standard
library's executor is not used because it joins its threads when the interpreter exits, so that one
hanging Kinesis call would keep a finished daemon alive for its read timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kcl_mld.errors import ThreadRefused

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

#: Virtual size of a thread's stack. botocore, TLS and msgspec were seen to fit in half of it;
#: untouched pages cost nothing, and musl's default of 128 KiB is too small.
STACK_BYTES = 1 << 20

#: A result that the loop receives this soon shows that there is enough processor time.
PROMPT_S = 0.02
#: A measured delay is forgotten after this time without another result.
RECENT_S = 2.0
#: Minimum number of concurrent calls, however little processor time there is.
FEWEST_CALLS = 2

_starting = threading.Lock()


def start_thread(work: Callable[[], None], name: str) -> None:
    """Run something in a daemon thread of its own; nothing waits for it.

    Args:
        work: raises nothing.
        name: shown in thread names and in /proc.

    Raises:
        ThreadRefused: the system allows no more threads.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    with _starting:  # the stack size is a setting of the whole process
        before = threading.stack_size(STACK_BYTES)
        try:
            thread.start()
        except RuntimeError as error:
            raise ThreadRefused(name) from error
        finally:
            threading.stack_size(before)


def calls_at_once(threads: int, delay_s: float) -> int:
    """How many calls a pool makes at the same time while results of a more urgent one are late.

    Args:
        threads: of the pool; the result while nothing is late.
        delay_s: how late the results are.
    """
    if delay_s <= PROMPT_S:
        return threads
    return min(threads, max(FEWEST_CALLS, int(threads * PROMPT_S / delay_s)))


class PoolClosed(RuntimeError):
    """Work was submitted to a pool after its end; it was not started."""


class _Outcomes:
    """Results on their way to one loop, which is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._ready: deque[tuple[_Job, object, BaseException | None]] = deque()
        self._is_woken = False
        self._woken_at = self._taken_at = 0.0
        self._delay_s = 0.0

    @property
    def delay_s(self) -> float:
        """The longest recent delay of a result before the loop, halved with each later result."""
        is_recent = time.monotonic() - self._taken_at < RECENT_S
        return self._delay_s if is_recent else 0.0

    def tell(self, job: _Job, result: object, error: BaseException | None) -> None:
        """From any thread: pass the result of a job to the loop."""
        self._ready.append((job, result, error))
        if not self._is_woken:
            self._is_woken, self._woken_at = True, time.monotonic()
            # The loop may be closed by then; the result is then no longer needed.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        # Before looking: what is added from now on wakes the loop again.
        self._is_woken = False
        self._taken_at = time.monotonic()
        self._delay_s = max(self._taken_at - self._woken_at, self._delay_s / 2)
        for _ in range(len(self._ready)):
            job, result, error = self._ready.popleft()
            job.settle(result, error)


class _Job:
    """One piece of work on its way through a pool."""

    __slots__ = ("args", "future", "kwargs", "outcomes", "work")

    def __init__(
        self,
        outcomes: _Outcomes,
        work: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.outcomes = outcomes
        self.future: asyncio.Future[Any] = outcomes.loop.create_future()
        self.work = work
        self.args = args
        self.kwargs = kwargs

    def execute(self) -> tuple[object, BaseException | None]:
        """Run it unless its caller was cancelled; returns the result or the error."""
        if self.future.cancelled():
            return None, None
        try:
            return self.work(*self.args, **self.kwargs), None
        except BaseException as error:  # noqa: BLE001 - it belongs to the task that awaits the result
            return None, error

    def settle(self, result: object, error: BaseException | None) -> None:
        """In the loop: pass the result to the awaiting task."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        elif isinstance(error, StopIteration):  # a future refuses it
            self.future.set_exception(RuntimeError(f"work raised {error!r}"))
        else:
            self.future.set_exception(error)


class _Worker:
    """Where one thread of a pool waits for its next job."""

    __slots__ = ("_job", "_wake")

    def __init__(self, job: _Job) -> None:
        self._wake = threading.Lock()
        self._job: _Job | None = job

    def give(self, job: _Job | None) -> None:
        """Wake the thread; None tells it to end. Only when its last job was taken."""
        self._job = job
        self._wake.release()

    def take(self) -> _Job | None:
        """Wait for a job."""
        self._wake.acquire()
        job, self._job = self._job, None
        return job


class CallPool:
    """At most ``threads`` blocking calls at a time; further ones wait in order of arrival.

    Where the system refuses another thread, those that there are do all the work.
    Threads start when they are needed, are called ``<name>-<n>`` and are daemon threads: neither
    :meth:`close` nor the exit of the interpreter waits for a call that hangs. Of several idle
    threads the one that worked last is woken: its memory is warm, and the others sleep on.
    Satisfies the port :class:`kcl_mld.kernel.ports.Offload`.

    Args:
        name: shown in thread names and in /proc.
        threads: upper bound, >= 1.
        yields_to: while outcomes of that pool wait for the loop, because the processor has too much
            to do, fewer calls are made at a time here.
    """

    def __init__(self, name: str, threads: int, yields_to: CallPool | None = None) -> None:
        if threads < 1:
            raise ValueError(f"pool {name}: needs at least one thread, not {threads}")
        self.name = name
        self.threads = threads
        self._yields_to = yields_to
        self._outcomes: _Outcomes | None = None
        self._lock = threading.Lock()  # guards everything below
        self._jobs: deque[_Job] = deque()
        self._idle: list[_Worker] = []
        self._started = 0
        self._closed = False

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Result of ``work(*args, **kwargs)``, run in a thread of this pool.

        Raises:
            PoolClosed: :meth:`close` came first.
            ThreadRefused: the pool has no thread at all yet, and gets none.
            BaseException: whatever the work raises.

        Cancellation: work that still waits for a thread is never started. Work under way goes on
        and keeps its place until it returns; its result is dropped. A caller that must know the outcome
        (a write) shields this call and awaits it.
        """
        loop = asyncio.get_running_loop()
        if self._outcomes is None or self._outcomes.loop is not loop:
            self._outcomes = _Outcomes(loop)
        job = _Job(self._outcomes, work, args, kwargs)
        with self._lock:
            if self._closed:
                raise PoolClosed(f"pool {self.name} is closed")
            self._jobs.append(job)
            self._hand_to_threads()
        result: R = await job.future
        return result

    @property
    def delay_s(self) -> float:
        """How long results recently waited for the loop."""
        return 0.0 if self._outcomes is None else self._outcomes.delay_s

    def close(self) -> None:
        """Refuse further work; queued work is still done, running calls are not awaited."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().give(None)

    def _hand_to_threads(self) -> None:
        """Wake or start threads for queued work, up to the current limit."""
        while self._jobs and self._started - len(self._idle) < self._most_at_work():
            if self._idle:
                self._idle.pop().give(self._jobs.popleft())
            elif not self._start_thread():
                return

    def _most_at_work(self) -> int:
        delay_s = 0.0 if self._yields_to is None else self._yields_to.delay_s
        return calls_at_once(self.threads, delay_s)

    def _start_thread(self) -> bool:
        """Start another thread for the oldest job; False when only existing threads can run it."""
        job = self._jobs.popleft()
        worker = _Worker(job)
        try:
            start_thread(partial(self._serve, worker), f"{self.name}-{self._started}")
        except ThreadRefused:
            if not self._started:
                raise
            self._jobs.appendleft(job)
            return False
        self._started += 1
        return True

    def _serve(self, worker: _Worker) -> None:
        while (job := worker.take()) is not None:
            result, error = job.execute()
            # First, so that the receiver of the result finds this thread idle.
            with self._lock:
                if self._jobs and self._started - len(self._idle) <= self._most_at_work():
                    worker.give(self._jobs.popleft())
                    self._hand_to_threads()
                elif self._closed:
                    self._started -= 1
                    worker.give(None)
                else:
                    self._idle.append(worker)
            job.outcomes.tell(job, result, error)
            del job, result, error  # an idle thread must not keep the last answer alive
