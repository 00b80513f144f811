"""Where tasks and threads are, as text."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from kcl_mld.cli.run import task_stacks, thread_stacks_on


async def inner(gate: asyncio.Event) -> None:
    await gate.wait()


async def outer(gate: asyncio.Event) -> None:
    await inner(gate)


def test_tasks_that_wait_at_one_place_are_told_together():
    async def scene() -> str:
        gate = asyncio.Event()
        tasks = {asyncio.create_task(outer(gate), name=f"shard {n:02}") for n in range(10)}
        tasks.add(asyncio.create_task(inner(gate), name="alone"))
        await asyncio.sleep(0)
        text = task_stacks(tasks)
        gate.set()
        await asyncio.gather(*tasks)
        return text

    lines = asyncio.run(scene()).splitlines()
    assert lines[:2] == ["11 tasks", "task alone:"]
    at = lines.index(
        "task shard 00, shard 01, shard 02, shard 03, shard 04, shard 05, shard 06, shard 07"
        " and 2 more:"
    )
    calls = [line.rpartition(" ")[2] for line in lines[at + 1 :]]
    assert calls == ["outer", "inner", "Event.wait"]
    assert lines[at + 1].startswith(f"  {__file__}:")


def test_a_task_that_runs_or_has_not_begun_has_a_place_as_well():
    async def scene() -> str:
        fresh = asyncio.create_task(asyncio.sleep(0), name="fresh")
        here = asyncio.current_task()
        assert here is not None
        text = task_stacks({fresh, here})
        await fresh
        return text

    text = asyncio.run(scene())
    assert "task fresh:" in text
    assert "scene" in text


def test_threads_are_told_while_the_loop_hangs():
    told: list[str] = []
    calls: list[int] = []

    async def scene() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGQUIT, calls.append, 1)
        with thread_stacks_on(signal.SIGQUIT, told.append):
            os.kill(os.getpid(), signal.SIGQUIT)
            until = time.monotonic() + 20
            while not told and time.monotonic() < until:
                time.sleep(0.01)  # noqa: ASYNC251 - the loop hangs
            assert calls == []
            await asyncio.sleep(0.05)
            assert calls == [1]
            os.kill(os.getpid(), signal.SIGQUIT)
            while len(told) < 2 and time.monotonic() < until:  # noqa: ASYNC110 - a thread tells
                await asyncio.sleep(0.01)
        asyncio.get_running_loop().remove_signal_handler(signal.SIGQUIT)

    asyncio.run(scene())
    assert len(told) == 2
    assert "hread MainThread (most recent call first)" in told[0]
    assert "in scene" in told[0]
    assert "hread dump" in told[0]
