"""Seeds in portions: short enough for tests that processors share, long enough to be few."""

from __future__ import annotations

import pytest

from tests.sim.fleet import judge

#: Seeds of one test.
CHUNK = 10


def portions(first: int, count: int) -> list[range]:
    """``count`` seeds from ``first`` on, :data:`CHUNK` at a time."""
    return [range(start, start + CHUNK) for start in range(first, first + count, CHUNK)]


def acquit(seeds: range | list[int]) -> None:
    """Run these seeds; fail with the report of the first that is convicted."""
    for seed in seeds:
        verdict = judge(seed)
        if verdict.violations:
            pytest.fail(verdict.report(), pytrace=False)
