"""Fleets that read the stream of a DynamoDB table; see ``tests/sim/table_stream.py``."""

from __future__ import annotations

import asyncio

import pytest

from kcl_mld.shards import stream_sync
from tests.sim.chunks import acquit, portions
from tests.sim.fleet import Fleet, judge
from tests.sim.loop import run
from tests.sim.table_stream import TableStreamService, table_plan

pytestmark = pytest.mark.sim

#: The quick part of the tests runs so many of them.
QUICK = 20
#: Each failed once.
REGRESSIONS = (26, 250, 1197)


@pytest.mark.parametrize(
    "seeds",
    [
        *portions(0, QUICK),
        *(pytest.param(each, marks=pytest.mark.proof) for each in portions(QUICK, 100 - QUICK)),
    ],
    ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}",
)
def test_nothing_is_lost_whatever_happens(seeds):
    acquit(map(table_plan, seeds))


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_failed_once(seed):
    acquit([table_plan(seed)])


class Disabled(Fleet):
    """Its stream is disabled while shards are replaced and workers are killed."""

    async def change_streams(self):
        await asyncio.sleep(self.plan.chaos_s / 2)
        self.stream.reshard()
        self.producing = False
        self.stream.service.disable()


@pytest.mark.parametrize("seed", [0, 6, 8, 9])
def test_a_stream_that_is_disabled_is_read_to_its_end(seed):
    async def main():
        fleet = Disabled(table_plan(seed))
        await fleet.run()
        return fleet

    fleet = run(main())
    assert fleet.court.violations == []
    assert all(fleet.court.log(key).ended for key in fleet.stream.truth)


def test_a_run_replays_exactly():
    assert judge(table_plan(3)).digest == judge(table_plan(3)).digest


def rules(seed):
    return {one.rule for one in judge(table_plan(seed)).violations}


def test_a_child_that_is_read_before_its_late_parent_is_convicted(monkeypatch):
    monkeypatch.setattr(stream_sync, "listed_before_parents", lambda *_: {})
    assert "S3" in rules(26)


def test_a_change_that_is_not_delivered_is_convicted(monkeypatch):
    real = TableStreamService.call

    def call(self, operation, request):
        answer = real(self, operation, request)
        if operation == "GetRecords" and len(answer["Records"]) > 1:
            del answer["Records"][0]
        return answer

    monkeypatch.setattr(TableStreamService, "call", call)
    assert "S1" in rules(0)


def test_a_third_reader_is_convicted(monkeypatch):
    real = TableStreamService.call

    def call(self, operation, request):
        answer = real(self, operation, request)
        if operation == "GetRecords":
            for reader in ("peek", "audit"):
                worker, self.reader = self.reader, reader
                real(self, operation, request)
                self.reader = worker
        return answer

    monkeypatch.setattr(TableStreamService, "call", call)
    assert "S19" in rules(0)
