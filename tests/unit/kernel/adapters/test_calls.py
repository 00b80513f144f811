"""The pool of threads: order, bounds, abandonment, and an exit that waits for nobody."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.errors import ThreadRefused
from kcl_mld.kernel.adapters.calls import (
    FEWEST_CALLS,
    PROMPT_S,
    CallPool,
    PoolClosed,
    calls_at_once,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine


def bounded(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, 20))


class Gate:
    """Blocking work that says when it has begun and ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()
        self.done = threading.Semaphore(0)

    def pass_through(self) -> str:
        self.begun.release()
        self.end.wait(20)
        self.done.release()
        return threading.current_thread().name


def test_work_is_done_in_a_named_daemon_thread_and_its_result_comes_back() -> None:
    async def scene() -> None:
        pool = CallPool("leases", 2)
        thread = await pool.run(threading.current_thread)
        assert (thread.name, thread.daemon) == ("leases-0", True)
        assert await pool.run(lambda a, *, b: a + b, 1, b=2) == 3
        pool.close()

    bounded(scene())


def test_errors_of_the_work_come_through() -> None:
    async def scene() -> None:
        pool = CallPool("p", 1)
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        with pytest.raises(SystemExit):
            await pool.run(sys.exit)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.run(next, iter(()))
        assert await pool.run(int) == 0
        pool.close()

    bounded(scene())


def test_threads_start_by_need_and_never_more_than_allowed() -> None:
    async def scene() -> None:
        pool, gate = CallPool("bounded", 3), Gate()
        for _ in range(5):
            await pool.run(int)
        assert names("bounded") == ["bounded-0"]
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(pool.run(gate.pass_through)) for _ in range(10)]
            probe = CallPool("probe", 1)
            for _ in range(3):
                assert await probe.run(gate.begun.acquire, timeout=120)
            assert not gate.begun.acquire(blocking=False)
            gate.end.set()
        assert {w.result() for w in work} == {"bounded-0", "bounded-1", "bounded-2"}
        pool.close()
        probe.close()

    bounded(scene())


def test_an_idle_thread_keeps_neither_its_last_answer_nor_its_first() -> None:
    class Answer:
        pass

    async def scene() -> None:
        pool = CallPool("forgetful", 1)
        for _ in range(2):
            answer = weakref.ref(await pool.run(Answer))
            for _ in range(100):
                if answer() is None:
                    break
                await asyncio.sleep(0.01)
            assert answer() is None
        pool.close()

    bounded(scene())


def test_the_thread_that_worked_last_is_woken_first() -> None:
    async def scene() -> None:
        pool, gate = CallPool("warm", 3), Gate()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(pool.run(gate.pass_through))
            await asyncio.sleep(0)
            gate.end.set()
        used = {await pool.run(threading.current_thread) for _ in range(10)}
        assert len(used) == 1
        pool.close()

    bounded(scene())


def test_one_pool_may_serve_one_loop_after_the_other() -> None:
    pool = CallPool("loops", 2)

    async def scene() -> None:
        assert await asyncio.gather(*(pool.run(abs, -n) for n in range(5))) == [0, 1, 2, 3, 4]

    bounded(scene())
    bounded(scene())
    pool.close()


def names(prefix: str) -> list[str]:
    return sorted(t.name for t in threading.enumerate() if t.name.startswith(prefix))


def test_a_pool_whose_calls_all_hang_delays_no_other_pool() -> None:
    async def scene() -> None:
        stuck, free, gate = CallPool("stuck", 1), CallPool("free", 1), Gate()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(stuck.run(gate.pass_through))
            tasks.create_task(stuck.run(gate.pass_through))
            assert await free.run(gate.begun.acquire, timeout=120)
            assert await free.run(str, 1) == "1"
            gate.end.set()
        stuck.close()
        free.close()

    bounded(scene())


def test_abandoned_work_keeps_its_place_and_work_abandoned_in_the_queue_is_never_started() -> None:
    async def scene() -> None:
        pool, probe, gate = CallPool("abandon", 1), CallPool("probe", 1), Gate()
        done: list[str] = []
        running = asyncio.ensure_future(pool.run(gate.pass_through))
        queued = asyncio.ensure_future(pool.run(done.append, "never"))
        last = asyncio.ensure_future(pool.run(done.append, "last"))
        assert await probe.run(gate.begun.acquire, timeout=120)
        running.cancel()
        queued.cancel()
        await asyncio.gather(running, queued, return_exceptions=True)
        assert running.cancelled()
        assert queued.cancelled()
        assert not last.done()
        gate.end.set()
        await last
        assert done == ["last"]
        assert gate.done.acquire(blocking=False)
        pool.close()
        probe.close()

    bounded(scene())


