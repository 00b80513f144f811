"""The memory of all shards: fair, bounded, and never a deadlock."""

from __future__ import annotations

import asyncio

import pytest

from kcl_mld.retrieval.byte_budget import (
    LOOK_S,
    PATIENCE_S,
    SLOW_S,
    STALL_S,
    STUCK_S,
    ByteBudget,
)
from kcl_mld.retrieval.rules.polling import LARGEST_ANSWER_BYTES
from tests.fakes.budget import reserve
from tests.fakes.clock import LoopClock
from tests.fakes.shard_world import simulated
from tests.sim.loop import RESOLUTION_S


def new_budget(limit=100):
    return ByteBudget(limit, LoopClock())


async def is_granted(task):
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


@simulated
async def test_reservations_are_granted_in_the_order_of_asking():
    budget = new_budget()
    first = await reserve(budget, 90)
    async with asyncio.TaskGroup() as group:
        second = group.create_task(reserve(budget, 50))
        third = group.create_task(reserve(budget, 60))
        assert not await is_granted(second)
        assert not await is_granted(third)
        first.release()
        assert await is_granted(second)
        assert not await is_granted(third)
        second.result().release()
        (await third).release()
    assert budget.used_bytes == 0


@simulated
async def test_an_empty_budget_grants_any_size():
    budget = new_budget()
    huge = await reserve(budget, 1000)
    assert budget.used_bytes == 1000
    huge.release()


@simulated
async def test_a_correction_lets_the_next_in():
    budget = new_budget()
    first = await reserve(budget, 90)
    async with asyncio.TaskGroup() as group:
        second = group.create_task(reserve(budget, 40))
        assert not await is_granted(second)
        first.resize(10)
        assert await is_granted(second)
    assert budget.used_bytes == 50


@simulated
async def test_a_correction_upward_never_waits():
    budget = new_budget()
    first = await reserve(budget, 10)
    first.resize(500)
    assert budget.used_bytes == 500
    first.release()
    first.release()
    assert budget.used_bytes == 0


@simulated
async def test_hanging_children_do_not_stop_the_other_shards():
    budget = new_budget()
    await reserve(budget, 100)  # never given back
    began = asyncio.get_running_loop().time()
    others = [await reserve(budget, 50) for _ in range(3)]
    waited_s = asyncio.get_running_loop().time() - began
    assert 3 * STALL_S <= waited_s < 3 * STALL_S + 1
    assert budget.used_bytes == 250
    assert len(others) == 3


@simulated
async def test_reading_ahead_is_never_granted_beyond_the_limit():
    budget = new_budget()
    holding = await reserve(budget, 100)
    missed = False
    async with asyncio.TaskGroup() as group:
        ahead = group.create_task(reserve(budget, 50, is_awaited=lambda: missed))
        other = group.create_task(reserve(budget, 50))
        await asyncio.sleep(2.5 * STALL_S)
        assert other.done()  # it came later, but its child waits for data
        assert not ahead.done()
        missed = True
        await asyncio.sleep(1.5 * STALL_S)
        assert ahead.done()
    assert budget.used_bytes == 200
    holding.release()


@simulated
async def test_who_reads_ahead_keeps_nobody_waiting_whose_child_waits_for_data():
    budget = new_budget()
    holding = await reserve(budget, 60)
    missed = False
    async with asyncio.TaskGroup() as group:
        ahead = group.create_task(reserve(budget, 50, is_awaited=lambda: missed))
        assert not await is_granted(ahead)
        small = group.create_task(reserve(budget, 30))
        assert await is_granted(small)
        large = group.create_task(reserve(budget, 60))
        assert not await is_granted(large)
        small.result().release()
        assert not await is_granted(ahead)
        missed = True  # now it is its turn again, it came first
        holding.resize(45)
        assert await is_granted(ahead)
        assert not large.done()
        holding.release()
        ahead.result().release()
    assert budget.used_bytes == 60


@simulated
async def test_who_becomes_urgent_is_seen_when_told():
    budget = new_budget()
    holding = await reserve(budget, 60)
    missed = [False, False]
    async with asyncio.TaskGroup() as group:
        first = group.create_task(reserve(budget, 50, is_awaited=lambda: missed[0]))
        await asyncio.sleep(PATIENCE_S)  # from now on nobody passes it who only reads ahead
        second = group.create_task(reserve(budget, 40, is_awaited=lambda: missed[1]))
        assert not await is_granted(second)
        missed[1] = True
        budget.look_again()
        assert await is_granted(second)
        assert not first.done()
        holding.release()
    assert budget.used_bytes == 90


@simulated
async def test_a_slow_but_moving_process_stays_within_the_limit():
    budget = new_budget()
    holding = await reserve(budget, 100)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(reserve(budget, 60))
        for _ in range(5):
            await asyncio.sleep(STALL_S * 0.9)
            holding.release()
            holding = await reserve(budget, 1) if waiting.done() else holding
            if waiting.done():
                break
        assert waiting.done()
    assert budget.used_bytes <= 101


