"""Positions as texts."""

import pytest
from hypothesis import given, strategies as st

from kcl_mld.spark.model import Position


@given(st.integers(0, 2**186 - 1), st.integers(0, 2**32 - 1))
def test_a_position_comes_back_from_its_text(sequence, sub):
    position = Position(sequence, sub)
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize("text", ["", "7", "7.", ".0", "7.0.0", "7.x", "x.7", "-7.0", "7.\u0663"])
def test_what_is_no_position_is_refused(text):
    with pytest.raises(ValueError, match="not a position"):
        Position.parse(text)