def test_a_shielded_call_is_finished_though_its_caller_was_cancelled() -> None:
    async def scene() -> None:
        pool, probe, gate = CallPool("write", 1), CallPool("probe", 1), Gate()
        write = asyncio.ensure_future(pool.run(gate.pass_through))
        caller = asyncio.ensure_future(asyncio.wait_for(asyncio.shield(write), 20))
        assert await probe.run(gate.begun.acquire, timeout=120)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        gate.end.set()
        assert await write == "write-0"
        pool.close()
        probe.close()

    bounded(scene())


def test_a_closed_pool_refuses_work_and_its_idle_threads_end() -> None:
    async def scene() -> None:
        pool = CallPool("closing", 2)
        await pool.run(int)
        (thread,) = [t for t in threading.enumerate() if t.name == "closing-0"]
        pool.close()
        pool.close()
        with pytest.raises(PoolClosed, match="closing"):
            await pool.run(int)
        thread.join(120)
        assert not thread.is_alive()

    bounded(scene())


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_where_no_more_threads_can_start_those_that_there_are_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        pool, gate = CallPool("few", 3), Gate()
        first = asyncio.ensure_future(pool.run(gate.pass_through))
        await asyncio.sleep(0)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        second = asyncio.ensure_future(pool.run(gate.pass_through))
        await asyncio.sleep(0)
        gate.end.set()
        assert [await first, await second] == ["few-0", "few-0"]
        pool.close()

    bounded(scene())


def test_a_pool_without_any_thread_says_so_and_gets_one_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene() -> None:
        pool = CallPool("none", 2)
        with monkeypatch.context() as refusing:
            refusing.setattr(threading.Thread, "start", refuse)
            with pytest.raises(ThreadRefused, match="no thread none-0 can be started: raise"):
                await pool.run(int)
        assert await pool.run(int) == 0
        pool.close()

    bounded(scene())


def test_a_pool_needs_a_thread() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CallPool("none", 0)


def test_a_result_that_comes_after_the_loops_end_is_dropped_quietly() -> None:
    pool, gate = CallPool("late", 1), Gate()

    async def scene() -> None:
        task = asyncio.ensure_future(pool.run(gate.pass_through))
        await asyncio.sleep(0)
        assert not task.done()

    bounded(scene())
    (thread,) = [t for t in threading.enumerate() if t.name == "late-0"]
    gate.end.set()
    pool.close()
    thread.join(120)
    assert not thread.is_alive()


def test_many_calls_from_one_loop_all_come_back() -> None:
    async def scene() -> None:
        pool = CallPool("many", 8)
        async with asyncio.TaskGroup() as tasks:
            work = [tasks.create_task(pool.run(abs, -n)) for n in range(2000)]
        assert [w.result() for w in work] == list(range(2000))
        pool.close()

    bounded(scene())


def test_the_stack_size_of_other_threads_stays_as_it_was() -> None:
    async def scene() -> None:
        before = threading.stack_size()
        pool = CallPool("stack", 1)
        await pool.run(int)
        assert threading.stack_size() == before
        pool.close()

    bounded(scene())


def test_the_interpreter_ends_while_a_call_hangs() -> None:
    code = (
        "import asyncio, threading\n"
        "from kcl_mld.kernel.adapters.calls import CallPool\n"
        "async def main():\n"
        "    pool, begun = CallPool('hang', 1), threading.Event()\n"
        "    def hang():\n"
        "        begun.set(); threading.Event().wait(600)\n"
        "    task = asyncio.ensure_future(pool.run(hang))\n"
        "    while not begun.is_set(): await asyncio.sleep(0.001)\n"
        "    task.cancel(); pool.close()\n"
        "asyncio.run(main())\n"
        "print('ended')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"ended\n", b"")


def test_a_pool_makes_fewer_calls_while_outcomes_of_the_one_it_yields_to_are_late() -> None:
    assert [calls_at_once(64, delay_s) for delay_s in (0.0, PROMPT_S, 0.1, 1.0, 60.0)] == [
        *(64, 64, 12, FEWEST_CALLS, FEWEST_CALLS)
    ]
    assert calls_at_once(1, 60.0) == 1

    async def scene() -> None:
        urgent = CallPool("urgent", 1)
        pool, gate = CallPool("yielding", 8, yields_to=urgent), Gate()
        answered = urgent.run(time.sleep, 0.01)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(answered)
            await asyncio.sleep(0)
            time.sleep(1.0)  # noqa: ASYNC251 - the loop is what is late
            await asyncio.sleep(0.01)
            assert urgent.delay_s > 0.5
            for _ in range(8):
                tasks.create_task(pool.run(gate.pass_through))
            await asyncio.sleep(0.01)
            assert len(names("yielding-")) == FEWEST_CALLS
            gate.end.set()
        pool.close()
        urgent.close()

    bounded(scene())
