"""Sequence numbers of version 2."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kcl_mld.local.kinesis.shard import (
    next_sequence as step,
    parse_sequence as parse,
    parse_sequence_text as parse_text,
    shard_base,
)

SECONDS = st.integers(1, (1 << 36) - 1)


@given(SECONDS, st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 63) - 1), SECONDS)
def test_the_parts_come_back(created_s: int, shard: int, count: int, record_s: int) -> None:
    parts = parse(shard_base(created_s, shard) + step(count, record_s))
    assert parts is not None
    assert (parts.shard_created_s, parts.shard_number) == (created_s, shard)
    assert (parts.count, parts.record_s) == (count, record_s)


def test_a_number_of_the_real_service_names_its_shard() -> None:
    parts = parse(49590338271490256608559692538361571095921575989136588898)
    assert parts is not None
    assert parts.shard_number == 6


@pytest.mark.parametrize("text", ["", "1", "x", "-5", "٣", "9" * 200, None, 7, "4" + "9" * 55])
def test_anything_else_is_nothing(text: object) -> None:
    assert parse_text(text) is None
