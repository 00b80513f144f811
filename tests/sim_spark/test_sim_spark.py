"""Each record once, whatever happens to the processes: seeds of ``tests/sim_spark/world.py``."""

from __future__ import annotations

import pytest

from tests.sim_spark.world import judge

pytestmark = pytest.mark.sim
KINDS = {"delta": 60, "s3": 20, "jdbc": 60}
PORTION = 20
PORTIONS = [
    (kind, range(begin, begin + PORTION))
    for kind, seeds in KINDS.items()
    for begin in range(0, seeds, PORTION)
]


def verdicts(kind, seeds):
    return [judge(kind, seed) for seed in seeds]


@pytest.mark.parametrize(
    ("kind", "seeds"), PORTIONS, ids=[f"{k}-{s.start}-{s.stop - 1}" for k, s in PORTIONS]
)
def test_every_record_comes_out_once_and_in_order(kind, seeds):
    found = verdicts(kind, seeds)
    for verdict in found:
        assert not verdict.violations, verdict.report()
    assert sum(verdict.crashes for verdict in found) > PORTION
    assert sum(verdict.written_again for verdict in found) > PORTION // 2
    assert sum(verdict.cut_along for verdict in found) > 10 * PORTION
    assert sum(verdict.cut_ahead for verdict in found) > PORTION
    assert sum(verdict.refused for verdict in found) > PORTION
    assert sum(verdict.fenced for verdict in found) > 0
    if kind == "s3":
        assert sum(verdict.changed for verdict in found) > PORTION // 2
        assert sum(verdict.met_itself for verdict in found) > PORTION // 2


@pytest.mark.parametrize(
    ("kind", "what", "seeds"),
    [("refreshed", "doubled", 10), ("unconditional", "lost", 4), ("blind", "doubled", 10)],
)
def test_sinks_that_are_known_to_be_wrong_are_convicted(kind, what, seeds):
    found = verdicts(kind, range(seeds))
    assert sum(what in " ".join(verdict.violations) for verdict in found) >= seeds / 2
    assert f'--kind "{kind}" --seed 0' in found[0].report()


def test_a_seed_gives_the_same_world_again():
    first, second = ("\n".join(judge("delta", 3).trace) for _ in range(2))
    assert first == second
    assert first.count("committed") > 50