@simulated
async def test_a_cancelled_wait_reserves_nothing_and_lets_the_next_in():
    budget = new_budget()
    first = await reserve(budget, 60)
    async with asyncio.TaskGroup() as group:
        large = group.create_task(reserve(budget, 90))
        await asyncio.sleep(PATIENCE_S)
        small = group.create_task(reserve(budget, 30))
        assert not await is_granted(small)
        large.cancel()
        assert await is_granted(small)
    assert budget.used_bytes == 90
    first.release()


@simulated
async def test_a_grant_that_meets_its_cancellation_is_given_back():
    budget = new_budget()
    first = await reserve(budget, 60)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(reserve(budget, 90))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.release()
        waiting.cancel()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("others", [0, 1])
@simulated
async def test_the_timer_that_fires_while_a_wait_is_being_cancelled_lets_in_the_others_alone(
    others,
):
    budget = new_budget()
    holding = await reserve(budget, 90)
    await asyncio.sleep(STALL_S)  # from now on the timer lets in the first in turn
    loop = asyncio.get_running_loop()
    failures = []
    loop.set_exception_handler(lambda _, context: failures.append(context))

    async def wait():
        # In the pass of the loop in which the timer fires, before it: this task learns of its
        # cancellation in the next one.
        loop.call_later(LOOK_S - RESOLUTION_S / 2, cancelled.cancel)
        await reserve(budget, 80)

    cancelled = loop.create_task(wait())
    waiting = [loop.create_task(reserve(budget, 70)) for _ in range(others)]
    await asyncio.sleep(1.5 * LOOK_S)
    assert failures == []
    assert cancelled.cancelled()
    assert all(task.done() for task in waiting)
    assert budget.used_bytes == 90 + 70 * others
    holding.release()


@pytest.mark.parametrize(
    ("answers", "expected"),
    [((), LARGEST_ANSWER_BYTES), ((10,), 64 * 1024), ((200_000, 90_000), 200_000)],
)
@simulated
async def test_the_first_answer_of_a_shard_is_expected_like_recent_ones_of_others(
    answers, expected
):
    budget = new_budget()
    for size in answers:
        budget.remember(size)
    assert budget.expected_bytes() == expected


@simulated
async def test_credit_that_was_not_spent_is_given_back():
    budget = new_budget()
    share = budget.share(is_awaited=lambda: True)
    await share.refill(80)
    answer = share.spend(30)
    assert (share._unspent, budget.used_bytes) == (50, 80)
    share.give_back()
    share.give_back()
    assert budget.used_bytes == 30
    answer.release()
    assert budget.used_bytes == 0


@simulated
async def test_what_came_beyond_the_credit_is_accounted_for():
    budget = new_budget()
    share = budget.share(is_awaited=lambda: True)
    await share.refill(80)
    event = share.spend(130)
    assert (share._unspent, budget.used_bytes) == (0, 130)
    event.release()
    assert budget.used_bytes == 0


@simulated
async def test_pushed_events_are_let_in_while_the_share_lasts():
    budget = new_budget()
    share = budget.share(is_awaited=lambda: True)
    await share.refill(60)
    events = [share.spend(25), share.spend(25)]
    async with asyncio.TaskGroup() as group:
        refilling = group.create_task(share.refill(60))
        assert not await is_granted(refilling)
        assert budget.used_bytes == 50  # the rest is not held while it waits
        events[0].release()
        assert await is_granted(refilling)
    await share.refill(60)  # it has that much
    assert budget.used_bytes == 85


@simulated
async def test_publishers_with_a_little_credit_do_not_wait_for_each_other():
    budget = new_budget()
    both = [budget.share(is_awaited=lambda: True) for _ in range(2)]
    for share in both:
        await share.refill(50)
        share.spend(10).release()
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(share.refill(70)) for share in both]
        assert await is_granted(waits[0])
        both[0].give_back()
        assert await is_granted(waits[1])
    both[1].give_back()
    assert budget.used_bytes == 0


@simulated
async def test_what_was_kept_for_a_large_event_is_the_room_of_others_after_small_ones():
    """Pings come all the time, so that nothing ever stands still."""

    budget = new_budget()
    idle = [budget.share(is_awaited=lambda: True) for _ in range(2)]
    for share in idle:
        await share.refill(50)
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(budget.share(is_awaited=lambda: True).refill(50))
        assert not await is_granted(starting)
        for share in idle:
            share.spend(1).release()
            await share.refill(5)
        assert await is_granted(starting)
    assert budget.used_bytes == 60


@simulated
async def test_a_cancelled_refill_leaves_the_credit_empty():
    budget = new_budget()
    share = budget.share(is_awaited=lambda: True)
    await share.refill(50)
    holding = budget.share(is_awaited=lambda: True).spend(40)
    async with asyncio.TaskGroup() as group:
        refilling = group.create_task(share.refill(70))
        assert not await is_granted(refilling)
        refilling.cancel()
    assert (share._unspent, budget.used_bytes) == (0, 40)
    holding.release()


