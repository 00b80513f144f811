"""Logs the state of the worker once a minute."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kcl_mld.observe.rules.summary import summary
from kcl_mld.signals.model.metrics import LOG_MESSAGES_DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.children.consuming.consumer_parts import Tally
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.observe.rules.readiness import WorkerSnapshot
    from kcl_mld.signals.ports import Metrics

log = logging.getLogger("mld.observe")

INTERVAL_S = 60.0


class SummaryLog:
    """One INFO line in a minute while the worker runs.

    Args:
        metrics: counts dropped log messages, which the log can't report while nobody reads it.
        dropped_messages: since the start.
        resident_bytes: memory of a process by its id; None where it is not known.
    """

    def __init__(
        self,
        clock: Clock,
        metrics: Metrics,
        tally: Tally,
        dropped_messages: Callable[[], int],
        resident_bytes: Callable[[int], int | None],
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._dropped_messages = dropped_messages
        self._resident_bytes = resident_bytes
        self._tally = tally

    async def run(self, snapshot: Callable[[], WorkerSnapshot]) -> None:
        """Write until cancelled; nothing once the worker stops.

        Args:
            snapshot: the worker as it is when called.
        """
        while True:
            began = self._clock.monotonic()
            records, restarts = self._tally.records, self._tally.restarts
            dropped = self._dropped_messages()
            await asyncio.sleep(INTERVAL_S)
            worker = snapshot()
            if worker.state != "running":
                return
            text = summary(
                worker,
                records=self._tally.records - records,
                restarts=self._tally.restarts - restarts,
                interval_s=self._clock.monotonic() - began,
                child_sizes=self._child_sizes(worker),
            )
            log.info("%s", text)
            if lost := self._dropped_messages() - dropped:
                self._metrics.add(LOG_MESSAGES_DROPPED, lost)

    def _child_sizes(self, worker: WorkerSnapshot) -> list[int]:
        pids = [pid for shard in worker.shards for pid in shard.pids]
        return [size for size in map(self._resident_bytes, pids) if size is not None]
