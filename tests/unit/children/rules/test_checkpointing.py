"""Which checkpoint requests are accepted, and what they store."""

from __future__ import annotations

import pytest

from kcl_mld.children.rules.checkpointing import (
    CheckpointState,
    as_delivered,
    position_to_store,
)
from kcl_mld.errors import CheckpointRefused
from kcl_mld.kernel.model.sequence import (
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)


def reading(last, largest):
    return CheckpointState(last=last, largest=largest)


OPEN = reading(At("100"), At("200", 7))
ENDED = OPEN.ended()
FRESH = CheckpointState.starting_at(TRIM_HORIZON)


@pytest.mark.parametrize(
    ("state", "asked", "stored"),
    [
        (OPEN, (None, None), At("200", 7)),
        (OPEN, (None, -5), At("200", 7)),
        (OPEN, ("150", None), At("150")),
        (OPEN, ("000150", None), At("150")),
        (OPEN, ("0100", None), None),
        (OPEN, ("150", 2), At("150", 2)),
        (OPEN, ("200", 7), At("200", 7)),
        (OPEN, ("200", None), At("200")),
        (OPEN, ("100", 1), At("100", 1)),
        (OPEN, ("100", None), None),
        (reading(At("100", 3), At("100", 5)), ("100", None), None),
        (reading(At("100", 3), At("200")), ("0100", None), None),
        (reading(At("100", 3), At("200")), ("200", None), At("200")),
        (reading(At("100", 3), At("200")).ended(), ("100", None), None),
        (reading(At("200"), At("200")), (None, None), None),
        (FRESH, (None, None), None),
        (FRESH, ("TRIM_HORIZON", None), None),
        (reading(LATEST, At("5")), ("LATEST", 0), None),
        (ENDED, (None, None), SHARD_END),
        (ENDED, ("SHARD_END", None), SHARD_END),
        (ENDED, ("SHARD_END", 5), SHARD_END),
        (ENDED, ("200", 7), SHARD_END),
        (ENDED, ("200", None), SHARD_END),
        (ENDED, ("0200", 7), SHARD_END),
        (ENDED, ("200", 0), At("200")),
        (ENDED, ("150", None), At("150")),
    ],
)
def test_accepted(state, asked, stored):
    assert position_to_store(state, *asked) == stored


@pytest.mark.parametrize(
    ("state", "asked"),
    [
        (OPEN, ("99", None)),
        (reading(At("100", 3), At("100", 5)), ("100", 0)),
        (reading(At("100", 3), At("100", 5)), ("99", None)),
        (reading(LATEST, At("100", 5)), ("TRIM_HORIZON", None)),
        (OPEN, ("200", 8)),
        (OPEN, ("201", None)),
        (OPEN, ("150", -1)),
        (OPEN, ("abc", None)),
        (OPEN, ("", None)),
        (OPEN, ("1_50", None)),
        (OPEN, (" 150", None)),
        (OPEN, ("\u0661\u0665\u0660", None)),
        (OPEN, ("SHARD_END", None)),
        (OPEN, ("TRIM_HORIZON", None)),
        (reading(TRIM_HORIZON, At("5")), ("LATEST", None)),
        (FRESH, ("5", None)),
        (FRESH, ("LATEST", None)),
        (ENDED, ("99", None)),
        (ENDED, ("LATEST", None)),
    ],
)
def test_refused(state, asked):
    with pytest.raises(CheckpointRefused) as refused:
        position_to_store(state, *asked)
    assert refused.value.error_name == "IllegalArgumentException"


def test_why_a_position_is_refused_is_one_short_line_whatever_was_asked():
    with pytest.raises(CheckpointRefused) as refused:
        position_to_store(OPEN, "1\n2\ud800" + "x" * 1_000_000, None)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 3000


def test_the_last_position_ends_the_shard_even_if_it_was_stored_before():
    state = reading(At("200", 7), At("200", 7)).ended()
    assert position_to_store(state, "200", 7) == SHARD_END
    assert position_to_store(state, "200", None) == SHARD_END


def test_a_shard_that_delivered_nothing_ends_at_its_sentinel():
    state = FRESH.ended()
    assert position_to_store(state, "TRIM_HORIZON", None) == SHARD_END
    assert position_to_store(state, None, None) == SHARD_END


def test_the_largest_position_never_goes_back():
    state = FRESH.delivered(At("9")).delivered(At("10")).delivered(At("9", 4)).delivered(None)
    assert state.largest == At("10")


def test_the_end_is_reached_once():
    assert ENDED.ended() is ENDED
    assert ENDED.at_end == At("200", 7)


def test_a_stored_position_is_the_last_one():
    assert OPEN.stored(At("150")).last == At("150")


def test_at_shard_end_a_number_beyond_the_last_delivered_one_is_refused():
    state = CheckpointState.starting_at(At("5")).delivered(At("9"))
    with pytest.raises(CheckpointRefused) as caught:
        position_to_store(state.ended(), "10", None)
    assert caught.value.error_name == "IllegalArgumentException"
    assert position_to_store(state.ended(), "7", None) == At("7")


PADDED = reading(At("0003"), At("0012"))


@pytest.mark.parametrize(
    ("state", "number", "stored"),
    [
        (PADDED, "7", At("0007")),
        (PADDED, "0007", At("0007")),
        (PADDED, "000000007", At("0007")),
        (PADDED, "12", At("0012")),
        (PADDED, "3", None),
        (PADDED.ended(), "12", SHARD_END),
        (CheckpointState.starting_at(At("0003")), "3", None),
    ],
)
def test_a_number_is_stored_as_its_service_writes_it(state, number, stored):
    assert position_to_store(state, number, 0) == stored


@pytest.mark.parametrize("text", ["LATEST", "", "-1", "x7"])
def test_only_numbers_are_filled_up(text):
    assert as_delivered(text, At("0012")) == text
