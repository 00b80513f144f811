"""Pauses between tries."""

import random

import pytest

from kcl_mld.kernel.rules.backoff import backoff_s


@pytest.mark.parametrize(
    ("attempt", "longest"), [(0, 0.1), (1, 0.2), (2, 0.4), (4, 1.0), (10_000, 1.0)]
)
def test_pauses_double_up_to_the_cap_and_their_upper_half_is_random(attempt, longest):
    rng = random.Random(1)
    pauses = [backoff_s(attempt, rng, first_s=0.1, cap_s=1.0) for _ in range(200)]
    assert longest / 2 <= min(pauses) < longest * 0.55
    assert longest * 0.95 < max(pauses) <= longest
