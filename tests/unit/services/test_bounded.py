"""Doing many things at once, but not too many."""

import asyncio

import pytest

from mld.services.concurrency import for_each
from tests.sim.loop import run


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
