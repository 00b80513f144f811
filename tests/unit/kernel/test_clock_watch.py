"""What is logged of a wrong clock."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kcl_mld.kernel.clock_watch import REPEAT_S, ClockWatch
from tests.fakes.clock import LoopClock
from tests.sim.loop import run


@pytest.fixture(autouse=True)
def _every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def watched(*steps: tuple[float | None, float]) -> None:
    """Watch a clock that is ahead by so many seconds, for so many seconds each."""

    async def main() -> None:
        clock = LoopClock()
        task = asyncio.create_task(ClockWatch(clock).run())
        for clock.ahead, for_s in steps:
            await asyncio.sleep(for_s)
        task.cancel()

    run(main())


def test_a_clock_that_is_right_or_not_known_is_not_mentioned(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched((None, 100), (0.0, 100), (60.0, 100), (-60.0, 100))
    assert caplog.messages == []


def test_a_wrong_clock_is_a_warning_each_hour_and_when_it_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched((-300.0, 100), (-310.0, REPEAT_S), (1200.0, 100), (None, 100), (0.0, 100))
    said = [(one.levelname, one.message.partition(". Set")[0]) for one in caplog.records]
    assert said == [
        ("WARNING", "The clock of this machine is 300 s behind AWS"),
        ("WARNING", "The clock of this machine is 310 s behind AWS"),
        ("WARNING", "The clock of this machine is 1200 s ahead of AWS"),
        ("INFO", "The clock of this machine is right again"),
    ]
