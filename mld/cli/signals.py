"""What a signal means to a running worker.

SIGTERM, SIGINT and SIGHUP stop it gracefully; a second SIGTERM or SIGINT stops it now. A second
SIGHUP does not: a terminal that closes and systemd's ``SendSIGHUP`` send one on top of what was
sent before. SIGQUIT says what the worker is doing, as in a JVM. SIGUSR1 and SIGUSR2 would end a
process that doesn't know them, so they are received and mean nothing. Once the outcome is known all
of them are ignored until the process has ended: nothing of what follows waits for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from functools import partial
from typing import TYPE_CHECKING

from mld.adapters.output.state_dump import task_stacks, thread_stacks_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.app import Worker

log = logging.getLogger(__name__)

_FORCING = (signal.SIGTERM, signal.SIGINT)
_MEANINGLESS = (signal.SIGUSR1, signal.SIGUSR2)


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
