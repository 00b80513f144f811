"""Reports the worker's state to systemd: ``Type=notify`` and ``WatchdogSec=`` of a unit.

Source of the protocol: sd_notify(3) and sd_watchdog_enabled(3).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping

_log = logging.getLogger("mld.kernel")

_SOCKET, _USEC, _PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
#: Seconds between two checks of the worker's state.
_LOOK_S = 0.2


class SystemdNotify:
    """Sends notifications to systemd; does nothing without a supervisor."""

    def __init__(self, environ: MutableMapping[str, str], pid: int) -> None:
        """Remove the variables from the environment, because children must not notify.

        Args:
            environ: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``; malformed ones count
                as absent, as for systemd itself.
            pid: of this process.
        """
        address = environ.pop(_SOCKET, "")
        usec, of = environ.pop(_USEC, ""), environ.pop(_PID, "")
        self._address = address if address[:1] in {"/", "@"} else ""
        is_ours = not of or of == str(pid)
        #: Longest time between two watchdog messages that systemd accepts; None = no limit.
        self.watchdog_s = int(usec) / 1e6 if is_ours and usec.isdecimal() and int(usec) else None

    def send(self, text: str) -> None:
        """One message, e.g. ``READY=1``; a failure is logged."""
        if not self._address:
            return
        # An abstract address has a zero byte where the variable has an @.
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
                sock.settimeout(0)
                sock.sendto(text.encode(), address)
        except OSError as error:
            _log.warning("Could not send %s to systemd (%s): %s", text, self._address, error)

    async def run(self, state: Callable[[], str], is_alive: Callable[[], bool]) -> None:
        """Send READY, STOPPING and WATCHDOG until cancelled.

        Args:
            state: of the worker: ``starting``, ``running``, ``stopping`` or ``stopped``.
            is_alive: without it, no watchdog message is sent.
        """
        if not self._address:
            return
        loop = asyncio.get_running_loop()
        messages = {"running": "READY=1", "stopping": "STOPPING=1", "stopped": "STOPPING=1"}
        last, beat_at = "", loop.time()
        while True:
            message = messages.get(state(), last)
            if message != last:
                last = message
                self.send(message)
            if self.watchdog_s is not None and loop.time() >= beat_at and is_alive():
                self.send("WATCHDOG=1")
                beat_at = loop.time() + self.watchdog_s / 2
            await asyncio.sleep(
                _LOOK_S if self.watchdog_s is None else min(_LOOK_S, self.watchdog_s / 4)
            )
