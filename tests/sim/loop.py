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
import selectors
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

#: Whose tasks are being created: a node, or None for the world itself.
OWNER: ContextVar[TaskOwner | None] = ContextVar("OWNER", default=None)
#: For callbacks that happen whether the process that began them stands still or not.
WORLD = Context()

#: What one pass of the loop takes at least: a program that asks again and again whether a moment has
#: come would otherwise never see it come.
STEP_S = 1e-6


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


def _run(self: Any) -> None:
    """Run a callback, or keep it while its process stands still."""
    owner = self._context.get(OWNER)
    if owner is not None and owner.held_back is not None:
        owner.held_back.append(self)
    else:
        _RUN(self)


_RUN: Callable[[asyncio.Handle], None] = asyncio.Handle._run  # type: ignore[attr-defined]


class _Handle(asyncio.Handle):
    __slots__ = ()
    _run = _run


class _Timer(asyncio.TimerHandle):
    __slots__ = ()
    _run = _run


class _VirtualSelector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stalled("nothing is ready and no timer is set")
        self.now_s += max(timeout, STEP_S)
        return []


class SimLoop(asyncio.SelectorEventLoop):
    """See the module. Starts at 0 seconds."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        self._task_count = 0
        #: What nobody caught: contexts of ``call_exception_handler``.
        self.uncaught: list[dict[str, Any]] = []
        super().__init__(self._virtual)
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]
        self.set_exception_handler(lambda _loop, context: self.uncaught.append(context))

    def time(self) -> float:
        return self._virtual.now_s

    def _call_soon(
        self, callback: Callable[..., Any], args: Any, context: Context | None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

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
