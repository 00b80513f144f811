"""The table is complete, closed and drawn as it is."""

from __future__ import annotations

import pytest

from kcl_mld_protocol import LocalProtocolError, Role, Signal, State, markdown
from kcl_mld_protocol.messages import REQUESTS
from kcl_mld_protocol.state import ACTION_OF, TABLE, next_state

ROWS = [(role, state) for role in Role for state in TABLE[role]]


def reachable(role: Role) -> set[State]:
    seen, todo = {State.START}, [State.START]
    while todo:
        for target in TABLE[role][todo.pop()].values():
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


@pytest.mark.parametrize("role", Role)
def test_every_state_of_a_role_can_be_reached_and_every_target_has_a_row(role):
    assert reachable(role) == set(TABLE[role])


def test_every_state_belongs_to_a_role():
    assert set(TABLE[Role.DAEMON]) | set(TABLE[Role.CHILD]) == set(State)


@pytest.mark.parametrize(("role", "state"), ROWS)
def test_every_unlisted_signal_is_refused(role, state):
    for signal in Signal:
        if signal in TABLE[role][state]:
            assert next_state(role, state, signal) is TABLE[role][state][signal]
        else:
            with pytest.raises(LocalProtocolError, match=state.value):
                next_state(role, state, signal)


def test_a_state_of_the_other_role_has_no_rows():
    with pytest.raises(LocalProtocolError):
        next_state(Role.CHILD, State.DRAINING, Signal.CLOSE)


def test_initialize_is_possible_in_one_state_only():
    for role in Role:
        assert [s for s, row in TABLE[role].items() if Signal.INITIALIZE in row] == [State.START]


def test_only_a_failed_shutdown_notice_is_survivable():
    rows = TABLE[Role.DAEMON]
    survivors = [
        state for state, row in rows.items() if row.get(Signal.MISMATCHED_STATUS) is State.IDLE
    ]
    assert survivors == [State.AWAITING_SHUTDOWN_REQUESTED]


def test_every_action_has_its_four_states():
    for action in REQUESTS:
        assert sum(found is action for found in ACTION_OF.values()) == 4


@pytest.mark.parametrize("role", Role)
def test_the_markdown_table_has_every_state_and_every_change_of_the_table(role):
    printed, states = set(), []
    for line in markdown(role).splitlines()[2:]:
        first, signals, target = (cell.strip() for cell in line.strip("|").split("|"))
        if first:
            states = first.replace("`", "").split(", ")
        if first.endswith("…`"):
            states = [states[0].removesuffix("…") + action.name for action in REQUESTS]
        for state in states:
            action = ACTION_OF[State(state)].name if target.endswith("…`") else ""
            following = target.strip("`").removesuffix("…") + action
            printed |= {(state, signal, following) for signal in signals.split(", ")}
    changes = {
        (state.value, signal.value, following.value)
        for state, row in TABLE[role].items()
        for signal, following in row.items()
        if following is not state
    }
    assert printed == changes
