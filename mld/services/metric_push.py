"""Sends metrics somewhere at regular intervals; a failure loses nothing but time."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mld.decide.metric_readings import FamilyValues
    from mld.ports.metrics import MetricSender

log = logging.getLogger(__name__)


class MetricPush:
    """One per worker.

    Args:
        sender: where to, and how often.
        read: all metrics now.
    """

    def __init__(self, sender: MetricSender, read: Callable[[], Sequence[FamilyValues]]) -> None:
        self._sender = sender
        self._read = read

    async def run(self) -> None:
        """Send until cancelled; the last values are for :meth:`close`."""
        while True:
            await asyncio.sleep(self._sender.interval_s)
            await self._send()

    async def close(self, timeout_s: float) -> None:
        """Send a last time.

        Args:
            timeout_s: what can't be sent within it is lost.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._send()
        except TimeoutError:
            log.warning("The last metrics were not sent: no answer in %g s", timeout_s)

    async def _send(self) -> None:
        try:
            await self._sender.send(self._read())
        except Exception:
            # Metrics must not end the worker; what the exporter met it has logged by itself.
            log.exception("Sending metrics failed unexpectedly")
