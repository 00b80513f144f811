"""The ways in which a call goes wrong."""

import asyncio
import random

import pytest

from kcl_mld.errors import (
    AwsError,
    ExpiredIterator,
    ServiceError,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from tests.sim.gate import Gate, drive
from tests.sim.loop import OWNER, Stalled, TaskOwner, run


def calling(prepare, operation="UpdateItem", timeout_s=1.0):
    """(outcome, seconds it took, times of the effect) of one call through a prepared gate."""

    async def main():
        loop = asyncio.get_running_loop()
        gate = Gate(random.Random(1))
        effects = []

        async def effect():
            effects.append(loop.time())
            return "answer"

        prepare(gate)
        try:
            outcome = await gate.call("dynamodb", operation, effect, timeout_s)
        except AwsError as error:
            outcome = error
        took_s = loop.time()
        await asyncio.sleep(20)  # what comes late comes now
        return outcome, took_s, effects

    return run(main())


def weather(**changes):
    def prepare(gate):
        for name, value in changes.items():
            setattr(gate.weather, name, value)

    return prepare


def test_a_call_takes_two_ways_and_has_its_effect_between_them():
    outcome, took_s, (effect_s,) = calling(weather())
    assert outcome == "answer"
    assert 0 < effect_s < took_s <= 0.05


def test_a_lost_request_has_no_effect_and_no_answer():
    outcome, took_s, effects = calling(weather(lost_before=1.0))
    assert isinstance(outcome, UnknownOutcome)
    assert took_s == pytest.approx(1.0, abs=0.01)
    assert effects == []


def test_a_lost_answer_has_an_effect_that_the_caller_does_not_know_of():
    outcome, _took_s, effects = calling(weather(lost_after=1.0))
    assert isinstance(outcome, UnknownOutcome)
    assert len(effects) == 1


def test_a_slow_request_may_have_its_effect_after_the_caller_gave_up():
    outcome, took_s, (effect_s,) = calling(weather(latency_s=(5.0, 5.0)))
    assert isinstance(outcome, UnknownOutcome)
    assert took_s < effect_s


def test_a_refusal_has_no_effect():
    outcome, _took_s, effects = calling(weather(throttled=1.0))
    assert isinstance(outcome, Throttled)
    assert effects == []


def test_an_internal_error_has_no_effect():
    outcome, _took_s, effects = calling(weather(broken=1.0))
    assert isinstance(outcome, ServiceError)
    assert effects == []


def test_only_iterators_expire():
    outcome, _took_s, effects = calling(weather(expired=1.0), operation="GetRecords")
    assert isinstance(outcome, ExpiredIterator)
    assert effects == []
    assert calling(weather(expired=1.0))[0] == "answer"


def test_a_partition_is_met_by_waiting():
    outcome, took_s, effects = calling(weather(partitioned={"dynamodb"}))
    assert isinstance(outcome, UnknownOutcome | Unreachable)
    assert took_s == pytest.approx(1.0, abs=0.01)
    assert effects == []
    assert calling(weather(partitioned={"kinesis"}))[0] == "answer"


def test_a_request_of_a_process_that_stands_still_has_its_effect_and_its_answer_waits():
    async def main():
        loop = asyncio.get_running_loop()
        gate, owner, effects, answers = Gate(random.Random(1)), TaskOwner(), [], []

        async def effect():
            effects.append(loop.time())

        async def process():
            OWNER.set(owner)
            await gate.call("dynamodb", "UpdateItem", effect, 60.0)
            answers.append(loop.time())

        task = asyncio.create_task(process())
        loop.call_later(0.001, owner.freeze)
        loop.call_later(7, owner.thaw)
        await task
        return effects, answers

    (effect_s,), (answer_s,) = run(main())
    assert effect_s < 1
    assert answer_s == pytest.approx(7, abs=0.01)


def test_a_dead_process_hears_nothing():
    async def main():
        gate = Gate(random.Random(1))
        gate.kill()
        await gate.call("dynamodb", "GetItem", lambda: None, 1.0)

    with pytest.raises(Stalled):
        run(main())


def test_a_fake_that_waits_is_refused():
    with pytest.raises(RuntimeError, match="waited"):
        drive(asyncio.sleep(0))
