"""Finding or registering the consumer of a stream: races, limits, and what is told."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from itertools import pairwise

import pytest

from kcl_mld.config.config import FanOutConfig
from kcl_mld.config.stream import Stream
from kcl_mld.errors import Denied, InUse, LimitExceeded, NotFound, Throttled, Unreachable
from kcl_mld.retrieval.consumer_registration import ConsumerRegistration
from kcl_mld.signals.model.conditions import Conditions, Reason
from tests.fakes.clock import LoopClock
from tests.sim.loop import run

STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
CONSUMER_ARN = f"{STREAM_ARN}/consumer/app:1"


def consumer(status):
    return {
        "ConsumerDescription": {
            "ConsumerName": "app",
            "ConsumerARN": CONSUMER_ARN,
            "ConsumerStatus": status,
        }
    }


def missing():
    return NotFound("DescribeStreamConsumer", "ResourceNotFoundException")


class ScriptedKinesis:
    """Answers each operation from a list; what is an exception is raised.

    Attributes:
        calls: (virtual second, operation, request).
    """

    def __init__(self, **scripts):
        self.scripts = {name: deque(script) for name, script in scripts.items()}
        self.calls = []

    def __getattr__(self, name):
        async def call(**request):
            self.calls.append((asyncio.get_running_loop().time(), name, request))
            await asyncio.sleep(0.01)
            script = self.scripts.get(name, deque())
            answer = script.popleft() if len(script) > 1 else script[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def names(self):
        return [name for _, name, _ in self.calls]


class World:
    def __init__(self, stream=None, config=None, **scripts):
        scripts.setdefault(
            "describe_stream_summary", [{"StreamDescriptionSummary": {"StreamARN": STREAM_ARN}}]
        )
        scripts.setdefault("describe_stream_consumer", [consumer("ACTIVE")])
        scripts.setdefault("register_stream_consumer", [{"Consumer": {}}])
        self.kinesis = ScriptedKinesis(**scripts)
        self.conditions = Conditions()
        self.registration = ConsumerRegistration(
            kinesis=self.kinesis,
            stream=stream or Stream("orders"),
            name="app",
            config=config or FanOutConfig(),
            conditions=self.conditions,
            clock=LoopClock(0.0),
            rng=random.Random(1),
        )


def registering(test, **settings):
    async def main():
        await test(World(**settings))

    run(main())


def test_an_active_consumer_takes_one_look():
    async def test(world):
        assert not world.registration.is_known
        assert await world.registration.arn() == CONSUMER_ARN
        assert await world.registration.arn() == CONSUMER_ARN
        assert world.registration.is_known
        assert [(name, request) for _, name, request in world.kinesis.calls] == [
            ("describe_stream_summary", {"StreamName": "orders"}),
            ("describe_stream_consumer", {"StreamARN": STREAM_ARN, "ConsumerName": "app"}),
        ]

    registering(test)


def test_a_known_stream_arn_is_not_asked_for():
    async def test(world):
        await world.registration.arn()
        assert world.kinesis.names() == ["describe_stream_consumer"]

    registering(test, stream=Stream("orders", arn=STREAM_ARN))


def test_a_configured_arn_is_used_as_it_is():
    async def test(world):
        assert world.registration.is_known
        assert await world.registration.arn() == "mine"
        assert not world.kinesis.calls

    registering(test, config=FanOutConfig(consumer_arn="mine"))


def test_a_missing_consumer_is_registered_and_waited_for():
    async def test(world):
        assert await world.registration.arn() == CONSUMER_ARN
        assert world.kinesis.names()[1:] == [
            "describe_stream_consumer",
            "register_stream_consumer",
            "describe_stream_consumer",
            "describe_stream_consumer",
        ]
        assert not world.conditions.current()

    registering(
        test, describe_stream_consumer=[missing(), consumer("CREATING"), consumer("ACTIVE")]
    )


def test_the_one_who_comes_second_looks_again():
    async def test(world):
        assert await world.registration.arn() == CONSUMER_ARN
        assert not world.conditions.current()

    registering(
        test,
        describe_stream_consumer=[missing(), consumer("ACTIVE")],
        register_stream_consumer=[InUse("RegisterStreamConsumer", "ResourceInUseException")],
    )


def test_a_consumer_that_is_deleted_is_registered_again():
    async def test(world):
        assert await world.registration.arn() == CONSUMER_ARN
        assert world.kinesis.names().count("register_stream_consumer") == 1

    registering(
        test, describe_stream_consumer=[consumer("DELETING"), missing(), consumer("ACTIVE")]
    )


@pytest.mark.parametrize("error", [LimitExceeded, Throttled])
@pytest.mark.parametrize(
    "operation",
    ["describe_stream_summary", "describe_stream_consumer", "register_stream_consumer"],
)
def test_throttled_calls_are_repeated_with_growing_pauses_and_told_only_when_they_go_on(
    operation, error
):
    settings = {
        "describe_stream_summary": [{"StreamDescriptionSummary": {"StreamARN": STREAM_ARN}}],
        "describe_stream_consumer": [missing(), consumer("ACTIVE")],
        "register_stream_consumer": [{"Consumer": {}}],
    }
    refusals = [error("Op", "LimitExceededException") for _ in range(9)]

    async def test(world):
        assert await world.registration.arn() == CONSUMER_ARN
        times = [at for at, name, _ in world.kinesis.calls if name == operation]
        pauses = [after - before for before, after in pairwise(times)][:9]
        assert len(pauses) == 9
        assert 1.0 <= pauses[0] <= 2.1
        assert max(pauses) <= 30.1
        assert pauses[4] > pauses[0]
        # Room for consumers is not made by waiting, so that is told at once.
        is_told = error is LimitExceeded and operation == "register_stream_consumer"
        assert (world.registration.failing_since is not None) == is_told

    registering(test, **settings | {operation: [*refusals, *settings[operation]]})


def test_a_stream_without_room_for_another_consumer_is_told_at_once(caplog):
    full = LimitExceeded("RegisterStreamConsumer", "LimitExceededException", "20 are registered")

    async def test(world):
        asking = asyncio.ensure_future(world.registration.arn())
        await asyncio.sleep(1)
        (condition,) = world.conditions.current()
        assert condition.reason is Reason.NO_CONSUMER
        for part in ("20 are registered", "deregister one", "retrievalMode = POLLING"):
            assert part in condition.message
            assert part in caplog.text
        assert [one.levelname for one in caplog.records if "20 are" in one.getMessage()] == [
            "ERROR"
        ]
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    registering(test, describe_stream_consumer=[missing()], register_stream_consumer=[full])


def test_what_does_not_become_active_is_told_and_tried_again(caplog):
    async def test(world):
        with caplog.at_level(logging.WARNING):
            assert await world.registration.arn() == CONSUMER_ARN
        assert "still CREATING after 10 looks" in caplog.text
        (condition,) = world.conditions.current()
        assert condition.reason is Reason.NO_CONSUMER
        assert "consumer app of stream orders" in condition.message
        assert world.registration.failing_since is not None
        world.registration.accepted()
        assert not world.conditions.current()
        assert world.registration.failing_since is None

    registering(test, describe_stream_consumer=[*[consumer("CREATING")] * 12, consumer("ACTIVE")])


def test_who_may_not_is_told_what_to_allow(caplog):
    async def test(world):
        await world.registration.arn()
        (condition,) = world.conditions.current()
        assert "RegisterStreamConsumer" in condition.message
        assert "retrievalMode = POLLING" in condition.message

    registering(
        test,
        describe_stream_consumer=[
            Denied("DescribeStreamConsumer", "AccessDeniedException"),
            consumer("ACTIVE"),
        ],
    )


def test_an_outage_ends_when_it_ends():
    async def test(world):
        assert await world.registration.arn() == CONSUMER_ARN
        times = [at for at, _, _ in world.kinesis.calls]
        assert times[-1] > 60

    gone = [Unreachable("DescribeStreamConsumer", "ConnectTimeoutError") for _ in range(8)]
    registering(test, describe_stream_consumer=[*gone, consumer("ACTIVE")])


def test_many_ask_and_one_works():
    async def test(world):
        found = await asyncio.gather(*(world.registration.arn() for _ in range(20)))
        assert set(found) == {CONSUMER_ARN}
        assert world.kinesis.names().count("register_stream_consumer") == 1

    registering(test, describe_stream_consumer=[missing(), consumer("ACTIVE")])


def test_when_the_one_who_works_is_cancelled_the_next_goes_on():
    async def test(world):
        first = asyncio.ensure_future(world.registration.arn())
        second = asyncio.ensure_future(world.registration.arn())
        await asyncio.sleep(0.015)
        first.cancel()
        assert await second == CONSUMER_ARN

    registering(test)


def test_a_consumer_that_the_service_does_not_find_is_looked_for_again():
    async def test(world):
        arn = await world.registration.arn()
        world.registration.not_found("another")
        assert world.registration.is_known
        world.registration.not_found(arn)
        assert not world.registration.is_known
        assert await world.registration.arn() == arn
        assert world.kinesis.names().count("describe_stream_consumer") == 2

    registering(test)


def test_a_configured_arn_that_the_service_does_not_find_is_told():
    async def test(world):
        world.registration.not_found("mine")
        assert await world.registration.arn() == "mine"
        (condition,) = world.conditions.current()
        assert "fanoutConfig.consumerArn" in condition.message

    registering(test, config=FanOutConfig(consumer_arn="mine"))


def test_what_nobody_waits_for_any_more_does_not_count():
    async def test(world):
        asking = asyncio.ensure_future(world.registration.arn())
        await asyncio.sleep(5)
        assert world.conditions.current()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert not world.conditions.current()

    registering(
        test,
        describe_stream_consumer=[Denied("DescribeStreamConsumer", "AccessDeniedException")],
    )
