"""The machine's clocks and ids."""

from __future__ import annotations

import asyncio
import time
import uuid

from mld.adapters.system_clock import RandomIds, SystemClock


def test_the_monotonic_clock_is_the_one_that_the_loop_waits_by() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        assert before <= SystemClock().monotonic() <= loop.time()

    asyncio.run(scene())


def test_the_wall_clock_counts_epoch_seconds() -> None:
    before = time.time()
    assert before <= SystemClock().wall() <= time.time()


def test_ids_are_uuids_and_differ() -> None:
    ids = RandomIds()
    first, second = ids.new_id(), ids.new_id()
    assert first != second
    assert str(uuid.UUID(first)) == first
