"""Three tables become one: who moves on when."""

import dataclasses

import pytest

from kcl_mld.errors import UnservableFleet
from kcl_mld.fleet.model.state_history import StateChange, StateItem
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics
from kcl_mld.fleet.rules import table_migration
from kcl_mld.fleet.rules.table_migration import (
    COMPLETE,
    DEPLOYED,
    INIT,
    PENDING,
    TRANSITIONS,
    MoveFacts,
    TableStep,
    next_step,
    status_at_start,
    waits_for,
)


@pytest.mark.parametrize(
    ("stored", "migrates", "status"),
    [
        (None, False, INIT),
        (INIT, False, INIT),
        (DEPLOYED, False, DEPLOYED),
        (PENDING, False, DEPLOYED),
        (DEPLOYED, True, PENDING),
        (PENDING, True, PENDING),
        (COMPLETE, False, COMPLETE),
        (COMPLETE, True, COMPLETE),
    ],
)
def test_a_worker_starts_as_javas_table_says(stored, migrates, status):
    assert status_at_start(stored, "state", migrates=migrates) is status


@pytest.mark.parametrize("stored", [None, INIT])
def test_a_file_that_wants_to_move_too_early_is_refused_with_what_to_do(stored):
    with pytest.raises(UnservableFleet, match="Set it to false until"):
        status_at_start(stored, "state", migrates=True)


NOW_S = 1_000_000.0


def reporting(worker, support=1, age_s=0, **more):
    at = int(NOW_S) - age_s
    return WorkerMetrics(worker, at, support=support, support_at_s=at, **more)


FACTS = MoveFacts(
    now_s=NOW_S,
    owners=frozenset({"a", "b"}),
    old=(reporting("a"), reporting("b")),
    new=(),
    is_old_empty=True,
    migrates=True,
    bake_s=86400.0,
)


def since(status, age_s):
    return StateItem(StateChange(status, "a", int((NOW_S - age_s) * 1000)))


MOVED = dataclasses.replace(FACTS, old=(), new=FACTS.old)


@pytest.mark.parametrize(
    ("state", "facts", "step"),
    [
        (None, {}, TableStep.BEGIN),
        (None, {"owners": frozenset()}, None),
        (None, {"old": (reporting("a"),)}, None),
        (None, {"old": (reporting("a"), reporting("b", support=None))}, None),
        (None, {"old": (reporting("a"), reporting("b", age_s=91))}, None),
        (None, {"old": (reporting("a"),), "new": (reporting("b", age_s=90),)}, TableStep.BEGIN),
        (since(INIT, 3600), {}, None),
        (since(INIT, 3601), {}, TableStep.DEPLOY),
        (since(INIT, 3601), {"old": (reporting("a"),)}, TableStep.FORGET),
        (since(DEPLOYED, 9e5), {}, None),
        (since(DEPLOYED, 1), {"new": FACTS.old, "old": ()}, TableStep.MOVE),
        (since(DEPLOYED, 1), {"new": FACTS.old, "old": (), "migrates": False}, None),
        (since(DEPLOYED, 1), {"new": FACTS.old}, None),
        (
            since(DEPLOYED, 1),
            {"new": FACTS.old, "old": (reporting("a", age_s=61),)},
            TableStep.MOVE,
        ),
        (since(DEPLOYED, 1), {"new": (reporting("a"), reporting("b", age_s=61)), "old": ()}, None),
        (since(PENDING, 86400), {}, None),
        (since(PENDING, 86401), {}, TableStep.COMPLETE),
        (since(PENDING, 86401), {"is_old_empty": False}, TableStep.TAKE_BACK),
        (since(COMPLETE, 9e6), {"is_old_empty": False}, None),
    ],
)
def test_a_leader_moves_on_when_all_can_follow(state, facts, step):
    assert next_step(state, dataclasses.replace(FACTS, **facts)) is step


SLOW = dataclasses.replace(FACTS, old=(reporting("a"), reporting("b", age_s=600)))


@pytest.mark.parametrize(
    ("state", "facts", "why"),
    [
        (None, SLOW, "worker b has not reported for 90 s that it can move them"),
        (None, FACTS, None),
        (since(INIT, 1), SLOW, None),
        (since(DEPLOYED, 1), dataclasses.replace(FACTS, migrates=False), None),
        (
            since(DEPLOYED, 1),
            FACTS,
            "worker a (and 1 more) has written no metrics into the lease table for 60 s",
        ),
        (
            since(DEPLOYED, 1),
            dataclasses.replace(MOVED, old=(reporting("b"),)),
            "worker b writes its metrics into the old table",
        ),
        (since(DEPLOYED, 1), MOVED, None),
    ],
)
def test_who_holds_up_a_move_is_named(state, facts, why):
    """A worker with a wrong clock held it up for ever, and nobody was told."""
    assert waits_for(state, facts) == why


def test_every_step_is_in_the_table_and_in_the_diagram():
    assert {step for steps in TRANSITIONS.values() for step in steps} == set(TableStep)
    drawn = table_migration.mermaid()
    assert "NONE --> INIT" in drawn
    assert all(step.value in drawn for step in TableStep)
