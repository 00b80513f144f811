"""Fleets whose records are pushed: the judges see what goes wrong there, too, and Java's mistake."""

import dataclasses
import json

import pytest

from kcl_mld import app
from kcl_mld.errors import UnknownOutcome
from tests.sim.children import Manners
from tests.sim.fleet import judge
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim

CALM = Plan(seed=1, workers=2, shards=2, chaos_s=30, fan_out=(True,))
#: Checkpoints lie within aggregates, their writes take long, and workers die between two of them.
WITHIN = Plan(
    seed=0,
    workers=3,
    shards=3,
    failover_s=3.0,
    chaos_s=200,
    put_every_s=0.5,
    aggregated=1.0,
    fan_out=(True,),
    faults=("kill",),
    fault_every_s=10.0,
    manners=Manners(checkpoints="record"),
    weather={"latency_s": (0.2, 0.5)},
)


class Events:
    """A subscription whose events go through ``change``; None in its place breaks it at once."""

    def __init__(self, shared, change):
        self._shared = shared
        self._change = change

    async def next_event(self):
        if self._change is None:
            raise UnknownOutcome("SubscribeToShard", "ProtocolError", "planted")
        body = await self._shared.next_event()
        if body is None:
            return None
        event = json.loads(body)
        self._change(event)
        return json.dumps(event).encode()

    def close(self):
        self._shared.close()


def fleet_with(change=lambda event: None, *, breaks_first=False, says_after=False):
    """Workers whose subscriptions are tampered with.

    Args:
        change: called with every event.
        breaks_first: the first subscription of a worker to a shard at a number breaks unread.
        says_after: the next one says AFTER, as in Java, because the first was accepted.
    """

    def build(config, ports, stream):
        class Changed:
            def __init__(self):
                self.opened = set()

            def __getattr__(self, name):
                return getattr(ports.kinesis, name)

            async def subscribe_to_shard(self, **request):
                start, shard = request["StartingPosition"], request["ShardId"]
                is_at = start["Type"] == "AT_SEQUENCE_NUMBER"
                if is_at and says_after and shard in self.opened:
                    start = {**start, "Type": "AFTER_SEQUENCE_NUMBER"}
                shared = await ports.kinesis.subscribe_to_shard(
                    **{**request, "StartingPosition": start}
                )
                is_first = is_at and shard not in self.opened
                self.opened.add(shard)
                return Events(shared, None if breaks_first and is_first else change)

        return app.build(config, dataclasses.replace(ports, kinesis=Changed()), stream)

    return build


def rules(plan, build):
    return {violation.rule for violation in judge(plan, build).violations}


def test_a_pushed_record_that_is_dropped_on_its_way_is_missed():
    def drop(event):
        del event["Records"][1:2]

    assert "S1" in rules(CALM, fleet_with(drop))


def test_an_event_that_skips_by_its_continuation_number_is_missed():
    """The first record of every second event is pushed, and the position moves behind all of it."""
    plan = dataclasses.replace(CALM, subscription_s=10.0)

    def cut(event):
        del event["Records"][2:]

    assert "S1" in rules(plan, fleet_with(cut))


def test_a_sound_fleet_is_acquitted():
    for fan_out in ((True,), (True, False)):
        plan = dataclasses.replace(CALM, reshard_every_s=10.0, subscription_s=20.0, fan_out=fan_out)
        verdict = judge(plan, fleet_with())
        assert not verdict.violations, verdict.report()
        assert verdict.records


def test_after_instead_of_at_skips_the_rest_of_an_aggregate_and_is_missed():
    """What Java does from the moment at which a subscription was accepted."""
    assert "S1" in rules(WITHIN, fleet_with(breaks_first=True, says_after=True))


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_a_subscription_that_breaks_before_its_first_event_costs_nothing(seed):
    verdict = judge(dataclasses.replace(WITHIN, seed=seed), fleet_with(breaks_first=True))
    assert not verdict.violations, verdict.report()
    assert verdict.duplicates
