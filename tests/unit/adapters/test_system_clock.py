"""The machine's clocks and ids."""

from __future__ import annotations

import time
import uuid

from mld.adapters.system import RandomIds, SystemClock


def test_ages_are_measured_by_the_clock_that_counts_suspension_too() -> None:
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_wall_clock_counts_epoch_seconds() -> None:
    before = time.time()
    assert before <= SystemClock().wall() <= time.time()


def test_ids_are_uuids_and_differ() -> None:
    ids = RandomIds()
    first, second = ids.new_id(), ids.new_id()
    assert first != second
    assert str(uuid.UUID(first)) == first
