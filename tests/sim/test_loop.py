"""The loop's promises."""

import asyncio
import contextvars

import pytest

from tests.sim.loop import OWNER, SimLoop, Stalled, TaskOwner, run


def test_somebody_who_only_looks_sees_the_moment_come():
    async def main():
        loop = asyncio.get_running_loop()
        while loop.time() < 0.01:  # noqa: ASYNC110 - the point of the test
            await asyncio.sleep(0)
        return True

    assert run(main())


def test_an_hour_passes_at_once_and_exactly():
    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(3600)
        return loop.time()

    assert run(main()) == pytest.approx(3600)


def test_sleepers_wake_in_the_order_of_their_times_and_ties_in_the_order_of_going_to_bed():
    async def main():
        woken = []

        async def sleeper(name, delay_s):
            await asyncio.sleep(delay_s)
            woken.append(name)

        async with asyncio.TaskGroup() as group:
            for name, delay_s in (("c", 3), ("a", 1), ("b", 2), ("a2", 1)):
                group.create_task(sleeper(name, delay_s))
        return woken

    assert run(main()) == ["a", "a2", "b", "c"]


def test_a_deadlock_is_found():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stalled):
        run(main())


def test_threads_are_refused():
    async def main():
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        run(main())

    loop = SimLoop()
    with pytest.raises(RuntimeError, match="no threads"):
        loop.call_soon_threadsafe(print)
    loop.close()


def test_tasks_are_remembered_by_the_owner_of_the_task_that_started_them():
    async def main():
        owner = TaskOwner()

        async def node():
            OWNER.set(owner)
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1))
                group.create_task(asyncio.sleep(2))
                await asyncio.sleep(0.5)
                seen.append(len(owner.running()))

        seen = []
        await asyncio.create_task(node())
        await asyncio.sleep(0)
        return seen, owner.running()

    assert run(main()) == ([2], [])


def test_a_group_cancels_its_tasks_in_one_order():
    async def main():
        cancelled = []

        async def sleeper(number):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        async def failing():
            await asyncio.sleep(1)
            raise ValueError("group, end")

        async def grouped():
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(sleeper(number))
                group.create_task(failing())

        with pytest.raises(ExceptionGroup):
            await grouped()
        return cancelled

    assert run(main()) == run(main()) == sorted(run(main()))


def test_what_nobody_caught_is_kept():
    async def main():
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)
        return [type(context["exception"]) for context in loop.uncaught]

    assert run(main()) == [ZeroDivisionError]


def test_a_process_that_stands_still_does_nothing_and_then_all_that_fell_due_in_its_order():
    async def main():
        loop = asyncio.get_running_loop()
        owner, done = TaskOwner(), []

        async def process():
            OWNER.set(owner)
            async with asyncio.TaskGroup() as group:
                for delay_s in (3, 1, 2, 9):
                    group.create_task(sleeper(delay_s))

        async def sleeper(delay_s):
            await asyncio.sleep(delay_s)
            done.append((delay_s, loop.time()))

        task = asyncio.create_task(process())
        await asyncio.sleep(0.5)
        owner.freeze()
        await asyncio.sleep(5)
        assert done == []
        owner.thaw()
        await task
        return [delay_s for delay_s, _ in done], [at_s for _, at_s in done]

    order, times_s = run(main())
    assert order == [1, 2, 3, 9]
    assert times_s == pytest.approx([5.5, 5.5, 5.5, 9], abs=0.01)


def test_what_was_cancelled_while_its_process_stood_still_does_not_happen():
    async def main():
        loop = asyncio.get_running_loop()
        owner, done = TaskOwner(), []
        context = contextvars.copy_context()
        context.run(OWNER.set, owner)
        owner.freeze()
        timer = loop.call_later(1, done.append, "timer", context=context)
        loop.call_later(1, done.append, "other", context=context)
        await asyncio.sleep(2)
        timer.cancel()
        owner.thaw()
        await asyncio.sleep(1)
        return done

    assert run(main()) == ["other"]
