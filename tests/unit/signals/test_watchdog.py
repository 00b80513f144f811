"""Whether the loop lives, and how late it is."""

from __future__ import annotations

import asyncio

from kcl_mld.signals.model.metrics import LOOP_LATENESS
from kcl_mld.signals.watchdog import LoopWatchdog
from tests.sim.loop import run
from tests.unit.children.consumer_world import RecordedMetrics


class Clock:
    """The loop's, and more where it was blocked."""

    blocked_s = 0.0

    def monotonic(self):
        return asyncio.get_running_loop().time() + self.blocked_s


def test_the_loop_is_alive_before_it_is_watched_and_while_it_ticks(caplog):
    async def main():
        clock, metrics = Clock(), RecordedMetrics()
        watchdog = LoopWatchdog(clock, metrics)
        await asyncio.sleep(60)  # a start that is throttled
        assert watchdog.is_alive()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(watchdog.run())
            await asyncio.sleep(60)
            assert watchdog.is_alive()
            assert metrics.data == []
            clock.blocked_s = 7.0
            assert not watchdog.is_alive()
            await asyncio.sleep(1)
            assert watchdog.is_alive()
            ((metric, value, *_),) = metrics.data
            assert (metric, round(value)) == (LOOP_LATENESS, 7)
            running.cancel()
        await asyncio.sleep(6)
        assert not watchdog.is_alive()

    run(main())
    assert "The event loop was blocked for 7" in caplog.text