@simulated
async def test_what_does_not_fit_is_passed_for_a_while_and_then_no_longer():
    budget = new_budget()
    large = None

    async def come_and_go(first_s):
        await asyncio.sleep(first_s)
        while large is None or not large.done():
            small = await reserve(budget, 30)
            await asyncio.sleep(0.2)
            small.release()

    async with asyncio.TaskGroup() as group:
        for first_s in (0.0, 0.1):  # never is there room for the large one
            group.create_task(come_and_go(first_s))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        large = group.create_task(reserve(budget, 90))
        (await large).release()
    assert PATIENCE_S <= asyncio.get_running_loop().time() - began < PATIENCE_S + 0.5


class Shard:
    """A publisher whose child takes nothing: a line and read-ahead.

    Attributes:
        dropped: how often its read-ahead was wanted back.
    """

    def __init__(self, budget, line, ahead=0):
        self.share = budget.share(is_awaited=lambda: False, drop_read_ahead=self.drop)
        self.line = self.share.spend(line)
        self.ahead = self.share.spend(ahead) if ahead else None
        self.dropped = 0

    def drop(self):
        self.dropped += 1
        if self.ahead is not None:
            self.ahead.release()


@simulated
async def test_read_ahead_of_stuck_shards_makes_room_for_others():
    budget = new_budget()
    stuck = [Shard(budget, 10, 40), Shard(budget, 10, 40)]
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(reserve(budget, 30))
        await asyncio.sleep(SLOW_S / 2)
        assert not waiting.done()
        await asyncio.sleep(SLOW_S / 2 + LOOK_S)
        assert waiting.done()
    assert [shard.dropped for shard in stuck] == [1, 0]  # no more than was needed
    assert budget.used_bytes == 90


@simulated
async def test_a_child_that_took_something_lately_keeps_its_read_ahead():
    budget = new_budget()
    shard = Shard(budget, 10, 90)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(reserve(budget, 30))
        for _ in range(4):
            await asyncio.sleep(SLOW_S * 0.8)
            shard.share.served()
        assert shard.dropped == 0
        shard.line.release()
        shard.ahead.release()
        assert await is_granted(waiting)


@simulated
async def test_lines_that_nobody_reads_do_not_count_for_who_waits_for_data(caplog):
    budget = new_budget()
    for _ in range(3):
        Shard(budget, 30)
    await asyncio.sleep(STUCK_S)
    working = [await reserve(budget, 50), await reserve(budget, 50)]
    async with asyncio.TaskGroup() as group:
        third = group.create_task(reserve(budget, 50))
        assert not await is_granted(third)
        working[0].release()
        assert await is_granted(third)
    assert budget.pop_peak_bytes() == 190
    (warning,) = [each.getMessage() for each in caplog.records]
    assert warning == (
        "90 bytes of records are held in memory, 90 of them for 3 children that have read"
        " nothing for 5 s or longer; other shards may exceed the budget of 100 bytes"
    )


@simulated
async def test_they_do_count_for_who_reads_ahead():
    budget = new_budget()
    Shard(budget, 80)
    await asyncio.sleep(STUCK_S)
    async with asyncio.TaskGroup() as group:
        ahead = group.create_task(reserve(budget, 30, is_awaited=lambda: False))
        await asyncio.sleep(10 * STALL_S)
        assert not ahead.done()
        ahead.cancel()


@simulated
async def test_what_exceeds_the_room_is_let_in_alone_beside_lines_that_nobody_reads():
    budget = new_budget()
    Shard(budget, 60)
    await asyncio.sleep(STUCK_S)
    huge = await reserve(budget, 150)
    async with asyncio.TaskGroup() as group:
        other = group.create_task(reserve(budget, 150))
        assert not await is_granted(other)
        huge.release()
        assert await is_granted(other)
    assert budget.pop_peak_bytes() == 210


@simulated
async def test_a_shard_that_is_stuck_itself_takes_nothing_from_others():
    budget = new_budget()
    other = Shard(budget, 10, 80)
    own = budget.share(is_awaited=lambda: False)
    await asyncio.sleep(STUCK_S)
    async with asyncio.TaskGroup() as group:
        ahead = group.create_task(own.refill(30))
        await asyncio.sleep(3 * STUCK_S)
        assert other.dropped == 0
        assert not ahead.done()
        ahead.cancel()


@simulated
async def test_a_thousand_shards_that_wait_are_not_all_looked_at_when_something_moves():
    shards, moves, looked = 1000, 100, 0
    budget = new_budget()
    held = await reserve(budget, 100)

    def is_awaited():
        nonlocal looked
        looked += 1
        return True

    async with asyncio.TaskGroup() as group:
        waiting = [
            group.create_task(budget.share(is_awaited=is_awaited).refill(60)) for _ in range(shards)
        ]
        await asyncio.sleep(LOOK_S / 10)
        looked = 0
        for number in range(moves):
            held.resize(99 - number % 2)
        assert looked < moves
        for task in waiting:
            task.cancel()
