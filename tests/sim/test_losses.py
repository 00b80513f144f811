"""A fleet whose stream or lease table is taken away, and judges that notice who does it wrong."""

from __future__ import annotations

import asyncio
import base64
import dataclasses

import pytest

from kcl_mld.fleet.lease_coordinator import LeaseCoordinator
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.shards.shard_syncer import ShardSyncer
from kcl_mld.shards.stream_existence import StreamExistence
from kcl_mld.streams.existence_watch import ExistenceWatch
from tests.sim.fleet import Fleet, judge
from tests.sim.loop import run
from tests.sim.plan import LOSSES, Plan
from tests.sim.stream import REPLACED_S

pytestmark = pytest.mark.sim

LOSING = Plan(seed=1, workers=3, shards=4, chaos_s=60, reshard_every_s=15.0, loses_at_s=40.0)
FAULTY = dataclasses.replace(
    LOSING, faults=("stop", "freeze", "partition", "throttle", "lose answers", "slow", "expire")
)


@pytest.mark.parametrize("loses", LOSSES)
def test_every_worker_ends_for_it(loses):
    async def main():
        fleet = Fleet(dataclasses.replace(LOSING, loses=loses))
        await fleet.run()
        return fleet

    fleet = run(main())
    assert fleet.court.violations == []
    ends = [row.text for row in fleet.trace.rows if row.text.startswith("END")]
    assert len(ends) == LOSING.workers
    what, _, how = loses.partition(" ")
    name = "stream orders" if what == "stream" else "lease table app"
    again = " and created again" if how == "recreated" else ""
    assert all(text.startswith(f"END {name} was deleted{again}") for text in ends), ends


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loses", LOSSES)
def test_faults_around_it_change_nothing(loses, seed):
    verdict = judge(dataclasses.replace(FAULTY, loses=loses, seed=seed, fault_every_s=3.0))
    assert not verdict.violations, verdict.report()


def convicted(loses):
    plans = (dataclasses.replace(LOSING, loses=loses, seed=seed) for seed in range(5))
    return {f"{one.rule}: {one.text}" for plan in plans for one in judge(plan).violations}


def test_a_worker_that_takes_a_missing_shard_for_an_ended_one_is_noticed(monkeypatch):
    async def always(_self, _shard_id, _sequence_number=None):
        return True

    monkeypatch.setattr(StreamExistence, "is_trimmed", always)
    assert any("told the end of" in text for text in convicted("stream deleted"))


@pytest.mark.parametrize("loses", LOSSES)
def test_a_worker_that_stays_is_noticed(monkeypatch, loses):
    async def never(_self):
        return None

    monkeypatch.setattr(ExistenceWatch, "_look_once", never)
    rules = {text.partition(":")[0] for text in convicted(loses)}
    assert rules & {"L5", "S9"}
    # Rows of a new table with the counters of the old one look expired to whoever stays (L6).
    assert rules <= {"L5", "L6", "S9"}


def test_a_worker_that_fills_a_table_that_was_created_again_is_noticed(monkeypatch):
    async def is_leader(self):
        return await self.elector.is_leader()

    async def stay(_self):
        return None

    monkeypatch.setattr(LeaseCoordinator, "is_leader", is_leader)
    monkeypatch.setattr(ExistenceWatch, "_look_once", stay)
    assert any("created" in text for text in convicted("table recreated"))


def test_a_worker_that_syncs_with_a_stream_that_was_created_again_is_noticed(monkeypatch):
    async def stay(_self):
        return None

    async def fill(self):
        await self.sync()

    monkeypatch.setattr(ExistenceWatch, "_look_once", stay)
    monkeypatch.setattr(ShardSyncer, "audit", fill)
    assert any("created" in text for text in convicted("stream recreated"))


class Surprised(Fleet):
    """Its stream is created again while a request is under way; others write to the new one."""

    def __init__(self, plan, operation, count):
        super().__init__(plan)
        self._real, self._operation, self._left = self.stream.model.call, operation, count
        self.stream.model.call = self._call
        self._deleted = asyncio.Event()

    def _call(self, operation, request):
        self._left -= operation == self._operation
        if self._left == 0 and not self.lost:
            self.lost = self.court.lost = "stream"
            self.court.lost_s = self.now()
            self.producing = False
            self.trace.add("", f"STREAM DELETED before {operation}")
            self.stream.delete()
            self._deleted.set()
        return self._real(operation, request)

    async def lose(self):
        await self._deleted.wait()
        await asyncio.sleep(REPLACED_S)
        self.trace.add("", "STREAM CREATED AGAIN")
        self.stream.create_again(self.plan.shards)
        for number in range(100):
            data = base64.b64encode(b"of another stream").decode()
            request = {"StreamName": self.stream.name, "Data": data, "PartitionKey": f"{number}"}
            self._real("PutRecord", request)
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("start", [Sentinel.TRIM_HORIZON, Sentinel.LATEST, Sentinel.AT_TIMESTAMP])
@pytest.mark.parametrize(
    ("operation", "count", "shards"),
    [
        ("GetShardIterator", 1, 1),
        ("GetShardIterator", 1, 4),
        ("GetShardIterator", 4, 4),
        ("GetShardIterator", 6, 4),
        ("DescribeStreamConsumer", 1, 4),
        ("RegisterStreamConsumer", 1, 4),
    ],
)
def test_unread_leases_get_nothing_of_a_stream_that_is_created_again_just_then(
    operation, count, shards, start
):
    """All of it was read until the next look, up to 90 s later."""

    async def main():
        plan = Plan(
            seed=count,
            workers=1,
            shards=shards,
            chaos_s=60,
            reshard_every_s=5.0,
            start=start,
            fan_out=("Consumer" in operation,),
        )
        fleet = Surprised(plan, operation, count)
        await fleet.run()
        return fleet

    fleet = run(main())
    assert fleet.lost
    assert fleet.court.violations == []
