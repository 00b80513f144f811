"""Something disappears: told at once, looked for again, and in the end fatal."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kcl_mld.errors import LimitExceeded, MalformedData, ResourceMissing
from kcl_mld.kernel.concurrency import Wakeup
from kcl_mld.signals.model.conditions import Conditions, Reason
from kcl_mld.streams.existence_watch import DISTANCE_S, GIVE_UP_S, LOOK_S, REPEAT_S, ExistenceWatch
from tests.fakes.clock import LoopClock
from tests.fakes.shard_world import simulated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMITED = LimitExceeded("DescribeStreamSummary", "LimitExceededException")


class Watched:
    """A resource that tests make and unmake.

    Attributes:
        state: what a look finds: None = it is there, a sentence, or an error.
        looks: when each began.
    """

    def __init__(self) -> None:
        self.state: str | Exception | None = None
        self.looks: list[float] = []
        self.look_takes_s = 0.0
        self.told: list[str] = []
        self.check_wanted = Wakeup()
        self.conditions = Conditions()
        self.clock = LoopClock()
        self.watch = ExistenceWatch(
            self._look,
            self.check_wanted,
            Reason.STREAM_DELETED,
            self.conditions,
            self.clock,
            random.Random(3),
            on_gone=self.told.append,
        )

    async def _look(self) -> str | None:
        self.looks.append(self.clock.monotonic())
        await asyncio.sleep(self.look_takes_s)
        if isinstance(self.state, Exception):
            raise self.state
        return self.state

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.get_running_loop().create_task(self.watch.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@simulated
async def test_nothing_wrong_costs_a_look_a_minute():
    world = Watched()
    async with world.running():
        await asyncio.sleep(100 * LOOK_S)
    assert 80 <= len(world.looks) <= 120
    assert world.conditions.current() == ()


@simulated
async def test_a_gone_resource_is_told_at_once_and_ends_the_worker_in_time(caplog):
    world = Watched()
    async with world.running() as task:
        await asyncio.sleep(1)
        world.state = "stream s was deleted"
        world.check_wanted.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        (condition,) = world.conditions.current()
        assert (condition.reason, condition.message) == (Reason.STREAM_DELETED, world.state)
        assert world.told == [world.state]
        with pytest.raises(ResourceMissing, match="stream s was deleted"):
            await task
        assert world.clock.monotonic() == pytest.approx(1 + GIVE_UP_S)
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == GIVE_UP_S / REPEAT_S
    assert errors[0] == f"The worker ends with exit code 4 in {GIVE_UP_S:.0f} s: {world.state}"
    assert world.told == [world.state]


@simulated
async def test_however_many_ask_it_is_said_no_more_often(caplog):
    world = Watched()
    world.state = "gone"
    async with world.running():
        for _ in range(int(REPEAT_S) - 1):
            results = await asyncio.gather(
                *(world.watch.check() for _ in range(100)), return_exceptions=True
            )
            assert {type(one) for one in results} == {ResourceMissing}
    assert len(world.looks) <= 2 * REPEAT_S
    assert sum(one.levelno == logging.ERROR for one in caplog.records) == 1


@simulated
async def test_a_resource_that_is_there_again_was_never_gone(caplog):
    world = Watched()
    world.state = "gone"
    async with world.running() as task:
        with pytest.raises(ResourceMissing):
            await world.watch.check()
        await asyncio.sleep(GIVE_UP_S - 5)
        world.state = None
        await asyncio.sleep(10 * GIVE_UP_S)
        assert not task.done()
    assert world.conditions.current() == ()
    assert "Resolved, reading continues" in caplog.text


@simulated
async def test_a_look_that_fails_ends_nothing_however_long_it_fails():
    world = Watched()
    world.state = "gone"
    async with world.running() as task:
        with pytest.raises(ResourceMissing):
            await world.watch.check()
        world.state = LIMITED
        await asyncio.sleep(10 * GIVE_UP_S)
        assert not task.done()
        assert len(world.conditions.current()) == 1
        with pytest.raises(LimitExceeded):
            await world.watch.check()
        world.state = "gone"
        with pytest.raises(ResourceMissing):
            await task


@simulated
async def test_an_answer_serves_only_those_who_asked_before_its_look_began():
    world = Watched()
    world.look_takes_s = 2.0
    first = asyncio.get_running_loop().create_task(world.watch.check())
    await asyncio.sleep(1)
    world.state = None
    late = asyncio.get_running_loop().create_task(world.watch.check())
    await first
    world.state = "gone"
    with pytest.raises(ResourceMissing):
        await late
    assert len(world.looks) == 2


@simulated
async def test_looks_keep_their_distance_and_callers_share_them():
    world = Watched()
    for _ in range(5):
        await asyncio.gather(*(world.watch.check() for _ in range(1000)))
    distances = [b - a for a, b in zip(world.looks, world.looks[1:], strict=False)]
    assert min(distances) >= DISTANCE_S
    assert len(world.looks) <= 10


@simulated
async def test_doubts_alone_cost_no_more_than_a_look_in_ten_seconds():
    world = Watched()
    async with world.running():
        for _ in range(1000):
            world.check_wanted.wake()
            await asyncio.sleep(0.1)
    assert 9 <= len(world.looks) <= 13


@simulated
async def test_a_look_that_was_cancelled_has_told_nobody_anything():
    """A consumer ends while it asks; the next one had asked before that look began."""
    world = Watched()
    await world.watch.check()
    world.state, world.look_takes_s = "gone", 1.0
    loop = asyncio.get_running_loop()
    first, second = loop.create_task(world.watch.check()), loop.create_task(world.watch.check())
    await asyncio.sleep(DISTANCE_S + 0.5)
    first.cancel()
    with pytest.raises(ResourceMissing):
        await second
    assert len(world.looks) == 3


@pytest.mark.parametrize("error", [MalformedData("a shard has no id"), KeyError("Table")])
@simulated
async def test_an_answer_that_cannot_be_read_ends_no_worker(error):
    world = Watched()
    world.state = error
    async with world.running() as task:
        await asyncio.sleep(10 * LOOK_S)
        assert not task.done()
        with pytest.raises(MalformedData):
            await world.watch.check()
        assert world.conditions.current() == ()
        world.state = "gone"
        with pytest.raises(ResourceMissing):
            await task
