"""Hundreds of children are started one after the other, but none waits for a slow one."""

import asyncio
from contextlib import asynccontextmanager

from kcl_mld.children.consuming.consumer_parts import PLACES, START_S, ChildStarts
from kcl_mld.kernel.model.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber
from tests.sim.loop import run


class Starting:
    """Children that take a while to start."""

    def __init__(self):
        self.in_time = asyncio.Event()
        self.in_time.set()
        self.starts = ChildStarts(self.in_time)
        self.at_once = self.most = 0
        self.began = []
        self.positions = []

    async def child(self, takes_s, position=TRIM_HORIZON):
        async with self.starts.place(position):
            self.began.append(asyncio.get_running_loop().time())
            self.positions.append(position)
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


def test_the_shard_that_is_furthest_behind_comes_first():
    positions = [LATEST, *(ExtendedSequenceNumber(str(number)) for number in (30, 4, 100))]

    async def main():
        starting = Starting()
        async with asyncio.TaskGroup() as group:
            for _ in range(PLACES):
                group.create_task(starting.child(0.1))
            await asyncio.sleep(0.05)
            for position in (*positions, TRIM_HORIZON):
                group.create_task(starting.child(0.3, position))
        waited = [str(position) for position in starting.positions[PLACES:]]
        assert waited == ["TRIM_HORIZON", "4", "30", "100", "LATEST"]

    run(main())


def test_no_child_starts_while_renewals_are_late():
    async def main():
        async with started(PLACES + 1, 0.1) as (starting, _tasks):
            starting.in_time.clear()
            await asyncio.sleep(5.0)
            assert not starting.began
            starting.in_time.set()
        assert len(starting.began) == PLACES + 1

    run(main())
