"""Opaque tokens."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, strategies as st

from kcl_mld.local.kinesis.state import make_token, read_token


def test_a_token_gives_its_fields_back() -> None:
    assert read_token("kind", make_token("kind", "stream", 5)) == ["stream", "5"]


def test_a_token_of_another_kind_is_refused() -> None:
    assert read_token("other", make_token("kind", "stream")) is None


@pytest.mark.parametrize("token", [None, 5, "", "%%%", "AAAA", "żółw"])
def test_what_is_no_token_is_refused(token: object) -> None:
    assert read_token("kind", token) is None


@given(st.binary(max_size=40))
def test_random_bytes_are_refused(noise: bytes) -> None:
    assert read_token("kind", base64.b64encode(noise).decode()) is None
