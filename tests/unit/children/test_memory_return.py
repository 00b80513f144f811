"""When memory goes back to the system."""

import asyncio
import contextlib

from kcl_mld.retrieval.byte_budget import BURST_BYTES, TRIM_LOOK_S, ByteBudget, MemoryReturn
from tests.fakes.clock import FakeClock
from tests.sim.loop import SimLoop


def reserve(budget, size_bytes):
    return budget.share(is_awaited=lambda: True).spend(size_bytes)


def test_a_worker_that_never_had_much_returns_nothing():
    budget, released = ByteBudget(48 * 2**20, FakeClock()), []
    reserve(budget, BURST_BYTES - 1).release()
    assert MemoryReturn(budget, lambda: released.append(1)).look() is False
    assert released == []


def test_memory_is_returned_once_after_a_burst_and_not_during_it():
    budget, released = ByteBudget(48 * 2**20, FakeClock()), []
    memory = MemoryReturn(budget, lambda: released.append(1))
    burst = reserve(budget, BURST_BYTES)
    assert memory.look() is False
    burst.release()
    assert memory.look() is True
    assert memory.look() is False
    assert released == [1]


def test_a_burst_between_two_looks_is_seen():
    budget, released = ByteBudget(48 * 2**20, FakeClock()), []
    memory = MemoryReturn(budget, lambda: released.append(1))
    reserve(budget, BURST_BYTES).release()
    assert memory.look() is True
    assert released == [1]


def test_the_loop_looks_every_half_minute():
    budget, released = ByteBudget(48 * 2**20, FakeClock()), []
    memory = MemoryReturn(budget, lambda: released.append(1))

    async def live():
        reserve(budget, BURST_BYTES).release()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(memory.run())
            await asyncio.sleep(TRIM_LOOK_S - 1)
            assert released == []
            await asyncio.sleep(2)
            assert released == [1]
            looking.cancel()

    with contextlib.closing(SimLoop()) as loop:
        loop.run_until_complete(live())
