"""Fleets whose children fail at some records: each is processed, or a dead letter."""

from __future__ import annotations

import collections
from dataclasses import replace

import pytest

from tests.sim.fleet import judge
from tests.sim.plan import draw

pytestmark = pytest.mark.sim

QUICK, ALL = 10, 200
CHUNK = 10


def plan_of(seed):
    """A drawn fleet with poison in its streams."""
    plan = draw(seed)
    manners = replace(plan.manners, poison=(11, 40, 100)[seed % 3])
    return replace(plan, sets_aside=True, manners=manners, loses=None)


@pytest.mark.parametrize(
    "first",
    [
        *range(0, QUICK, CHUNK),
        *(pytest.param(each, marks=pytest.mark.proof) for each in range(QUICK, ALL, CHUNK)),
    ],
)
def test_each_record_is_processed_or_a_dead_letter(first):
    counts = collections.Counter()
    for seed in range(first, first + CHUNK):
        verdict = judge(plan_of(seed))
        if verdict.violations:
            pytest.fail(verdict.report(), pytrace=False)
        counts.update(verdict.counts)
    assert counts["dead letter"] > 0
