"""Waking a loop, and doing many things at once, but not too many."""

import asyncio

import pytest

from kcl_mld.kernel.concurrency import Wakeup, for_each
from tests.sim.loop import run


def test_a_call_before_the_wait_is_not_lost_and_many_count_as_one():
    async def main():
        signal = Wakeup()
        signal.wake()
        signal.wake()
        assert await signal.wait()
        assert not await signal.wait(5.0)
        return asyncio.get_running_loop().time()

    assert run(main()) >= 5.0


def test_a_waiting_loop_is_woken():
    async def main():
        signal = Wakeup()
        async with asyncio.TaskGroup() as group:
            waiter = group.create_task(signal.wait())
            await asyncio.sleep(3)
            assert not waiter.done()
            signal.wake()
            signal.wake()
        assert waiter.result()

    run(main())


def test_a_wait_of_nothing_only_looks():
    async def main():
        signal = Wakeup()
        assert not await signal.wait(0)
        signal.wake()
        assert await signal.wait(-1)
        assert not await signal.wait(0)
        assert asyncio.get_running_loop().time() < 0.001

    run(main())


def test_a_cancelled_wait_keeps_no_call_back():
    async def main():
        signal = Wakeup()
        task = asyncio.get_running_loop().create_task(signal.wait())
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.sleep(1)
        signal.wake()
        assert await signal.wait(0)

    run(main())


@pytest.mark.parametrize(("limit", "seconds"), [(1, 6), (2, 3), (6, 1), (99, 1)])
def test_at_most_so_many_run_at_once_and_they_start_in_order(limit, seconds):
    started, running, most = [], 0, 0

    async def work(item):
        nonlocal running, most
        started.append(item)
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    async def main():
        await for_each(range(6), limit, work)
        return asyncio.get_running_loop().time()

    assert round(run(main()), 3) == seconds
    assert started == list(range(6))
    assert most == min(limit, 6)


def test_nothing_to_do_is_done_at_once():
    async def work(item):
        raise AssertionError(item)

    run(for_each([], 3, work))


def test_a_failure_ends_the_rest():
    async def work(item):
        if item == 1:
            raise ValueError(item)
        await asyncio.sleep(9)
        raise AssertionError("not cancelled")

    with pytest.raises(ExceptionGroup) as failed:
        run(for_each(range(3), 2, work))
    assert isinstance(failed.value.exceptions[0], ValueError)
