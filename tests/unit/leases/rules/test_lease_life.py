"""The phases of a lease's row: what every write makes of every row is what the table says."""

import itertools

import pytest

from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON
from kcl_mld.leases.model import lease_writes
from kcl_mld.leases.rules.lease_life import TRANSITIONS, LeaseEvent, LeaseState, mermaid, state_of
from tests.fakes.lease_world import lease

ROWS = [
    (LeaseState.FREE, lease()),
    (LeaseState.OWNED, lease(lease_owner="w")),
    (LeaseState.HANDED_OVER, lease(lease_owner="next", checkpoint_owner="w")),
    (LeaseState.FINISHED, lease(lease_owner="w", checkpoint=SHARD_END)),
    (LeaseState.FINISHED, lease(lease_owner="next", checkpoint_owner="w", checkpoint=SHARD_END)),
    (LeaseState.FINISHED, lease(checkpoint=SHARD_END)),
]


def written(row):
    """Every write that there is for a row, by what it is meant for."""
    yield LeaseEvent.TAKEN, lease_writes.taking(row, "other").after
    yield LeaseEvent.ASSIGNED, lease_writes.assigning(row, "other", only_unchanged=True).after
    if row.lease_owner is None:
        return  # only an owner writes what follows
    yield LeaseEvent.RENEWED, lease_writes.renewal(row).after
    gone = LeaseEvent.LET_GO if row.is_handed_over else LeaseEvent.RELEASED
    yield gone, lease_writes.releasing(row).after
    if not row.is_finished:
        yield LeaseEvent.RENEWED, lease_writes.checkpointing(row, TRIM_HORIZON).after
        yield LeaseEvent.ENDED, lease_writes.checkpointing(row, SHARD_END).after
        if not row.is_handed_over:
            yield LeaseEvent.HAND_OFF_BEGUN, lease_writes.hand_off_start(row, "other").after


@pytest.mark.parametrize(("state", "row"), ROWS)
def test_the_state_is_read_from_the_row(state, row):
    assert state_of(row) is state


@pytest.mark.parametrize(("state", "row"), ROWS)
def test_every_write_leads_where_the_table_says(state, row):
    for event, after in written(row):
        assert state_of(after) is TRANSITIONS[state][event], event


def test_the_table_has_nothing_that_is_never_written():
    seen = {(state, event) for state, row in ROWS for event, _ in written(row)}
    assert seen == {(state, event) for state, table in TRANSITIONS.items() for event in table}


@pytest.mark.parametrize(
    "row", [lease(), lease(lease_owner="next", checkpoint_owner="w"), lease(lease_owner="other")]
)
def test_no_hand_off_begins_without_an_owner_who_can_be_asked(row):
    with pytest.raises(ValueError, match="no hand-off"):
        lease_writes.hand_off_start(row, "other")


def test_in_a_hand_off_the_old_owner_lets_go_and_the_next_one_has_it():
    row = lease_writes.hand_off_start(lease(lease_owner="old"), "next").after
    assert (row.lease_owner, row.checkpoint_owner) == ("next", "old")
    row = lease_writes.releasing(row).after
    assert (row.lease_owner, row.checkpoint_owner) == ("next", None)


def test_the_table_is_drawn():
    drawn = mermaid()
    for state, event in itertools.product(LeaseState, LeaseEvent):
        following = TRANSITIONS[state].get(event, state)
        if following is not state:
            assert f"    {state.name} --> {following.name}: {event.value}\n" in drawn
