"""Seeds in portions: short enough for tests that processors share, long enough to be few."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.fleet import judge

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.sim.plan import Plan

#: Seeds of one test.
CHUNK = 10


def portions(first: int, count: int) -> list[range]:
    """``count`` seeds from ``first`` on, :data:`CHUNK` at a time."""
    return [range(start, start + CHUNK) for start in range(first, first + count, CHUNK)]


def acquit(seeds: Iterable[int | Plan]) -> None:
    """Run these seeds, or these plans; fail with the report of the first that is convicted."""
    for seed in seeds:
        verdict = judge(seed)
        if verdict.violations:
            pytest.fail(verdict.report(), pytrace=False)
