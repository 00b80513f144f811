"""The consumer's table: what follows what, and which reason wins."""

from __future__ import annotations

import itertools

import pytest

from kcl_mld.children.rules.lifecycle import (
    ConsumerState as S,
    ShutdownReason as R,
    TaskOutcome,
    mermaid,
    next_state,
    start_order,
    stronger,
)
from kcl_mld.kernel.model.sequence import LATEST, TRIM_HORIZON, ExtendedSequenceNumber


@pytest.mark.parametrize(
    ("state", "outcome", "following"),
    [
        (S.WAITING_ON_PARENT_SHARDS, TaskOutcome.DONE, S.INITIALIZING),
        (S.WAITING_ON_PARENT_SHARDS, TaskOutcome.AGAIN, S.WAITING_ON_PARENT_SHARDS),
        (S.INITIALIZING, TaskOutcome.DONE, S.PROCESSING),
        (S.INITIALIZING, TaskOutcome.RESTART, S.INITIALIZING),
        (S.PROCESSING, TaskOutcome.DONE, S.PROCESSING),
        (S.PROCESSING, TaskOutcome.AGAIN, S.PROCESSING),
        (S.PROCESSING, TaskOutcome.RESTART, S.INITIALIZING),
    ],
)
def test_without_a_reason_life_goes_on(state, outcome, following):
    assert next_state(state, outcome, None) is following


@pytest.mark.parametrize(
    ("state", "reason", "following"),
    [
        *((S.WAITING_ON_PARENT_SHARDS, reason, S.SHUTTING_DOWN) for reason in R),
        (S.INITIALIZING, R.REQUESTED, S.SHUTDOWN_REQUESTED),
        (S.INITIALIZING, R.SHARD_END, S.SHUTTING_DOWN),
        (S.INITIALIZING, R.LEASE_LOST, S.SHUTTING_DOWN),
        (S.PROCESSING, R.REQUESTED, S.SHUTDOWN_REQUESTED),
        (S.PROCESSING, R.SHARD_END, S.SHUTTING_DOWN),
        (S.PROCESSING, R.LEASE_LOST, S.SHUTTING_DOWN),
        *((S.SHUTDOWN_REQUESTED, reason, S.SHUTTING_DOWN) for reason in R),
    ],
)
def test_a_reason_wins_over_every_outcome(state, reason, following):
    for outcome in TaskOutcome:
        assert next_state(state, outcome, reason) is following


def test_shutting_down_repeats_itself_until_it_is_done():
    for reason in R:
        assert next_state(S.SHUTTING_DOWN, TaskOutcome.AGAIN, reason) is S.SHUTTING_DOWN
        assert next_state(S.SHUTTING_DOWN, TaskOutcome.DONE, reason) is S.SHUTDOWN_COMPLETE


def test_a_child_that_forgot_the_end_starts_again_unless_the_lease_is_lost():
    assert next_state(S.SHUTTING_DOWN, TaskOutcome.RESTART, R.SHARD_END) is S.INITIALIZING
    assert next_state(S.SHUTTING_DOWN, TaskOutcome.RESTART, R.LEASE_LOST) is S.SHUTTING_DOWN


@pytest.mark.parametrize(
    ("state", "outcome", "reason"),
    [
        (S.SHUTDOWN_COMPLETE, TaskOutcome.DONE, None),
        (S.SHUTDOWN_COMPLETE, TaskOutcome.DONE, R.LEASE_LOST),
        (S.INITIALIZING, TaskOutcome.AGAIN, None),
        (S.SHUTDOWN_REQUESTED, TaskOutcome.DONE, None),
    ],
)
def test_combinations_that_no_task_produces_are_refused(state, outcome, reason):
    with pytest.raises(ValueError, match="nothing follows"):
        next_state(state, outcome, reason)


def test_only_a_higher_rank_replaces_a_reason():
    assert stronger(None, R.REQUESTED) is R.REQUESTED
    for first, second in itertools.product(R, R):
        assert stronger(first, second) is (max(first, second))


def test_every_reason_ends_every_life():
    for state, reason in itertools.product(S, R):
        steps = 0
        while state is not S.SHUTDOWN_COMPLETE:
            state = next_state(state, TaskOutcome.DONE, reason)  # noqa: PLW2901
            steps += 1
            assert steps < 4


def test_the_diagram_names_every_state():
    diagram = mermaid()
    assert diagram.startswith("stateDiagram-v2\n")
    assert all(state.value in diagram for state in S)
    assert "PROCESSING --> SHUTDOWN_REQUESTED: REQUESTED" in diagram


def test_children_start_in_the_order_of_their_positions_and_last_those_with_nothing_to_catch_up_on():
    numbers = [ExtendedSequenceNumber(text) for text in ("9", "10", "200")]
    ordered = [TRIM_HORIZON, *numbers, LATEST]
    shuffled = [LATEST, numbers[2], TRIM_HORIZON, numbers[1], numbers[0]]
    assert sorted(shuffled, key=start_order) == ordered
