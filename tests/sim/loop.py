"""An event loop in virtual time: nothing waits, everything happens in one order.

The selector never looks at a file: asked to wait, it moves the clock. Ready callbacks stay in the
order in which asyncio promises them; what differs between runs is what the ports draw. A loop with
nothing to do and nobody to wake it is a deadlock, and says so.

A process that stands still is one whose callbacks are held back: its tasks don't run and its timers
don't fire until it goes on, and then all that was due comes in the order in which it fell due.

Tasks have hashes of their own, counted from 0, because ``asyncio.TaskGroup`` keeps tasks in a set
and cancels them in its order: with the default hash that would be the order of memory addresses.
"""

from __future__ import annotations

import asyncio
import heapq
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine

#: Whose tasks are being created: a node, or None for the world itself.
OWNER: ContextVar[TaskOwner | None] = ContextVar("OWNER", default=None)
#: For callbacks that happen whether the process that began them stands still or not.
WORLD = Context()

#: What one pass of the loop takes at least: a program that asks again and again whether a moment has
#: come would otherwise never see it come.
STEP_S = 1e-6
#: Timers that are due within this time of each other fire together, as in asyncio.
RESOLUTION_S = 1e-9
#: No pass is longer, as in asyncio.
LONGEST_S = 24 * 3600.0
#: So many timers are searched for cancelled ones when these are the greater part.
MANY = 100


class Stalled(RuntimeError):
    """Every task waits for something that nobody will ever do."""


class TaskOwner:
    """A process: remembers the tasks that were started on its behalf, oldest first.

    Attributes:
        held_back: what is due since it was stopped; None while it runs.
    """

    def __init__(self) -> None:
        self.tasks: dict[SimTask, None] = {}
        self.held_back: list[asyncio.Handle] | None = None

    @property
    def frozen(self) -> bool:
        """Whether the process stands still (SIGSTOP, a long pause of the garbage collector)."""
        return self.held_back is not None

    def freeze(self) -> None:
        """Nothing of it runs until :meth:`thaw`, not even its timers."""
        if self.held_back is None:
            self.held_back = []

    def thaw(self) -> None:
        """Go on with everything that fell due meanwhile."""
        due, self.held_back = self.held_back, None
        if due:
            loop: Any = asyncio.get_running_loop()
            loop._ready.extend(due)

    def running(self) -> list[SimTask]:
        """Tasks that have not ended."""
        return [task for task in self.tasks if not task.done()]


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    def __init__(self, number: int, *args: Any, **kwargs: Any) -> None:
        self.number = number
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self.number


class _Handle(asyncio.Handle):
    """The same without what only asyncio's debug mode needs: a run makes tens of thousands."""

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = None
        self._source_traceback = None


class _Timer(asyncio.TimerHandle):
    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: asyncio.AbstractEventLoop,
        context: Context | None,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = True

    # Of two timers with the same moment neither is the lesser.
    __eq__ = object.__eq__
    __hash__ = object.__hash__


class SimLoop(asyncio.SelectorEventLoop):
    """See the module. Starts at 0 seconds."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._task_count = 0
        #: What nobody caught: contexts of ``call_exception_handler``.
        self.uncaught: list[dict[str, Any]] = []
        super().__init__()
        #: Pairs of moment and timer: compared without a call of Python's own.
        self._scheduled: list[tuple[float, _Timer]] = []
        self.set_task_factory(self._new_task)
        self.set_exception_handler(lambda _loop, context: self.uncaught.append(context))

    def time(self) -> float:
        return self._now_s

    def call_soon(
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, timer))
        return timer

    def _run_once(self) -> None:
        """Pass after pass until the loop is to stop; each as ``asyncio.BaseEventLoop`` makes it."""
        ready: deque[asyncio.Handle] = self._ready
        is_over = False
        while not is_over:
            self._advance(ready, self._scheduled)
            for _handle in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                context: Context = handle._context
                owner = context.get(OWNER)
                if owner is not None and owner.held_back is not None:
                    owner.held_back.append(handle)  # its process stands still
                    continue
                try:
                    context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - as asyncio does
                    self._failed(handle, error)
            is_over = self._stopping

    def _advance(self, ready: deque[asyncio.Handle], scheduled: list[tuple[float, _Timer]]) -> None:
        """Let time pass until something is ready."""
        if scheduled and (scheduled[0][1]._cancelled or len(scheduled) > MANY):
            self._forget_cancelled()
        if ready or self._stopping:
            self._now_s += STEP_S
        elif scheduled:
            self._now_s += max(min(scheduled[0][0] - self._now_s, LONGEST_S), STEP_S)
        else:
            raise Stalled("nothing is ready and no timer is set")
        until = self._now_s + RESOLUTION_S
        while scheduled and scheduled[0][0] < until:
            timer = heapq.heappop(scheduled)[1]
            timer._scheduled = False
            ready.append(timer)

    def _failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        message = f"Exception in callback {handle!r}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _forget_cancelled(self) -> None:
        """Drop cancelled timers, those in front, or all when they are the greater part."""
        scheduled = self._scheduled
        cancelled: int = self._timer_cancelled_count
        if len(scheduled) > MANY and cancelled * 2 > len(scheduled):
            for _when, timer in scheduled:
                timer._scheduled = not timer._cancelled
            scheduled[:] = [entry for entry in scheduled if not entry[1]._cancelled]
            heapq.heapify(scheduled)
            self._timer_cancelled_count = 0
            return
        while scheduled and scheduled[0][1]._cancelled:
            heapq.heappop(scheduled)[1]._scheduled = False
            self._timer_cancelled_count -= 1

    def run_in_executor(self, *_args: Any) -> Any:
        raise RuntimeError("a simulation has no threads: go through the Offload port")

    def call_soon_threadsafe(self, *_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("a simulation has no threads")

    def _new_task(
        self, _loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any
    ) -> SimTask:
        self._task_count += 1
        task = SimTask(self._task_count, coro, loop=self, **kwargs)
        context = kwargs.get("context")
        owner = OWNER.get() if context is None else context.get(OWNER)
        if owner is not None:
            owner.tasks[task] = None
            task.add_done_callback(lambda done: owner.tasks.pop(done, None))  # type: ignore[call-overload]
        return task


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in a loop of its own and throw away whatever it left behind.

    Raises:
        Stalled: nothing could go on before ``main`` ended.
    """
    loop = SimLoop()
    task = loop.create_task(main)
    try:
        return loop.run_until_complete(task)
    finally:
        _discard_all(loop)
        loop.close()


def _discard_all(loop: SimLoop) -> None:
    """Cancel what is left, again and again for those that wait in a ``finally``."""
    for _round in range(20):
        left = sorted(asyncio.all_tasks(loop), key=hash)
        if not left:
            return
        for task in left:
            task.cancel()
        loop.run_until_complete(_pass(3))
    loop.uncaught.clear()


async def _pass(rounds: int) -> None:
    for _round in range(rounds):
        await asyncio.sleep(0)
