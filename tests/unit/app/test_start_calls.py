"""Calls of a start: repeated while they are throttled, with more time where an answer is late."""

from __future__ import annotations

import asyncio
import random
import re
from typing import Any

import pytest

from kcl_mld.app.start_calls import THROTTLED_S, StartCalls
from kcl_mld.config.config import (
    ShardConfig,
)
from kcl_mld.errors import (
    AwsError,
    CredentialsRefused,
    Denied,
    LimitExceeded,
    MldError,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.clock import LoopClock
from tests.fakes.config import config_with
from tests.fakes.shard_world import simulated

THROTTLED = Throttled("Scan", "ThrottlingException")
LATE = UnknownOutcome("Scan", "ReadTimeoutError", "no answer")


class Port:
    """Answers as it is told; then all is well."""

    def __init__(self, *outcomes: AwsError) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[tuple[str, Any]] = []

    def _answer(self, operation: str, request: Any) -> dict[str, Any]:
        self.asked.append((operation, request))
        if self.outcomes:
            raise self.outcomes.pop(0)
        return {"by": self}

    async def scan(self, **request: Any) -> dict[str, Any]:
        return self._answer("scan", request)

    async def put_item(self, **request: Any) -> dict[str, Any]:
        return self._answer("put_item", request)


class World:
    def __init__(self, *outcomes: AwsError, seed: int = 1) -> None:
        config = config_with(
            shards=ShardConfig(initialization_attempts=4, initialization_backoff_s=5.0),
        )
        self.conditions = Conditions()
        self.calls = StartCalls(config, LoopClock(), random.Random(seed), self.conditions)
        self.slow, self.quick = Port(), Port(*outcomes)
        self.port = self.calls.of(Port, self.quick, lambda: self.slow)


def now() -> float:
    return asyncio.get_running_loop().time()


@simulated
async def test_a_throttled_call_is_repeated_by_itself():
    world = World(THROTTLED, LimitExceeded("Scan", "LimitExceededException"), THROTTLED)
    assert await world.port.scan(TableName="app") == {"by": world.quick}
    assert world.quick.asked == [("scan", {"TableName": "app"})] * 4
    assert 0.7 <= now() <= 1.4  # 0.2, 0.4 and 0.8 s, of which a half is random


@simulated
async def test_a_call_that_is_being_repeated_is_named_by_readyz_until_it_ends():
    world = World(*[THROTTLED] * 500)
    starting = asyncio.create_task(world.port.scan())
    await asyncio.sleep(30)
    (said,) = world.conditions.current()
    assert said.reason is Reason.START_FAILS
    assert re.search(r"attempt \d+ .*Scan: ThrottlingException", said.message)
    starting.cancel()
    await asyncio.wait([starting])
    assert world.conditions.current() == ()
    world.quick.outcomes[:] = [THROTTLED]
    await world.port.scan()
    assert world.conditions.current() == ()


def test_workers_that_were_refused_together_do_not_come_back_together():
    times = set()
    for seed in range(5):

        @simulated
        async def start(seed=seed):
            await World(THROTTLED, seed=seed).port.scan()
            times.add(now())

        start()
    assert len(times) == 5


@simulated
async def test_a_call_that_is_throttled_for_ever_ends_the_start_and_is_named(caplog):
    world = World(*[THROTTLED] * 500)
    with pytest.raises(MldError, match=r"within 12\d s: Scan: ThrottlingException") as raised:
        await world.port.scan()
    assert not isinstance(raised.value, AwsError)
    assert THROTTLED_S <= now() <= THROTTLED_S + 5
    assert 5 <= len(caplog.records) <= 13


@pytest.mark.parametrize(
    "error",
    [
        Unreachable("Scan", "EndpointConnectionError"),
        UnknownOutcome("Scan", "ConnectionClosedError"),
        CredentialsRefused("Scan", "ExpiredTokenException"),
    ],
)
def test_what_its_caller_repeats_ends_in_the_time_of_a_start(error):
    @simulated
    async def main():
        world = World(*[error] * 500)
        for _ in range(4):  # 4 attempts, 5 s apart: 20 s
            with pytest.raises(type(error)):
                await world.port.scan()
            await asyncio.sleep(5)
        with pytest.raises(MldError, match=f"within 20 s: Scan: {error.code}") as raised:
            await world.port.scan()
        assert raised.value.__cause__ is error

    main()


@simulated
async def test_a_success_begins_the_time_anew():
    error = Unreachable("Scan", "EndpointConnectionError")
    world = World(error)
    with pytest.raises(Unreachable):
        await world.port.scan()
    await world.port.scan()
    await asyncio.sleep(100)
    world.quick.outcomes.append(error)
    with pytest.raises(Unreachable):
        await world.port.scan()


@simulated
async def test_a_refusal_is_left_to_its_caller_however_often():
    world = World(*[Denied("Scan", "AccessDeniedException")] * 3)
    for _ in range(3):
        with pytest.raises(Denied):
            await world.port.scan()
        await asyncio.sleep(100)


@simulated
async def test_after_the_start_calls_go_to_the_port_directly():
    world = World(Throttled("PutItem", "ThrottlingException"))
    world.calls.end()
    assert (world.port.scan, world.port.put_item) == (world.quick.scan, world.quick.put_item)
    with pytest.raises(Throttled):
        await world.port.put_item()
    assert len(world.quick.asked) == 1


@simulated
async def test_a_call_that_outlasts_the_start_is_repeated_no_longer():
    world = World(*[THROTTLED] * 100)
    calling = asyncio.create_task(world.port.scan())
    await asyncio.sleep(10)
    world.calls.end()
    asked = len(world.quick.asked)
    with pytest.raises(Throttled):
        await calling
    assert len(world.quick.asked) == asked + 1


@simulated
async def test_a_late_answer_is_asked_for_with_more_time_until_the_start_is_over(caplog):
    world = World(LATE)
    assert await world.port.scan() == {"by": world.slow}
    assert await world.port.scan() == {"by": world.slow}
    (said,) = caplog.messages
    assert "failoverTimeMillis = 10000" in said
    assert "Scan: ReadTimeoutError" in said
    world.calls.end()
    assert await world.port.scan() == {"by": world.quick}


@simulated
async def test_calls_that_are_late_together_make_one_patient_port():
    world = World(LATE, LATE)
    answers = await asyncio.gather(world.port.scan(), world.port.scan())
    assert answers == [{"by": world.slow}] * 2
    world.slow.outcomes.append(LATE)
    with pytest.raises(UnknownOutcome):
        await world.port.scan()


@simulated
async def test_a_late_write_is_not_repeated():
    late = UnknownOutcome("PutItem", "ReadTimeoutError")
    world = World(late)
    with pytest.raises(UnknownOutcome):
        await world.port.put_item()
    assert world.slow.asked == []
    assert await world.port.put_item() == {"by": world.slow}
