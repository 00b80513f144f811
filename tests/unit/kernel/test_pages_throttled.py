"""Reads of whole tables are repeated while they are throttled, and not for long."""

from __future__ import annotations

import asyncio
import random

import pytest

from kcl_mld.errors import AwsError, Denied, LimitExceeded, Throttled
from kcl_mld.kernel.pages import REPEATS, repeated
from tests.fakes.shard_world import simulated

THROTTLED = Throttled("Scan", "ThrottlingException")


class Table:
    """Answers with the errors that it is given; then all is well."""

    def __init__(self, *errors: AwsError) -> None:
        self.errors = list(errors)
        self.asked: list[object] = []

    async def scan(self, **request: object) -> dict[str, object]:
        self.asked.append(request)
        if self.errors:
            raise self.errors.pop(0)
        return {"Items": []}


@simulated
async def test_a_throttled_read_is_repeated_three_times() -> None:
    table = Table(THROTTLED, LimitExceeded("Scan", "LimitExceededException"), THROTTLED)
    scan = repeated(table.scan, random.Random(1))
    assert await scan(TableName="app") == {"Items": []}
    assert table.asked == [{"TableName": "app"}] * (1 + REPEATS)
    assert 0.7 <= asyncio.get_running_loop().time() <= 1.4  # 0.2, 0.4 and 0.8 s, half random


@simulated
async def test_a_read_that_stays_throttled_fails() -> None:
    table = Table(*[THROTTLED] * 7)
    scan = repeated(table.scan, random.Random(1))
    with pytest.raises(Throttled):
        await scan()
    assert len(table.asked) == 1 + REPEATS
    assert await scan() == {"Items": []}


@simulated
async def test_any_other_error_is_the_callers() -> None:
    table = Table(Denied("Scan", "AccessDeniedException"))
    with pytest.raises(Denied):
        await repeated(table.scan, random.Random(1))()
    assert len(table.asked) == 1


def test_workers_that_were_refused_together_do_not_come_back_together() -> None:
    times = set()
    for seed in range(5):

        @simulated
        async def read(seed: int = seed) -> None:
            await repeated(Table(THROTTLED).scan, random.Random(seed))()
            times.add(asyncio.get_running_loop().time())

        read()
    assert len(times) == 5
