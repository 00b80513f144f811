"""Fleets of many streams: one that is sound, and planted faults that only several streams show."""

import dataclasses

import pytest

from kcl_mld import app
from kcl_mld.app.stream_tracker import StreamTracker
from kcl_mld.app.worker_streams import ContextLoops
from kcl_mld.shards import stream_sync
from kcl_mld.streams.rules import stream_identity
from kcl_mld.streams.stream_names import DiscoveredNames
from tests.sim.fleet import judge
from tests.sim.plan import STREAM_EVENTS, Plan, draw

CALM = Plan(seed=1, workers=2, streams=(1, 2, 2), chaos_s=60, reshard_every_s=20.0)


def changed(*events):
    """A plan in which streams come and go."""
    return dataclasses.replace(CALM, stream_events=events)


def texts(plan):
    return [f"{found.rule} {found.text}" for found in judge(plan, app.build).violations]


def test_no_scripted_worker_is_drawn_for_many_streams():
    """It reads a single stream and would hold leases of others without reading them."""
    plans = [draw(seed) for seed in range(1000)]
    assert any(plan.joins_at_s is not None for plan in plans)
    many = [plan for plan in plans if plan.streams]
    assert many
    assert not any(plan.peers or plan.joins_at_s is not None for plan in many)


@pytest.mark.parametrize("events", [(), *((event,) for event in STREAM_EVENTS), STREAM_EVENTS])
def test_a_sound_fleet_is_acquitted(events):
    assert texts(changed(*events)) == []


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("events", [("add",), ("delete",), ("recreate",), STREAM_EVENTS])
def test_a_sound_fleet_that_finds_its_streams_is_acquitted(events, deletes):
    plan = dataclasses.replace(
        changed(*events), discovers=True, deletes_former=deletes, chaos_s=200
    )
    assert texts(plan) == []


def test_seeds_draw_everything_that_can_become_of_streams():
    plans = [plan for plan in map(draw, range(200)) if plan.streams]
    assert len(plans) > 20
    assert {len(plan.streams) for plan in plans} == {1, 2, 3}
    assert {event for plan in plans for event in plan.stream_events} == set(STREAM_EVENTS)
    found = {(plan.discovers, plan.deletes_former) for plan in plans}
    assert found == {(False, False), (True, False), (True, True)}


def test_a_sync_that_looks_at_the_rows_of_all_streams_is_convicted(monkeypatch):
    def all_rows(_stream, scan):
        return stream_sync.StreamRows(scan.leases, ())

    monkeypatch.setattr(stream_sync, "rows_of", all_rows)
    assert any(text.startswith("L3") for text in texts(CALM))


def test_leases_of_a_deleted_stream_that_are_held_are_convicted(monkeypatch):
    monkeypatch.setattr(ContextLoops, "remove", lambda *_: None)
    assert any("whose stream was deleted" in text for text in texts(changed("recreate")))


def test_a_stream_created_again_that_nobody_looks_for_is_convicted(monkeypatch):
    monkeypatch.setattr(StreamTracker, "_gone", lambda *_: None)
    assert any(text.startswith("L3") for text in texts(changed("recreate")))


def test_a_unit_of_epochs_that_differs_is_convicted(monkeypatch):
    real = stream_identity.epoch_of
    monkeypatch.setattr(stream_identity, "epoch_of", lambda *args: real(*args[:3], (), "millis"))
    assert texts(CALM)


def finding(*events):
    """The same of workers that find their streams, and delete the leases of former ones."""
    plan = dataclasses.replace(changed(*events), discovers=True, deletes_former=True)
    return dataclasses.replace(plan, chaos_s=200)


def test_leases_of_a_stream_that_is_there_must_not_be_deleted(monkeypatch):
    monkeypatch.setattr(StreamTracker, "may_be_listed", lambda *_: False)
    assert any("deleted" in text for text in texts(finding()))


def test_a_list_that_is_not_read_to_its_end_is_convicted(monkeypatch):
    real = DiscoveredNames._listed

    async def first_page(self):
        return (await real(self))[:-1]

    monkeypatch.setattr(DiscoveredNames, "_listed", first_page)
    assert any(text.startswith("L3") for text in texts(finding()))
