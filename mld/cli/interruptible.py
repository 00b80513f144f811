"""Work that withdraws its requests before a signal ends its process."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

#: Ctrl-C, a stop by a supervisor, a terminal that was closed.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def run_interruptible(
    work: Coroutine[Any, Any, None], interrupt: Callable[[], None], shield_s: float
) -> int | None:
    """Run to the end, or until a signal; signals that the starter ignores stay ignored.

    Args:
        interrupt: called at the first signal, after which ``work`` has to end.
        shield_s: seconds that it has from then on; a second signal ends them.

    Returns:
        The first signal; None = there was none.

    Raises:
        BaseException: of ``work``.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []
    first, second = asyncio.Event(), asyncio.Event()

    def receive(number: int) -> None:
        (second if received else first).set()
        received.append(number)

    heard = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, receive, number)
    working = loop.create_task(work)
    waits = [loop.create_task(event.wait()) for event in (first, second)]
    try:
        await asyncio.wait({working, waits[0]}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            interrupt()
            await asyncio.wait(
                {working, waits[1]}, timeout=shield_s, return_when=asyncio.FIRST_COMPLETED
            )
        if working.done():
            await working
    finally:
        for wait in waits:
            wait.cancel()
        for number in heard:
            loop.remove_signal_handler(number)
    return received[0] if received else None
