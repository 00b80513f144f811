"""Fleets that read the stream of a DynamoDB table; see ``tests/sim/table_stream.py``."""

from __future__ import annotations

import pytest

from mld.shards import stream_sync
from tests.sim.chunks import acquit, portions
from tests.sim.fleet import judge
from tests.sim.table_stream import TableStreamService, table_plan

pytestmark = pytest.mark.sim

#: The quick part of the tests runs so many of them.
QUICK = 20
#: Each failed once.
REGRESSIONS = (26, 250)


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
