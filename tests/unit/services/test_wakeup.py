"""Wake-up calls."""

import asyncio

from mld.services.concurrency import Wakeup
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
