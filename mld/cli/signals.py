"""What a signal means to a running worker.

SIGTERM, SIGINT and SIGHUP stop it gracefully; a second SIGTERM or SIGINT stops it now. A second
SIGHUP does not: a terminal that closes and systemd's ``SendSIGHUP`` send one on top of what was
sent before. SIGQUIT says what the worker is doing, as in a JVM. SIGUSR1 and SIGUSR2 would end a
process that doesn't know them, so they are received and mean nothing. Once the outcome is known all
of them are ignored until the process has ended: nothing of what follows waits for long.

At SIGQUIT the stacks of tasks and threads are logged. Tasks are looked at in the loop. Threads are
dumped by ``faulthandler`` inside the signal's handler, so that it works while the loop hangs; it
writes into a pipe that never blocks, and a thread passes the text on.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import logging
import os
import select
import signal
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mld.adapters.children.pipes import enlarge_pipe
from mld.errors import ThreadRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mld.app import Worker

log = logging.getLogger(__name__)

#: So many names of tasks with one stack are shown.
_NAMES = 8
#: The handler writes a dump in small pieces; after so long without another one it is complete.
_QUIET_S = 0.2
_ROOT = str(Path(__file__).resolve().parents[2]) + os.sep

_FORCING = (signal.SIGTERM, signal.SIGINT)
_MEANINGLESS = (signal.SIGUSR1, signal.SIGUSR2)


def task_stacks(tasks: set[asyncio.Task[Any]]) -> str:
    """Where tasks wait, the innermost call last; tasks that wait at one place are told together."""
    places: dict[tuple[str, ...], list[str]] = {}
    for task in tasks:
        places.setdefault(tuple(_awaited(task.get_coro())), []).append(task.get_name())
    text = [f"{len(tasks)} tasks"]
    for place, names in sorted(places.items(), key=lambda item: sorted(item[1])):
        shown = ", ".join(sorted(names)[:_NAMES])
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        text += [f"task {shown}{more}:", *(f"  {call}" for call in place)]
    return "\n".join(text)


def _awaited(awaitable: Any) -> Iterator[str]:
    """The calls from a coroutine down to what it waits for."""
    while awaitable is not None:
        frame = next(
            (f for name in ("cr", "gi", "ag") if (f := getattr(awaitable, f"{name}_frame", None))),
            None,
        )
        if frame is None:
            return
        code = frame.f_code
        yield f"{code.co_filename.removeprefix(_ROOT)}:{frame.f_lineno} {code.co_qualname}"
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)


@contextlib.contextmanager
def thread_stacks_on(number: int, tell: Callable[[str], None]) -> Iterator[None]:
    """Inside the block a signal has the stacks of all threads told; its handler is called as well.

    Args:
        number: of the signal; a handler of the loop must be there already.
        tell: called in a thread with the text.

    Raises:
        ThreadRefused: there can be no such thread.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    enlarge_pipe(writing)
    thread = threading.Thread(target=_read_dumps, args=(reading, tell), name="dump", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        os.close(reading)
        os.close(writing)
        raise ThreadRefused(thread.name) from error
    faulthandler.register(number, file=writing, all_threads=True, chain=True)
    try:
        yield
    finally:
        faulthandler.unregister(number)
        os.close(writing)
        thread.join()


def _read_dumps(reading: int, tell: Callable[[str], None]) -> None:
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        while text := pipe.read(2**16):
            while select.select([pipe], [], [], _QUIET_S)[0] and (more := pipe.read(2**16)):
                text += more
            tell(_with_names(text.decode("utf-8", "replace").rstrip()))


def _with_names(text: str) -> str:
    """The dump has numbers; people know names."""
    for thread in threading.enumerate():
        text = text.replace(f"hread 0x{thread.ident or 0:016x}", f"hread {thread.name}")
    return text.replace(_ROOT, "")


@contextlib.contextmanager
def handled_signals(worker: Worker) -> Iterator[list[int]]:
    """Handle signals in the running loop inside the block, and ignore them for good behind it.

    Yields:
        The numbers of the signals that asked for a stop, filled as they come.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []
    handlers = {
        **{number: partial(_stop, worker, received, number) for number in _stopping()},
        **{number: partial(_ignore, number) for number in _MEANINGLESS},
        signal.SIGQUIT: partial(_dump, worker),
    }
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        with thread_stacks_on(signal.SIGQUIT, partial(log.info, "Threads at SIGQUIT:\n%s")):
            yield received
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)
            # A second Ctrl-C would else end the interpreter's end, with another exit code.
            signal.signal(number, signal.SIG_IGN)


def _stopping() -> Iterator[signal.Signals]:
    yield from _FORCING
    # nohup starts programs with SIGHUP ignored, and means it.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        yield signal.SIGHUP


def _stop(worker: Worker, received: list[int], number: signal.Signals) -> None:
    is_urgent = number in _FORCING and any(before in _FORCING for before in received)
    received.append(number)
    if is_urgent:
        log.warning("%s received again, stopping now", number.name)
        worker.scheduler.stop_now()
    elif len(received) == 1:
        log.info("%s received, stopping", number.name)
        worker.scheduler.stop()
    else:
        log.info("%s received, the worker is already stopping", number.name)


def _ignore(number: signal.Signals) -> None:
    log.info("%s received and ignored; SIGQUIT logs the state of the worker", number.name)


def _dump(worker: Worker) -> None:
    state = worker.status() | {"readiness": worker.readiness().as_dict()}
    log.info("State at SIGQUIT:\n%s", json.dumps(state, indent=1, default=str))
    log.info("Tasks at SIGQUIT:\n%s", task_stacks(asyncio.all_tasks()))
