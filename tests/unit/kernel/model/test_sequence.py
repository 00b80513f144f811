"""Positions and their order."""

import itertools

import pytest

from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    SHARD_END,
    TRIM_HORIZON,
    ExtendedSequenceNumber as Position,
    InitialPosition,
    Sentinel,
    is_sequence_number,
)

ASCENDING = [
    AT_TIMESTAMP,
    TRIM_HORIZON,
    LATEST,
    Position("0"),
    Position("1"),
    Position("5"),
    Position("5", 1),
    Position("10"),
    Position("49590338271490256608559692538361571095921575989136588898"),
    SHARD_END,
]


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(ASCENDING, 2)))
def test_the_order_is_that_of_every_kcl_worker(low, high):
    assert low < high
    assert low <= high
    assert high > low
    assert high >= low
    assert not high < low
    assert not high <= low


def test_all_shard_ends_are_at_the_same_place():
    assert Position("SHARD_END", 3) <= SHARD_END
    assert Position("SHARD_END", 3) >= SHARD_END


def test_equality_is_textual_and_order_numeric():
    assert Position("010") != Position("10")
    assert Position("010") <= Position("10")
    assert Position("010") >= Position("10")


@pytest.mark.parametrize(
    "text", ["abc", "", "1_0", " 1", "1\n", "-1", "+1", "1.0", "٣", "9" * 5000]
)
def test_neither_digits_nor_a_sentinel_is_refused(text):
    assert not is_sequence_number(text)
    with pytest.raises(MalformedData, match="neither a sequence number nor"):
        Position(text)


def test_a_negative_sub_sequence_number_is_refused():
    with pytest.raises(MalformedData, match="negative"):
        Position("1", -1)


def test_sentinels_know_themselves():
    assert LATEST.sentinel is Sentinel.LATEST
    assert Position("5").sentinel is None
    assert SHARD_END.is_shard_end
    assert not LATEST.is_shard_end
    assert is_sequence_number("TRIM_HORIZON")
    assert not is_sequence_number("trim_horizon")


@pytest.mark.parametrize(
    ("position", "text"),
    [(Position("5"), "5"), (Position("5", 2), "5/2"), (SHARD_END, "SHARD_END")],
)
def test_positions_read_well_in_a_log(position, text):
    assert str(position) == text


def test_an_initial_position_gives_the_checkpoint_of_a_new_lease():
    assert InitialPosition(Sentinel.AT_TIMESTAMP, 12.5).checkpoint == AT_TIMESTAMP
