"""Hundreds of children are started one after the other, but none waits for a slow one."""

import asyncio
from contextlib import asynccontextmanager

from mld.adapters.system_clock import SystemClock
from mld.services.consuming.consumer_parts import PLACES, START_S, ChildStarts
from tests.sim.loop import run


class LoopClock(SystemClock):
    """The time of the loop."""

    def monotonic(self):
        return asyncio.get_running_loop().time()


class Starting:
    """Children that take a while to start."""

    def __init__(self):
        self.starts = ChildStarts(LoopClock())
        self.at_once = self.most = 0
        self.began = []

    async def child(self, takes_s):
        async with self.starts.place():
            self.began.append(asyncio.get_running_loop().time())
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(takes_s)
            self.at_once -= 1


@asynccontextmanager
async def started(children, takes_s):
    starting = Starting()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(starting.child(takes_s)) for _ in range(children)]
        yield starting, tasks


def test_no_more_start_at_a_time_than_there_are_places():
    async def main():
        async with started(10 * PLACES, 0.1) as (starting, _tasks):
            pass
        assert starting.most == PLACES
        assert len(starting.began) == 10 * PLACES
        assert asyncio.get_running_loop().time() < 1.1

    run(main())


def test_children_that_wait_for_something_make_room():
    async def main():
        async with started(3 * PLACES, 60.0) as (starting, _tasks):
            pass
        assert starting.began[PLACES - 1] < 0.001
        assert [round(at, 3) for at in starting.began[PLACES::PLACES]] == [START_S, 2 * START_S]

    run(main())


def test_who_gives_up_waiting_leaves_its_turn_to_the_next():
    async def main():
        async with started(PLACES + 2, 0.2) as (starting, tasks):
            await asyncio.sleep(0.1)
            tasks[PLACES].cancel()
        assert len(starting.began) == PLACES + 1
        assert max(starting.began) < START_S

    run(main())
